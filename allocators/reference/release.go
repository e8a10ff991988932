package reference

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// ---- expandable segments: section 17

func (r *Allocator) grow(in half, s device.Stream, size uint64) *Block {
	b := r.room(in, s, size)
	if b == nil {
		page := segmentSize(1)
		if !in.small {
			page = 20 * mib
		}
		space := (r.capacity + r.capacity/8 + page - 1) / page * page
		b = r.addSegment(r.nextReserve, space, in, page, s)
		r.call(device.CallReserve, r.nextReserve, space)
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
func (r *Allocator) room(in half, s device.Stream, size uint64) *Block {
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
func (r *Allocator) mapRange(b *Block, size uint64) bool {
	page := b.seg.page
	pages := (size + page - 1) / page
	have := r.DeviceFree() / page
	for range min(have, pages) {
		r.call(device.CallCreate, 0, page)
	}
	if have < pages {
		r.call(device.CallCreateFail, 0, page)
		for range have {
			r.call(device.CallRelease, 0, 0)
		}
		return false
	}
	for i := range pages {
		r.call(device.CallMap, b.addr+i*page, page)
	}
	if pages*page < b.size {
		b.cut(pages * page)
	}
	r.reserved += pages * page
	r.Stats.NumDeviceAlloc++
	b.mapped = true
	b.merge()
	b.born = r.lookups[b.seg.in]
	r.count()
	return true
}

// unmap: section 17.5.
func (r *Allocator) unmap(b *Block) {
	g, page := b.seg, b.seg.page
	first := (b.addr - g.addr + page - 1) / page * page
	last := (b.addr - g.addr + b.size) / page * page
	if first >= last {
		return
	}
	if g.stream != 0 || !r.Set.WaitsElsewhere {
		r.Sync(g.stream)
	}
	for at := first; at < last; at += page {
		r.call(device.CallUnmap, g.addr+at, page)
		r.call(device.CallRelease, 0, 0)
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
	r.Stats.NumDeviceFree++
	r.count()
	if len(g.blocks) == 1 {
		r.call(device.CallUnreserve, g.addr, g.size)
		r.dropSegment(g)
	}
}

// ---- giving memory back: sections 15 and 16

func (r *Allocator) releaseSegment(b *Block) {
	r.call(device.CallFree, b.addr, 0)
	r.reserved -= b.size
	r.Stats.NumDeviceFree++
	if b.size >= r.Set.MaxSplitSize {
		change(&r.Stats.OversizeSegments, r.Stats.OversizeSegments.Current-1)
	}
	r.dropSegment(b.seg)
	r.count()
}

// releaseOversize: section 15.1, as if split blocks of cudaMalloc segments were not there.
func (r *Allocator) releaseOversize(in half, s device.Stream, size uint64) bool {
	need := max(size, r.Set.MaxSplitSize)
	blocks := r.find(in, func(b *Block) bool {
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
	for i--; i >= 0 && released < need && blocks[i].size >= r.Set.MaxSplitSize; i-- {
		if blocks[i].seg.page == 0 {
			released += blocks[i].size
			r.releaseSegment(blocks[i])
		}
	}
	return released >= need
}

// flush: section 15.2.
func (r *Allocator) flush() {
	r.Stats.NumSyncAllStreams++
	r.resume()
	for _, stream := range r.used {
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
func (r *Allocator) releaseHalf(in half) {
	var pages []*Block
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
func (r *Allocator) collectGarbage() {
	limit := uint64(r.Set.GCThreshold * float64(r.limit))
	if r.reserved <= limit {
		return
	}
	target := r.reserved - limit
	whole := func() []*Block {
		return r.find(half{}, func(b *Block) bool { return b.free() && b.seg.page == 0 && !b.split() })
	}
	age := func(b *Block) uint64 { return r.lookups[half{}] - b.born }
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

// Record: section 14.1.
func (r *Allocator) Record(b *Block, s device.Stream) {
	if s == b.seg.stream {
		return
	}
	if !slices.Contains(b.uses, s) {
		b.uses = append(b.uses, s)
	}
	if r.Holding() {
		b.captured = append(b.captured, s)
	}
}

// Free: section 14.2.
func (r *Allocator) Free(b *Block) {
	if b.size >= r.Set.MaxSplitSize {
		change(&r.Stats.OversizeAllocations, r.Stats.OversizeAllocations.Current-1)
	}
	b.allocated = false
	if len(b.uses) > 0 && r.Holding() {
		r.deferred = append(r.deferred, b)
	} else {
		r.wait(b)
	}
	r.count()
}

// wait puts an event on every stream that uses the block.
func (r *Allocator) wait(b *Block) {
	for _, s := range b.uses {
		if r.recorded[s]++; !slices.Contains(r.used, s) {
			r.used = append(r.used, s)
		}
		r.waiting[s] = append(r.waiting[s], use{r.recorded[s], b})
		b.events++
	}
	b.uses, b.captured = nil, nil
	r.completeIfIdle(b)
}

func (r *Allocator) pop(s device.Stream) {
	b := r.waiting[s][0].block
	r.waiting[s] = r.waiting[s][1:]
	b.events--
	r.completeIfIdle(b)
}

func (r *Allocator) completeIfIdle(b *Block) {
	if b.idle() {
		b.merge()
		b.born = r.lookups[b.seg.in]
		r.count()
	}
}

// Sync completes the work on a stream, or on all if it is negative.
func (r *Allocator) Sync(s device.Stream) {
	for stream, n := range r.recorded {
		if s < 0 || s == stream {
			r.done[stream] = n
		}
	}
}
