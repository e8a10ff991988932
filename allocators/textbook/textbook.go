// Package textbook has the allocators of textbooks: first, best, worst and next fit and the binary buddy system, each on one
// arena that grows at its end. They are controls: what theory says of them is known exactly (Robson, JACM 18(3), 1971), so an
// adversary or a measure that does not find it is wrong.
//
// In goes a device with virtual memory, out come blocks. The arena is one reserved address range with memory mapped from its
// start up to where blocks have reached; the open end behind the last block is used only when no hole fits. Nothing is given
// back before the cache is emptied, and then only what lies behind the last block: these allocators punch no holes.
package textbook

import (
	"errors"
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// granule is what sizes are rounded up to, in bytes, as in PyTorch's allocator.
const granule = 512

// Allocator is one arena under a placement rule. It is used by one goroutine at a time.
type Allocator struct {
	dev    device.Device
	make   func() placer
	placer placer
	base   device.Addr
	space  uint64        // bytes reserved; 0 while there is no arena
	stream device.Stream // of the request that the arena was reserved for
	page   uint64        // bytes mapped at a time
	chunks []device.Handle
	live   map[device.Addr]block
	high   uint64 // see HighWater
	next   uint64 // see NextCapacity
	stats  allocators.Stats
	oom    allocators.OOMError
}

type block struct {
	requested, size uint64
	stream          device.Stream
	uses            []device.Stream
}

// NewFit makes an allocator that chooses among holes.
func NewFit(dev device.Device, p Policy) *Allocator {
	return newAllocator(dev, func() placer { return newList(p) })
}

// NewBuddy makes a binary buddy system.
func NewBuddy(dev device.Device) *Allocator {
	return newAllocator(dev, func() placer { return newBuddy() })
}

func newAllocator(dev device.Device, make func() placer) *Allocator {
	a := &Allocator{dev: dev, make: make, page: dev.Granularity(), live: map[device.Addr]block{}, next: math.MaxUint64}
	a.stats.MaxSplitSize = -1
	return a
}

// HighWater is the largest distance from the arena's start to the end of a block so far, in bytes: N of the literature.
func (a *Allocator) HighWater() uint64 { return a.high }

// Alloc places n bytes. The stream matters at the free only: then all work on it completes.
func (a *Allocator) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	if n > allocators.MaxRequest {
		return allocators.Block{}, fmt.Errorf("a request must be at most 2^60 bytes: %w", device.ErrInvalid)
	}
	if a.space == 0 {
		if err := a.reserve(s); err != nil {
			return allocators.Block{}, err
		}
	}
	size := a.placer.round(n)
	var failure error
	at, ok := a.placer.place(size, func(end uint64) bool {
		var ok bool
		if failure == nil {
			ok, failure = a.extend(end)
		}
		return ok
	})
	if failure != nil {
		return allocators.Block{}, failure
	}
	if !ok {
		return allocators.Block{}, a.refuse(n, size, s)
	}
	a.high = max(a.high, at+size)
	addr := a.base + device.Addr(at)
	a.live[addr] = block{requested: n, size: size, stream: s}
	a.stats.Allocation.Add(false, 1)
	a.stats.Active.Add(false, 1)
	a.stats.AllocatedBytes.Add(false, size)
	a.stats.ActiveBytes.Add(false, size)
	a.stats.RequestedBytes.Add(false, n)
	return allocators.Block{Addr: addr, Size: size}, nil
}

func (a *Allocator) refuse(n, size uint64, s device.Stream) error {
	free, total := a.dev.Info()
	a.stats.NumOOMs++
	a.oom = allocators.OOMError{
		Request: n, Rounded: size, SegmentSize: size, Total: total, DeviceFree: free,
		Allocated: a.stats.AllocatedBytes.All.Current, Reserved: a.stats.ReservedBytes.All.Current, Stream: s,
	}
	return &a.oom
}

// reserve takes address space for all of the device's memory.
func (a *Allocator) reserve(s device.Stream) error {
	_, total := a.dev.Info()
	space := (total + a.page - 1) / a.page * a.page
	base, err := a.dev.Reserve(space)
	if err != nil {
		return err
	}
	a.base, a.space, a.stream, a.placer = base, space, s, a.make()
	return nil
}

// mapped is the bytes from the arena's start that have memory.
func (a *Allocator) mapped() uint64 { return uint64(len(a.chunks)) * a.page }

