// Package hostvmm is a device made of host memory, on Linux and without cgo: it does what a GPU driver does with the means
// of the kernel, so bytes, aliases and faults are real.
//
//   - Physical memory is one sparse memory file (memfd). Malloc and Create take ranges of it, counted in granules of 2 MiB
//     against the capacity, as on the simulated device; only pages that are touched cost host memory.
//   - Addresses lie in PROT_NONE address space: the lowest place that is free, so they are used again, in the same order
//     in every run. Map shows a range of the file there (MAP_FIXED), twice if asked to; Unmap puts PROT_NONE back, so that a
//     later touch faults.
//   - Fill and Verify go through the mappings. A fault comes back as device.ErrFault and does not end the process.
//   - Streams and events are those of the simulated device: an event is done once its stream is synchronised or the event
//     waited for.
//
// The kernel gives a process a limited number of mappings (vm.max_map_count). At the limit the Go runtime cannot grow its heap
// and dies beyond recovery, so calls that would come near are refused with device.ErrEnvironment before.
package hostvmm

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Granule is what memory is handed out in: 2 MiB, the granularity of NVIDIA GPUs.
const Granule = 2 << 20

// MinCapacity is the smallest device: one granule.
const MinCapacity = Granule

// MaxCapacity is the largest device, 1 TiB: a few dozen expandable segments reserve 9/8 of it each, in 128 TiB of address space.
const MaxCapacity = 1 << 40

// Options of a device.
type Options struct {
	// Capacity in bytes, MinCapacity to MaxCapacity.
	Capacity uint64
	// MaxAreas is how many kernel memory areas all devices of the process may have; 0 means three quarters of vm.max_map_count.
	MaxAreas int64
}

func checkCapacity(bytes uint64) error {
	if bytes < MinCapacity || bytes > MaxCapacity {
		return fmt.Errorf("a host device has 2 MiB to 1 TiB, not %d bytes: %w", bytes, device.ErrInvalid)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, device.ErrInvalid)...)
}
