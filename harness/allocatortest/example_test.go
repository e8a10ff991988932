package allocatortest_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/allocatortest"
)

// firstFit serves from one arena: the lowest hole that fits.
type firstFit struct {
	base  device.Addr
	holes []span // by address, never adjacent
	live  map[device.Addr]uint64
	// overlaps plants a bug: a hole that is joined with the one before it grows over its neighbour.
	overlaps bool
}

type span struct {
	addr device.Addr
	size uint64
}

func newFirstFit(dev device.Device) (allocators.Allocator, error) {
	free, _ := dev.Info()
	base, err := dev.Malloc(free)
	if err != nil {
		return nil, err
	}
	return &firstFit{base: base, holes: []span{{base, free}}, live: map[device.Addr]uint64{}}, nil
}

func (f *firstFit) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	size := (n + 511) &^ 511
	for i := range f.holes {
		h := &f.holes[i]
		if h.size < size {
			continue
		}
		b := allocators.Block{Addr: h.addr, Size: size}
		f.live[b.Addr] = size
		h.addr += device.Addr(size)
		h.size -= size
		if h.size == 0 {
			f.holes = slices.Delete(f.holes, i, i+1)
		}
		return b, nil
	}
	return allocators.Block{}, fmt.Errorf("no hole of %d bytes: %w", size, device.ErrOutOfMemory)
}

func (f *firstFit) Free(addr device.Addr) error {
	if addr == 0 {
		return nil
	}
	size, ok := f.live[addr]
	if !ok {
		return fmt.Errorf("free of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	delete(f.live, addr)
	i, _ := slices.BinarySearchFunc(f.holes, addr, func(h span, a device.Addr) int { return int(int64(h.addr) - int64(a)) })
	f.holes = slices.Insert(f.holes, i, span{addr, size})
	if i+1 < len(f.holes) && f.holes[i].addr+device.Addr(f.holes[i].size) == f.holes[i+1].addr {
		f.holes[i].size += f.holes[i+1].size
		f.holes = slices.Delete(f.holes, i+1, i+2)
	}
	if i > 0 && f.holes[i-1].addr+device.Addr(f.holes[i-1].size) == f.holes[i].addr {
		f.holes[i-1].size += f.holes[i].size
		if f.overlaps {
			f.holes[i-1].size += 512 // the planted bug: the hole grows over its neighbour
		}
		f.holes = slices.Delete(f.holes, i, i+1)
	}
	return nil
}

// One call tests an allocator; a second line makes a native fuzz target of it:
//
//	func FuzzFirstFit(f *testing.F) { allocatortest.Fuzz(f, newFirstFit) }
func Example() {
	_ = func(t *testing.T) { allocatortest.Test(t, newFirstFit) }
	// Output:
}

func TestFirstFit(t *testing.T) { allocatortest.Test(t, newFirstFit) }

func FuzzFirstFit(f *testing.F) { allocatortest.Fuzz(f, newFirstFit) }
