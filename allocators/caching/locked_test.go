package caching

import (
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// shared is a device for several goroutines. Its own lock is never held while another is waited for.
type shared struct {
	device.Device
	mu sync.Mutex
}

func (d *shared) Info() (free, total uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Info()
}

func (d *shared) Malloc(size uint64) (device.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Malloc(size)
}

func (d *shared) Free(a device.Addr) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Free(a)
}

func (d *shared) Record(s device.Stream) (device.Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Record(s)
}

func (d *shared) Done(e device.Event) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Done(e)
}

func (d *shared) Wait(e device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Wait(e)
}

func (d *shared) Destroy(e device.Event) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.Device.Destroy(e)
}

const lockedCapacity = 256 << 20

// finishing is a device whose work goes on by itself: at every second event all that was queued before is done. It counts calls, which
// the allocator makes under its lock, so that the same calls in the same order find the same events done.
type finishing struct {
	device.Device
	recorded, done int
}

func (d *finishing) Record(s device.Stream) (device.Event, error) {
	if d.recorded++; d.recorded%2 == 0 {
		for other := range device.Stream(3) {
			if err := d.Sync(other); err != nil {
				return 0, err
			}
		}
	}
	return d.Device.Record(s)
}

func (d *finishing) Done(e device.Event) (bool, error) {
	done, err := d.Device.Done(e)
	if done {
		d.done++
	}
	return done, err
}

func newFinishing(t *testing.T) *finishing {
	t.Helper()
	dev, err := simdev.New(simdev.Options{Capacity: lockedCapacity})
	require.NoError(t, err)
	return &finishing{Device: dev}
}

// workers run random operations on an allocator, each on blocks of its own and its own stream; together they fill the device.
// Memory that one goroutine holds is marked in owners, so that a block handed out twice is seen.
func stress(t *testing.T, l *Locked, goroutines, ops int) {
	t.Helper()
	var owners sync.Map
	var wg sync.WaitGroup
	failures := make(chan error, goroutines)
	for g := range goroutines {
		wg.Add(1)
		go func() {
			defer wg.Done()
			failures <- worker(l, &owners, g, goroutines, ops)
		}()
	}
	wg.Wait()
	close(failures)
	for err := range failures {
		require.NoError(t, err)
	}
	var s allocators.Snapshot
	l.Snapshot(&s)
	for _, b := range s.Blocks {
		require.NotEqual(t, allocators.Live, b.State, "everything was freed")
	}
	require.NoError(t, l.EmptyCache())
	stats := l.Stats()
	require.Zero(t, stats.ReservedBytes.All.Current)
	require.Zero(t, stats.Active.All.Current)
}

func worker(l *Locked, owners *sync.Map, g, goroutines, ops int) error {
	rng := rand.New(rand.NewPCG(uint64(g), 5))
	sizes := []uint64{700, 1 << 20, 1<<20 + 1, 5 << 20, 10 << 20, 24 << 20}
	var held []device.Addr
	release := func(i int) error {
		a := held[i]
		held = slices.Delete(held, i, i+1)
		owners.Delete(a)
		return l.Free(a)
	}
	for range ops {
		switch d := rng.IntN(20); {
		case d < 11:
			b, err := l.Alloc(sizes[rng.IntN(len(sizes))], device.Stream(rng.IntN(2)))
			if errors.Is(err, device.ErrOutOfMemory) {
				if len(held) > 0 {
					if err := release(0); err != nil {
						return err
					}
				}
				continue
			}
			if err != nil {
				return err
			}
			if _, taken := owners.LoadOrStore(b.Addr, g); taken {
				return errors.New("a block was handed out while another goroutine held it")
			}
			held = append(held, b.Addr)
		case d < 12 && len(held) > 0:
			if err := l.Record(held[rng.IntN(len(held))], device.Stream(1+rng.IntN(2))); err != nil {
				return err
			}
		case d < 13 && g == 0:
			if err := l.EmptyCache(); err != nil {
				return err
			}
		case d < 14 && g == 1:
			if err := look(l); err != nil {
				return err
			}
		case len(held) > 0:
			if err := release(rng.IntN(len(held))); err != nil {
				return err
			}
		}
	}
	for len(held) > 0 {
		if err := release(len(held) - 1); err != nil {
			return err
		}
	}
	return nil
}

