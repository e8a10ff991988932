// Package device is what a GPU allocator stands on: memory in whole segments, virtual memory management (reserve, create,
// map), streams and events. The interfaces follow the CUDA runtime and driver calls that PyTorch's caching allocator makes;
// a device is simulated (simdev), host memory or a real GPU.
//
// All sizes and addresses are bytes. A device is used by one goroutine at a time.
package device

import "errors"

// Addr is an address in the device's address space; 0 is null.
type Addr uint64

// Stream numbers a stream from 0 (the default stream) up to 2^31-1. Allocators order streams by this number, as PyTorch
// orders them by handle.
type Stream int32

// Handle names a physical memory chunk that Create made.
type Handle uint64

// Event marks a place in a stream's queue of work.
type Event uint64

// Errors that every device reports in these terms; wrapped errors carry the figures.
var (
	// ErrOutOfMemory: the device has not the bytes that Malloc or Create asked for.
	ErrOutOfMemory = errors.New("device out of memory")
	// ErrInvalid: a call named an address, handle, event or size that it must not.
	ErrInvalid = errors.New("invalid device call")
	// ErrDriver: the driver failed for a reason that is neither; the call had no effect and may be made again.
	ErrDriver = errors.New("device driver error")
)

// Memory hands out whole regions, as cudaMalloc and cudaFree do.
type Memory interface {
	// Info returns the bytes that are free now and the device's total.
	Info() (free, total uint64)
	// Malloc returns a region of at least size bytes, or ErrOutOfMemory.
	Malloc(size uint64) (Addr, error)
	// Free returns a region that Malloc gave.
	Free(addr Addr) error
}

// Virtual is the virtual memory management of the CUDA driver: address space is reserved apart from physical memory,
// and physical chunks are mapped into it.
type Virtual interface {
	// Granularity is the size that every size and address here is a multiple of.
	Granularity() uint64
	// Reserve takes address space; it costs no memory.
	Reserve(size uint64) (Addr, error)
	// Unreserve gives back a whole reservation with nothing mapped.
	Unreserve(addr Addr, size uint64) error
	// Create takes physical memory, or ErrOutOfMemory.
	Create(size uint64) (Handle, error)
	// Release gives a chunk back as soon as it is no longer mapped.
	Release(h Handle) error
	// Map puts a whole chunk at addr, inside one reservation, and makes it accessible.
	Map(addr Addr, size uint64, h Handle) error
	// Unmap removes whole mappings that tile [addr, addr+size).
	Unmap(addr Addr, size uint64) error
}

// Streams are queues of work with events in them.
type Streams interface {
	// Record puts an event behind all work now on the stream.
	Record(s Stream) (Event, error)
	// Done tells whether all work before the event has completed; it does not wait.
	Done(e Event) (bool, error)
	// Wait waits for the event.
	Wait(e Event) error
	// Sync waits for all work on the stream.
	Sync(s Stream) error
	// SyncAll waits for all work on all streams.
	SyncAll() error
	// Destroy gives an event back.
	Destroy(e Event) error
}

// Device is all that the caching allocator needs. An allocator that needs less asks for less.
type Device interface {
	Memory
	Virtual
	Streams
}

// Foreigner is a device on which others can be made to hold memory (trace operation `foreign`).
type Foreigner interface {
	// SetForeign makes others hold this many bytes from now on; ErrOutOfMemory if they are not free.
	SetForeign(bytes uint64) error
}

// CapacitySensor is a device that tells at which capacity a refused call would have succeeded.
type CapacitySensor interface {
	// NextCapacity returns the smallest capacity at which a Malloc or Create refused so far would have succeeded;
	// the largest uint64 if none was refused.
	NextCapacity() uint64
}
