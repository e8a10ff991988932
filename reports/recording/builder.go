package recording

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// builder compares each state with the one before. While it builds, sizes are bytes.
type builder struct {
	rec *Recording
	// What the last operation was.
	outcome executor.Outcome
	free    uint64
	// born says which operation allocated the block at an address last.
	born map[uint64]int

	was, is   state
	gone, put []uint64 // of the step being made
}

// state is a snapshot, with the index in Recording.Segments of each of its segments.
type state struct {
	allocators.Snapshot
	index []int
	born  []int // of each block, -1 if it is neither live nor pending
}

// look is called with the state of the run after each operation.
func (b *builder) look(s *executor.State) *executor.Violation {
	b.outcome, b.free = s.Outcome, s.DeviceFree
	if (s.Operation.Kind == trace.Alloc || s.Operation.Kind == trace.Block) && s.Outcome == executor.OK && s.Block.Size > 0 {
		b.born[uint64(s.Block.Addr)] = s.Op
	}
	return nil
}

// step adds what changed since the last one.
func (b *builder) step(r *executor.Run) {
	b.was, b.is = b.is, b.was
	b.read(r)
	b.gone, b.put = b.gone[:0], b.put[:0]
	b.compare()
	steps := append(b.rec.Steps, uint64(b.outcome), b.free, uint64(len(b.gone)))
	steps = append(steps, b.gone...)
	steps = append(steps, uint64(len(b.put)/5))
	b.rec.Steps = append(steps, b.put...)
	b.rec.Samples = append(b.rec.Samples, sample(&b.is.Snapshot, b.rec.Capacity, b.free))
}

// read fills is with the state as the allocator tells it, else as the harness knows it.
func (b *builder) read(r *executor.Run) {
	s := &b.is
	if a, ok := r.Allocator().(allocators.Snapshotter); ok {
		a.Snapshot(&s.Snapshot)
	} else {
		v := r.View()
		s.Segments, s.Blocks = append(s.Segments[:0], v.Segments...), append(s.Blocks[:0], v.Blocks...)
		for i := range s.Segments {
			if g := &s.Segments[i]; g.Expandable && g.PageSize == 0 {
				g.PageSize = 2 << 20 // what the device deals in
				if p, ok := r.Allocator().(allocators.Promiser); ok && p.Promise().PageSize != nil {
					g.PageSize = p.Promise().PageSize(g.Small)
				}
			}
		}
	}
	s.index, s.born = s.index[:0], s.born[:0]
	for range s.Segments {
		s.index = append(s.index, -1)
	}
	for i := range s.Blocks {
		born := -1
		if k := &s.Blocks[i]; k.State == allocators.Live || k.State == allocators.Pending {
			if op, ok := b.born[uint64(k.Addr)]; ok {
				born = op
			}
		}
		s.born = append(s.born, born)
	}
}

// compare goes through the segments of both states by address.
func (b *builder) compare() {
	i := 0
	for k := range b.is.Segments {
		g := &b.is.Segments[k]
		for i < len(b.was.Segments) && b.was.Segments[i].Addr < g.Addr {
			b.gone = append(b.gone, uint64(b.was.index[i]))
			i++
		}
		old := -1
		if i < len(b.was.Segments) && b.was.Segments[i].Addr == g.Addr {
			if same(&b.was.Segments[i], g) {
				old = i
			} else {
				b.gone = append(b.gone, uint64(b.was.index[i]))
			}
			i++
		}
		if old >= 0 {
			b.is.index[k] = b.was.index[old]
		} else {
			b.is.index[k] = len(b.rec.Segments)
			b.rec.Segments = append(b.rec.Segments, Segment{
				Addr: fmt.Sprintf("%#x", uint64(g.Addr)), Size: g.Size, Expandable: g.Expandable, Small: g.Small, Stream: int(g.Stream), Pool: int(g.Pool), Page: g.PageSize,
			})
		}
		b.blocks(old, k)
	}
	for ; i < len(b.was.Segments); i++ {
		b.gone = append(b.gone, uint64(b.was.index[i]))
	}
}

func same(a, b *allocators.SegmentInfo) bool {
	return a.Size == b.Size && a.Expandable == b.Expandable && a.Small == b.Small && a.Stream == b.Stream && a.Pool == b.Pool && a.PageSize == b.PageSize
}

// blocks adds the blocks of segment k that segment old of the state before did not have; old is -1 for none.
func (b *builder) blocks(old, k int) {
	var was []allocators.BlockInfo
	first := 0
	if old >= 0 {
		was, first = b.was.BlocksOf(old), b.was.Segments[old].First
	}
	g := &b.is.Segments[k]
	i := 0
	for n := g.First; n < g.First+g.Count; n++ {
		x := &b.is.Blocks[n]
		for i < len(was) && was[i].Addr < x.Addr {
			i++
		}
		if i < len(was) && was[i].Addr == x.Addr && was[i].Size == x.Size && was[i].State == x.State && b.was.born[first+i] == b.is.born[n] {
			continue
		}
		b.put = append(b.put, uint64(b.is.index[k]), uint64(x.Addr-g.Addr), x.Size, uint64(x.State), uint64(b.is.born[n]+1))
	}
}
