// Package shadow keeps what must be true of live memory whatever the allocator: which bytes are handed out, which were
// freed with work on other streams outstanding, whether two of them overlap, and where work is still queued on memory that its
// allocator takes for free (hazards). In go the operations and the blocks that
// the allocator returned; it never asks the allocator anything. Whether work is done it asks the device, through marks
// that it records itself.
package shadow

import (
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Entry is memory that is live, or pending: freed by the program with recorded uses not done.
type Entry struct {
	Addr      device.Addr
	Size      uint64 // bytes set aside
	Requested uint64 // bytes asked for
	Stream    device.Stream
	Slot      int32             // the program's name for it
	Op        int32             // operation that allocated it
	Pool      allocators.PoolID // private pool that the request was sent to, 0 for the default one
	Pending   bool
	// Deferred: the free is held back, so that the allocator does not wait for the uses yet.
	Deferred bool
	uses     []use
	marks    []mark
	work     []mark // queued work that uses it, of its own stream and of streams that were recorded
}

// use is a stream on which the entry's memory is used besides its own.
type use struct {
	stream device.Stream
	// held: it was recorded while frees were held back, so that PyTorch takes it for part of a graph and forgets it. graph: it
	// is one, so that no work was queued.
	held, graph bool
}

// mark is a place in a stream's work behind which the entry's memory is not used any more.
type mark struct {
	stream device.Stream
	event  device.Event
	// late: the mark lies behind the event that the allocator recorded, and this is its number among such marks, from 1; else 0.
	late uint64
}

// unrecorded is the number of a late mark that is still to be recorded.
const unrecorded = ^uint64(0)

// End is the address behind the entry.
func (e *Entry) End() device.Addr { return e.Addr + device.Addr(e.Size) }

// Totals count entries, bytes set aside and bytes asked for.
type Totals struct {
	Count, Bytes, Requested uint64
}

func (t *Totals) add(e *Entry) {
	t.Count++
	t.Bytes += e.Size
	t.Requested += e.Requested
}

func (t *Totals) sub(e *Entry) {
	t.Count--
	t.Bytes -= e.Size
	t.Requested -= e.Requested
}

// Heap is the shadow of one run.
type Heap struct {
	Live, Pending Totals
	// PeakRequested is the largest Live.Requested so far, and PeakOp the first operation at which it was reached.
	PeakRequested uint64
	PeakOp        int

	streams device.Streams
	// late is how many late marks there were, reached up to which of them each stream is known to be done.
	late    uint64
	resumed []*Entry // those that have marks to be recorded
	reached map[device.Stream]uint64
	ranges  ranges
	slots   []*Entry
	pending []*Entry
	spare   []*Entry

	// Held says that frees with uses on other streams are held back (a private pool is open that does so), Capturing that a
	// graph is captured: what is done then is recorded, not queued.
	Held, Capturing bool
	deferred        []*Entry // freed meanwhile, oldest first
	hazards         []Hazard
}

// New makes the shadow of a program with this many slots; marks are recorded on the streams.
func New(streams device.Streams, slots int) *Heap {
	return &Heap{streams: streams, slots: make([]*Entry, slots), reached: map[device.Stream]uint64{}, PeakOp: -1}
}

// At returns what is live in a slot, nil if nothing is.
func (h *Heap) At(slot int32) *Entry { return h.slots[slot] }

func (h *Heap) entry() *Entry {
	if n := len(h.spare); n > 0 {
		e := h.spare[n-1]
		h.spare = h.spare[:n-1]
		return e
	}
	slab := make([]Entry, 16)
	for i := range slab[1:] {
		h.spare = append(h.spare, &slab[i+1])
	}
	return &slab[0]
}

func (h *Heap) drop(e *Entry) {
	*e = Entry{uses: e.uses[:0], marks: e.marks[:0], work: e.work[:0]}
	h.spare = append(h.spare, e)
}

// Alloc enters memory that was handed out. If some of it is live, or pending with unfinished work on another stream than
// this one, it returns that entry; the shadow then is of no further use.
func (h *Heap) Alloc(slot int32, addr device.Addr, size, requested uint64, stream device.Stream, op int) (overlapped *Entry) {
	e := h.entry()
	e.Addr, e.Size, e.Requested, e.Stream, e.Slot, e.Op = addr, size, requested, stream, slot, int32(op)
	for {
		old := h.ranges.insert(e)
		if old == nil {
			break
		}
		if !old.Pending || h.unfinished(old, stream) {
			return old
		}
		h.complete(old)
	}
	h.slots[slot] = e
	h.Live.add(e)
	if h.Live.Requested > h.PeakRequested {
		h.PeakRequested, h.PeakOp = h.Live.Requested, op
	}
	return nil
}

// unfinished tells whether a pending entry has work outstanding on a stream other than s.
func (h *Heap) unfinished(e *Entry, s device.Stream) bool {
	for _, m := range e.marks {
		if m.stream == s || m.late > 0 && m.late <= h.reached[m.stream] {
			continue
		}
		if m.late == unrecorded {
			return true
		}
		if done, err := h.streams.Done(m.event); err != nil || !done {
			return true
		}
	}
	return false
}

// Record notes a use on another stream.
func (h *Heap) Record(slot int32, s device.Stream) {
	e := h.slots[slot]
	if e.Stream == s {
		return
	}
	for i := range e.uses {
		if u := &e.uses[i]; u.stream == s {
			// PyTorch forgets the earlier use with the later one. In a capture that is right: the graph runs behind what was queued.
			u.held, u.graph = u.held || h.Held, u.graph || h.Capturing
			return
		}
	}
	e.uses = append(e.uses, use{s, h.Held, h.Capturing})
}

// Free is called before the allocator's Free, so that no mark lies behind what the allocator waits for.
func (h *Heap) Free(slot int32) error {
	e := h.slots[slot]
	h.slots[slot] = nil
	h.Live.sub(e)
	if len(e.uses) == 0 {
		h.ranges.remove(e)
		if len(e.work) > 0 {
			h.endanger(e, e.work, true)
		}
		h.drop(e)
		return nil
	}
	for i := range e.uses {
		if u := &e.uses[i]; !u.graph || !h.Held {
			if err := h.mark(e, u.stream); err != nil {
				return err
			}
		}
	}
	e.Pending = true
	h.Pending.add(e)
	h.pending = append(h.pending, e)
	if h.Held {
		e.Deferred = true
		h.deferred = append(h.deferred, e)
	}
	return nil
}

// mark marks a stream's work up to now as using the entry.
func (h *Heap) mark(e *Entry, s device.Stream) error {
	ev, err := h.streams.Record(s)
	if err != nil {
		return fmt.Errorf("mark on stream %d: %w", s, err)
	}
	e.marks = append(e.marks, mark{stream: s, event: ev})
	return nil
}

// Poll completes the pending entries whose work is done.
func (h *Heap) Poll() { h.poll(everyPool) }

// Waited is Poll after the allocator has waited: for all its events, or for streams only.
func (h *Heap) Waited(events bool) { h.waited(everyPool, events) }

// WaitedFor is Waited for the events and the entries of one private pool.
func (h *Heap) WaitedFor(pool allocators.PoolID, events bool) { h.waited(pool, events) }

func (h *Heap) waited(pool allocators.PoolID, events bool) {
	if events {
		h.reach(pool)
	}
	h.poll(pool)
}

// Synced notes that the allocator has waited for all work of a stream, or of all of them, and so for its own events there.
func (h *Heap) Synced(s device.Stream, all bool) {
	if h.late == 0 {
		return
	}
	for stream := range h.reached {
		if all || stream == s {
			h.reached[stream] = h.late
		}
	}
}

// everyPool stands for the default pool and all private ones.
const everyPool = ^allocators.PoolID(0)

// reach notes which of the late marks the allocator's own events have shown to be done: on a stream all up to the last one of a pool
// that was waited for.
func (h *Heap) reach(pool allocators.PoolID) {
	for _, e := range h.pending {
		if e.Deferred || pool != everyPool && e.Pool != pool {
			continue
		}
		for _, m := range e.marks {
			if m.late > h.reached[m.stream] {
				h.reached[m.stream] = m.late
			}
		}
	}
}

func (h *Heap) poll(pool allocators.PoolID) {
	for i := 0; i < len(h.pending); {
		e := h.pending[i]
		if pool != everyPool && e.Pool != pool || e.Deferred || h.unfinished(e, -1) {
			i++
			continue
		}
		h.complete(e)
	}
}

func (h *Heap) complete(e *Entry) {
	for i, p := range h.pending {
		if p == e {
			h.pending[i] = h.pending[len(h.pending)-1]
			h.pending = h.pending[:len(h.pending)-1]
			break
		}
	}
	h.Pending.sub(e)
	h.ranges.remove(e)
	h.discard(e.marks)
	if len(e.work) > 0 {
		h.endanger(e, e.work, true)
	}
	if e.Deferred {
		h.deferred = slices.DeleteFunc(h.deferred, func(d *Entry) bool { return d == e })
	}
	h.drop(e)
}

// discard gives marks back that are of no use any more, whatever the device says.
func (h *Heap) discard(marks []mark) {
	for _, m := range marks {
		_ = h.streams.Destroy(m.event)
	}
}

// Each visits live and pending entries in address order until visit returns false.
func (h *Heap) Each(visit func(*Entry) bool) { h.ranges.each(visit) }

// Cursor walks the entries in address order without a call back.
type Cursor struct {
	r    *ranges
	c, i int
}

// Cursor starts before the first entry.
func (h *Heap) Cursor() Cursor { return Cursor{r: &h.ranges} }

// Next returns the next entry, nil at the end.
func (c *Cursor) Next() *Entry {
	for c.c < len(c.r.chunks) {
		if k := c.r.chunks[c.c]; c.i < k.n {
			c.i++
			return k.entries[c.i-1]
		}
		c.c, c.i = c.c+1, 0
	}
	return nil
}
