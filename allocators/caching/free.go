package caching

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// eventQueue has the outstanding events of one stream, oldest first.
type eventQueue struct {
	items []pendingUse
	head  int
}

// pendingUse is a freed block and an event that it waits for.
type pendingUse struct {
	event device.Event
	block *block
}

// Record says that the block is also used on s (section 14.1).
func (a *Allocator) Record(addr device.Addr, s device.Stream) error {
	b := a.table.find(addr)
	if b == nil {
		return fmt.Errorf("record of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	if s == b.seg.stream.stream {
		return nil
	}
	for i, u := range b.uses {
		if home(u) == s {
			if a.holds > 0 {
				b.uses[i] = ^s
			}
			return nil
		}
	}
	if a.holds > 0 {
		s = ^s
	}
	b.uses = append(b.uses, s)
	return nil
}

// Free takes a block back (section 14.2). With uses on other streams it stays pending until they are done.
func (a *Allocator) Free(addr device.Addr) error {
	if addr == 0 {
		return nil
	}
	b := a.table.take(addr)
	if b == nil {
		return fmt.Errorf("free of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	a.touched = a.touched[:0]
	if len(b.uses) > 0 && a.holds == 0 {
		if err := a.recordUses(b); err != nil {
			a.table.insert(b) // it was not freed
			return err
		}
	}
	small := b.seg.pool.small
	b.allocated = false
	a.stats.Allocation.Sub(small, 1)
	a.stats.AllocatedBytes.Sub(small, b.size)
	if b.size >= a.set.MaxSplitSize {
		a.stats.OversizeAllocations.Sub(1)
	}
	switch {
	case b.events > 0:
		b.uses = b.uses[:0]
	case len(b.uses) == 0:
		a.completeFree(b)
		return nil
	default:
		a.deferred = append(a.deferred, b)
		a.outstanding++
	}
	a.touched = append(a.touched, b)
	return nil
}

// recordUses puts an event on each stream that uses the block: on all or, if the device fails, on none.
func (a *Allocator) recordUses(b *block) error {
	for i, u := range b.uses {
		s := home(u)
		e, err := a.dev.Record(s)
		if err != nil {
			for _, u := range b.uses[:i] {
				q := a.queue(home(u))
				last := len(q.items) - 1
				if e := q.items[last].event; a.dev.Destroy(e) != nil {
					a.owedEvents = append(a.owedEvents, e)
				}
				q.items[last] = pendingUse{}
				q.items = q.items[:last]
				b.events--
				a.outstanding--
			}
			return err
		}
		q := a.queue(s)
		q.items = append(q.items, pendingUse{e, b})
		b.events++
		a.outstanding++
	}
	return nil
}

func (a *Allocator) queue(s device.Stream) *eventQueue {
	i, ok := a.queueOf[s]
	if !ok {
		i = len(a.queues)
		a.queues = append(a.queues, eventQueue{})
		a.queueOf[s] = i
	}
	return &a.queues[i]
}

// processEvents completes the frees whose events are done, stream by stream up to the first that is not (section 14.3).
func (a *Allocator) processEvents() error {
	if err := a.insertDeferred(); err != nil {
		return err
	}
	for i := range a.queues {
		q := &a.queues[i]
		for q.head < len(q.items) {
			done, err := a.dev.Done(q.items[q.head].event)
			if err != nil {
				return err
			}
			if !done {
				break
			}
			if err := a.pop(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitForEvents waits for every outstanding event.
func (a *Allocator) waitForEvents() error {
	for i := range a.queues {
		q := &a.queues[i]
		for q.head < len(q.items) {
			if err := a.dev.Wait(q.items[q.head].event); err != nil {
				return err
			}
			if err := a.pop(q); err != nil {
				return err
			}
		}
	}
	return nil
}

// pop takes the first event, which is done, off its queue. If the device fails to destroy it, it stays there.
func (a *Allocator) pop(q *eventQueue) error {
	u := q.items[q.head]
	if err := a.dev.Destroy(u.event); err != nil {
		return err
	}
	q.items[q.head] = pendingUse{}
	q.head++
	switch {
	case q.head == len(q.items):
		q.items, q.head = q.items[:0], 0
	case q.head*2 >= len(q.items):
		// Move what is left to the front, so that a queue that never runs empty does not grow.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	a.useDone(u.block)
	return nil
}

// useDone notes that one of the uses is over that a freed block waits for.
func (a *Allocator) useDone(b *block) {
	a.outstanding--
	b.events--
	if b.events == 0 {
		a.completeFree(b)
	}
}

// completeFree makes a block free and coalesces it (section 14.4). No memory goes back to the device here.
func (a *Allocator) completeFree(b *block) {
	small := b.seg.pool.small
	expandable := b.expandable()
	a.stats.Active.Sub(small, 1)
	a.stats.ActiveBytes.Sub(small, b.size)
	a.stats.RequestedBytes.Sub(small, b.requested)
	var absorbed, absorbedBytes uint64
	if p := b.prev; p != nil && p.idle() && p.mapped {
		absorbed, absorbedBytes = 1, p.size
		b.seg.stream.free.remove(p)
		a.absorb(b, p)
	}
	if n := b.next; n != nil && n.idle() && n.mapped {
		absorbed, absorbedBytes = absorbed+1, absorbedBytes+n.size
		b.seg.stream.free.remove(n)
		a.absorb(b, n)
	}
	if !expandable {
		// One net change, as PyTorch counts it (section 20).
		var gained, gainedBytes uint64
		if b.split() {
			gained, gainedBytes = 1, b.size
		}
		net(&a.stats.InactiveSplit, small, gained, absorbed)
		net(&a.stats.InactiveSplitBytes, small, gainedBytes, absorbedBytes)
	}
	a.putFree(b)
	a.touched = append(a.touched, b)
}

func net(p *allocators.Pooled, small bool, up, down uint64) {
	switch {
	case up > down:
		p.Add(small, up-down)
	case up < down:
		p.Sub(small, down-up)
	}
}

// absorb joins src, a neighbour of dst that is in no set any more, to dst.
func (a *Allocator) absorb(dst, src *block) {
	if src == dst.prev {
		dst.addr = src.addr
		dst.prev = src.prev
		if dst.prev != nil {
			dst.prev.next = dst
		} else {
			dst.seg.first = dst
		}
	} else {
		dst.next = src.next
		if dst.next != nil {
			dst.next.prev = dst
		}
	}
	dst.size += src.size
	a.spares.dropBlock(src)
}
