package executor

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// step is an operation with its id resolved to a dense slot.
type step struct {
	kind   trace.Kind
	slot   int32
	stream device.Stream
	bytes  uint64
}

// Program is a trace made ready to run, many times if need be.
type Program struct {
	Trace *trace.Trace
	steps []step
	slots int
}

// Compile resolves the ids of a legal trace.
func Compile(t *trace.Trace) *Program {
	p := &Program{Trace: t, steps: make([]step, len(t.Ops))}
	slots := make(map[uint64]int32)
	streams := make(map[uint64]device.Stream) // of segments to start from
	for i := range t.Ops {
		op := &t.Ops[i]
		s := step{kind: op.Kind, slot: -1, stream: op.Stream, bytes: op.Bytes}
		switch op.Kind {
		case trace.Segment:
			streams[op.ID] = op.Stream
		case trace.Block:
			s.bytes, s.stream = op.Requested, streams[op.Base]
			fallthrough
		case trace.Alloc, trace.Free, trace.Record, trace.Use:
			n, ok := slots[op.ID]
			if !ok {
				n = int32(len(slots))
				slots[op.ID] = n
			}
			s.slot = n
		}
		p.steps[i] = s
	}
	p.slots = len(slots)
	return p
}

// Len is the number of operations.
func (p *Program) Len() int { return len(p.steps) }
