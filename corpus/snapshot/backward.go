package snapshot

import (
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators/caching"
)

// startBlock is a block that was there when the recording began.
type startBlock struct {
	addr, size, requested uint64
	stream                uint64
	stack                 uint32
	pending               bool
	inferred              bool // its size was not recorded
}

// past is the state that a recording began from, found by running it backwards from its end.
type past struct {
	regions regions
	blocks  []startBlock // by address
	private []uint16     // by entry: the private pool that it lies in, from 1 in the order of pools; nil if none does
	pools   []Pool
	// What does not fit together: entries outside every segment, frees and allocations that contradict the rest.
	outside, contradictions int
	first                   string
	ghosts                  int // blocks from before that were freed in the recording
	survivors               int // blocks from before that are live or pending at the end
}

// backwards runs the history backwards from the final segments.
type backwards struct {
	past
	events []Event
	set    *caching.Settings
	active map[uint64]startBlock
	listed []Pool // of the file, which entries name by number
}

func (s *Snapshot) backwards(device int, set *caching.Settings) *past {
	b := &backwards{set: set, active: map[uint64]startBlock{}}
	if device < len(s.Traces) {
		b.events = s.Traces[device]
	}
	b.listed = s.Pools
	for i := range s.Segments {
		g := &s.Segments[i]
		if g.Device != device {
			continue
		}
		if b.regions.overlaps(g.Addr, g.Size) || g.Size == 0 {
			b.contradict("the segments at %#x overlap", g.Addr)
			continue
		}
		b.regions.insert(region{g.Addr, g.Size, g.Stream, g.Small, g.Expandable, g.Pool})
		for k := range g.Blocks {
			if m := &g.Blocks[k]; m.State != Inactive {
				b.active[m.Addr] = startBlock{
					addr: m.Addr, size: m.Size, requested: m.Requested, stream: g.Stream, stack: m.Stack, pending: m.State == Pending,
				}
			}
		}
	}
	end := len(b.active)
	unseen := make(map[uint64]bool, end) // addresses that are as at the end
	for addr := range b.active {
		unseen[addr] = true
	}
	for i := len(b.events) - 1; i >= 0; i-- {
		b.undo(i, unseen)
	}
	b.survivors = len(unseen)
	b.finish()
	return &b.past
}

func (b *backwards) contradict(format string, args ...any) {
	b.contradictions++
	if b.first == "" {
		b.first = fmt.Sprintf(format, args...)
	}
}

func (b *backwards) undo(i int, unseen map[uint64]bool) {
	e := &b.events[i]
	switch e.Action {
	case Alloc:
		b.place(i, e)
		if _, ok := b.active[e.Addr]; !ok {
			// Its free is not recorded: it was freed before another allocation at its place.
			b.contradict("entry %d: the block at %#x is allocated and nobody frees it, but it is not there at the end", i, e.Addr)
		}
		delete(b.active, e.Addr)
		delete(unseen, e.Addr)
	case FreeCompleted:
		b.place(i, e)
		if _, ok := b.active[e.Addr]; ok {
			b.contradict("entry %d: the block at %#x is freed and still there later", i, e.Addr)
		}
		delete(unseen, e.Addr)
		b.active[e.Addr] = startBlock{addr: e.Addr, requested: e.Size, stream: e.Stream, stack: e.Stack, pending: true, inferred: true}
	case FreeRequested:
		b.place(i, e)
		k, ok := b.active[e.Addr]
		if ok && !k.pending {
			b.contradict("entry %d: the block at %#x is freed and still live later", i, e.Addr)
		}
		if !ok {
			k = startBlock{addr: e.Addr, requested: e.Size, stream: e.Stream, inferred: true}
		}
		k.pending = false
		if k.stack == 0 {
			k.stack = e.Stack
		}
		b.active[e.Addr] = k
	case SegmentAlloc:
		if g := b.regions.holding(e.Addr, e.Size); g != nil {
			b.markPrivate(i, g)
		}
		if !b.regions.remove(e.Addr) {
			b.contradict("entry %d: the segment at %#x is bought and gone at the end", i, e.Addr)
		}
	case SegmentFree:
		if b.regions.overlaps(e.Addr, e.Size) || e.Size == 0 {
			b.contradict("entry %d: the segment at %#x is returned, and another overlaps it later", i, e.Addr)
			return
		}
		// The pool is not recorded; only the small pool buys 2 MiB.
		g := region{addr: e.Addr, size: e.Size, stream: e.Stream, small: e.Size == 2<<20, pool: b.named(e)}
		b.regions.insert(g)
		b.markPrivate(i, &g)
	case SegmentMap:
		if g := b.regions.holding(e.Addr, e.Size); g != nil {
			b.markPrivate(i, g)
		}
		if !b.regions.cut(e.Addr, e.Size) {
			b.contradict("entry %d: the range at %#x is mapped and not there later", i, e.Addr)
		}
	case SegmentUnmap:
		if b.regions.overlaps(e.Addr, e.Size) || e.Size == 0 {
			b.contradict("entry %d: the range at %#x is unmapped and mapped later", i, e.Addr)
			return
		}
		g := region{addr: e.Addr, size: e.Size, stream: e.Stream, expandable: true, small: b.smallRange(e), pool: b.named(e)}
		b.regions.join(g)
		b.markPrivate(i, &g)
	}
}

