package measure

import (
	"context"
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// NewDevice makes an empty device of a capacity in bytes.
type NewDevice func(capacity uint64) (device.Device, error)

// Infinite is the end of an interval without end.
const Infinite = math.MaxUint64

// Interval is a range of capacities in bytes, From included, To excluded; To may be Infinite.
type Interval struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// Spectrum is the exact set of capacities at which a trace passes without a refusal.
type Spectrum struct {
	// PeakLive is L*: the largest sum of requested bytes that are live at once; no capacity below it passes.
	PeakLive uint64 `json:"peak_live"`
	// Passes are the intervals that pass, ascending; the last has no end.
	Passes []Interval `json:"passes"`
	// Runs is how many runs it took.
	Runs int `json:"runs"`
}

// Min is C_min, the smallest capacity that passes.
func (s *Spectrum) Min() uint64 { return s.Passes[0].From }

// Safe is C_safe: every capacity from there on passes.
func (s *Spectrum) Safe() uint64 { return s.Passes[len(s.Passes)-1].From }

// Gaps are the intervals above Min that do not pass.
func (s *Spectrum) Gaps() []Interval {
	var gaps []Interval
	for i := 1; i < len(s.Passes); i++ {
		gaps = append(gaps, Interval{s.Passes[i-1].To, s.Passes[i].From})
	}
	return gaps
}

// PassesAt says whether the trace passes at a capacity.
func (s *Spectrum) PassesAt(capacity uint64) bool {
	for _, p := range s.Passes {
		if p.From <= capacity && capacity < p.To {
			return true
		}
	}
	return false
}

// Kappa is C_safe / L*; 1 for a trace that allocates nothing.
func (s *Spectrum) Kappa() float64 {
	if s.PeakLive == 0 {
		return 1
	}
	return float64(s.Safe()) / float64(s.PeakLive)
}

// Lost is C_safe - L*, in bytes.
func (s *Spectrum) Lost() uint64 { return s.Safe() - min(s.Safe(), s.PeakLive) }

// PeakLive returns the largest sum of requested bytes that are live at once, and the first operation at which it is reached
// (-1 if nothing is allocated).
func PeakLive(t *trace.Trace) (bytes uint64, op int) {
	sizes := map[uint64]uint64{}
	var live uint64
	op = -1
	for i := range t.Ops {
		o := &t.Ops[i]
		switch o.Kind {
		case trace.Alloc:
			sizes[o.ID] = o.Bytes
			live += o.Bytes
			if live > bytes {
				bytes, op = live, i
			}
		case trace.Block:
			sizes[o.ID] = o.Requested
			if live += o.Requested; live > bytes {
				bytes, op = live, i
			}
		case trace.Free:
			live -= sizes[o.ID]
			delete(sizes, o.ID)
		}
	}
	return bytes, op
}

// smallestDevice is where a spectrum starts at the earliest: one granule of 2 MiB.
const smallestDevice = 2 << 20

// Capacities finds the spectrum. It needs an allocator or a device that tells the next capacity (allocators.CapacitySensor).
func Capacities(ctx context.Context, p *executor.Program, t executor.Target, newDevice NewDevice) (*Spectrum, error) {
	s := &Spectrum{}
	s.PeakLive, _ = PeakLive(p.Trace)
	capacity := max((s.PeakLive+smallestDevice-1)/smallestDevice*smallestDevice, smallestDevice)
	for {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("capacities of %s on %s, stopped after %d runs: %w", p.Trace.Name, t.Name, s.Runs, err)
		}
		passes, next, err := passesAt(p, t, newDevice, capacity)
		if err != nil {
			return nil, err
		}
		s.Runs++
		if passes {
			if n := len(s.Passes); n > 0 && s.Passes[n-1].To == capacity {
				s.Passes[n-1].To = next
			} else {
				s.Passes = append(s.Passes, Interval{capacity, next})
			}
		}
		if next == Infinite {
			break
		}
		if next <= capacity {
			return nil, fmt.Errorf("%w: %s on %s: the next capacity after %d is %d", executor.ErrHarness, p.Trace.Name, t.Name, capacity, next)
		}
		capacity = next
	}
	if len(s.Passes) == 0 {
		return nil, fmt.Errorf("%s on %s is refused at every capacity", p.Trace.Name, t.Name)
	}
	return s, nil
}

// passesAt runs up to the first refusal.
func passesAt(p *executor.Program, t executor.Target, newDevice NewDevice, capacity uint64) (passes bool, next uint64, err error) {
	dev, err := newDevice(capacity)
	if err != nil {
		return false, 0, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return false, 0, err
	}
	defer r.Leave()
	for r.More() && len(r.Result().OOMs) == 0 {
		if err := r.Step(); err != nil {
			return false, 0, err
		}
	}
	next, exact := r.NextCapacity()
	if !exact {
		return false, 0, fmt.Errorf("%s does not tell at which capacity it would decide otherwise, so its capacities cannot be found exactly", t.Name)
	}
	return len(r.Result().OOMs) == 0, next, nil
}
