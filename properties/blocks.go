package properties

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Alignment is what every block's place in its segment, and its size, is a multiple of: 512 bytes (contracts I2).
const Alignment = 512

// leastAlignment is what the largest type that a GPU loads at once needs, 16 bytes (CUDA C++ Programming Guide, 'Device Memory Accesses').
const leastAlignment = 16

// NoOverlap: no two live blocks share a byte.
var NoOverlap = executor.Property{
	ID:     "no-overlap",
	Claim:  "No two live blocks share a byte.",
	Source: "contracts I1",
	Op: func(s *executor.State) *executor.Violation {
		if o := s.Overlapped; o != nil && !o.Pending {
			return executor.Broken("live", "%d bytes at %#x handed out, of which %#x to %#x is live since operation %d",
				s.Block.Size, s.Block.Addr, max(o.Addr, s.Block.Addr),
				min(o.End(), s.Block.Addr+addr(s.Block.Size)), o.Op)
		}
		return nil
	},
}

// ReuseBeforeEvent: memory with unfinished recorded uses on another stream is not handed out.
var ReuseBeforeEvent = executor.Property{
	ID:     "reuse-before-event",
	Claim:  "Memory freed with recorded uses on other streams is not handed out before that work is done.",
	Source: "contracts I9; specification 14.2",
	Op: func(s *executor.State) *executor.Violation {
		if o := s.Overlapped; o != nil && o.Pending {
			return executor.Broken("pending", "%d bytes at %#x handed out on stream %d while a stream still uses the block of operation %d there",
				s.Block.Size, s.Block.Addr, s.Operation.Stream, o.Op)
		}
		return nil
	},
}

// Bounds: a block lies on memory of one segment, aligned, and is large enough.
var Bounds = executor.Property{
	ID: "bounds-and-alignment",
	Claim: "A block lies inside one segment, on memory, at a multiple of 512 bytes from its base (of 16, if the allocator declares no promise), " +
		"and is at least the request.",
	Source: "contracts I1, I2, I3; CUDA C++ Programming Guide, Device Memory Accesses",
	Op: func(s *executor.State) *executor.Violation {
		if s.Operation.Kind == trace.Alloc && s.Operation.Bytes == 0 && s.Outcome == executor.OK && s.Block.Addr != 0 {
			return executor.Broken("zero", "a request of 0 bytes was given the address %#x, which the program never frees; it must get the zero Block",
				uint64(s.Block.Addr))
		}
		if s.Entry == nil {
			return nil
		}
		b := s.Block
		switch {
		case b.Size < s.Operation.Bytes:
			return executor.Broken("too-small", "%d bytes handed out where %d were asked for", b.Size, s.Operation.Bytes)
		case s.Region == nil:
			return executor.Broken("outside", "%d bytes at %#x lie in no segment of the device", b.Size, b.Addr)
		case !s.Covered:
			return executor.Broken("no-memory", "%d bytes at %#x do not all lie on memory of segment %d", b.Size, b.Addr, s.Region.Ordinal)
		case s.Promise.Kind != allocators.PromiseNone && (uint64(b.Addr-s.Region.Addr)%Alignment != 0 || b.Size%Alignment != 0):
			return executor.Broken("alignment", "%d bytes at offset %d of segment %d: place and size must be multiples of %d",
				b.Size, b.Addr-s.Region.Addr, s.Region.Ordinal, Alignment)
		}
		return misaligned(s, leastAlignment)
	},
	Walk: func(s *executor.State) *executor.Violation {
		if e := s.View.Stray; e != nil {
			return executor.Broken("lost-memory", "the block of operation %d, %d bytes at %#x, no longer lies on memory",
				e.Op, e.Size, e.Addr)
		}
		return nil
	},
}

// Aligned is the property that every block's address is a multiple of some bytes, for allocators that promise more than the least.
func Aligned(bytes uint64) executor.Property {
	return executor.Property{
		ID:     "bounds-and-alignment",
		Claim:  fmt.Sprintf("The address of every block is a multiple of %d.", bytes),
		Source: "whoever asks for it",
		Op: func(s *executor.State) *executor.Violation {
			if s.Entry == nil {
				return nil
			}
			return misaligned(s, bytes)
		},
	}
}