// extend maps memory up to an offset: all that is missing or none.
func (a *Allocator) extend(end uint64) (bool, error) {
	if end <= a.mapped() {
		return true, nil
	}
	free, total := a.dev.Info()
	count := (end - a.mapped() + a.page - 1) / a.page
	if need := total - free + count*a.page; end > a.space || need > total {
		a.next = min(a.next, need)
		return false, nil
	}
	for range count {
		h, err := a.dev.Create(a.page)
		if err != nil {
			// What was mapped before stays, as memory behind the open end.
			if errors.Is(err, device.ErrOutOfMemory) {
				return false, nil
			}
			return false, err
		}
		if err := a.dev.Map(a.base+device.Addr(a.mapped()), a.page, h); err != nil {
			return false, errors.Join(err, a.dev.Release(h))
		}
		a.chunks = append(a.chunks, h)
		a.stats.NumDeviceAlloc++
		a.stats.ReservedBytes.Add(false, a.page)
	}
	return true, nil
}

// Record notes a use on another stream.
func (a *Allocator) Record(addr device.Addr, s device.Stream) error {
	b, ok := a.live[addr]
	if !ok {
		return fmt.Errorf("record of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	b.uses = append(b.uses, s)
	a.live[addr] = b
	return nil
}

// Free waits for the block's stream and the recorded uses, as cudaFree waits for the device, and makes a hole of it. So no
// block is ever pending.
func (a *Allocator) Free(addr device.Addr) error {
	if addr == 0 {
		return nil
	}
	b, ok := a.live[addr]
	if !ok {
		return fmt.Errorf("free of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	for _, s := range append(b.uses, b.stream) {
		if err := a.dev.Sync(s); err != nil {
			return err
		}
	}
	delete(a.live, addr)
	a.placer.release(uint64(addr-a.base), b.size)
	a.stats.Allocation.Sub(false, 1)
	a.stats.Active.Sub(false, 1)
	a.stats.AllocatedBytes.Sub(false, b.size)
	a.stats.ActiveBytes.Sub(false, b.size)
	a.stats.RequestedBytes.Sub(false, b.requested)
	return nil
}

// EmptyCache returns the memory behind the last block, and the address space if there is no block.
func (a *Allocator) EmptyCache() error {
	if a.space == 0 {
		return nil
	}
	keep := (a.placer.top() + a.page - 1) / a.page
	for n := uint64(len(a.chunks)); n > keep; n-- {
		if err := a.dev.Unmap(a.base+device.Addr((n-1)*a.page), a.page); err != nil {
			return err
		}
		if err := a.dev.Release(a.chunks[n-1]); err != nil {
			return err
		}
		a.chunks = a.chunks[:n-1]
		a.stats.NumDeviceFree++
		a.stats.ReservedBytes.Sub(false, a.page)
	}
	if len(a.live) > 0 {
		return nil
	}
	if err := a.dev.Unreserve(a.base, a.space); err != nil {
		return err
	}
	a.space, a.placer = 0, nil
	return nil
}

// Stats returns the live counters.
func (a *Allocator) Stats() *allocators.Stats { return &a.stats }

// NextCapacity implements allocators.CapacitySensor: the device's total enters decisions only where memory is missing at the
// open end.
func (a *Allocator) NextCapacity() uint64 { return a.next }

// Snapshot lists the arena's blocks.
func (a *Allocator) Snapshot(into *allocators.Snapshot) {
	into.Segments, into.Blocks = into.Segments[:0], into.Blocks[:0]
	if a.space == 0 {
		return
	}
	at := uint64(0)
	live := func(to uint64) {
		for at < to {
			addr := a.base + device.Addr(at)
			b := a.live[addr]
			into.Blocks = append(into.Blocks, allocators.BlockInfo{
				Addr: addr, Size: b.size, Requested: b.requested, State: allocators.Live, Expandable: true, Stream: a.stream,
			})
			at += b.size
		}
	}
	idle := func(size uint64, s allocators.State) {
		if size > 0 {
			into.Blocks = append(into.Blocks, allocators.BlockInfo{
				Addr: a.base + device.Addr(at), Size: size, State: s, InPool: true, Expandable: true, Stream: a.stream,
			})
			at += size
		}
	}
	a.placer.free(func(hole, size uint64) {
		live(hole)
		idle(size, allocators.Free)
	})
	live(a.placer.top())
	idle(a.mapped()-min(at, a.mapped()), allocators.Free)
	idle(a.space-at, allocators.Unmapped)
	into.Segments = append(into.Segments, allocators.SegmentInfo{
		Addr: a.base, Size: a.space, Expandable: true, PageSize: a.page, Stream: a.stream, Count: len(into.Blocks),
	})
}
