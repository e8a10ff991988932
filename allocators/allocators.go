// Package allocators says what a GPU memory allocator is to the harness: Alloc and Free, and optional abilities that are
// discovered by type assertion. An allocator knows nothing of the harness.
//
// All sizes are bytes. An allocator is used by one goroutine at a time unless it says otherwise.
package allocators

import "github.com/shatter-gpu/shatter/allocators/device"

// MaxRequest is the largest request, 2^60 bytes; PyTorch refuses more before anything else
// (caching-allocator specification, section 2, allocation ceiling).
const MaxRequest = 1 << 60

// Block is memory handed out.
type Block struct {
	// Addr is the address; 0 for a request of 0 bytes.
	Addr device.Addr
	// Size is the bytes set aside, at least the request; 0 if the allocator does not tell.
	Size uint64
}

// Allocator is the system under test.
type Allocator interface {
	// Alloc returns n bytes for work on stream s. A request that cannot be served gives an error that errors.As
	// finds to be an *OOMError, or that wraps device.ErrOutOfMemory. n = 0 gives the zero Block.
	Alloc(n uint64, s device.Stream) (Block, error)
	// Free takes back what Alloc returned; work queued on the block's own stream may still use it.
	// Address 0 is ignored. An address that is not live gives an error that wraps ErrInvalidPointer.
	Free(addr device.Addr) error
}

// StreamRecorder is an allocator that can be told of uses on other streams (PyTorch's record_stream).
type StreamRecorder interface {
	// Record says that the block is also used on s: after its Free it must not be handed out before the work that
	// s has by then is done.
	Record(addr device.Addr, s device.Stream) error
}

// CacheEmptier is an allocator with a cache that can be given back to the device.
type CacheEmptier interface {
	EmptyCache() error
}

// Configurer is an allocator whose settings can change while it runs.
type Configurer interface {
	Configure(conf string) error
}

// FractionSetter is an allocator that can be limited to a fraction, 0 to 1, of the device's memory.
type FractionSetter interface {
	SetFraction(f float64) error
}

// StatsReader is an allocator that counts under PyTorch's names. One that declares no promise may leave at 0 what it does not count,
// and need not count by pool.
type StatsReader interface {
	// Stats returns the live counters; the caller only reads them.
	Stats() *Stats
}

// Snapshotter is an allocator that can list its segments and blocks. Of one that declares no promise only the segments' places and
// sizes, the tiling and the live blocks are looked at; what was requested may be left 0.
type Snapshotter interface {
	// Snapshot overwrites into, reusing its slices.
	Snapshot(into *Snapshot)
}

// Toucher is an allocator that tells which blocks its last operation changed, so that a check need not walk them all.
type Toucher interface {
	// Touched appends, for each block that the last call changed and that still exists, the block with its two
	// neighbours, in address order, as one Neighbourhood.
	Touched(into []Neighbourhood) []Neighbourhood
}

// Promiser is an allocator that declares when it may refuse.
type Promiser interface {
	Promise() Promise
}

// CapacitySensor is an allocator that compares sizes with the device's total memory and tells at which total one of the
// comparisons made so far would first have come out otherwise. With the device's own answer (device.CapacitySensor) it
// makes the capacity spectrum exact.
type CapacitySensor interface {
	// NextCapacity returns the smallest total above the present one at which the run so far would have decided
	// otherwise; the largest uint64 if there is none.
	NextCapacity() uint64
}
