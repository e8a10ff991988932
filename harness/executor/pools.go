package executor

import (
	"errors"
	"maps"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// pools follows the private pools of a run, from the operations alone.
type pools struct {
	can  allocators.PrivatePooler // nil: the allocator has none, and all requests go to the default pool
	open []allocators.Redirection
	uses map[allocators.PoolID]int // begins less releases, of every pool there was
	gone map[allocators.PoolID]bool
	// flushes is the allocator's count of releases before the operation: one forgets pools without a segment.
	flushes uint64
}

// performPool makes an operation on a private pool.
func (r *Run) performPool(s *step) error {
	p := &r.pools
	op := &r.prog.Trace.Ops[r.next]
	if p.can == nil {
		r.outcome = Unsupported
		return nil
	}
	var err error
	switch s.kind {
	case trace.PoolBegin:
		d := allocators.Redirection{Pool: op.Pool, Stream: op.Stream, Capture: op.Capture}
		if err = p.can.BeginPool(d); err == nil {
			p.open = append(p.open, d)
			p.uses[op.Pool]++
		}
	case trace.PoolEnd:
		if err = p.can.EndPool(op.Pool); err == nil {
			p.close(op.Pool)
		}
	case trace.PoolRelease:
		if err = p.can.ReleasePool(op.Pool); err == nil {
			p.uses[op.Pool]--
		}
	case trace.EmptyCache:
		err = p.can.EmptyPool(op.Pool)
	}
	return r.unsupported(err)
}

func (p *pools) close(id allocators.PoolID) {
	for i := range p.open {
		if p.open[i].Pool == id {
			p.open = append(p.open[:i], p.open[i+1:]...)
			return
		}
	}
}

// unsupported makes an outcome of what the allocator cannot do now.
func (r *Run) unsupported(err error) error {
	if errors.Is(err, allocators.ErrUnsupported) {
		r.outcome = Unsupported
		return nil
	}
	return err
}

// readPools brings the shadow and the state up to date with the open pools and the rules in force.
func (r *Run) readPools() {
	rules := &r.state.Promise.Pools
	r.state.Open, r.state.PoolUses = r.pools.open, r.pools.uses
	r.state.Held, r.heap.Capturing = false, false
	for i := range r.pools.open {
		d := &r.pools.open[i]
		r.state.Held = r.state.Held || rules.Holds(d)
		r.heap.Capturing = r.heap.Capturing || d.Capture
	}
	r.heap.Held = r.state.Held
}

// poolOf returns the pool that a request goes to.
func (r *Run) poolOf(s device.Stream) allocators.PoolID {
	if len(r.pools.open) == 0 {
		return 0
	}
	return r.state.Promise.Pools.PoolOf(r.pools.open, s)
}

// resume has the shadow take up frees that were held back, before an operation in which the allocator does.
func (r *Run) resume(s *step) {
	if r.state.Held {
		return
	}
	pool := r.prog.Trace.Ops[r.next].Pool
	switch {
	case s.kind == trace.Alloc && s.bytes > 0, s.kind == trace.EmptyCache && pool == 0:
	case s.kind == trace.EmptyCache && r.pools.uses[pool] == 0 && !r.pools.gone[pool]:
	default:
		return
	}
	r.heap.Resume()
}

// afterPools notes what an operation did to pools.
func (r *Run) afterPools(s *step) {
	st := &r.state
	if s.kind.OnPool() {
		r.readPools()
		return
	}
	if len(r.pools.uses) == 0 {
		return
	}
	for i := range st.Calls {
		c := &st.Calls[i]
		var g *Region
		switch c.Kind {
		case device.CallUnmap:
			g = r.ledger.find(c.Addr)
		case device.CallFree:
			g = r.ledger.droppedAt(c.Addr)
		}
		if g != nil && g.Pool != 0 && g.Pool != st.Pool && r.pools.uses[g.Pool] > 0 && st.Robbed == nil {
			st.Robbed = g
		}
	}
	if r.stats == nil || r.stats.NumSyncAllStreams == r.pools.flushes {
		return
	}
	r.pools.flushes = r.stats.NumSyncAllStreams
	for id, uses := range r.pools.uses {
		if uses == 0 && !r.pools.gone[id] {
			r.pools.gone[id] = !r.ledger.has(id)
		}
	}
}

// closePools ends and releases what pools there are, so that everything can be returned.
func (r *Run) closePools() error {
	p := &r.pools
	if p.can == nil {
		return nil
	}
	for len(p.open) > 0 {
		id := p.open[0].Pool
		if err := p.can.EndPool(id); err != nil {
			return err
		}
		p.close(id)
	}
	for _, id := range slices.Sorted(maps.Keys(p.uses)) {
		for uses := p.uses[id]; uses > 0; uses-- {
			if err := p.can.ReleasePool(id); err != nil {
				return err
			}
		}
		p.uses[id] = 0
	}
	if r.checked {
		r.readPools()
	}
	return nil
}

// watchWork looks for memory that was taken away under queued work. What the device frees as a whole it waits for
// (cudaFree does so implicitly); a mapping goes at once.
func (r *Run) watchWork() {
	for i := range r.state.Calls {
		c := &r.state.Calls[i]
		switch c.Kind {
		case device.CallUnmap:
			if z := r.heap.Disturbed(c.Addr, c.Size, -1); z != nil && r.state.Unmapped == nil {
				r.state.Unmapped = z
			}
		case device.CallFree:
			if g := r.ledger.droppedAt(c.Addr); g != nil {
				r.heap.Forget(g.Addr, g.Size)
			}
		}
	}
}
