package caching

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// reference is a second caching allocator, written from the specification in the most obvious way: segments with a list of
// blocks, everything found by looking at all of it, statistics counted anew. It brings its own device, which is two counters.
// It shares nothing with Allocator but the parsed settings. Section numbers are the specification's.
type reference struct {
	set      Settings
	capacity uint64
	foreign  uint64
	reserved uint64
	hasLimit bool
	fraction float64
	limit    uint64

	segments []*refSegment // by address
	lookups  map[half]uint64
	waiting  map[device.Stream][]refUse // oldest first
	recorded map[device.Stream]int
	done     map[device.Stream]int

	open     []allocators.Redirection
	uses     map[allocators.PoolID]int // of private pools: begins less releases
	gone     map[allocators.PoolID]bool
	deferred []*refBlock

	nextMalloc, nextReserve uint64
	calls                   []string

	retries, ooms, syncs, deviceAllocs, deviceFrees uint64
	oversizeAllocations, oversizeSegments           int64
}

type refSegment struct {
	addr, size uint64
	in         half
	page       uint64 // 0: from cudaMalloc
	stream     device.Stream
	blocks     []*refBlock
}

type refBlock struct {
	addr, size, requested uint64
	seg                   *refSegment
	mapped, allocated     bool
	events                int
	uses                  []device.Stream
	captured              []device.Stream // of the uses, those recorded while frees were held back
	born                  uint64
}

type refUse struct {
	number int
	block  *refBlock
}

const mib = 1 << 20

func newReference(capacity uint64, set Settings) *reference {
	r := &reference{
		set: set, capacity: capacity, lookups: map[half]uint64{}, uses: map[allocators.PoolID]int{}, gone: map[allocators.PoolID]bool{}, waiting: map[device.Stream][]refUse{},
		recorded: map[device.Stream]int{}, done: map[device.Stream]int{},
		nextMalloc: 0x7f0000000000, nextReserve: 0x600000000000,
	}
	if set.HasFraction {
		r.setFraction(set.Fraction)
	}
	return r
}

func (r *reference) setFraction(f float64) {
	r.hasLimit, r.fraction, r.limit = !(r.set.Rules.fullIsUnlimited && f == 1), f, uint64(f*float64(r.capacity))
}

func (r *reference) call(format string, args ...any) {
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
}

// ---- the device

func (r *reference) deviceFree() uint64 { return r.capacity - r.reserved - r.foreign }

// ---- sizes: sections 6 and 8

