package whatif

import (
	"context"
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
)

// Need is how much memory a trace takes on an allocator.
type Need struct {
	// Safe is C_safe in bytes, the capacity from which on the trace passes. If Exact is false every capacity that was tried from
	// there on passes, but not all were.
	Safe  uint64 `json:"c_safe"`
	Exact bool   `json:"exact"`
	Runs  int    `json:"runs"`
}

// granule is what capacities are a multiple of: 2 MiB.
const granule = 2 << 20

// needRuns bounds the runs that make sure of a capacity once it is found, SureOps their operations together unless a caller bounds them.
const (
	needRuns = 400
	SureOps  = 6_000_000
)

// FindNeed finds C_safe: the smallest capacity that passes as if that were monotone, by halving between the live bytes and what is
// reserved on a device without bounds, then the failing capacities above it, one after the other, within so many operations.
func FindNeed(ctx context.Context, p *executor.Program, t executor.Target, newDevice measure.NewDevice, sure int) (Need, error) {
	n := Need{}
	free, err := runAt(p, t, newDevice, measure.Unbounded)
	if err != nil {
		return n, err
	}
	n.Runs++
	if !free.Passes {
		return n, fmt.Errorf("%s on %s is refused at every capacity", p.Trace.Name, t.Name)
	}
	// With as much as it ever reserves nothing is refused, so every larger device is the same to it.
	top := max(up(free.PeakReserved), granule)
	live, _ := measure.PeakLive(p.Trace)
	low, high := max(up(live), granule)-granule, top // low fails, high passes
	for high-low > granule {
		if err := ctx.Err(); err != nil {
			n.Safe = high
			return n, nil
		}
		mid := low + (high-low)/2/granule*granule
		r, err := runAt(p, t, newDevice, mid)
		if err != nil {
			return n, err
		}
		n.Runs++
		if r.Passes {
			high = mid
		} else {
			low = mid
		}
	}
	n.Safe = high
	for at, tries := high, 0; ; tries++ {
		if ctx.Err() != nil || tries >= needRuns || tries*p.Len() >= sure {
			return n, nil
		}
		r, err := runAt(p, t, newDevice, at)
		if err != nil {
			return n, err
		}
		n.Runs++
		if !r.Passes {
			n.Safe = max(n.Safe, up(r.Next))
		}
		if r.Next >= top {
			n.Exact = r.Exact
			return n, nil
		}
		at = up(max(r.Next, at+1))
	}
}

func up(n uint64) uint64 { return (n + granule - 1) / granule * granule }

// Run is what one replay came to.
type Run struct {
	Passes bool
	// FirstOOM is the first operation that was refused, -1 if none was; OOMs how many were.
	FirstOOM int
	OOMs     int
	Result   *executor.Result
	// PeakReserved in bytes.
	PeakReserved uint64
	// Next is the capacity from which on the run would have gone otherwise, Exact that it is known.
	Next  uint64
	Exact bool
}

// runAt replays up to the first refusal.
func runAt(p *executor.Program, t executor.Target, newDevice measure.NewDevice, capacity uint64) (*Run, error) {
	return replay(p, t, newDevice, capacity, true)
}

func replay(p *executor.Program, t executor.Target, newDevice measure.NewDevice, capacity uint64, stop bool) (*Run, error) {
	dev, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return nil, err
	}
	for r.More() && !(stop && len(r.Result().OOMs) > 0) {
		if err := r.Step(); err != nil {
			return nil, err
		}
	}
	out := &Run{FirstOOM: -1, OOMs: len(r.Result().OOMs), PeakReserved: r.Result().PeakReserved}
	out.Next, out.Exact = r.NextCapacity()
	if out.Passes = out.OOMs == 0; !out.Passes {
		out.FirstOOM = r.Result().OOMs[0]
	}
	if out.Result, err = r.Finish(); err != nil {
		return nil, err
	}
	return out, nil
}
