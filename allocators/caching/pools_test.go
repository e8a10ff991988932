package caching

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

func newPooled(t *testing.T, conf string) (*Allocator, *simdev.Device) {
	t.Helper()
	dev, err := simdev.New(simdev.Options{Capacity: 100 << 20})
	require.NoError(t, err)
	set, _, err := ParseSettings(conf)
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	return a, dev
}

func anyStream(p allocators.PoolID) allocators.Redirection {
	return allocators.Redirection{Pool: p, Stream: allocators.AnyStream}
}

// TestPoolOrder: what callers must not do is an error and changes nothing.
func TestPoolOrder(t *testing.T) {
	a, _ := newPooled(t, "")
	require.ErrorIs(t, a.BeginPool(anyStream(0)), device.ErrInvalid)
	require.ErrorIs(t, a.EndPool(1), device.ErrInvalid)
	require.ErrorIs(t, a.ReleasePool(1), device.ErrInvalid)
	require.NoError(t, a.EmptyPool(1), "nothing is there to empty")
	require.NoError(t, a.BeginPool(anyStream(1)))
	require.ErrorIs(t, a.BeginPool(anyStream(1)), device.ErrInvalid)
	require.NoError(t, a.BeginPool(anyStream(2)))
	require.Len(t, a.open, 2)
	require.Equal(t, 2, a.holds)
	require.NoError(t, a.EndPool(1))
	require.ErrorIs(t, a.EndPool(1), device.ErrInvalid)
	require.Equal(t, 1, a.holds)
	_, err := a.Alloc(1000, 0)
	require.NoError(t, err)
	require.NoError(t, a.EndPool(2))
	require.Zero(t, a.holds)
	require.NoError(t, a.ReleasePool(2))
	require.ErrorIs(t, a.ReleasePool(2), device.ErrInvalid)
	require.ErrorIs(t, a.BeginPool(anyStream(2)), device.ErrInvalid, "it was released")
	require.Equal(t, []allocators.PoolID{1, 2}, []allocators.PoolID{a.privates[0].id, a.privates[1].id})
}

// TestPrivateIsFoundByNumber: pools come in any order and are kept by number.
func TestPrivateIsFoundByNumber(t *testing.T) {
	a, _ := newPooled(t, "")
	for _, id := range []allocators.PoolID{5, 2, 9, 1} {
		p := a.makePrivate(id)
		require.Same(t, p, a.makePrivate(id))
		require.Same(t, p, a.private(id))
		require.True(t, p.small.small)
		require.False(t, p.large.small)
		require.EqualValues(t, 2<<20, p.small.page)
		require.EqualValues(t, 20<<20, p.large.page)
	}
	for _, id := range []allocators.PoolID{0, 3, 10} {
		require.Nil(t, a.private(id))
	}
	require.Len(t, a.privates, 4)
}

// TestRefusalTellsPrivateMemory: what lies free in private pools counts as allocated in the message (section 21).
func TestRefusalTellsPrivateMemory(t *testing.T) {
	a, _ := newPooled(t, "")
	require.NoError(t, a.BeginPool(anyStream(1)))
	b, err := a.Alloc(60<<20, 0)
	require.NoError(t, err)
	c, err := a.Alloc(1000, 3)
	require.NoError(t, err)
	require.NoError(t, a.Free(b.Addr))
	require.NoError(t, a.EndPool(1))
	_, err = a.Alloc(60<<20, 0)
	var oom *allocators.OOMError
	require.True(t, errors.As(err, &oom))
	require.EqualValues(t, 62<<20-1024, oom.Private)
	require.Contains(t, oom.Error(), "Of the allocated memory 62.00 MiB is allocated by PyTorch, with 62.00 MiB allocated in private pools "+
		"(e.g., CUDA Graphs), and 0 bytes is reserved by PyTorch but unallocated.")
	require.NoError(t, a.Free(c.Addr))
}

// TestPoolsInSnapshots: a segment says whose it is, and a state to start from may have segments of private pools, which are in use.
func TestPoolsInSnapshots(t *testing.T) {
	a, _ := newPooled(t, "")
	for _, p := range []allocators.PoolID{7, 0, 7} {
		_, err := a.RestoreSegment(allocators.StartSegment{Size: 20 << 20, Pool: p})
		require.NoError(t, err)
	}
	var s allocators.Snapshot
	a.Snapshot(&s)
	require.Equal(t, []allocators.PoolID{7, 0, 7}, []allocators.PoolID{s.Segments[0].Pool, s.Segments[1].Pool, s.Segments[2].Pool})
	require.Equal(t, 1, a.private(7).uses)
	require.Equal(t, 2, a.private(7).segments)
	require.NoError(t, a.EmptyCache())
	a.Snapshot(&s)
	require.Len(t, s.Segments, 2)
	require.NoError(t, a.ReleasePool(7))
	require.NoError(t, a.EmptyCache())
	a.Snapshot(&s)
	require.Empty(t, s.Segments)
	require.Empty(t, a.privates)
}

// failing is a device whose calls fail while fail is set.
type failing struct {
	device.Device
	record, wait, destroy, free bool
}

var errFailing = errors.New("the device fails")

func (f *failing) Record(s device.Stream) (device.Event, error) {
	if f.record {
		return 0, errFailing
	}
	return f.Device.Record(s)
}

func (f *failing) Wait(e device.Event) error {
	if f.wait {
		return errFailing
	}
	return f.Device.Wait(e)
}

