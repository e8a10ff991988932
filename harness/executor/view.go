package executor

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/shadow"
)

// View is the allocator's segments and blocks as the harness knows them without asking it: regions and mapped pages from
// the device's calls, live and pending blocks from the shadow heap, and between them what is free or unmapped, as one block
// each (complete coalescing, contracts I4).
type View struct {
	allocators.Snapshot
	// Entries has the shadow's entry of each block that is live or pending.
	Entries []*shadow.Entry
	// Reserved is the bytes of regions and mapped pages.
	Reserved uint64
	// Stray is the first entry that lies in no region or on no memory.
	Stray *shadow.Entry
}

// build overwrites the view.
func (v *View) build(l *ledger, h *shadow.Heap) {
	v.Segments, v.Blocks, v.Entries = v.Segments[:0], v.Blocks[:0], v.Entries[:0]
	v.Reserved, v.Stray = 0, nil
	cursor := h.Cursor()
	e := cursor.Next()
	for _, r := range l.regions {
		for e != nil && e.Addr < r.Addr {
			v.stray(e)
			e = cursor.Next()
		}
		seg := allocators.SegmentInfo{
			Addr: r.Addr, Size: r.Size, Small: r.Small, Expandable: r.Expandable, Stream: r.Stream, First: len(v.Blocks),
		}
		at := r.Addr
		for ; e != nil && e.Addr < r.End(); e = cursor.Next() {
			v.gap(r, at, e.Addr)
			if !r.covers(e.Addr, e.Size) {
				v.stray(e)
			}
			state := allocators.Live
			if e.Pending {
				state = allocators.Pending
			}
			v.add(r, e.Addr, e.Size, state, e)
			at = e.End()
		}
		v.gap(r, at, r.End())
		if !r.Expandable {
			v.Reserved += r.Size
		}
		seg.Count = len(v.Blocks) - seg.First
		v.Segments = append(v.Segments, seg)
	}
	for ; e != nil; e = cursor.Next() {
		v.stray(e)
	}
}

func (v *View) stray(e *shadow.Entry) {
	if v.Stray == nil {
		v.Stray = e
	}
}

func (v *View) add(r *Region, addr device.Addr, size uint64, state allocators.State, e *shadow.Entry) {
	b := allocators.BlockInfo{
		Addr: addr, Size: size, State: state, Small: r.Small, Expandable: r.Expandable, Stream: r.Stream,
		InPool: state == allocators.Free || state == allocators.Unmapped,
	}
	if e != nil {
		b.Requested = e.Requested
	}
	if r.Expandable && state != allocators.Unmapped {
		v.Reserved += size
	}
	v.Blocks = append(v.Blocks, b)
	v.Entries = append(v.Entries, e)
}

// gap adds what lies between two entries: one free block, or free and unmapped ones in turn.
func (v *View) gap(r *Region, from, to device.Addr) {
	if from >= to {
		return
	}
	if !r.Expandable {
		v.add(r, from, uint64(to-from), allocators.Free, nil)
		return
	}
	for from < to {
		mapped, end := r.run(uint64(from-r.Addr) / granule)
		stop := min(r.Addr+device.Addr(end*granule), to)
		state := allocators.Unmapped
		if mapped {
			state = allocators.Free
		}
		v.add(r, from, uint64(stop-from), state, nil)
		from = stop
	}
}
