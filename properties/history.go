package properties

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// event is what an operation came to, as far as two runs must agree.
type event struct {
	kind         trace.Kind
	outcome      executor.Outcome
	segment      int // by creation, from 1; 0 if the operation concerns no block
	offset, size uint64
	reserved     uint64
	allocated    uint64
	bought       bool   // the operation made device calls that move memory
	live         uint64 // blocks
}

// place says where the event's block lies.
func (e *event) String() string {
	s := fmt.Sprintf("%s %s", e.kind, e.outcome)
	if e.segment > 0 {
		s += fmt.Sprintf(", block of %d bytes at offset %d of segment %d", e.size, e.offset, e.segment)
	}
	return s
}

// matcher compares events of two runs. The numbers of segments may differ between runs that are the same otherwise, so it keeps
// which segment of the one is which of the other.
type matcher struct {
	there map[int]int
	taken map[int]bool // of the other run
}

func newMatcher() *matcher { return &matcher{map[int]int{}, map[int]bool{}} }

// same tells whether two events are one decision: the same outcome and block.
func (m *matcher) same(e, f *event) bool {
	if e.kind != f.kind || e.outcome != f.outcome || e.offset != f.offset || e.size != f.size || (e.segment == 0) != (f.segment == 0) {
		return false
	}
	if e.segment == 0 {
		return true
	}
	known := m.there[e.segment]
	if known == 0 && !m.taken[f.segment] {
		m.there[e.segment], m.taken[f.segment] = f.segment, true
		return true
	}
	return known == f.segment
}

// historyOf runs a trace and returns an event an operation, nil if the run cannot be compared: a property or a fault ended it.
func historyOf(c *executor.Case, t *trace.Trace, target executor.Target, capacity uint64) ([]event, error) {
	dev, err := c.NewDevice(capacity)
	if err != nil {
		return nil, err
	}
	h := make([]event, 0, len(t.Ops))
	_, err = executor.Execute(executor.Compile(t), target, executor.Options{Device: dev, OnRow: func(w *executor.Row) {
		e := event{kind: w.Kind, outcome: w.Outcome, bought: w.MovesMemory()}
		if w.HasBlock {
			e.segment, e.offset, e.size = w.Segment+1, w.Offset, w.BlockSize
		}
		if s := w.Stats; s != nil {
			e.reserved, e.allocated = s.ReservedBytes.All.Current, s.AllocatedBytes.All.Current
			e.live = s.Allocation.All.Current
		}
		h = append(h, e)
	}})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// with is the trace with other operations.
func with(t *trace.Trace, ops []trace.Op) *trace.Trace {
	return &trace.Trace{Name: t.Name, Header: t.Header, Ops: ops}
}

// changesSettings tells whether a trace changes the settings, the limit or what others hold.
func changesSettings(t *trace.Trace) bool {
	for i := range t.Ops {
		switch t.Ops[i].Kind {
		case trace.Conf, trace.Fraction, trace.Foreign:
			return true
		}
	}
	return false
}

// usesPools tells whether a trace opens private pools.
func usesPools(t *trace.Trace) bool {
	for i := range t.Ops {
		if t.Ops[i].Pool != 0 {
			return true
		}
	}
	return false
}

// begun tells whether a trace begins with a state (operations segment and block).
func begun(t *trace.Trace) bool { return len(t.Ops) > 0 && t.Ops[0].Kind.Starts() }

// promised tells whether the allocator declares a promise, and what.
func promiseOf(c *executor.Case) (allocators.Promise, error) {
	dev, err := c.NewDevice(c.Capacity)
	if err != nil {
		return allocators.Promise{}, err
	}
	a, err := c.Target.New(dev)
	if err != nil {
		return allocators.Promise{}, fmt.Errorf("%s cannot start: %w", c.Target.Name, err)
	}
	if p, ok := a.(allocators.Promiser); ok {
		return p.Promise(), nil
	}
	return allocators.Promise{}, nil
}

// relatedOps bounds the operations of a trace that relations look at: they make many runs, and what they look for shows early.
const relatedOps = 600
