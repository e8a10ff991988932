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
			_, w.elsewhere = a.(allocators.DeviceFollower)
			return a, err
		}}, executor.Options{Device: dev, OnRow: func(row *executor.Row) { w.row(t, row) }})
		if err != nil {
			return nil, err
		}
		return w.broken, nil
	},
}

// wrongCalls follows a run and makes wrong calls between its operations: about the blocks of a snapshot, or, where the allocator lists
// none, about those that the program holds and the last that it freed.
type wrongCalls struct {
	alloc         allocators.Allocator
	snap          allocators.Snapshotter
	elsewhere     bool // in a process of its own: a C library's free returns nothing, and may crash
	step          int
	live          []allocators.Block // unless there is a snapshot
	dead          []device.Addr      // the last that were freed
	before, after allocators.Snapshot
	broken        *executor.Violation
}

const (
	// wrongAt is about how many blocks of a kind wrong calls are made at a time.
	wrongAt = 16
	// foreignAddress is one that no device gives.
	foreignAddress device.Addr = 0xde_ad00_0000_0200
)

// row is called after an operation.
func (w *wrongCalls) row(t *trace.Trace, row *executor.Row) {
	if w.broken != nil || w.snap == nil && w.elsewhere {
		return
	}
	if w.snap == nil {
		w.follow(row)
	}
	if row.Op%w.step != 0 && row.Kind != trace.Free || row.Kind == trace.Free && row.Op%3 != 0 {
		return
	}
	var stats allocators.Stats
	if row.Stats != nil {
		stats = *row.Stats
	}
	if w.snap != nil {
		w.snap.Snapshot(&w.before)
		w.aboutListed()
	} else {
		w.aboutFollowed()
	}
	w.free(foreignAddress, "a foreign address")
	w.record(foreignAddress)
	if w.broken == nil {
		if err := w.try(func() error { return w.alloc.Free(0) }); err != nil {
			w.broken = executor.Broken("null", "free of the null address: %v", err)
		}
	}
	if w.broken != nil {
		return
	}
	if w.snap != nil {
		w.snap.Snapshot(&w.after)
		if !slices.Equal(w.before.Blocks, w.after.Blocks) || !slices.Equal(w.before.Segments, w.after.Segments) {
			w.broken = executor.Broken("changed", "wrong calls after operation %d (%s) changed blocks or segments", row.Op, &t.Ops[row.Op])
			return
		}
	}
	if row.Stats != nil && stats != *row.Stats {
		w.broken = executor.Broken("changed", "wrong calls after operation %d (%s) changed the statistics", row.Op, &t.Ops[row.Op])
	}
}

// follow keeps the blocks that the program holds.
func (w *wrongCalls) follow(row *executor.Row) {
	b := row.Block()
	if b.Addr == 0 {
		return
	}
	same := func(l allocators.Block) bool { return l.Addr == b.Addr }
	switch row.Kind {
	case trace.Alloc:
		w.live = append(w.live, b)
		w.dead = slices.DeleteFunc(w.dead, func(a device.Addr) bool { return a == b.Addr })
	case trace.Free:
		w.live = slices.DeleteFunc(w.live, same)
		if len(w.dead) == wrongAt {
			w.dead = w.dead[1:]
		}
		w.dead = append(w.dead, b.Addr)
	}
}

func (w *wrongCalls) aboutFollowed() {
	for _, a := range w.dead {
		w.free(a, "a block that was freed already")
		w.record(a)
	}
	for i := max(len(w.live)-wrongAt, 0); i < len(w.live); i++ {
		if b := &w.live[i]; b.Size > 1 {
			w.free(b.Addr+device.Addr(b.Size/2), "an address inside a live block")
		}
	}
}

func (w *wrongCalls) aboutListed() {
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
		if i+1 == wrongAt {
			break
		}
	}
}

func (w *wrongCalls) free(addr device.Addr, what string) {
	w.expect(func() error { return w.alloc.Free(addr) }, fmt.Sprintf("free of %s", what))
}

func (w *wrongCalls) record(addr device.Addr) {
	if r, ok := w.alloc.(allocators.StreamRecorder); ok {
		w.expect(func() error { return r.Record(addr, 1) }, "record of a block that is not live")
	}
}

func (w *wrongCalls) expect(call func() error, what string) {
	if w.broken != nil {
		return
	}
	switch err := w.try(call); {
	case w.broken != nil:
		w.broken.Detail = what + ": " + w.broken.Detail
	case err == nil:
		w.broken = executor.Broken("accepted", "%s gave no error", what)
	case !errors.Is(err, allocators.ErrInvalidPointer):
		w.broken = executor.Broken("error", "%s gave an error that does not wrap ErrInvalidPointer: %v", what, err)
	}
}

// try makes a call that may panic.
func (w *wrongCalls) try(call func() error) error {
	defer func() {
		if p := recover(); p != nil {
			w.broken = executor.Broken("panic", "the allocator panicked: %v", p)
		}
	}()
	return call()
}