func (f *failing) Destroy(e device.Event) error {
	if f.destroy {
		return errFailing
	}
	return f.Device.Destroy(e)
}

func (f *failing) Free(addr device.Addr) error {
	if f.free {
		return errFailing
	}
	return f.Device.Free(addr)
}

// TestPoolsWhenTheDeviceFails: what failed can be done again, and nothing is lost.
func TestPoolsWhenTheDeviceFails(t *testing.T) {
	type setup struct {
		a   *Allocator
		dev *failing
	}
	pooled := func(t *testing.T, recorded device.Stream) setup {
		sim, err := simdev.New(simdev.Options{Capacity: 100 << 20})
		require.NoError(t, err)
		dev := &failing{Device: sim}
		a, err := New(dev, DefaultSettings())
		require.NoError(t, err)
		b, err := a.Alloc(20<<20, 0)
		require.NoError(t, err)
		require.NoError(t, a.Record(b.Addr, recorded))
		require.NoError(t, a.BeginPool(anyStream(1)))
		c, err := a.Alloc(20<<20, 0)
		require.NoError(t, err)
		require.NoError(t, a.Free(b.Addr))
		require.NoError(t, a.EndPool(1))
		require.NoError(t, a.Record(c.Addr, recorded))
		require.NoError(t, a.Free(c.Addr))
		require.NoError(t, a.ReleasePool(1))
		require.Equal(t, 2, a.outstanding)
		return setup{a, dev}
	}
	ends := func(t *testing.T, s setup) {
		s.dev.record, s.dev.wait, s.dev.destroy, s.dev.free = false, false, false, false
		require.NoError(t, s.a.EmptyPool(1))
		require.NoError(t, s.a.EmptyCache())
		require.Zero(t, s.a.reserved)
		require.Zero(t, s.a.outstanding)
		require.Empty(t, s.a.deferred)
		require.Empty(t, s.a.privates)
		require.Zero(t, s.a.stats.Active.All.Current)
	}
	t.Run("record in an alloc", func(t *testing.T) {
		s := pooled(t, 7)
		s.dev.record = true
		_, err := s.a.Alloc(1000, 0)
		require.ErrorIs(t, err, errFailing)
		ends(t, s)
	})
	t.Run("record in the emptying of a pool", func(t *testing.T) {
		s := pooled(t, 7)
		s.dev.record = true
		require.ErrorIs(t, s.a.EmptyPool(1), errFailing)
		require.ErrorIs(t, s.a.EmptyCache(), errFailing)
		ends(t, s)
	})
	t.Run("wait", func(t *testing.T) {
		s := pooled(t, 7)
		s.dev.wait = true
		require.ErrorIs(t, s.a.EmptyPool(1), errFailing)
		ends(t, s)
	})
	t.Run("destroy", func(t *testing.T) {
		s := pooled(t, 7)
		s.dev.destroy = true
		require.ErrorIs(t, s.a.EmptyPool(1), errFailing)
		require.Equal(t, 2, s.a.outstanding, "the event stays")
		ends(t, s)
	})
	t.Run("free", func(t *testing.T) {
		s := pooled(t, 7)
		s.dev.free = true
		require.ErrorIs(t, s.a.EmptyPool(1), errFailing)
		require.NotNil(t, s.a.private(1))
		require.ErrorIs(t, s.a.EmptyCache(), errFailing)
		ends(t, s)
	})
	t.Run("free in a held release", func(t *testing.T) {
		s := pooled(t, 7)
		s.a.set.Rules.emptiesInCapture = true
		require.NoError(t, s.a.BeginPool(anyStream(2)))
		s.dev.free = true
		require.NoError(t, s.a.EmptyCache(), "pool 1 has nothing that is not pending")
		require.NoError(t, s.a.EndPool(2))
		require.NoError(t, s.a.ReleasePool(2))
		ends(t, s)
	})
}

// TestOtherDeviceCurrent: with another device current the wait before an unmapping goes there, for stream 0 only.
func TestOtherDeviceCurrent(t *testing.T) {
	for _, c := range []struct {
		conf   string
		stream device.Stream
		done   bool
	}{
		{"", 0, true},
		{",x_other_device_current:True", 0, false},
		{",x_other_device_current:True", 1, true},
		{",x_other_device_current:True,x_unmap_on_own_device:True", 0, true},
		{",x_unmap_on_own_device:True", 0, true},
	} {
		a, dev := newPooled(t, "expandable_segments:True"+c.conf)
		b, err := a.Alloc(20<<20, c.stream)
		require.NoError(t, err)
		e, err := dev.Record(c.stream)
		require.NoError(t, err)
		require.NoError(t, a.Free(b.Addr))
		require.NoError(t, a.EmptyCache())
		done, err := dev.Done(e)
		require.NoError(t, err)
		require.Equal(t, c.done, done, "%q on stream %d", c.conf, c.stream)
	}
}

// TestPoolsCostNothing: with a pool open, allocations and frees make nothing on the Go heap either.
func TestPoolsCostNothing(t *testing.T) {
	a, _ := newPooled(t, "")
	require.NoError(t, a.BeginPool(anyStream(1)))
	turn := func() {
		b, err := a.Alloc(5<<20, 0)
		if err != nil || a.Free(b.Addr) != nil {
			t.Fatal("refused")
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(100, turn))
}
