package caching

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// RestoreSegment begins from a segment that PyTorch had when a recording started (allocators.Restorer).
func (a *Allocator) RestoreSegment(s allocators.StartSegment) (device.Addr, error) {
	a.touched = a.touched[:0]
	p := &a.large
	if s.Small {
		p = &a.small
	}
	if s.Pool != 0 {
		private := a.makePrivate(s.Pool)
		private.uses = max(private.uses, 1)
		p = private.half(s.Small)
	}
	set := p.at(s.Stream)
	if s.Idle {
		if free, total := a.dev.Info(); free < s.Needed+s.Size {
			a.sense(total - free + s.Needed + s.Size)
			return 0, nil
		}
	}
	if s.Expandable {
		return a.restoreRange(p, set, s)
	}
	addr, err := a.dev.Malloc(s.Size)
	if err != nil {
		return 0, a.notRestored(s, err)
	}
	b := a.newSegment(p, set, addr, s.Size)
	b.mapped = true
	a.putFree(b)
	a.touched = append(a.touched, b)
	a.reserved += s.Size
	a.stats.Segment.Add(p.small, 1)
	a.stats.ReservedBytes.Add(p.small, s.Size)
	if s.Size >= a.set.MaxSplitSize {
		a.stats.OversizeSegments.Add(1)
	}
	a.stats.NumDeviceAlloc++
	return addr, nil
}

// notRestored says that the device has not the memory for a segment, with the figures of a refusal.
func (a *Allocator) notRestored(s allocators.StartSegment, err error) error {
	if !errors.Is(err, device.ErrOutOfMemory) {
		return err
	}
	a.senseDevice(s.Size)
	return a.refuse(s.Size, s.Size, s.Stream)
}

// restoreRange maps a range of an expandable segment, whole pages.
func (a *Allocator) restoreRange(p *pool, set *streamSet, s allocators.StartSegment) (device.Addr, error) {
	if s.Size == 0 || s.Size%p.page != 0 || s.Offset%p.page != 0 {
		return 0, fmt.Errorf("a mapped range of %d bytes at offset %d is not made of pages of %d: %w", s.Size, s.Offset, p.page, device.ErrInvalid)
	}
	// The address range of a smaller device than the recorded one may end before it.
	fits := func(total uint64) bool {
		space := reservation(total, p.page)
		return s.Size <= space && s.Offset <= space-s.Size
	}
	if !fits(a.capacity) {
		a.senseWhere(fits)
		return 0, a.refuse(s.Size, s.Size, s.Stream)
	}
	var u *block
	if s.Range == 0 {
		var err error
		if u, err = a.reserve(p, set); err != nil {
			return 0, err
		}
	} else {
		i := a.segmentIndex(s.Range)
		if i == len(a.segments) || a.segments[i].addr != s.Range || a.segments[i].page == 0 || a.segments[i].stream != set {
			return 0, fmt.Errorf("no expandable segment of this stream and pool begins at %#x: %w", uint64(s.Range), device.ErrInvalid)
		}
		for u = a.segments[i].first; u.next != nil; u = u.next {
		}
		if u = a.splitUnmapped(u, s.Range+device.Addr(s.Offset)); u == nil {
			return 0, fmt.Errorf("offset %d does not lie behind what is mapped of the address range at %#x: %w",
				s.Offset, uint64(s.Range), device.ErrInvalid)
		}
	}
	addr := u.addr
	ok, err := a.mapPages(u, s.Size)
	if s.Range != 0 && !u.mapped { // what was cut is one hole again
		set.removeUnmapped(u)
		a.absorb(u.prev, u)
	}
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, a.refuse(s.Size, s.Size, s.Stream)
	}
	return addr, nil
}

// splitUnmapped cuts an unmapped block at an address, which lies before the block's end, and returns the upper part, for which pages
// are mapped at once.
func (a *Allocator) splitUnmapped(u *block, at device.Addr) *block {
	if u.mapped || at <= u.addr {
		return nil
	}
	upper := a.spares.block()
	upper.addr, upper.size, upper.seg = at, u.size-uint64(at-u.addr), u.seg
	upper.prev, upper.next = u, u.next
	if upper.next != nil {
		upper.next.prev = upper
	}
	u.next = upper
	u.size = uint64(at - u.addr)
	u.seg.stream.putUnmapped(upper)
	return upper
}

// RestoreBlock makes a part of a free block live.
func (a *Allocator) RestoreBlock(addr device.Addr, size, requested uint64) (allocators.Block, error) {
	a.touched = a.touched[:0]
	i := a.segmentIndex(addr + 1)
	if i == 0 {
		return allocators.Block{}, fmt.Errorf("no segment holds %#x: %w", uint64(addr), device.ErrInvalid)
	}
	g := a.segments[i-1]
	// Blocks come in order, so the place is nearly always in the last block of its segment; it has been looked at last.
	b := a.restored
	if b == nil || b.seg != g || b.addr > addr {
		b = g.first
	}
	for b != nil && addr >= b.addr+device.Addr(b.size) {
		b = b.next
	}
	if b == nil || b.allocated || !b.mapped || size == 0 || size > b.size-uint64(addr-b.addr) {
		return allocators.Block{}, fmt.Errorf("%d bytes at %#x are not free: %w", size, uint64(addr), device.ErrInvalid)
	}
	g.stream.free.remove(b)
	small, expandable := g.pool.small, b.expandable()
	wasSplit, whole := b.split(), b.size
	var parts uint64 // free blocks that are left of it
	if head := uint64(addr - b.addr); head > 0 {
		a.keepPart(b, b.addr, head, b.prev, b)
		parts++
		b.addr, b.size = addr, b.size-head
	}
	if tail := b.size - size; tail > 0 {
		a.keepPart(b, b.addr+device.Addr(size), tail, b, b.next)
		parts++
		b.size = size
	}
	if !expandable {
		var before, beforeBytes uint64
		if wasSplit {
			before, beforeBytes = 1, whole
		}
		net(&a.stats.InactiveSplit, small, parts, before)
		net(&a.stats.InactiveSplitBytes, small, whole-size, beforeBytes)
	}
	b.allocated, b.requested = true, requested
	a.restored = b
	a.table.insert(b)
	a.touched = append(a.touched, b)
	a.stats.Allocation.Add(small, 1)
	a.stats.AllocatedBytes.Add(small, b.size)
	a.stats.Active.Add(small, 1)
	a.stats.ActiveBytes.Add(small, b.size)
	a.stats.RequestedBytes.Add(small, requested)
	if b.size >= a.set.MaxSplitSize {
		a.stats.OversizeAllocations.Add(1)
	}
	return allocators.Block{Addr: b.addr, Size: b.size}, nil
}
