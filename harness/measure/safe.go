package measure

import (
	"context"
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
)

// SafeCapacity is C_safe of a trace on a target, found within a number of runs.
type SafeCapacity struct {
	// Bytes is C_safe, to 2 MiB, if Exact; else C_safe is at least this, and at most Enough.
	Bytes uint64
	Exact bool
	// Enough is what the allocator takes if it is refused nothing: from there on every capacity passes.
	Enough uint64
	// Runs is how many runs it took.
	Runs int
}

// Safe looks for C_safe without the whole spectrum. First it halves the range between L* and what the allocator takes if it is
// refused nothing, in steps of 2 MiB: the capacity found passes, the one below does not. Since more memory can hurt, it then
// goes up from there as Capacities does, for at most budget runs: a larger capacity that does not pass takes its place, and if
// the end is reached the answer is exact.
func Safe(ctx context.Context, p *executor.Program, t executor.Target, newDevice NewDevice, budget int) (SafeCapacity, error) {
	var s SafeCapacity
	at := func(capacity uint64) (passes bool, next uint64, err error) {
		if err := ctx.Err(); err != nil {
			return false, 0, fmt.Errorf("capacity of %s on %s, stopped after %d runs: %w", p.Trace.Name, t.Name, s.Runs, err)
		}
		s.Runs++
		return passesAt(p, t, newDevice, capacity)
	}
	live, _ := PeakLive(p.Trace)
	low := max(granules(live), smallestDevice) // below it nothing passes
	taken, err := taken(p, t, newDevice)
	if err != nil {
		return s, err
	}
	s.Runs++
	high := max(granules(taken), low)
	passes, next, err := at(high)
	for err == nil && !passes { // a limit that is a share of the device needs a larger one
		if high >= Unbounded {
			return s, fmt.Errorf("%s on %s is refused at every capacity", p.Trace.Name, t.Name)
		}
		low = high + smallestDevice
		high = granules(high + high/8)
		passes, next, err = at(high)
	}
	if err != nil {
		return s, err
	}
	s.Enough = high
	for low < high {
		middle := (low + (high-low)/2) / smallestDevice * smallestDevice
		ok, n, err := at(middle)
		if err != nil {
			return s, err
		}
		if ok {
			high, next = middle, n
		} else {
			low = middle + smallestDevice
		}
	}
	s.Bytes = high
	for ; next != Infinite && budget > 0; budget-- {
		ok, n, err := at(next)
		if err != nil {
			return s, err
		}
		if next = n; !ok {
			s.Bytes = n // at least: n is tried next
		}
	}
	s.Exact = next == Infinite
	return s, nil
}

// granules rounds up to 2 MiB.
func granules(n uint64) uint64 { return (n + smallestDevice - 1) / smallestDevice * smallestDevice }

// taken is the most that an allocator holds at once where it is refused nothing.
func taken(p *executor.Program, t executor.Target, newDevice NewDevice) (uint64, error) {
	dev, err := newDevice(Unbounded)
	if err != nil {
		return 0, err
	}
	res, err := executor.Execute(p, t, executor.Options{Device: dev})
	if err != nil {
		return 0, err
	}
	if !res.HasStats {
		return Unbounded, nil
	}
	return res.PeakReserved, nil
}
