package caching

import (
	"github.com/shatter-gpu/shatter/allocators"
)

func (b *block) state() allocators.State {
	switch {
	case b.allocated:
		return allocators.Live
	case !b.mapped:
		return allocators.Unmapped
	case b.events > 0 || len(b.uses) > 0:
		return allocators.Pending
	default:
		return allocators.Free
	}
}

func (b *block) info(i *allocators.BlockInfo) {
	*i = allocators.BlockInfo{
		Addr: b.addr, Size: b.size, Requested: b.requested, State: b.state(), InPool: b.inSet,
		Small: b.seg.pool.small, Expandable: b.expandable(), Stream: b.seg.stream.stream,
	}
}

// Snapshot lists all segments by address, with their blocks.
func (a *Allocator) Snapshot(into *allocators.Snapshot) {
	into.Segments, into.Blocks = into.Segments[:0], into.Blocks[:0]
	for _, g := range a.segments {
		s := allocators.SegmentInfo{
			Addr: g.addr, Size: g.size, Small: g.pool.small, Expandable: g.page != 0, PageSize: g.page,
			Stream: g.stream.stream, First: len(into.Blocks),
		}
		if g.pool.private != nil {
			s.Pool = g.pool.private.id
		}
		for b := g.first; b != nil; b = b.next {
			into.Blocks = append(into.Blocks, allocators.BlockInfo{})
			b.info(&into.Blocks[len(into.Blocks)-1])
		}
		s.Count = len(into.Blocks) - s.First
		into.Segments = append(into.Segments, s)
	}
}

// Touched tells which blocks the last call changed.
func (a *Allocator) Touched(into []allocators.Neighbourhood) []allocators.Neighbourhood {
	for i, b := range a.touched {
		if b.seg == nil || i > 0 && b == a.touched[i-1] {
			continue // absorbed or returned later in the same call
		}
		into = append(into, allocators.Neighbourhood{})
		n := &into[len(into)-1]
		n.Base, n.Size = b.seg.addr, b.seg.size
		b.info(&n.Block)
		if n.HasPrev = b.prev != nil; n.HasPrev {
			b.prev.info(&n.Prev)
		}
		if n.HasNext = b.next != nil; n.HasNext {
			b.next.info(&n.Next)
		}
	}
	return into
}

// Promise declares N for classic and X for expandable segments, under the settings in force (contracts, section 3).
func (a *Allocator) Promise() allocators.Promise {
	kind := allocators.PromiseN
	if a.set.Expandable {
		kind = allocators.PromiseX
	}
	return allocators.Promise{
		Kind: kind, Void: a.void, MaxSplitSize: a.set.MaxSplitSize, MaxNonSplitRounding: a.set.MaxNonSplitRounding,
		HasLimit: a.hasLimit, Limit: a.limit, LookupAfterFlush: a.set.LookupAfterFlush, Pools: a.set.Rules.Pools,
		Round: a.set.Round, SegmentSize: a.set.Rules.SegmentSize, PageSize: a.set.Rules.PageSize,
	}
}