// look reads what the allocator tells while others use it.
func look(l *Locked) error {
	if s := l.Stats(); s.ActiveBytes.All.Current != s.ActiveBytes.Small.Current+s.ActiveBytes.Large.Current {
		return errors.New("statistics were read in the middle of an operation")
	}
	var s allocators.Snapshot
	l.Snapshot(&s)
	for i, g := range s.Segments {
		end := g.Addr
		for _, b := range s.BlocksOf(i) {
			if b.Addr != end {
				return errors.New("blocks were listed in the middle of an operation")
			}
			end = b.End()
		}
	}
	return nil
}

// TestLockedHistoryReplays: several goroutines at once come to what one comes to with the operations in the order of the lock.
func TestLockedHistoryReplays(t *testing.T) {
	for _, expandable := range []bool{false, true} {
		set := DefaultSettings()
		set.Expandable = expandable
		dev := newFinishing(t)
		var history []Call
		l, err := NewLocked(dev, set, LockedOptions{Observe: func(c Call) { history = append(history, c) }})
		require.NoError(t, err)
		stress(t, l, 8, 2000)
		require.Greater(t, dev.done, 10, "events were hardly ever done when they were asked for")
		replay(t, history, set, l.Stats())
	}
}

// replay makes the calls of a history by one goroutine and requires every result to be the same.
func replay(t *testing.T, history []Call, set Settings, want allocators.Stats) {
	t.Helper()
	a, err := New(newFinishing(t), set)
	require.NoError(t, err)
	refused := 0
	for i, c := range history {
		switch c.Kind {
		case CallAlloc:
			b, err := a.Alloc(c.Bytes, c.Stream)
			require.Equal(t, c.Err == nil, err == nil, "call %d", i)
			require.Equal(t, allocators.Block{Addr: c.Addr, Size: c.Size}, b, "call %d", i)
			if err != nil {
				refused++
				require.EqualError(t, err, c.Err.Error(), "call %d", i)
			}
		case CallFree:
			require.NoError(t, a.Free(c.Addr), "call %d", i)
		case CallRecord:
			require.NoError(t, a.Record(c.Addr, c.Stream), "call %d", i)
		case CallEmptyCache:
			require.NoError(t, a.EmptyCache(), "call %d", i)
		}
	}
	require.Equal(t, want, *a.Stats())
	require.Greater(t, refused, 10, "the device was hardly ever full")
}

// TestLockReleasedAroundMalloc: others go on while one goroutine buys, and nothing breaks.
func TestLockReleasedAroundMalloc(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: lockedCapacity})
	require.NoError(t, err)
	l, err := NewLocked(&shared{Device: dev}, DefaultSettings(), LockedOptions{ReleaseLockOnMalloc: true})
	require.NoError(t, err)
	stress(t, l, 8, 2000)
}

// blocking is a device whose first Malloc waits until it is told to go on.
type blocking struct {
	shared
	asked   atomic.Bool
	entered chan struct{}
	proceed chan struct{}
}

func (d *blocking) Malloc(size uint64) (device.Addr, error) {
	if d.asked.CompareAndSwap(false, true) {
		close(d.entered)
		<-d.proceed
	}
	return d.shared.Malloc(size)
}

// TestMallocOutsideTheLock: while the device is asked for memory another goroutine allocates and frees.
func TestMallocOutsideTheLock(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: lockedCapacity})
	require.NoError(t, err)
	d := &blocking{shared: shared{Device: dev}, entered: make(chan struct{}), proceed: make(chan struct{})}
	l, err := NewLocked(d, DefaultSettings(), LockedOptions{ReleaseLockOnMalloc: true})
	require.NoError(t, err)
	first := make(chan error)
	go func() {
		_, err := l.Alloc(30<<20, 0)
		first <- err
	}()
	<-d.entered
	b, err := l.Alloc(12<<20, 1)
	require.NoError(t, err)
	require.NoError(t, l.Free(b.Addr))
	close(d.proceed)
	require.NoError(t, <-first)
}

// TestLockedErrorIsTheCallers: a refusal keeps its figures while others allocate.
func TestLockedErrorIsTheCallers(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: lockedCapacity})
	require.NoError(t, err)
	l, err := NewLocked(dev, DefaultSettings(), LockedOptions{})
	require.NoError(t, err)
	_, first := l.Alloc(300<<20, 0)
	_, second := l.Alloc(400<<20, 0)
	var a, b *allocators.OOMError
	require.ErrorAs(t, first, &a)
	require.ErrorAs(t, second, &b)
	require.Equal(t, []uint64{300 << 20, 400 << 20}, []uint64{a.Request, b.Request})
}