// smallRange guesses the pool of an unmapped range: that of a range which it touches, else by whole pages of the large pool.
func (b *backwards) smallRange(e *Event) bool {
	i := b.regions.at(e.Addr)
	if i > 0 {
		if p := &b.regions.list[i-1]; p.expandable && p.end() == e.Addr && p.stream == e.Stream {
			return p.small
		}
	}
	if i < len(b.regions.list) {
		if n := &b.regions.list[i]; n.expandable && e.Addr+e.Size == n.addr && n.stream == e.Stream {
			return n.small
		}
	}
	return e.Size%b.set.Rules.PageSize(false) != 0
}

// place looks whether the block of an entry lies in a segment, and in a private pool.
func (b *backwards) place(i int, e *Event) {
	g := b.regions.holding(e.Addr, e.Size)
	if g == nil {
		if e.Action != FreeCompleted { // a free counts once
			b.outside++
			if b.first == "" {
				b.first = fmt.Sprintf("entry %d (%s of %d bytes at %#x) lies in no segment", i, e.Action, e.Size, e.Addr)
			}
		}
		return
	}
	b.markPrivate(i, g)
}

func (b *backwards) markPrivate(i int, g *region) {
	pool := g.pool
	if pool == (Pool{}) {
		pool = b.named(&b.events[i])
	}
	if n := b.poolID(pool); n > 0 {
		if b.private == nil {
			b.private = make([]uint16, len(b.events))
		}
		b.private[i] = n
	}
}

// named is the pool that an entry names itself, as entries do from 2.12 on.
func (b *backwards) named(e *Event) Pool { return poolNamed(b.listed, e) }

func poolNamed(listed []Pool, e *Event) Pool {
	if int(e.Pool) < len(listed) {
		return listed[e.Pool]
	}
	return Pool{}
}

// poolID numbers the private pools from 1, in the order in which they are met; 0 is the default pool.
func (p *past) poolID(pool Pool) uint16 {
	if pool == (Pool{}) {
		return 0
	}
	i := slices.Index(p.pools, pool)
	if i < 0 {
		i = len(p.pools)
		p.pools = append(p.pools, pool)
	}
	return uint16(i + 1)
}

// poolOf is the private pool that an entry lies in, 0 for the default one or where it is not known.
func (p *past) poolOf(i int) uint16 {
	if p.private == nil {
		return 0
	}
	return p.private[i]
}

// finish sorts the blocks and infers the sizes that were not recorded.
func (b *backwards) finish() {
	for _, k := range b.active {
		b.blocks = append(b.blocks, k)
	}
	slices.SortFunc(b.blocks, func(x, y startBlock) int {
		if x.addr < y.addr {
			return -1
		}
		return 1
	})
	for i := range b.blocks {
		k := &b.blocks[i]
		if !k.inferred {
			continue
		}
		b.ghosts++
		g := b.regions.holding(k.addr, 1)
		if g == nil || k.requested == 0 {
			k.size = b.set.Round(max(k.requested, 1))
			continue
		}
		gap := g.end() - k.addr
		if i+1 < len(b.blocks) && b.blocks[i+1].addr < g.end() {
			gap = b.blocks[i+1].addr - k.addr
		}
		k.size = inferSize(b.set, g, k.requested, gap)
		if k.size > gap {
			b.contradict("the block of %d bytes at %#x overlaps the next one", k.requested, k.addr)
			k.size = gap
		}
	}
}

// inferSize is the size of a block of which only the request is known, with gap bytes to the next live block: the gap if the split
// rule would have left the rest with the block, else the rounded request (specification of snapshots, section 6).
func inferSize(set *caching.Settings, g *region, requested, gap uint64) uint64 {
	size := set.Round(requested)
	if gap < size {
		return size
	}
	rest := gap - size
	switch {
	case g.small || g.expandable:
		if rest < 512 {
			return gap
		}
	case size >= set.MaxSplitSize:
		if rest < set.MaxNonSplitRounding {
			return gap
		}
	case rest <= 1<<20:
		return gap
	}
	return size
}
