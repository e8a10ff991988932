package allocators

// PromiseKind names the promise of contracts section 3 that an allocator declares.
type PromiseKind uint8

const (
	// PromiseNone: nothing is declared; the judge applies the general rules.
	PromiseNone PromiseKind = iota
	// PromiseN: a request is refused if and only if, at entry, no free block was acceptable and, after a full flush, the
	// device could not sell the segment (contracts 3.1, native).
	PromiseN
	// PromiseX: never refused if a free block was acceptable at entry or the pages to map could be had after a full
	// flush (contracts 3.1, expandable segments).
	PromiseX
)

// Promise is what an allocator declares, with the settings that the prediction needs. It changes when the settings do.
type Promise struct {
	Kind PromiseKind
	// Void says that the settings changed in a way that voids the promise (contracts 3.1: max_split_size lowered at
	// run time), with the reason.
	Void string
	// Round is the size that is looked for when n bytes are asked for.
	Round func(n uint64) uint64
	// SegmentSize is what a rounded size buys from the device.
	SegmentSize func(rounded uint64) uint64
	// PageSize is the physical chunk of an expandable segment of the small or large pool.
	PageSize func(small bool) uint64
	// MaxSplitSize in bytes, the largest uint64 if off.
	MaxSplitSize uint64
	// MaxNonSplitRounding in bytes.
	MaxNonSplitRounding uint64
	// Limit in bytes, if HasLimit.
	HasLimit bool
	Limit    uint64
	// LookupAfterFlush: a lookup is made after the last purchase failed (setting x_lookup_after_flush).
	LookupAfterFlush bool
	// Pools say how private pools work, if the allocator has them.
	Pools PoolRules
}
