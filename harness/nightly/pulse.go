package nightly

import (
	"fmt"
	"sync/atomic"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Pulse is where a worker is, told from one goroutine and read by another.
type Pulse struct {
	moves atomic.Uint64
	op    atomic.Int64
	place atomic.Pointer[place]
	// before is called with each trace that is begun; for the spool.
	before func(t *trace.Trace, target string, capacity uint64)
	// tell, if not nil, says each change at once: a worker that dies leaves no time for the next beat.
	tell func(Beat)
}

// place is what is being executed.
type place struct {
	trace    *trace.Trace // nil in a stage without operations
	stage    string
	target   string
	capacity uint64
}

// Begin says that a trace is about to run, on a target if that is known. capacity is the device's in bytes, 0 if the trace's own.
func (p *Pulse) Begin(t *trace.Trace, target string, capacity uint64) {
	p.op.Store(0)
	p.place.Store(&place{trace: t, target: target, capacity: capacity})
	if p.before != nil {
		p.before(t, target, capacity)
	}
	p.Move()
}

// Stage says that something without operations is going on.
func (p *Pulse) Stage(format string, args ...any) {
	p.op.Store(-1)
	p.place.Store(&place{stage: fmt.Sprintf(format, args...)})
	p.Move()
}

// Move says that something goes on.
func (p *Pulse) Move() {
	p.moves.Add(1)
	if p.tell != nil {
		p.tell(p.beat())
	}
}

// Property counts the operations of a run. It is put beside the properties that are checked, and never fails.
func (p *Pulse) Property() executor.Property {
	return executor.Property{ID: "pulse", Op: func(s *executor.State) *executor.Violation {
		p.op.Store(int64(s.Op) + 1)
		p.Move()
		return nil
	}}
}

// beat is the present state.
func (p *Pulse) beat() Beat {
	b := Beat{Moves: p.moves.Load(), Op: -1, Doing: "nothing"}
	at := p.place.Load()
	if at == nil {
		return b
	}
	if at.trace == nil {
		b.Doing = at.stage
		return b
	}
	b.Trace, b.Target, b.Capacity = at.trace.Name, at.target, at.capacity
	if b.Doing = at.trace.Name; at.target != "" {
		b.Doing += " on " + at.target
	}
	if n := int(p.op.Load()); n >= 0 && n < len(at.trace.Ops) {
		b.Op, b.Operation = n, at.trace.Ops[n].String()
	} else {
		b.Doing += ", behind its last operation"
	}
	return b
}
