package allocators

import "github.com/shatter-gpu/shatter/allocators/device"

// StartSegment is a segment of the state that an allocator begins from.
type StartSegment struct {
	// Size in bytes; of an expandable segment the bytes of one mapped range.
	Size   uint64
	Stream device.Stream
	// Small says that it is of the small pool; Expandable that it is a mapped range.
	Small, Expandable bool
	// Range is the address of the address range that an expandable segment goes on, 0 if it begins one; it lies Offset bytes
	// from there.
	Range  device.Addr
	Offset uint64
	// Pool is the private pool that it belongs to, in use; 0 for the default pool.
	Pool PoolID
	// Idle says that no block will be put in it: on a device without room for it, and for Needed more bytes, it is left
	// out, as a release would have returned it before.
	Idle   bool
	Needed uint64
}

// Restorer is an allocator that can begin from a state instead of from an empty device. Segments come in address order, blocks
// each behind its segment, all before the first other call.
type Restorer interface {
	// RestoreSegment buys a segment, all of it free. Its address is 0 if it was left out. A segment for which the device
	// has not the memory gives an error as from Alloc.
	RestoreSegment(s StartSegment) (device.Addr, error)
	// RestoreBlock makes a part of a restored segment live, for requested bytes. Address and size are multiples of 512.
	RestoreBlock(addr device.Addr, size, requested uint64) (Block, error)
}