func (r *reference) round(n uint64) uint64 {
	if n < 512 {
		return 512
	}
	bucket := 0
	for bucket < 15 && n >= 2*mib<<bucket {
		bucket++
	}
	if d := r.set.RoundupDivisions[bucket]; d > 1 && n > 512*d {
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

func (b *refBlock) idle() bool { return !b.allocated && b.events == 0 && len(b.uses) == 0 }
func (b *refBlock) free() bool { return b.mapped && b.idle() }
func (b *refBlock) index() int { return slices.Index(b.seg.blocks, b) }

func (b *refBlock) prev() *refBlock {
	if i := b.index(); i > 0 {
		return b.seg.blocks[i-1]
	}
	return nil
}

func (b *refBlock) next() *refBlock {
	if i := b.index(); i+1 < len(b.seg.blocks) {
		return b.seg.blocks[i+1]
	}
	return nil
}

func (b *refBlock) split() bool { return len(b.seg.blocks) > 1 }

// cut makes the part of b from size on a block of its own.
func (b *refBlock) cut(size uint64) *refBlock {
	rest := &refBlock{addr: b.addr + size, size: b.size - size, seg: b.seg, mapped: b.mapped}
	b.size = size
	b.seg.blocks = slices.Insert(b.seg.blocks, b.index()+1, rest)
	return rest
}

// merge joins b with the idle neighbours of its kind: section 14.5.
func (b *refBlock) merge() {
	for _, n := range []*refBlock{b.prev(), b.next()} {
		if n != nil && n.idle() && n.mapped == b.mapped {
			b.addr = min(b.addr, n.addr)
			b.size += n.size
			i := n.index()
			b.seg.blocks = slices.Delete(b.seg.blocks, i, i+1)
		}
	}
}

// find returns the blocks of a pool that a test passes, by stream, size and address (section 4).
func (r *reference) find(in half, test func(*refBlock) bool) []*refBlock {
	var found []*refBlock
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
	slices.SortStableFunc(found, func(a, b *refBlock) int {
		return cmp.Or(cmp.Compare(a.seg.stream, b.seg.stream), cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
	})
	return found
}

func (r *reference) freeBlocks(in half) []*refBlock {
	return r.find(in, (*refBlock).free)
}

func (r *reference) freeOn(in half, s device.Stream) []*refBlock {
	return r.find(in, func(b *refBlock) bool { return b.free() && b.seg.stream == s })
}

func (r *reference) addSegment(addr, size uint64, in half, page uint64, s device.Stream) *refBlock {
	g := &refSegment{addr: addr, size: size, in: in, page: page, stream: s}
	b := &refBlock{addr: addr, size: size, seg: g, mapped: page == 0}
	g.blocks = []*refBlock{b}
	r.segments = append(r.segments, g)
	slices.SortFunc(r.segments, func(a, b *refSegment) int { return cmp.Compare(a.addr, b.addr) })
	return b
}

func (r *reference) dropSegment(g *refSegment) {
	i := slices.Index(r.segments, g)
	r.segments = slices.Delete(r.segments, i, i+1)
}

// ---- the ladder: section 9

func (r *reference) alloc(n uint64, s device.Stream) (b *refBlock) {
	if n == 0 {
		return nil
	}
	if !r.holding() { // 14.3
		r.resume()
		for stream := range r.waiting {
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
		r.ooms++
		return nil
	}
	// 12
	rest := b.size - size
	fine := in.small || r.set.Expandable
	if fine && rest >= 512 || !fine && size < r.set.MaxSplitSize && rest > 1*mib {
		b.cut(size).born = r.lookups[in]
	}
	b.allocated, b.requested = true, n
	if b.size >= r.set.MaxSplitSize {
		r.oversizeAllocations++
	}
	return b
}

func (r *reference) collecting() bool { return r.hasLimit && r.set.GCThreshold > 0 }

// lookup: section 10. The block found counts as no longer free only once it is allocated, which the caller does at once.
func (r *reference) lookup(in half, s device.Stream, size uint64) *refBlock {
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
		if r.set.Expandable {
			effective := func(b *refBlock) uint64 {
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
	b, limit := blocks[i], r.set.MaxSplitSize
	if size < limit && b.size >= limit {
		return nil
	}
	if size >= limit && b.size >= size+r.set.MaxNonSplitRounding {
		return nil
	}
	return b
}

func (r *reference) purchase(in half, s device.Stream, size uint64) *refBlock {
	if r.collecting() {
		r.collectGarbage()
	}
	if b := r.obtain(in, s, size); b != nil {
		return b
	}
	if r.set.MaxSplitSize != Off && r.releaseOversize(in, s, size) {
		if b := r.obtain(in, s, size); b != nil {
			return b
		}
	}
	if r.holding() {
		return nil
	}
	r.releaseAll()
	r.retries++
	b := r.obtain(in, s, size)
	if b == nil && r.set.LookupAfterFlush {
		return r.lookup(in, s, size)
	}
	return b
}

// obtain: section 11.
func (r *reference) obtain(in half, s device.Stream, size uint64) *refBlock {
	buy := segmentSize(size)
	if r.hasLimit && r.reserved+buy > r.limit {
		return nil
	}
	if r.set.Expandable {
		return r.grow(in, s, size)
	}
	if buy > r.deviceFree() {
		r.call("mallocfail %d", buy)
		return nil
	}
	b := r.addSegment(r.nextMalloc, buy, in, 0, s)
	r.call("malloc %d at %#x", buy, r.nextMalloc)
	r.nextMalloc += buy
	r.reserved += buy
	r.deviceAllocs++
	if buy >= r.set.MaxSplitSize {
		r.oversizeSegments++
	}
	return b
}

// ---- expandable segments: section 17

func (r *reference) grow(in half, s device.Stream, size uint64) *refBlock {
	b := r.room(in, s, size)
	if b == nil {
		page := segmentSize(1)
		if !in.small {
			page = 20 * mib
		}
		space := (r.capacity + r.capacity/8 + page - 1) / page * page
		b = r.addSegment(r.nextReserve, space, in, page, s)
		r.call("reserve %d at %#x", space, r.nextReserve)
		r.nextReserve += space
	}
	if !b.mapped && !r.mapRange(b, min(b.size, size)) {
		return nil
	}
	for b.size < size {
		u := b.next()
		if u == nil || !r.mapRange(u, min(size-b.size, u.size)) {
			return nil
		}
		b = u // mapRange merged what was before into it
	}
	return b
}

// room: section 17.3.
func (r *reference) room(in half, s device.Stream, size uint64) *refBlock {
	for _, g := range r.segments {
		if g.in != in || g.stream != s {
			continue
		}
		for i, u := range g.blocks {
			if u.mapped {
				continue
			}
			start := i
			if i > 0 && g.blocks[i-1].idle() {
				start = i - 1
			}
			var sum uint64
			for j := start; j < len(g.blocks) && g.blocks[j].idle(); j++ {
				if sum += g.blocks[j].size; sum >= size {
					return g.blocks[start]
				}
			}
		}
	}
	return nil
}

// mapRange: section 17.4. It maps the first size bytes of an unmapped block, in whole pages, all or none.
func (r *reference) mapRange(b *refBlock, size uint64) bool {
	page := b.seg.page
	pages := (size + page - 1) / page
	if have := r.deviceFree() / page; have < pages {
		r.call("createfail %d after %d", page, have)
		return false
	}
	for i := range pages {
		r.call("map %d at %#x", page, b.addr+i*page)
	}
	if pages*page < b.size {
		b.cut(pages * page)
	}
	r.reserved += pages * page
	r.deviceAllocs++
	b.mapped = true
	b.merge()
	b.born = r.lookups[b.seg.in]
	return true
}

// unmap: section 17.5.
func (r *reference) unmap(b *refBlock) {
	g, page := b.seg, b.seg.page
	first := (b.addr - g.addr + page - 1) / page * page
	last := (b.addr - g.addr + b.size) / page * page
	if first >= last {
		return
	}
	for at := first; at < last; at += page {
		r.call("unmap %d at %#x", page, g.addr+at)
	}
	if head := g.addr + first - b.addr; head > 0 {
		rest := b.cut(head)
		b.born = r.lookups[g.in]
		b = rest
	}
	if b.size > last-first {
		b.cut(last - first).born = r.lookups[g.in]
	}
	b.mapped = false
	b.merge()
	r.reserved -= last - first
	r.deviceFrees++
	if len(g.blocks) == 1 {
		r.call("unreserve %#x", g.addr)
		r.dropSegment(g)
	}
}

// ---- giving memory back: sections 15 and 16

func (r *reference) releaseSegment(b *refBlock) {
	r.call("free %#x", b.addr)
	r.reserved -= b.size
	r.deviceFrees++
	if b.size >= r.set.MaxSplitSize {
		r.oversizeSegments--
	}
	r.dropSegment(b.seg)
}

// releaseOversize: section 15.1, as if split blocks of cudaMalloc segments were not there.
func (r *reference) releaseOversize(in half, s device.Stream, size uint64) bool {
	need := max(size, r.set.MaxSplitSize)
	blocks := r.find(in, func(b *refBlock) bool {
		return b.free() && b.seg.stream == s && (b.seg.page > 0 || !b.split())
	})
	i := 0
	for i < len(blocks) && blocks[i].size < need {
		i++
	}
	if i < len(blocks) && blocks[i].seg.page == 0 {
		r.releaseSegment(blocks[i])
		return true
	}
	var released uint64
	for i--; i >= 0 && released < need && blocks[i].size >= r.set.MaxSplitSize; i-- {
		if blocks[i].seg.page == 0 {
			released += blocks[i].size
			r.releaseSegment(blocks[i])
		}
	}
	return released >= need
}

// releaseAll: section 15.2.
func (r *reference) releaseAll() {
	r.syncs++
	r.resume()
	for stream := range r.waiting {
		for len(r.waiting[stream]) > 0 {
			r.done[stream] = max(r.done[stream], r.waiting[stream][0].number)
			r.pop(stream)
		}
	}
	for _, in := range []half{{small: false}, {small: true}} {
		r.releaseHalf(in)
	}
	r.releaseFreeable()
}

// releaseHalf: section 15.3.
func (r *reference) releaseHalf(in half) {
	var pages []*refBlock
	for _, b := range r.freeBlocks(in) {
		if b.seg.page > 0 {
			pages = append(pages, b)
		} else if !b.split() {
			r.releaseSegment(b)
		}
	}
	for _, b := range pages {
		r.unmap(b)
	}
}

// collectGarbage: section 16.
func (r *reference) collectGarbage() {
	limit := uint64(r.set.GCThreshold * float64(r.limit))
	if r.reserved <= limit {
		return
	}
	target := r.reserved - limit
	whole := func() []*refBlock {
		return r.find(half{}, func(b *refBlock) bool { return b.free() && b.seg.page == 0 && !b.split() })
	}
	age := func(b *refBlock) uint64 { return r.lookups[half{}] - b.born }
	for reclaimed, freed := uint64(0), true; freed && reclaimed < target; {
		blocks := whole()
		var ages uint64
		for _, b := range blocks {
			ages += age(b)
		}
		freed = false
		for _, b := range blocks {
			if float64(age(b)) >= float64(ages)/float64(len(blocks)) {
				reclaimed += b.size
				r.releaseSegment(b)
				freed = true
			}
		}
	}
}

// ---- frees and uses: section 14

func (r *reference) record(b *refBlock, s device.Stream) {
	if s == b.seg.stream {
		return
	}
	if !slices.Contains(b.uses, s) {
		b.uses = append(b.uses, s)
	}
	if r.holding() {
		b.captured = append(b.captured, s)
	}
}

func (r *reference) freeBlock(b *refBlock) {
	if b.size >= r.set.MaxSplitSize {
		r.oversizeAllocations--
	}
	b.allocated = false
	if len(b.uses) > 0 && r.holding() {
		r.deferred = append(r.deferred, b)
		return
	}
	r.wait(b)
}

// wait puts an event on every stream that uses the block.
func (r *reference) wait(b *refBlock) {
	for _, s := range b.uses {
		r.recorded[s]++
		r.waiting[s] = append(r.waiting[s], refUse{r.recorded[s], b})
		b.events++
	}
	b.uses, b.captured = nil, nil
	r.completeIfIdle(b)
}

func (r *reference) pop(s device.Stream) {
	b := r.waiting[s][0].block
	r.waiting[s] = r.waiting[s][1:]
	b.events--
	r.completeIfIdle(b)
}

func (r *reference) completeIfIdle(b *refBlock) {
	if b.idle() {
		b.merge()
		b.born = r.lookups[b.seg.in]
	}
}

// sync completes the work on a stream, or on all if it is negative.
func (r *reference) sync(s device.Stream) {
	for stream, n := range r.recorded {
		if s < 0 || s == stream {
			r.done[stream] = n
		}
	}
}

// ---- what can be compared

func (b *refBlock) state() allocators.State {
	switch {
	case b.allocated:
		return allocators.Live
	case !b.mapped:
		return allocators.Unmapped
	case !b.idle():
		return allocators.Pending
	}
	return allocators.Free
}

func (r *reference) snapshot(into *allocators.Snapshot) {
	into.Segments, into.Blocks = into.Segments[:0], into.Blocks[:0]
	for _, g := range r.segments {
		into.Segments = append(into.Segments, allocators.SegmentInfo{
			Addr: device.Addr(g.addr), Size: g.size, Small: g.in.small, Expandable: g.page > 0, PageSize: g.page, Stream: g.stream, Pool: g.in.private,
			First: len(into.Blocks), Count: len(g.blocks),
		})
		for _, b := range g.blocks {
			i := allocators.BlockInfo{
				Addr: device.Addr(b.addr), Size: b.size, State: b.state(), Small: g.in.small, Expandable: g.page > 0, Stream: g.stream,
			}
			i.InPool = i.State == allocators.Free || i.State == allocators.Unmapped
			if i.State == allocators.Live || i.State == allocators.Pending {
				i.Requested = b.requested
			}
			into.Blocks = append(into.Blocks, i)
		}
	}
}
