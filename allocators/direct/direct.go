// Package direct is the allocator that is none: every call goes to the device, as with caching disabled. It is the control
// against which a cache must show its worth.
package direct

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Allocator passes requests to the device. It is used by one goroutine at a time.
type Allocator struct {
	dev   device.Device
	live  map[device.Addr]allocation
	stats allocators.Stats
	oom   allocators.OOMError
}

type allocation struct {
	requested uint64
	size      uint64
	uses      []device.Stream
}

// New makes an allocator on a device.
func New(dev device.Device) *Allocator {
	a := &Allocator{dev: dev, live: map[device.Addr]allocation{}}
	a.stats.MaxSplitSize = -1
	return a
}

// Alloc buys n bytes, rounded up to what the device hands out.
func (a *Allocator) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	if n > allocators.MaxRequest {
		return allocators.Block{}, fmt.Errorf("a request must be at most 2^60 bytes: %w", device.ErrInvalid)
	}
	granule := a.dev.Granularity()
	size := (n + granule - 1) / granule * granule
	addr, err := a.dev.Malloc(size)
	if err != nil {
		if !errors.Is(err, device.ErrOutOfMemory) {
			return allocators.Block{}, err
		}
		free, total := a.dev.Info()
		a.stats.NumOOMs++
		held := a.stats.AllocatedBytes.All.Current
		a.oom = allocators.OOMError{
			Request: n, Rounded: size, SegmentSize: size, Total: total, DeviceFree: free, Allocated: held, Reserved: held, Stream: s,
		}
		return allocators.Block{}, &a.oom
	}
	a.live[addr] = allocation{requested: n, size: size}
	a.stats.NumDeviceAlloc++
	for _, p := range a.counts() {
		p.Add(false, 1)
	}
	for _, p := range a.bytes() {
		p.Add(false, size)
	}
	a.stats.RequestedBytes.Add(false, n)
	return allocators.Block{Addr: addr, Size: size}, nil
}

func (a *Allocator) counts() [3]*allocators.Pooled {
	return [3]*allocators.Pooled{&a.stats.Allocation, &a.stats.Active, &a.stats.Segment}
}

func (a *Allocator) bytes() [3]*allocators.Pooled {
	return [3]*allocators.Pooled{&a.stats.AllocatedBytes, &a.stats.ActiveBytes, &a.stats.ReservedBytes}
}

// Record notes a use on another stream.
func (a *Allocator) Record(addr device.Addr, s device.Stream) error {
	m, ok := a.live[addr]
	if !ok {
		return fmt.Errorf("record of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	m.uses = append(m.uses, s)
	a.live[addr] = m
	return nil
}

// Free waits for the recorded uses, as cudaFree waits for the device, and returns the memory.
func (a *Allocator) Free(addr device.Addr) error {
	if addr == 0 {
		return nil
	}
	m, ok := a.live[addr]
	if !ok {
		return fmt.Errorf("free of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	for _, s := range m.uses {
		if err := a.dev.Sync(s); err != nil {
			return err
		}
	}
	if err := a.dev.Free(addr); err != nil {
		return err
	}
	delete(a.live, addr)
	a.stats.NumDeviceFree++
	for _, p := range a.counts() {
		p.Sub(false, 1)
	}
	for _, p := range a.bytes() {
		p.Sub(false, m.size)
	}
	a.stats.RequestedBytes.Sub(false, m.requested)
	return nil
}

// Stats returns the live counters.
func (a *Allocator) Stats() *allocators.Stats { return &a.stats }

// EmptyCache has nothing to return.
func (a *Allocator) EmptyCache() error { return nil }