func misaligned(s *executor.State, bytes uint64) *executor.Violation {
	if uint64(s.Block.Addr)%bytes == 0 {
		return nil
	}
	return executor.Broken("alignment", "%d bytes handed out at %#x, which is no multiple of %d", s.Block.Size, uint64(s.Block.Addr), bytes)
}

// Tiling: blocks tile their segment, and are the ones that the program holds.
var Tiling = executor.Property{
	ID:     "tiling",
	Claim:  "Blocks tile their segment exactly; live and pending ones are those that the program holds.",
	Source: "contracts I1, I5, I6, E5, X1, X3",
	Op: func(s *executor.State) *executor.Violation {
		for i := range s.Touched {
			n := &s.Touched[i]
			b := &n.Block
			switch {
			case n.HasPrev && n.Prev.End() != b.Addr, !n.HasPrev && b.Addr != n.Base:
				return executor.Broken("gap", "the block at %#x does not begin where its neighbour ends", b.Addr)
			case n.HasNext && n.Next.Addr != b.End(), !n.HasNext && b.End() != n.Base+addr(n.Size):
				return executor.Broken("gap", "the block at %#x of %d bytes does not end where its neighbour begins", b.Addr, b.Size)
			case b.Size == 0:
				return executor.Broken("empty", "the block at %#x has no bytes", b.Addr)
			}
		}
		return nil
	},
	Walk: walkTiling,
}

func walkTiling(s *executor.State) *executor.Violation {
	if s.Snapshot == nil {
		return nil
	}
	for i := range s.Snapshot.Segments {
		g := &s.Snapshot.Segments[i]
		at := g.Addr
		for _, b := range s.Snapshot.BlocksOf(i) {
			if b.Addr != at {
				return executor.Broken("gap", "segment at %#x: a block begins at %#x where %#x was expected", g.Addr, b.Addr, at)
			}
			if inSet := b.State == allocators.Free || b.State == allocators.Unmapped; inSet != b.InPool && s.Promise.Kind != allocators.PromiseNone {
				return executor.Broken("set", "the %s block at %#x is in a free or unmapped set: %t", b.State, uint64(b.Addr), b.InPool)
			}
			at = b.End()
		}
		if end := g.Addr + addr(g.Size); at != end {
			return executor.Broken("gap", "segment at %#x: its blocks end at %#x, the segment at %#x", g.Addr, at, end)
		}
	}
	return compareWithView(s)
}

// compareWithView holds the allocator's blocks against those that follow from the program and the device's calls.
func compareWithView(s *executor.State) *executor.Violation {
	snap, view := s.Snapshot, s.View
	if s.Promise.Kind == allocators.PromiseNone {
		return compareLive(s)
	}
	if len(snap.Segments) != len(view.Segments) {
		return executor.Broken("segments", "the allocator has %d segments, the device gave %d", len(snap.Segments), len(view.Segments))
	}
	for i := range snap.Segments {
		a, v := &snap.Segments[i], &view.Segments[i]
		if a.Addr != v.Addr || a.Size != v.Size || a.Expandable != v.Expandable || a.Small != v.Small || a.Stream != v.Stream || a.Pool != v.Pool {
			return executor.Broken("segments", "segment %d: the allocator has %+v, the device gave %+v", i, *a, *v)
		}
	}
	for i := range min(len(snap.Blocks), len(view.Blocks)) {
		a, v := &snap.Blocks[i], &view.Blocks[i]
		if a.Addr != v.Addr || a.Size != v.Size || a.State != v.State {
			return executor.Broken("blocks", "the allocator has a %s block of %d bytes at %#x where a %s one of %d bytes at %#x must be",
				a.State, a.Size, a.Addr, v.State, v.Size, v.Addr)
		}
		if (a.State == allocators.Live || a.State == allocators.Pending) && a.Requested != v.Requested {
			return executor.Broken("requested", "the %s block at %#x holds a request of %d bytes, the allocator has %d",
				a.State, a.Addr, v.Requested, a.Requested)
		}
	}
	if len(snap.Blocks) != len(view.Blocks) {
		return executor.Broken("blocks", "the allocator has %d blocks, %d must be", len(snap.Blocks), len(view.Blocks))
	}
	return nil
}

