// Package reference is a second caching allocator, written from the specification in the most obvious way: segments with a list
// of blocks, everything found by looking at all of it. It brings its own device, which is a few counters, and shares nothing
// with package caching, which is held against it. Section numbers are the specification's.
//
// In go calls, out come blocks with the addresses that a simulated device with ascending addresses would give.
package reference

import (
	"cmp"
	"math"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Settings are those of package caching that the reference knows.
type Settings struct {
	MaxSplitSize, MaxNonSplitRounding uint64
	GCThreshold                       float64
	RoundupDivisions                  [16]uint64
	Expandable                        bool
	LookupAfterFlush                  bool
	WaitsElsewhere                    bool // on stream 0 an unmapping waits for another device
	Pools                             allocators.PoolRules
	EmptiesInCapture                  bool // empty_cache does what it can while frees are held back
	FullIsUnlimited                   bool // a memory fraction of 1 sets no limit
}

// Off is MaxSplitSize when it is not set.
const Off = math.MaxUint64

// Allocator is the reference with its device.
type Allocator struct {
	Set      Settings
	capacity uint64
	Foreign  uint64 // bytes that others hold
	reserved uint64
	hasLimit bool
	limit    uint64

	segments []*segment // by address
	lookups  map[half]uint64
	waiting  map[device.Stream][]use // oldest first
	used     []device.Stream         // the keys of waiting, by first use: the order in which they are looked at is not specified
	recorded map[device.Stream]int
	done     map[device.Stream]int

	open     []allocators.Redirection
	uses     map[allocators.PoolID]int // of private pools: begins less releases
	gone     map[allocators.PoolID]bool
	deferred []*Block

	nextMalloc, nextReserve uint64
	// OnCall is told each call that a device would get, as a device.Recorder notes it but without handles and waits; nil: nobody is.
	OnCall func(device.Call)
	// Stats are PyTorch's statistics: section 20.
	Stats allocators.Stats
}

type segment struct {
	addr, size uint64
	in         half
	page       uint64 // 0: from cudaMalloc
	stream     device.Stream
	blocks     []*Block
}

// Block is a range of a segment.
type Block struct {
	addr, size, requested uint64
	seg                   *segment
	mapped, allocated     bool
	events                int
	uses                  []device.Stream
	captured              []device.Stream // of the uses, those recorded while frees were held back
	born                  uint64
}

type use struct {
	number int
	block  *Block
}

const mib = 1 << 20

// New makes one on an empty device of so many bytes.
func New(capacity uint64, set Settings) *Allocator {
	r := &Allocator{
		Set: set, capacity: capacity, lookups: map[half]uint64{}, uses: map[allocators.PoolID]int{}, gone: map[allocators.PoolID]bool{}, waiting: map[device.Stream][]use{},
		recorded: map[device.Stream]int{}, done: map[device.Stream]int{},
		nextMalloc: 0x7f0000000000, nextReserve: 0x600000000000,
	}
	r.Stats.MaxSplitSize = int64(set.MaxSplitSize)
	return r
}

// SetFraction: section 19.
func (r *Allocator) SetFraction(f float64) {
	r.hasLimit, r.limit = !(r.Set.FullIsUnlimited && f == 1), uint64(f*float64(r.capacity))
}

// ---- the device

// DeviceFree is the bytes that nobody holds.
func (r *Allocator) DeviceFree() uint64 { return r.capacity - r.reserved - r.Foreign }

func (r *Allocator) call(kind device.CallKind, addr, size uint64) {
	if r.OnCall != nil {
		r.OnCall(device.Call{Kind: kind, Addr: device.Addr(addr), Size: size})
	}
}

// ---- sizes: sections 6 and 8

func (r *Allocator) round(n uint64) uint64 {
	if n < 512 {
		return 512
	}
	bucket := 0
	for bucket < 15 && n >= 2*mib<<bucket {
		bucket++
	}
	if d := r.Set.RoundupDivisions[bucket]; d > 1 && n > 512*d {
		f := uint64(1)
		for f*2 <= n {
			f *= 2
		}
		s := f
		for s < n {
			s += f / d
		}
		return s
	}
	return (n + 511) / 512 * 512
}

func segmentSize(s uint64) uint64 {
	switch {
	case s <= 1*mib:
		return 2 * mib
	case s < 10*mib:
		return 20 * mib
	}
	return (s + 2*mib - 1) / (2 * mib) * (2 * mib)
}

// ---- blocks

func (b *Block) idle() bool { return !b.allocated && b.events == 0 && len(b.uses) == 0 }
func (b *Block) free() bool { return b.mapped && b.idle() }
func (b *Block) index() int { return slices.Index(b.seg.blocks, b) }

func (b *Block) prev() *Block {
	if i := b.index(); i > 0 {
		return b.seg.blocks[i-1]
	}
	return nil
}

func (b *Block) next() *Block {
	if i := b.index(); i+1 < len(b.seg.blocks) {
		return b.seg.blocks[i+1]
	}
	return nil
}

func (b *Block) split() bool { return len(b.seg.blocks) > 1 }

// cut makes the part of b from size on a block of its own.
func (b *Block) cut(size uint64) *Block {
	rest := &Block{addr: b.addr + size, size: b.size - size, seg: b.seg, mapped: b.mapped}
	b.size = size
	b.seg.blocks = slices.Insert(b.seg.blocks, b.index()+1, rest)
	return rest
}

// merge joins b with the idle neighbours of its kind: section 14.5.
func (b *Block) merge() {
	for _, n := range []*Block{b.prev(), b.next()} {
		if n != nil && n.idle() && n.mapped == b.mapped {
			b.addr = min(b.addr, n.addr)
			b.size += n.size
			i := n.index()
			b.seg.blocks = slices.Delete(b.seg.blocks, i, i+1)
		}
	}
}

// find returns the blocks of a pool that a test passes, by stream, size and address (section 4).
func (r *Allocator) find(in half, test func(*Block) bool) []*Block {
	var found []*Block
	for _, g := range r.segments {
		if g.in != in {
			continue
		}
		for _, b := range g.blocks {
			if test(b) {
				found = append(found, b)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b *Block) int {
		return cmp.Or(cmp.Compare(a.seg.stream, b.seg.stream), cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	return found
}

func (r *Allocator) freeBlocks(in half) []*Block {
	return r.find(in, (*Block).free)
}

func (r *Allocator) freeOn(in half, s device.Stream) []*Block {
	return r.find(in, func(b *Block) bool { return b.free() && b.seg.stream == s })
}

func (r *Allocator) addSegment(addr, size uint64, in half, page uint64, s device.Stream) *Block {
	g := &segment{addr: addr, size: size, in: in, page: page, stream: s}
	b := &Block{addr: addr, size: size, seg: g, mapped: page == 0}
	g.blocks = []*Block{b}
	r.segments = append(r.segments, g)
	slices.SortFunc(r.segments, func(a, b *segment) int { return cmp.Compare(a.addr, b.addr) })
	return b
}

func (r *Allocator) dropSegment(g *segment) {
	i := slices.Index(r.segments, g)
	r.segments = slices.Delete(r.segments, i, i+1)
}

// ---- the ladder: section 9

// Alloc returns the block for a request, nil if it is refused or of 0 bytes.
func (r *Allocator) Alloc(n uint64, s device.Stream) (b *Block) {
	if n == 0 {
		return nil
	}
	if !r.Holding() { // 14.3
		r.resume()
		for _, stream := range r.used {
			for q := r.waiting[stream]; len(q) > 0 && q[0].number <= r.done[stream]; q = r.waiting[stream] {
				r.pop(stream)
			}
		}
	}
	size := r.round(n)
	in := r.half(size, s)
	if b = r.lookup(in, s, size); b == nil {
		b = r.purchase(in, s, size)
	}
	if b == nil {
		r.Stats.NumOOMs++
		return nil
	}
	// 12
	rest := b.size - size
	fine := in.small || r.Set.Expandable
	if fine && rest >= 512 || !fine && size < r.Set.MaxSplitSize && rest > 1*mib {
		b.cut(size).born = r.lookups[in]
	}
	b.allocated, b.requested = true, n
	if b.size >= r.Set.MaxSplitSize {
		change(&r.Stats.OversizeAllocations, r.Stats.OversizeAllocations.Current+1)
	}
	r.count()
	return b
}

func (r *Allocator) collecting() bool { return r.hasLimit && r.Set.GCThreshold > 0 }

// lookup: section 10. The block found counts as no longer free only once it is allocated, which the caller does at once.
func (r *Allocator) lookup(in half, s device.Stream, size uint64) *Block {
	if r.collecting() {
		r.lookups[in]++
	}
	blocks := r.freeOn(in, s)
	i := 0
	for i < len(blocks) && blocks[i].size < size {
		i++
	}
	if i == len(blocks) {
		return nil
	}
	if blocks[i].seg.page > 0 {
		if r.Set.Expandable {
			effective := func(b *Block) uint64 {
				if n := b.next(); n != nil && !n.mapped {
					return b.size + n.size
				}
				return b.size
			}
			for blocks[i].seg.page > 0 && i+1 < len(blocks) && effective(blocks[i+1]) < effective(blocks[i]) {
				i++
			}
		} else {
			for i < len(blocks) && blocks[i].seg.page > 0 {
				i++
			}
			if i == len(blocks) {
				return nil
			}
		}
	}
	b, limit := blocks[i], r.Set.MaxSplitSize
	if size < limit && b.size >= limit {
		return nil
	}
	if size >= limit && b.size >= size+r.Set.MaxNonSplitRounding {
		return nil
	}
	return b
}

func (r *Allocator) purchase(in half, s device.Stream, size uint64) *Block {
	if r.collecting() {
		r.collectGarbage()
	}
	if b := r.obtain(in, s, size); b != nil {
		return b
	}
	if r.Set.MaxSplitSize != Off && r.releaseOversize(in, s, size) {
		if b := r.obtain(in, s, size); b != nil {
			return b
		}
	}
	if r.Holding() {
		return nil
	}
	r.flush()
	r.Stats.NumAllocRetries++
	b := r.obtain(in, s, size)
	if b == nil && r.Set.LookupAfterFlush {
		return r.lookup(in, s, size)
	}
	return b
}

// obtain: section 11.
func (r *Allocator) obtain(in half, s device.Stream, size uint64) *Block {
	buy := segmentSize(size)
	if r.hasLimit && r.reserved+buy > r.limit {
		return nil
	}
	if r.Set.Expandable {
		return r.grow(in, s, size)
	}
	if buy > r.DeviceFree() {
		r.call(device.CallMallocFail, 0, buy)
		return nil
	}
	b := r.addSegment(r.nextMalloc, buy, in, 0, s)
	r.call(device.CallMalloc, r.nextMalloc, buy)
	r.nextMalloc += buy
	r.reserved += buy
	r.Stats.NumDeviceAlloc++
	if buy >= r.Set.MaxSplitSize {
		change(&r.Stats.OversizeSegments, r.Stats.OversizeSegments.Current+1)
	}
	r.count()
	return b
}
