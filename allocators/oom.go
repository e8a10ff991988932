package allocators

import (
	"errors"
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// ErrInvalidPointer: an address was freed or recorded that is not live (a double free, a foreign pointer).
var ErrInvalidPointer = errors.New("invalid device pointer")

// ErrUnsupported: the allocator cannot do what was asked of it, not ever or not now, and has done nothing. It is no fault.
var ErrUnsupported = errors.New("does not support it")

// OOMError is a refusal with all the figures of PyTorch's message (specification, section 21), taken after the
// allocator gave up. It may be reused: it is valid until the allocator's next call.
type OOMError struct {
	Request     uint64 // bytes the caller asked for
	Rounded     uint64 // bytes looked for
	SegmentSize uint64 // bytes that would have been bought; what the message calls the request
	Device      int
	Total       uint64 // the device's memory
	DeviceFree  uint64
	HasLimit    bool // a memory fraction is set
	Limit       uint64
	Allocated   uint64 // live bytes, in block sizes
	Reserved    uint64
	Stream      device.Stream
	Private     uint64 // free bytes in private pools
}

// Error prints PyTorch 2.6.0's message, without the process list (no management library).
func (e *OOMError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "CUDA out of memory. Tried to allocate %s. GPU %d has a total capacity of %s of which %s is free. ",
		formatSize(e.SegmentSize), e.Device, formatSize(e.Total), formatSize(e.DeviceFree))
	if e.HasLimit {
		fmt.Fprintf(&b, "%s allowed; ", formatSize(e.Limit))
	}
	// What lies free in private pools counts as allocated.
	fmt.Fprintf(&b, "Of the allocated memory %s is allocated by PyTorch, ", formatSize(e.Allocated+e.Private))
	if e.Private > 0 {
		fmt.Fprintf(&b, "with %s allocated in private pools (e.g., CUDA Graphs), ", formatSize(e.Private))
	}
	fmt.Fprintf(&b, "and %s is reserved by PyTorch but unallocated.", formatSize(e.Reserved-e.Allocated-e.Private))
	b.WriteString(" If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True" +
		" to avoid fragmentation.  See documentation for Memory Management " +
		" (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
	return b.String()
}

// Is makes errors.Is(err, device.ErrOutOfMemory) true.
func (e *OOMError) Is(target error) bool { return target == device.ErrOutOfMemory }

// formatSize prints as PyTorch does: bounds inclusive, so 1 GiB prints 1024.00 MiB.
func formatSize(n uint64) string {
	switch {
	case n <= 1<<10:
		return fmt.Sprintf("%d bytes", n)
	case n <= 1<<20:
		return fmt.Sprintf("%.2f KiB", float64(n)/(1<<10))
	case n <= 1<<30:
		return fmt.Sprintf("%.2f MiB", float64(n)/(1<<20))
	default:
		return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
	}
}