// compareLive holds a snapshot against the program and the device where no promise says what else is in it: which stream or pool a
// segment is of, when a pending block becomes free, whether free neighbours are one block, and what was asked for (0 if it does not tell).
func compareLive(s *executor.State) *executor.Violation {
	snap, view := s.Snapshot, s.View
	if len(snap.Segments) != len(view.Segments) {
		return executor.Broken("segments", "the allocator has %d segments, the device gave %d", len(snap.Segments), len(view.Segments))
	}
	next := 0
	for i := range snap.Segments {
		a, v := &snap.Segments[i], &view.Segments[i]
		if a.Addr != v.Addr || a.Size != v.Size {
			return executor.Broken("segments", "segment %d: the allocator has %d bytes at %#x, the device gave %d at %#x",
				i, a.Size, uint64(a.Addr), v.Size, uint64(v.Addr))
		}
		for _, b := range snap.BlocksOf(i) {
			if b.State != allocators.Live {
				continue
			}
			for next < len(view.Blocks) && view.Blocks[next].State != allocators.Live {
				next++
			}
			if next == len(view.Blocks) {
				return executor.Broken("blocks", "the allocator has a live block at %#x, the program has none there or behind", uint64(b.Addr))
			}
			w := &view.Blocks[next]
			next++
			switch {
			case b.Addr != w.Addr || b.Size != w.Size && !s.Unsized:
				return executor.Broken("blocks", "the allocator has a live block of %d bytes at %#x where the program's next one has %d bytes at %#x",
					b.Size, uint64(b.Addr), w.Size, uint64(w.Addr))
			case b.Requested != 0 && b.Requested != w.Requested:
				return executor.Broken("requested", "the live block at %#x holds a request of %d bytes, the allocator has %d",
					uint64(b.Addr), w.Requested, b.Requested)
			}
		}
	}
	for ; next < len(view.Blocks); next++ {
		if w := &view.Blocks[next]; w.State == allocators.Live {
			return executor.Broken("blocks", "the program's block of %d bytes at %#x is not live in the allocator", w.Size, uint64(w.Addr))
		}
	}
	return nil
}

// Coalescing: adjacent free blocks are one block.
var Coalescing = executor.Property{
	ID:     "coalescing",
	Claim:  "No two adjacent blocks are both free, nor both unmapped (asked of allocators with a promise: buddies and slabs stay apart).",
	Source: "contracts I4; specification 14.5",
	Op: func(s *executor.State) *executor.Violation {
		if s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		for i := range s.Touched {
			n := &s.Touched[i]
			if n.HasPrev && mergeable(&n.Prev, &n.Block) {
				return uncoalesced(&n.Prev, &n.Block)
			}
			if n.HasNext && mergeable(&n.Block, &n.Next) {
				return uncoalesced(&n.Block, &n.Next)
			}
		}
		return nil
	},
	Walk: func(s *executor.State) *executor.Violation {
		if s.Snapshot == nil || s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		for i := range s.Snapshot.Segments {
			blocks := s.Snapshot.BlocksOf(i)
			for j := 1; j < len(blocks); j++ {
				if mergeable(&blocks[j-1], &blocks[j]) {
					return uncoalesced(&blocks[j-1], &blocks[j])
				}
			}
		}
		return nil
	},
}

func mergeable(a, b *allocators.BlockInfo) bool {
	return a.State == b.State && (a.State == allocators.Free || a.State == allocators.Unmapped)
}

func uncoalesced(a, b *allocators.BlockInfo) *executor.Violation {
	return executor.Broken(a.State.String(), "the %s blocks at %#x (%d bytes) and %#x (%d bytes) are adjacent",
		a.State, a.Addr, a.Size, b.Addr, b.Size)
}
