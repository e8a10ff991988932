package shadow

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Hazard is freed memory that queued work still uses: work on the block's own stream, which only later work of the same stream may
// follow without a wait, or work that the allocator was told of and has forgotten.
type Hazard struct {
	Addr device.Addr
	Size uint64
	Op   int32         // operation that allocated the block
	On   device.Stream // a stream whose work is outstanding, where the hazard was returned
	// Home: the work is on the block's own stream; else it was recorded (record) and must be waited for.
	Home  bool
	marks []mark
}

// Use notes that work is queued on a stream that uses the memory in a slot. In a capture nothing is queued.
func (h *Heap) Use(slot int32, s device.Stream) error {
	e := h.slots[slot]
	if h.Capturing {
		return nil
	}
	ev, err := h.streams.Record(s)
	if err != nil {
		return fmt.Errorf("work on stream %d: %w", s, err)
	}
	for i := range e.work { // the later work on a stream is done after the earlier
		if e.work[i].stream == s {
			_ = h.streams.Destroy(e.work[i].event)
			e.work[i].event = ev
			return nil
		}
	}
	e.work = append(e.work, mark{stream: s, event: ev})
	return nil
}

// endanger notes work that outlives a block. If own is set, only work on the block's own stream counts: the program vouches for other
// streams by recording them, for which there are marks of their own, and takes the risk where it does not.
func (h *Heap) endanger(e *Entry, marks []mark, own bool) {
	z := Hazard{Addr: e.Addr, Size: e.Size, Op: e.Op, Home: own}
	for _, m := range marks {
		if done, err := h.streams.Done(m.event); err == nil && done || own && m.stream != e.Stream {
			_ = h.streams.Destroy(m.event)
			continue
		}
		z.marks = append(z.marks, m)
	}
	if len(z.marks) > 0 {
		h.hazards = append(h.hazards, z)
	}
}

// Hazards is how many there are, finished ones that nobody has looked at included.
func (h *Heap) Hazards() int { return len(h.hazards) }

// Disturbed returns a hazard in [addr, addr+size) with work outstanding on another stream than s, nil if there is none; -1 is no
// stream. Finished hazards are forgotten.
func (h *Heap) Disturbed(addr device.Addr, size uint64, s device.Stream) (found *Hazard) {
	kept := h.hazards[:0]
	for _, z := range h.hazards {
		left := z.marks[:0]
		for _, m := range z.marks {
			if done, err := h.streams.Done(m.event); err == nil && done {
				_ = h.streams.Destroy(m.event)
				continue
			}
			left = append(left, m)
		}
		if z.marks = left; len(left) == 0 {
			continue
		}
		kept = append(kept, z)
		if found != nil || z.Addr >= addr+device.Addr(size) || addr >= z.Addr+device.Addr(z.Size) {
			continue
		}
		for _, m := range left {
			if m.stream != s {
				hit := z
				hit.On = m.stream
				found = &hit
				break
			}
		}
	}
	clear(h.hazards[len(kept):])
	h.hazards = kept
	return found
}

// Forget drops the hazards in a range: the device waited for all work before it took the memory back.
func (h *Heap) Forget(addr device.Addr, size uint64) {
	kept := h.hazards[:0]
	for _, z := range h.hazards {
		if z.Addr < addr+device.Addr(size) && addr < z.Addr+device.Addr(z.Size) {
			h.discard(z.marks)
			continue
		}
		kept = append(kept, z)
	}
	clear(h.hazards[len(kept):])
	h.hazards = kept
}

// Deferred is how many frees are held back.
func (h *Heap) Deferred() int { return len(h.deferred) }

// Resume takes up the frees that were held back, before an operation in which the allocator does so: uses recorded meanwhile are
// forgotten, the others are waited for from now on. Real work that was forgotten so is a hazard.
func (h *Heap) Resume() {
	for len(h.deferred) > 0 {
		e := h.deferred[0]
		h.deferred = append(h.deferred[:0], h.deferred[1:]...)
		e.Deferred = false
		old := append([]mark(nil), e.marks...)
		e.marks = e.marks[:0]
		for _, u := range e.uses {
			if !u.held {
				e.marks = append(e.marks, mark{stream: u.stream, late: unrecorded})
			}
		}
		forgotten := old[:0]
		for _, m := range old {
			waited := false
			for _, n := range e.marks {
				waited = waited || n.stream == m.stream
			}
			if waited {
				_ = h.streams.Destroy(m.event)
			} else {
				forgotten = append(forgotten, m)
			}
		}
		h.endanger(e, forgotten, false)
		if len(e.marks) == 0 {
			h.complete(e)
			continue
		}
		h.resumed = append(h.resumed, e)
	}
}

// Marked records the marks of what Resume took up, behind the events that the allocator has recorded for them in the operation, one
// after the other: waiting for one tells nothing of those behind it.
func (h *Heap) Marked() error {
	for _, e := range h.resumed {
		for i := range e.marks {
			m := &e.marks[i]
			if m.late != unrecorded {
				continue
			}
			ev, err := h.streams.Record(m.stream)
			if err != nil {
				return fmt.Errorf("mark on stream %d: %w", m.stream, err)
			}
			h.late++
			m.event, m.late = ev, h.late
			if _, ok := h.reached[m.stream]; !ok {
				h.reached[m.stream] = 0 // a stream that has late marks
			}
		}
	}
	h.resumed = h.resumed[:0]
	return nil
}
