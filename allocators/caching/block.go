package caching

import (
	"math/rand/v2"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// block is a range of a segment. Blocks tile their segment and are linked in address order. The link fields come first and
// together, since every lookup and merge reads them.
type block struct {
	addr       device.Addr
	size       uint64
	left       *block // tree of the free set
	right      *block
	priority   uint32
	allocated  bool
	mapped     bool
	inSet      bool // in the free or the unmapped set
	events     int32
	prev, next *block
	seg        *segment // nil when the block object is not in use
	requested  uint64
	born       uint64          // lookup count of the pool when it last entered the free set
	uses       []device.Stream // see captured
}

// segment is a region from the device, or an expandable address range.
type segment struct {
	addr   device.Addr
	size   uint64
	first  *block
	pool   *pool
	stream *streamSet // the free blocks of its stream in its pool
	page   uint64     // 0: not expandable
	chunks []device.Handle
}

// pool is the small or the large pool, of all or of a private one.
type pool struct {
	small   bool
	private *privatePool // nil for the default pools
	page    uint64
	streams []*streamSet // by stream number
	last    *streamSet
	lookups uint64 // clock of garbage collection
}

// streamSet is what a pool has on one stream: free blocks by (size, address), unmapped blocks by address.
type streamSet struct {
	stream   device.Stream
	free     freeSet
	unmapped []*block
}

func (b *block) split() bool { return b.prev != nil || b.next != nil }

func (b *block) expandable() bool { return b.seg.page != 0 }

// idle says that a neighbour may absorb the block: not live and no use outstanding.
func (b *block) idle() bool { return !b.allocated && b.events == 0 && len(b.uses) == 0 }

// at returns the pool's part for a stream.
func (p *pool) at(s device.Stream) *streamSet {
	if p.last != nil && p.last.stream == s {
		return p.last
	}
	lo, hi := 0, len(p.streams)
	for lo < hi {
		if mid := (lo + hi) / 2; p.streams[mid].stream < s {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(p.streams) || p.streams[lo].stream != s {
		p.streams = append(p.streams, nil)
		copy(p.streams[lo+1:], p.streams[lo:])
		p.streams[lo] = &streamSet{stream: s}
	}
	p.last = p.streams[lo]
	return p.last
}

// spares keeps blocks and segments that are not in use, so that steady work allocates nothing on the Go heap.
type spares struct {
	blocks   []*block
	segments []*segment
	random   rand.PCG // for priorities of trees
}

func (s *spares) block() *block {
	if len(s.blocks) == 0 {
		slab := make([]block, 16)
		for i := range slab {
			s.blocks = append(s.blocks, &slab[i])
		}
	}
	b := s.blocks[len(s.blocks)-1]
	s.blocks = s.blocks[:len(s.blocks)-1]
	b.priority = uint32(s.random.Uint64())
	return b
}

// dropBlock keeps a block for later. It has left its set, so that the links of the tree are nil already; what is not set
// here is set when the block is used again.
func (s *spares) dropBlock(b *block) {
	b.seg, b.prev, b.next = nil, nil, nil
	b.allocated, b.mapped, b.inSet = false, false, false
	b.requested = 0
	s.blocks = append(s.blocks, b)
}

func (s *spares) segment() *segment {
	if n := len(s.segments); n > 0 {
		g := s.segments[n-1]
		s.segments = s.segments[:n-1]
		return g
	}
	return &segment{}
}

func (s *spares) dropSegment(g *segment) {
	*g = segment{chunks: g.chunks[:0]}
	s.segments = append(s.segments, g)
}
