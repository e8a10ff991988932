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
		// What all blocks of the region have in common.
		b := allocators.BlockInfo{Small: r.Small, Expandable: r.Expandable, Stream: r.Stream}
		seg := allocators.SegmentInfo{
			Addr: r.Addr, Size: r.Size, Small: r.Small, Expandable: r.Expandable, Stream: r.Stream, Pool: r.Pool, First: len(v.Blocks),
		}
		at, end := r.Addr, r.End()
		for ; e != nil && e.Addr < end; e = cursor.Next() {
			if at < e.Addr {
				v.gap(r, b, at, e.Addr)
			}
			if !r.covers(e.Addr, e.Size) {
				v.stray(e)
			}
			b.State = allocators.Live
			if e.Pending {
				b.State = allocators.Pending
			}
			b.Addr, b.Size, b.Requested = e.Addr, e.Size, e.Requested
			v.Blocks = append(v.Blocks, b)
			v.Entries = append(v.Entries, e)
			at = e.End()
			if r.Expandable {
				v.Reserved += e.Size
			}
		}
		if at < end {
			v.gap(r, b, at, end)
		}
		if !r.Expandable {
			v.Reserved += (r.Size + granule - 1) / granule * granule // what the device took, whatever was asked for
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

// gap adds what lies between two entries: one free block, or free and unmapped ones in turn. b has what the region's
// blocks have in common.
func (v *View) gap(r *Region, b allocators.BlockInfo, from, to device.Addr) {
	b.Requested, b.InPool = 0, true
	for from < to {
		b.State, b.Addr = allocators.Free, from
		stop := to
		if r.Expandable {
			mapped, end := r.run(uint64(from-r.Addr) / granule)
			stop = min(r.Addr+device.Addr(end*granule), to)
			if !mapped {
				b.State = allocators.Unmapped
			}
		}
		b.Size = uint64(stop - from)
		if r.Expandable && b.State == allocators.Free {
			v.Reserved += b.Size
		}
		v.Blocks = append(v.Blocks, b)
		v.Entries = append(v.Entries, nil)
		from = stop
	}
}
