package executor

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// starting is the state that a trace begins from (operations segment and block).
type starting struct {
	restorer allocators.Restorer
	at       map[uint64]device.Addr // of segments, by sid; one that was left out or refused is missing
	needed   uint64                 // bytes of the segments with blocks that are still to come
	idle     map[uint64]bool        // segments without blocks
}

// prepareStart looks for a state to start from.
func (r *Run) prepareStart() error {
	ops := r.prog.Trace.Ops
	if len(ops) == 0 || !ops[0].Kind.Starts() {
		return nil
	}
	restorer, ok := r.alloc.(allocators.Restorer)
	if !ok {
		return fmt.Errorf("%s cannot start from a state, and %s begins with one (operations segment and block): take classic or expandable",
			r.target.Name, r.prog.Trace.Name)
	}
	s := &starting{restorer: restorer, at: map[uint64]device.Addr{}, idle: map[uint64]bool{}}
	bytes := map[uint64]uint64{}
	for i := range ops {
		op := &ops[i]
		if !op.Kind.Starts() {
			break
		}
		if op.Kind == trace.Block {
			delete(s.idle, op.Base)
			continue
		}
		bytes[op.ID] = op.Bytes
		s.idle[op.ID] = true
		if op.GoesOn {
			delete(s.idle, op.Base)
		}
	}
	for sid, n := range bytes {
		if !s.idle[sid] {
			s.needed += n
		}
	}
	r.starting = s
	return nil
}

// performStart restores a segment or a block.
func (r *Run) performStart(st *step) error {
	s := r.starting
	op := &r.prog.Trace.Ops[r.next]
	if op.Kind == trace.Segment {
		g := allocators.StartSegment{
			Size: op.Bytes, Stream: op.Stream, Small: op.Small, Expandable: op.Expandable, Pool: op.Pool, Offset: op.Offset, Idle: s.idle[op.ID],
		}
		if !g.Idle {
			s.needed -= op.Bytes
		}
		g.Needed = s.needed
		if op.GoesOn {
			base, ok := s.at[op.Base]
			if !ok {
				r.outcome = Skip
				return nil
			}
			g.Range = base
		}
		if op.Pool != 0 { // which is in use, whether the segment finds room or not
			r.pools.uses[op.Pool] = max(r.pools.uses[op.Pool], 1)
		}
		addr, err := s.restorer.RestoreSegment(g)
		if err != nil {
			return r.refused(err)
		}
		if addr == 0 {
			r.outcome = Skip
			return nil
		}
		s.at[op.ID] = addr
		return nil
	}
	sl := &r.slots[st.slot]
	base, ok := s.at[op.Base]
	if !ok {
		sl.status = slotRefused
		r.outcome = Skip
		return nil
	}
	b, err := s.restorer.RestoreBlock(base+device.Addr(op.Offset), op.Bytes, op.Requested)
	if err != nil {
		return err
	}
	*sl = slot{block: b, status: slotLive}
	r.block = b
	return nil
}
