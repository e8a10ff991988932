package properties

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// WrongCalls: what a program does wrong is told, and breaks nothing.
var WrongCalls = executor.Relation{
	ID: "wrong-calls",
	Claim: "A double free, the free of a foreign or an inner address, and a record of a dead block each give an error that wraps " +
		"ErrInvalidPointer, and change nothing; the null address is ignored.",
	Source: "specification 5; allocators.Allocator",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		dev, err := c.NewDevice(c.Capacity)
		if err != nil {
			return nil, err
		}
		t := c.Trace.First(relatedOps)
		w := wrongCalls{step: max(len(t.Ops)/16, 1)}
		_, err = executor.Execute(executor.Compile(t), executor.Target{Name: c.Target.Name, New: func(d device.Device) (allocators.Allocator, error) {
			a, err := c.Target.New(d)
			w.alloc = a
			w.snap, _ = a.(allocators.Snapshotter)
			return a, err
		}}, executor.Options{Device: dev, OnRow: func(row *executor.Row) { w.row(t, row) }})
		if err != nil {
			return nil, err
		}
		return w.broken, nil
	},
}

// wrongCalls follows a run and makes wrong calls between its operations.
type wrongCalls struct {
	alloc         allocators.Allocator
	snap          allocators.Snapshotter
	step          int
	before, after allocators.Snapshot
	broken        *executor.Violation
}

// row is called after an operation.
func (w *wrongCalls) row(t *trace.Trace, row *executor.Row) {
	if w.broken != nil || w.snap == nil || row.Op%w.step != 0 && row.Kind != trace.Free {
		return
	}
	if row.Kind == trace.Free && row.Op%3 != 0 {
		return
	}
	w.snap.Snapshot(&w.before)
	var stats allocators.Stats
	if row.Stats != nil {
		stats = *row.Stats
	}
	for i := range w.before.Blocks {
		b := &w.before.Blocks[i]
		switch b.State {
		case allocators.Live:
			if b.Size > 1 {
				w.free(b.Addr+device.Addr(b.Size/2), "an address inside a live block")
			}
		case allocators.Free, allocators.Pending:
			w.free(b.Addr, "a block that was freed already")
			w.record(b.Addr)
		}
		if w.broken != nil || i >= 16 {
			break
		}
	}
	w.free(0xdead<<40|512, "a foreign address")
	w.record(0xdead<<40 | 512)
	if err := w.alloc.Free(0); err != nil && w.broken == nil {
		w.broken = executor.Broken("null", "free of the null address: %v", err)
	}
	if w.broken != nil {
		return
	}
	w.snap.Snapshot(&w.after)
	if !slices.Equal(w.before.Blocks, w.after.Blocks) || !slices.Equal(w.before.Segments, w.after.Segments) {
		w.broken = executor.Broken("changed", "wrong calls after operation %d (%s) changed blocks or segments", row.Op, &t.Ops[row.Op])
	} else if row.Stats != nil && stats != *row.Stats {
		w.broken = executor.Broken("changed", "wrong calls after operation %d (%s) changed the statistics", row.Op, &t.Ops[row.Op])
	}
}

func (w *wrongCalls) free(addr device.Addr, what string) {
	w.expect(w.alloc.Free(addr), fmt.Sprintf("free of %s", what))
}

func (w *wrongCalls) record(addr device.Addr) {
	if r, ok := w.alloc.(allocators.StreamRecorder); ok {
		w.expect(r.Record(addr, 1), "record of a block that is not live")
	}
}

func (w *wrongCalls) expect(err error, what string) {
	switch {
	case w.broken != nil:
	case err == nil:
		w.broken = executor.Broken("accepted", "%s gave no error", what)
	case !errors.Is(err, allocators.ErrInvalidPointer):
		w.broken = executor.Broken("error", "%s gave an error that does not wrap ErrInvalidPointer: %v", what, err)
	}
}
