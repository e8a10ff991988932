package allocators

import "github.com/shatter-gpu/shatter/allocators/device"

// State is what a block is in.
type State uint8

const (
	// Unmapped is address space without memory, in an expandable segment.
	Unmapped State = iota
	// Free is memory that can be handed out.
	Free
	// Pending is freed by the caller with uses on other streams outstanding.
	Pending
	// Live is handed out and not freed.
	Live
)

// String returns the vocabulary's word.
func (s State) String() string {
	return [...]string{"unmapped", "free", "pending", "live"}[s]
}

// BlockInfo is a block as the allocator sees it.
type BlockInfo struct {
	Addr      device.Addr
	Size      uint64 // bytes
	Requested uint64 // bytes asked for; meaningful for live and pending blocks
	State     State
	InPool    bool // in a free set (free) or an unmapped set (unmapped)
	Small     bool // of the small pool
	// Expandable says that the block's segment is an expandable one.
	Expandable bool
	Stream     device.Stream
}

// End is the address behind the block.
func (b *BlockInfo) End() device.Addr { return b.Addr + device.Addr(b.Size) }

// Neighbourhood is a block with its neighbours in its segment.
type Neighbourhood struct {
	Prev, Block, Next BlockInfo
	HasPrev, HasNext  bool
	// Base and Size are the segment's.
	Base device.Addr
	Size uint64
}

// SegmentInfo is a region from the device, or a reserved address range with parts of it mapped.
type SegmentInfo struct {
	Addr       device.Addr
	Size       uint64 // bytes; of an expandable segment the reservation
	Small      bool
	Expandable bool
	PageSize   uint64 // bytes; 0 if not expandable
	Stream     device.Stream
	Pool       PoolID // 0 for the default pool
	// First and Count say which of Snapshot.Blocks tile this segment, in address order.
	First, Count int
}

// Snapshot is an allocator's whole state, segments by address.
type Snapshot struct {
	Segments []SegmentInfo
	Blocks   []BlockInfo
}

// BlocksOf returns the blocks of segment i, in address order.
func (s *Snapshot) BlocksOf(i int) []BlockInfo {
	g := &s.Segments[i]
	return s.Blocks[g.First : g.First+g.Count]
}
