package caching

import (
	"errors"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// grow serves a rounded size from an expandable segment by mapping pages (sections 17.3 and 17.4). A nil block without an
// error means that the device has not the pages.
func (a *Allocator) grow(p *pool, set *streamSet, size uint64) (*block, error) {
	b := a.findRoom(set, size)
	if b == nil {
		var err error
		if b, err = a.reserve(p, set); err != nil {
			return nil, err
		}
	}
	if !b.mapped {
		if ok, err := a.mapPages(b, min(b.size, size)); !ok || err != nil {
			return nil, err
		}
	}
	for b.size < size {
		next := b.next
		if next == nil {
			return nil, nil // the whole reservation is smaller than the request
		}
		if ok, err := a.mapPages(next, min(size-b.size, next.size)); !ok || err != nil {
			return nil, err
		}
		b = next
	}
	set.free.remove(b)
	return b, nil
}

// findRoom returns the start of the lowest run of free and unmapped blocks that is large enough: not the one that needs
// the fewest pages (section 17.3).
func (a *Allocator) findRoom(set *streamSet, size uint64) *block {
	for i, u := range set.unmapped {
		start := u
		if u.prev != nil && u.prev.idle() {
			start = u.prev
		}
		var room uint64
		for b := start; ; b = b.next {
			if b == nil {
				a.senseRoom(u.seg, size-room)
				break
			}
			if !b.idle() {
				if i+1 == len(set.unmapped) || set.unmapped[i+1].seg != u.seg {
					a.senseEnd(b, size)
				}
				break
			}
			if room += b.size; room >= size {
				return start
			}
		}
	}
	return nil
}

// reservation is the address space of an expandable segment: 9/8 of the device in whole pages (section 17.1).
func reservation(capacity, page uint64) uint64 {
	return (capacity + capacity/8 + page - 1) / page * page
}

// reserve makes a new expandable segment, one unmapped block.
func (a *Allocator) reserve(p *pool, set *streamSet) (*block, error) {
	space := reservation(a.capacity, p.page)
	addr, err := a.dev.Reserve(space)
	if err != nil {
		return nil, err
	}
	b := a.newSegment(p, set, addr, space)
	b.seg.page = p.page
	set.putUnmapped(b)
	return b, nil
}

// mapPages maps the first size bytes of an unmapped block, in whole pages: all of them or none. False without an error means
// that the device has not the memory. What was done before a failure is undone
// (https://github.com/pytorch/pytorch/issues/188008 is about a version that did not).
func (a *Allocator) mapPages(b *block, size uint64) (bool, error) {
	g := b.seg
	first := uint64(b.addr-g.addr) / g.page
	count := (size + g.page - 1) / g.page
	for uint64(len(g.chunks)) < first+count {
		g.chunks = append(g.chunks, 0)
	}
	chunks := g.chunks[first : first+count]
	for i := range chunks {
		h, err := a.dev.Create(g.page)
		if err != nil {
			if undone := a.releaseChunks(chunks[:i]); undone != nil || !errors.Is(err, device.ErrOutOfMemory) {
				return false, errors.Join(err, undone)
			}
			a.senseDevice(count * g.page)
			return false, nil
		}
		chunks[i] = h
	}
	for i, h := range chunks {
		if err := a.dev.Map(b.addr+device.Addr(uint64(i)*g.page), g.page, h); err != nil {
			if undone := a.undoMap(b, chunks, i); undone != nil || !errors.Is(err, device.ErrOutOfMemory) {
				return false, errors.Join(err, undone)
			}
			return false, nil
		}
	}
	a.becomeMapped(b, count*g.page)
	return true, nil
}

// undoMap takes back the first n pages of an unmapped block and all chunks. Pages that the device fails to unmap stay, as
// free memory.
func (a *Allocator) undoMap(b *block, chunks []device.Handle, n int) error {
	page := b.seg.page
	var failure error
	for ; n > 0; n-- {
		if failure = a.dev.Unmap(b.addr+device.Addr(uint64(n-1)*page), page); failure != nil {
			break
		}
	}
	failure = errors.Join(failure, a.releaseChunks(chunks[n:]))
	if n > 0 {
		a.becomeMapped(b, uint64(n)*page)
	}
	return failure
}

// releaseChunks gives back chunks that are not mapped.
func (a *Allocator) releaseChunks(chunks []device.Handle) (failure error) {
	for i := range chunks {
		failure = errors.Join(failure, a.release(&chunks[i]))
	}
	return failure
}

// release gives back a chunk that is not mapped. If the device fails, the chunk is owed to it.
func (a *Allocator) release(h *device.Handle) error {
	err := a.dev.Release(*h)
	if err != nil {
		a.owed = append(a.owed, *h)
	}
	*h = 0
	return err
}

// releaseOwed gives back the chunks and events that the device failed to take before.
func (a *Allocator) releaseOwed() error {
	for len(a.owed) > 0 {
		if err := a.dev.Release(a.owed[len(a.owed)-1]); err != nil {
			return err
		}
		a.owed = a.owed[:len(a.owed)-1]
	}
	for len(a.owedEvents) > 0 {
		if err := a.dev.Destroy(a.owedEvents[len(a.owedEvents)-1]); err != nil {
			return err
		}
		a.owedEvents = a.owedEvents[:len(a.owedEvents)-1]
	}
	return nil
}

// becomeMapped notes that the first bytes of an unmapped block, whole pages, are mapped. The block becomes free, coalesced
// and in the free set; what stays unmapped is a block of its own behind it.
func (a *Allocator) becomeMapped(b *block, bytes uint64) {
	g := b.seg
	set := g.stream
	if bytes < b.size {
		rest := a.spares.block()
		rest.addr, rest.size, rest.seg = b.addr+device.Addr(bytes), b.size-bytes, g
		rest.prev, rest.next = b, b.next
		if rest.next != nil {
			rest.next.prev = rest
		}
		b.next = rest
		b.size = bytes
		set.replaceUnmapped(b, rest)
	} else {
		set.removeUnmapped(b)
	}
	b.mapped = true
	a.coalesceMapped(b)
	a.putFree(b)
	a.touched = append(a.touched, b)
	a.reserved += bytes
	a.stats.ReservedBytes.Add(g.pool.small, bytes)
	a.stats.NumDeviceAlloc++
}

// coalesceMapped joins a free block of an expandable segment with its free neighbours.
func (a *Allocator) coalesceMapped(b *block) {
	if p := b.prev; p != nil && p.mapped && p.idle() {
		b.seg.stream.free.remove(p)
		a.absorb(b, p)
	}
	if n := b.next; n != nil && n.mapped && n.idle() {
		b.seg.stream.free.remove(n)
		a.absorb(b, n)
	}
}

// unmap returns the whole pages inside a free block (section 17.5). A segment without a mapped block left is given back.
// If the device fails, the pages before the failure are returned and the others stay.
func (a *Allocator) unmap(b *block) error {
	g := b.seg
	set := g.stream
	begin := uint64(b.addr - g.addr)
	first := (begin + g.page - 1) / g.page
	last := (begin + b.size) / g.page
	if last <= first {
		return nil
	}
	if !a.set.waitsElsewhere(set.stream) {
		if err := a.dev.Sync(set.stream); err != nil {
			return err
		}
	}
	var failure error
	for i := first; i < last; i++ {
		if failure = a.dev.Unmap(g.addr+device.Addr(i*g.page), g.page); failure != nil {
			last = i
		} else if failure = a.release(&g.chunks[i]); failure != nil {
			last = i + 1
		}
	}
	if last == first {
		return failure
	}
	set.free.remove(b)
	bytes := (last - first) * g.page
	if head := first*g.page - begin; head > 0 {
		a.keepPart(b, b.addr, head, b.prev, b)
		b.addr += device.Addr(head)
		b.size -= head
	}
	if tail := b.size - bytes; tail > 0 {
		a.keepPart(b, b.addr+device.Addr(bytes), tail, b, b.next)
		b.size = bytes
	}
	b.mapped = false
	if p := b.prev; p != nil && !p.mapped {
		set.removeUnmapped(p)
		a.absorb(b, p)
	}
	if n := b.next; n != nil && !n.mapped {
		set.removeUnmapped(n)
		a.absorb(b, n)
	}
	set.putUnmapped(b)
	a.touched = append(a.touched, b)
	a.reserved -= bytes
	a.stats.ReservedBytes.Sub(g.pool.small, bytes)
	a.stats.NumDeviceFree++
	if !b.split() {
		if err := a.dev.Unreserve(g.addr, g.size); err != nil {
			return errors.Join(failure, err) // the address space stays, to be used again
		}
		set.removeUnmapped(b)
		a.dropSegment(g)
	}
	return failure
}

// keepPart makes the part of a page that stays mapped, before or behind an unmapped range, a free block of its own.
func (a *Allocator) keepPart(b *block, addr device.Addr, size uint64, prev, next *block) {
	k := a.spares.block()
	k.addr, k.size, k.seg, k.mapped = addr, size, b.seg, true
	k.prev, k.next = prev, next
	if prev != nil {
		prev.next = k
	} else {
		b.seg.first = k
	}
	if next != nil {
		next.prev = k
	}
	a.putFree(k)
	a.touched = append(a.touched, k)
}
