package caching

import "math"

// NextCapacity implements allocators.CapacitySensor. The device's total enters decisions through these comparisons only: a
// purchase that the device refused, the fraction limit, the garbage collection threshold, and the address space of
// expandable segments. Each notes at which larger total it would have come out otherwise.
func (a *Allocator) NextCapacity() uint64 { return a.next }

// senseDevice: the device refused this many bytes.
func (a *Allocator) senseDevice(bytes uint64) {
	free, total := a.dev.Info()
	a.sense(total - free + bytes)
}

func (a *Allocator) sense(capacity uint64) {
	if capacity < a.next {
		a.next = capacity
	}
}

// senseWhere notes the smallest total that passes a test which every larger total passes too.
func (a *Allocator) senseWhere(passes func(total uint64) bool) {
	// No more than what is known already needs to be searched, and nearly always this ends here.
	hi := min(a.next, math.MaxUint64>>4)
	if !passes(hi - 1) {
		return
	}
	lo := a.capacity
	for hi-lo > 1 {
		if mid := lo + (hi-lo)/2; passes(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	a.sense(hi)
}

// limitAt is the fraction limit on a device of this total.
func (a *Allocator) limitAt(total uint64) uint64 { return uint64(a.fraction * float64(total)) }

// senseLimit: the limit refused to let this many bytes be reserved.
func (a *Allocator) senseLimit(reserved uint64) {
	a.senseWhere(func(total uint64) bool { return a.limitAt(total) >= reserved })
}

// senseGC: garbage collection went on since this many bytes were over its threshold.
func (a *Allocator) senseGC(reserved uint64) {
	a.senseWhere(func(total uint64) bool { return a.gcLimit(a.limitAt(total)) >= reserved })
}

// senseRoom: a run of blocks at the end of an expandable segment was this much too short.
func (a *Allocator) senseRoom(g *segment, short uint64) {
	a.senseWhere(func(total uint64) bool { return reservation(total, g.page) >= g.size+short })
}

// senseTails: two effective sizes were compared, of which one includes address space to the segment's end.
func (a *Allocator) senseTails(b, next *block, here, there uint64) {
	tail, other := tailed(b), tailed(next)
	if tail == other {
		return // both grow alike, or neither
	}
	g, gap := b.seg, there-here
	if other {
		g, gap = next.seg, here-there
	}
	if int64(gap) < 0 || other && gap == 0 {
		return // already decided as a larger total would decide it
	}
	// `there < here` changes when the tailed side has grown by gap, and one byte more if it must win.
	if tail {
		gap++
	}
	a.senseWhere(func(total uint64) bool { return reservation(total, g.page) >= g.size+gap })
}

// senseEnd: nothing is unmapped behind b, so a larger reservation would have a hole behind the segment's last block, and a run
// there.
func (a *Allocator) senseEnd(b *block, size uint64) {
	for b.next != nil {
		b = b.next
	}
	short := uint64(1)
	if !b.idle() {
		short = size
	} else if b.size < size {
		short = size - b.size
	}
	a.senseRoom(b.seg, short)
}

// tailed says that the block's effective size includes the unmapped end of its segment, or would if there were one.
func tailed(b *block) bool {
	return b.expandable() && (b.next == nil || !b.next.mapped && b.next.next == nil)
}
