package reference

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// ---- what can be compared

// Addr is the block's place.
func (b *Block) Addr() device.Addr { return device.Addr(b.addr) }

// Size is the bytes set aside.
func (b *Block) Size() uint64 { return b.size }

// Reserved is the bytes taken from the device.
func (r *Allocator) Reserved() uint64 { return r.reserved }

// HeldBack is the number of frees that are held back.
func (r *Allocator) HeldBack() int { return len(r.deferred) }

// Open are the redirections to private pools that were begun and not ended, oldest first.
func (r *Allocator) Open() []allocators.Redirection { return r.open }

// Uses is how often a private pool was begun, less how often it was released.
func (r *Allocator) Uses(id allocators.PoolID) int { return r.uses[id] }

// Refusal is what the error says when the request that came last was refused: section 21.
func (r *Allocator) Refusal(n uint64, s device.Stream) allocators.OOMError {
	size := r.round(n)
	e := allocators.OOMError{
		Request: n, Rounded: size, SegmentSize: segmentSize(size), Total: r.capacity, DeviceFree: r.DeviceFree(),
		HasLimit: r.hasLimit, Limit: r.limit, Reserved: r.reserved, Stream: s,
	}
	for _, g := range r.segments {
		for _, b := range g.blocks {
			switch {
			case b.allocated:
				e.Allocated += b.size
			case g.in.private != 0 && b.free():
				e.Private += b.size
			}
		}
	}
	return e
}

func (b *Block) state() allocators.State {
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

// Snapshot lists all segments and blocks, free ones without the bytes requested.
func (r *Allocator) Snapshot(into *allocators.Snapshot) {
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
