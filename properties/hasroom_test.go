package properties_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// buyer declares nothing: its rule says how each request is bought. What is freed first it keeps.
type buyer struct {
	dev  device.Device
	call int
	kept device.Addr
	buy  func(b *buyer, n uint64) (device.Addr, error)
}

func (b *buyer) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	b.call++
	a, err := b.buy(b, n)
	return allocators.Block{Addr: a, Size: n}, err
}

func (b *buyer) Free(a device.Addr) error {
	if b.kept == 0 {
		b.kept = a
		return nil
	}
	return b.dev.Free(a)
}

// TestDeviceHasRoom: on a device of 100 MiB the last request is refused with 20 MiB more free than it asks for. Of an allocator that declares
// nothing that is false, unless it asked the device for a little more than there was, or does not live on the device's room.
func TestDeviceHasRoom(t *testing.T) {
	t.Parallel()
	none := fmt.Errorf("full: %w", device.ErrOutOfMemory)
	through := func(b *buyer, n uint64) (device.Addr, error) { return b.dev.Malloc(n) }
	// but refuses call number k without a look at the device.
	but := func(k int) func(*buyer, uint64) (device.Addr, error) {
		return func(b *buyer, n uint64) (device.Addr, error) {
			if b.call == k {
				return 0, none
			}
			return b.dev.Malloc(n)
		}
	}
	// chunks creates twice what is asked for, 2 MiB at a time, and undoes it.
	chunks := func(b *buyer, n uint64) (device.Addr, error) {
		if b.call == 1 {
			return b.dev.Malloc(n)
		}
		var got []device.Handle
		for range n / mib {
			h, err := b.dev.Create(2 * mib)
			if err != nil {
				break
			}
			got = append(got, h)
		}
		for _, h := range got {
			_ = b.dev.Release(h)
		}
		return 0, none
	}
	for _, c := range []struct {
		name, trace string
		buy         func(*buyer, uint64) (device.Addr, error)
		because     string // why it is false; empty if it is not
		pool        uint64 // taken from the device when the allocator is made
	}{
		{"doubles and is told no", "alloc 0 30MiB\nalloc 1 40MiB\n",
			func(b *buyer, n uint64) (device.Addr, error) { return b.dev.Malloc(2 * n) }, "", 0},
		{"doubles in chunks and is told no", "alloc 0 30MiB\nalloc 1 40MiB\n", chunks, "", 0},
		{"asks for ten times as much", "alloc 0 30MiB\nalloc 1 10MiB\n", func(b *buyer, n uint64) (device.Addr, error) {
			if b.call == 1 {
				return b.dev.Malloc(n)
			}
			return b.dev.Malloc(10 * n)
		}, "asked for 104857600 at least", 0},
		{"never asks", "alloc 0 30MiB\n", but(1), "was not asked", 0},
		{"has bought once", "alloc 0 30MiB\nalloc 1 30MiB\n", but(2), "was not asked", 0},
		{"has served nothing as large", "alloc 0 10MiB\nalloc 1 11MiB\n", but(2), "was not asked", 0},
		{"has too little", "alloc 0 30MiB\nalloc 1 30MiB\nalloc 2 30MiB\n", but(3), "", 0},
		{"cuts up address space", "alloc 0 10MiB\nalloc 1 10MiB\nalloc 2 10MiB\n", func(b *buyer, n uint64) (device.Addr, error) {
			if _, err := b.dev.Reserve(2 * mib); err != nil || b.call == 3 {
				return 0, none
			}
			return b.dev.Malloc(n)
		}, "", 0},
		{"is told no, gives memory back, does not ask again", "alloc 0 60MiB\nfree 0\nalloc 1 50MiB\n", func(b *buyer, n uint64) (device.Addr, error) {
			a, err := b.dev.Malloc(n)
			if err != nil {
				_ = b.dev.Free(b.kept)
			}
			return a, err
		}, "was not asked again", 0},
		{"was made with a pool", "alloc 0 30MiB\n", but(1), "", 10 * mib},
		{"was made with a pool and has bought since", "alloc 0 10MiB\nalloc 1 30MiB\n", but(2), "was not asked", 10 * mib},
		{"serves", "alloc 0 10MiB\nalloc 1 10MiB\nalloc 2 10MiB\n", through, "", 0},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			tr, err := trace.ParseString(c.name, c.trace)
			require.NoError(t, err)
			dev, err := simdev.New(simdev.Options{Capacity: 100 * mib})
			require.NoError(t, err)
			res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: "buyer", New: func(d device.Device) (allocators.Allocator, error) {
				if c.pool > 0 {
					if _, err := d.Malloc(c.pool); err != nil {
						return nil, err
					}
				}
				return &buyer{dev: d, buy: c.buy}, nil
			}}, executor.Options{Device: dev, Judge: properties.NewJudge()})
			require.NoError(t, err)
			if c.because == "" {
				require.Empty(t, res.Findings)
				return
			}
			require.Len(t, res.Findings, 1)
			require.Contains(t, []string{"device-has-room", "device-not-asked-again"}, res.Findings[0].Rule)
			require.Contains(t, res.Findings[0].Detail, c.because)
		})
	}
}
