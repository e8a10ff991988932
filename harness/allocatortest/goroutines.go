package allocatortest

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// crowdCapacity is the device of several goroutines, in bytes; each round of theirs has roundOps calls of each.
const (
	crowdCapacity = 256 << 20
	roundOps      = 50
)

// crowd lets goroutines call one allocator at once, each with a stream and blocks of its own. Between rounds all stop, and no two live
// blocks may share a byte; within a round nothing of the harness but the device's lock orders the calls, so that the race detector sees
// the allocator's own.
func (s *suite) crowd() error {
	capacity := cmp.Or(s.capacity, crowdCapacity)
	dev, err := newDevice(capacity)
	if err != nil {
		return err
	}
	a, err := s.factory(&lockedDevice{dev: dev})
	if err != nil {
		return fmt.Errorf("the allocator cannot start on a device of %d bytes: %w", capacity, err)
	}
	members := make([]*member, s.goroutines)
	for i := range members {
		members[i] = &member{alloc: a, stream: device.Stream(i), rng: rand.New(rand.NewPCG(s.seed, uint64(i))), most: capacity / 16}
	}
	for range max(s.ops/roundOps, 1) {
		var wg sync.WaitGroup
		for _, m := range members {
			wg.Go(m.round)
		}
		wg.Wait()
		if err := together(members); err != nil {
			return err
		}
	}
	for _, m := range members {
		for _, b := range m.live {
			if err := a.Free(b.Addr); err != nil {
				return fmt.Errorf("free of the live block at %#x: %w", uint64(b.Addr), err)
			}
		}
	}
	return nil
}

// member is a goroutine's part.
type member struct {
	alloc  allocators.Allocator
	stream device.Stream
	rng    *rand.Rand
	most   uint64 // bytes of the largest request
	live   []allocators.Block
	err    error
}

func (m *member) round() {
	defer func() {
		if p := recover(); p != nil {
			m.err = fmt.Errorf("the allocator panicked: %v", p)
		}
	}()
	for range roundOps {
		if n := len(m.live); n > 0 && m.rng.IntN(2) == 0 {
			i := m.rng.IntN(n)
			b := m.live[i]
			m.live = slices.Delete(m.live, i, i+1)
			if err := m.alloc.Free(b.Addr); err != nil {
				m.err = fmt.Errorf("free of the live block at %#x: %w", uint64(b.Addr), err)
				return
			}
			continue
		}
		n := 1 + m.rng.Uint64N(max(m.most>>m.rng.IntN(12), 1))
		b, err := m.alloc.Alloc(n, m.stream)
		switch {
		case errors.Is(err, device.ErrOutOfMemory):
			continue
		case err != nil:
			m.err = fmt.Errorf("alloc of %d bytes: %w", n, err)
			return
		}
		b.Size = max(b.Size, n)
		m.live = append(m.live, b)
	}
}

// together checks the blocks of all members.
func together(members []*member) error {
	var all []allocators.Block
	for _, m := range members {
		if m.err != nil {
			return m.err
		}
		all = append(all, m.live...)
	}
	slices.SortFunc(all, func(a, b allocators.Block) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	for i := 1; i < len(all); i++ {
		if a, b := &all[i-1], &all[i]; a.Addr+device.Addr(a.Size) > b.Addr {
			return fmt.Errorf("two live blocks overlap: %d bytes at %#x and %d at %#x", a.Size, uint64(a.Addr), b.Size, uint64(b.Addr))
		}
	}
	return nil
}

// lockedDevice takes calls from several goroutines, as a GPU does.
type lockedDevice struct {
	mu  sync.Mutex
	dev device.Device
}

func locked[T any](d *lockedDevice, call func() (T, error)) (T, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return call()
}

func (d *lockedDevice) do(call func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return call()
}

func (d *lockedDevice) Info() (free, total uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dev.Info()
}

func (d *lockedDevice) Malloc(n uint64) (device.Addr, error) {
	return locked(d, func() (device.Addr, error) { return d.dev.Malloc(n) })
}

func (d *lockedDevice) Free(a device.Addr) error { return d.do(func() error { return d.dev.Free(a) }) }

func (d *lockedDevice) Granularity() uint64 { return d.dev.Granularity() }

func (d *lockedDevice) Reserve(n uint64) (device.Addr, error) {
	return locked(d, func() (device.Addr, error) { return d.dev.Reserve(n) })
}

func (d *lockedDevice) Unreserve(a device.Addr, n uint64) error {
	return d.do(func() error { return d.dev.Unreserve(a, n) })
}

func (d *lockedDevice) Create(n uint64) (device.Handle, error) {
	return locked(d, func() (device.Handle, error) { return d.dev.Create(n) })
}

func (d *lockedDevice) Release(h device.Handle) error {
	return d.do(func() error { return d.dev.Release(h) })
}

func (d *lockedDevice) Map(a device.Addr, n uint64, h device.Handle) error {
	return d.do(func() error { return d.dev.Map(a, n, h) })
}

func (d *lockedDevice) Unmap(a device.Addr, n uint64) error {
	return d.do(func() error { return d.dev.Unmap(a, n) })
}

func (d *lockedDevice) Record(s device.Stream) (device.Event, error) {
	return locked(d, func() (device.Event, error) { return d.dev.Record(s) })
}

func (d *lockedDevice) Done(e device.Event) (bool, error) {
	return locked(d, func() (bool, error) { return d.dev.Done(e) })
}

func (d *lockedDevice) Wait(e device.Event) error {
	return d.do(func() error { return d.dev.Wait(e) })
}

func (d *lockedDevice) Sync(s device.Stream) error {
	return d.do(func() error { return d.dev.Sync(s) })
}

func (d *lockedDevice) SyncAll() error { return d.do(d.dev.SyncAll) }

func (d *lockedDevice) Destroy(e device.Event) error {
	return d.do(func() error { return d.dev.Destroy(e) })
}
