// Package ondevice runs a trace on a device with real memory and on the simulated one and says whether the allocator decided
// alike: the same outcomes, and blocks at the same places of the same segments.
//
// In go a trace, a target and two devices; out comes a Pair. Decisions can differ where allocators break ties by address,
// since real devices give addresses in an order of their own.
package ondevice

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Check is how traces are run.
type Check struct {
	// Properties are checked on the real device, with a judge if NewJudge makes one; Verify says how much of the bytes.
	Properties []executor.Property
	NewJudge   func() executor.Judge
	Verify     executor.Verify
}

// Pair is a trace on both devices.
type Pair struct {
	Trace, Target string
	Capacity      uint64 // bytes
	// Real is the result on the real device, Simulated on the simulated one.
	Real, Simulated *executor.Result
	// SameOutcomes: every operation had the same outcome, so refusals came at the same points. SameDecisions: blocks lay at the
	// same places, too.
	SameOutcomes, SameDecisions bool
	// FirstDifference is the first operation that was decided otherwise, -1 if none.
	FirstDifference int
}

// decision is what one operation came to.
type decision struct {
	outcome executor.Outcome
	segment int
	offset  uint64
	size    uint64
}

// Run runs a trace on both devices, each empty and not used before. An error is a fault of the harness or a device.
func (c *Check) Run(p *executor.Program, t executor.Target, realDevice, simulated device.Device) (*Pair, error) {
	_, capacity := realDevice.Info()
	pair := &Pair{Trace: p.Trace.Name, Target: t.Name, Capacity: capacity, FirstDifference: -1, SameOutcomes: true, SameDecisions: true}
	var err error
	opts := executor.Options{Properties: c.Properties, Verify: c.Verify}
	if c.NewJudge != nil {
		opts.Judge = c.NewJudge()
	}
	var onReal, onSim []decision
	if pair.Real, err = run(p, t, realDevice, opts, &onReal); err != nil {
		return nil, fmt.Errorf("on the real device: %w", err)
	}
	if pair.Simulated, err = run(p, t, simulated, executor.Options{}, &onSim); err != nil {
		return nil, fmt.Errorf("on the simulated device: %w", err)
	}
	// A finding ends the real run early; what was not executed is not compared.
	for i := range min(len(onReal), len(onSim)) {
		if onReal[i] != onSim[i] {
			if pair.SameDecisions {
				pair.FirstDifference = i
			}
			pair.SameDecisions = false
			pair.SameOutcomes = pair.SameOutcomes && onReal[i].outcome == onSim[i].outcome
		}
	}
	return pair, nil
}

func run(p *executor.Program, t executor.Target, d device.Device, o executor.Options, into *[]decision) (*executor.Result, error) {
	o.Device = d
	o.OnRow = func(w *executor.Row) {
		v := decision{outcome: w.Outcome}
		if w.HasBlock {
			v.segment, v.offset, v.size = w.Segment, w.Offset, w.BlockSize
		}
		*into = append(*into, v)
	}
	return executor.Execute(p, t, o)
}

// Scaled returns the trace for a device of another capacity: sizes and capacity in proportion, sizes of at least 2 MiB rounded
// down to 2 MiB and smaller ones left, so that they stay in their pool. It is another trace; nothing promises the same refusals.
func Scaled(t *trace.Trace, from, to uint64) *trace.Trace {
	const granule = 2 << 20
	out := &trace.Trace{Name: fmt.Sprintf("%s scaled from %d to %d bytes", t.Name, from, to), Ops: append([]trace.Op(nil), t.Ops...)}
	for i := range out.Ops {
		o := &out.Ops[i]
		if o.Kind == trace.Alloc && o.Bytes >= granule || o.Kind == trace.Foreign {
			o.Bytes = max(uint64(float64(o.Bytes)*(float64(to)/float64(from)))/granule*granule, granule)
		}
	}
	return out
}

// NeedsHold tells whether a trace keeps work outstanding, which needs streams that can be held.
func NeedsHold(t *trace.Trace) bool {
	for i := range t.Ops {
		if k := t.Ops[i].Kind; k == trace.Record || k == trace.Use {
			return true
		}
	}
	return false
}
