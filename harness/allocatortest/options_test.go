package allocatortest_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/allocatortest"
)

// budget passes requests through to the device until it holds three quarters of it.
type budget struct {
	dev  device.Device
	left uint64
	live map[device.Addr]uint64
}

func newBudget(dev device.Device) (allocators.Allocator, error) {
	free, _ := dev.Info()
	return &budget{dev: dev, left: free / 4 * 3, live: map[device.Addr]uint64{}}, nil
}

func (b *budget) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	size := (n + 2<<20 - 1) &^ (2<<20 - 1)
	switch {
	case n == 0:
		return allocators.Block{}, nil
	case size > b.left:
		return allocators.Block{}, fmt.Errorf("over budget: %w", device.ErrOutOfMemory)
	}
	a, err := b.dev.Malloc(size)
	if err != nil {
		return allocators.Block{}, err
	}
	b.left -= size
	b.live[a] = size
	return allocators.Block{Addr: a, Size: size}, nil
}

func (b *budget) Free(a device.Addr) error {
	size, ok := b.live[a]
	if !ok && a != 0 {
		return fmt.Errorf("%#x: %w", uint64(a), allocators.ErrInvalidPointer)
	}
	if a == 0 {
		return nil
	}
	delete(b.live, a)
	b.left += size
	return b.dev.Free(a)
}

// classes is one region in which what once was a block of a size stays one.
type classes struct {
	next, end device.Addr
	free      map[uint64][]device.Addr
	live      map[device.Addr]uint64
}

func newClasses(dev device.Device) (allocators.Allocator, error) {
	free, _ := dev.Info()
	a, err := dev.Malloc(free)
	return &classes{next: a, end: a + device.Addr(free), free: map[uint64][]device.Addr{}, live: map[device.Addr]uint64{}}, err
}

func (c *classes) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	size := uint64(512)
	for size < n {
		size *= 2
	}
	b := allocators.Block{Size: size}
	if l := c.free[size]; len(l) > 0 {
		b.Addr, c.free[size] = l[len(l)-1], l[:len(l)-1]
	} else if uint64(c.end-c.next) >= size {
		b.Addr, c.next = c.next, c.next+device.Addr(size)
	} else {
		return allocators.Block{}, fmt.Errorf("no class: %w", device.ErrOutOfMemory)
	}
	c.live[b.Addr] = size
	return b, nil
}

func (c *classes) Free(a device.Addr) error {
	size, ok := c.live[a]
	switch {
	case a == 0:
		return nil
	case !ok:
		return fmt.Errorf("%#x: %w", uint64(a), allocators.ErrInvalidPointer)
	}
	delete(c.live, a)
	c.free[size] = append(c.free[size], a)
	return nil
}

// TestOptions: what an allocator does on purpose is no finding once the option says so, and is one before.
func TestOptions(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		factory  allocatortest.Factory
		with     allocatortest.Option
		without  bool   // the option adds a finding
		contains string // the report
	}{
		{"a limit of its own", newBudget, allocatortest.OwnLimit(), true, "say so: allocatortest.OwnLimit()"},
		{"classes", newClasses, allocatortest.KeepsClasses(), true, "say so: allocatortest.KeepsClasses()"},
		{"alignment", newFirstFit, allocatortest.Alignment(1024), false, "which is no multiple of 1024"},
		{"alignment kept", newFirstFit, allocatortest.Alignment(512), false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			few := []allocatortest.Option{allocatortest.Sequences(3), allocatortest.Ops(300)}
			before, err := allocatortest.FirstReport(c.factory, few...)
			require.NoError(t, err)
			after, err := allocatortest.FirstReport(c.factory, append(few, c.with)...)
			require.NoError(t, err)
			found, clean := after, before
			if c.without {
				found, clean = before, after
			}
			require.Empty(t, clean)
			if c.contains == "" {
				require.Empty(t, found)
			}
			require.Contains(t, found, c.contains)
		})
	}
}

// guarded is a first fit behind a lock. Torn, it lets go of the lock before it says what it has chosen, and so tells two callers the same;
// and it takes any free.
type guarded struct {
	mu   sync.Mutex
	a    allocators.Allocator
	torn bool
	last allocators.Block
}

func (g *guarded) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, err := g.a.Alloc(n, s)
	if err != nil || !g.torn {
		return b, err
	}
	g.last = b
	g.mu.Unlock()
	runtime.Gosched()
	g.mu.Lock()
	return g.last, nil
}

func (g *guarded) Free(a device.Addr) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err := g.a.Free(a); !g.torn {
		return err
	}
	return nil
}

func TestGoroutines(t *testing.T) {
	t.Parallel()
	for _, torn := range []bool{false, true} {
		err := allocatortest.CrowdReport(func(dev device.Device) (allocators.Allocator, error) {
			a, err := newFirstFit(dev)
			return &guarded{a: a, torn: torn}, err
		}, allocatortest.Goroutines(8))
		if !torn {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "two live blocks overlap")
	}
}

// counts has one statistic, and tells no sizes.
type counts struct {
	allocators.Allocator
	stats allocators.Stats
}

func (c *counts) Stats() *allocators.Stats { return &c.stats }

func (c *counts) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := c.Allocator.Alloc(n, s)
	c.stats.Allocation.All.Add(1)
	b.Size = 0
	return b, err
}

// TestUncheckedIsSaid: what an allocator cannot do, and what of its statistics it does not keep.
func TestUncheckedIsSaid(t *testing.T) {
	t.Parallel()
	bare, err := newFirstFit(device1GiB(t))
	require.NoError(t, err)
	said := fmt.Sprint(allocatortest.Unchecked(bare))
	for _, ability := range []string{"no Record", "no EmptyCache", "no Snapshot", "no Promise", "no Stats", "bytes in the blocks"} {
		require.Contains(t, said, ability)
	}
	require.NotContains(t, said, "sizes")
	inner, err := newFirstFit(device1GiB(t))
	require.NoError(t, err)
	said = fmt.Sprint(allocatortest.Unchecked(&counts{Allocator: inner}))
	require.NotContains(t, said, "no Stats")
	require.Contains(t, said, "Alloc tells no sizes")
	require.Contains(t, said, "statistics that stay 0: AllocatedBytes, Active, ActiveBytes, RequestedBytes, ReservedBytes")
}

// TestReplay: a trace from a report, as it stands.
func TestReplay(t *testing.T) {
	t.Parallel()
	allocatortest.Replay(t, newFirstFit, "# capacity: 4194304\nalloc 0 1\nalloc 1 2183169\nalloc 2 1\nfree 0\nfree 1\nalloc 3 2184193\n")
	allocatortest.Replay(t, newFirstFit, "alloc 0 1GiB\nfree 0\n")
}

func device1GiB(t *testing.T) device.Device {
	dev, err := simdev.New(simdev.Options{Capacity: 1 << 30})
	require.NoError(t, err)
	return dev
}
