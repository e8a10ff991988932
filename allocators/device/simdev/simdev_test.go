package simdev

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

var _ interface {
	device.Device
	device.Foreigner
	device.CapacitySensor
} = (*Device)(nil)

const mib = 1 << 20

func start(t *testing.T, o Options) *Device {
	t.Helper()
	d, err := New(o)
	require.NoError(t, err)
	return d
}

func small(t *testing.T, granules uint64) *Device {
	t.Helper()
	return start(t, Options{Capacity: granules * Granule})
}

func freeOf(d *Device) uint64 {
	free, _ := d.Info()
	return free
}

// got takes what a call gave and fails the test on an error.
func got[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		require.NoError(t, err)
		return v
	}
}

func TestCapacity(t *testing.T) {
	for _, c := range []uint64{0, 1, Granule - 1, MaxCapacity + 1, math.MaxUint64} {
		_, err := New(Options{Capacity: c})
		require.ErrorIs(t, err, device.ErrInvalid)
		require.ErrorContains(t, err, "a simulated device has 2 MiB to 16 TiB")
	}
	for _, c := range []uint64{Granule, 3*mib + 1, 80 << 30, MaxCapacity} {
		free, total := start(t, Options{Capacity: c}).Info()
		require.Equal(t, []uint64{c, c}, []uint64{free, total})
	}
}

// TestMalloc: sizes are rounded up to 2 MiB, only the sum counts, and addresses rise from 0x7f0000000000, none twice.
func TestMalloc(t *testing.T) {
	d, addr := small(t, 4), got[device.Addr](t)
	a := addr(d.Malloc(1))
	require.EqualValues(t, 0x7f0000000000, a)
	b := addr(d.Malloc(Granule + 1))
	require.Equal(t, a+Granule, b)
	require.EqualValues(t, Granule, freeOf(d))
	_, err := d.Malloc(Granule + 1)
	require.Equal(t, device.ErrOutOfMemory, err)
	c := addr(d.Malloc(Granule))
	require.Zero(t, freeOf(d))

	// Free memory in two places serves one region: physical memory does not fragment.
	require.NoError(t, d.Free(a))
	require.NoError(t, d.Free(c))
	e := addr(d.Malloc(2 * Granule))
	require.Equal(t, c+Granule, e, "the addresses of a and c are not used again")
	require.ErrorContains(t, d.Free(a), "free of 0x7f0000000000, which no malloc returned or which is freed already")
	require.ErrorIs(t, d.Free(b+Granule), device.ErrInvalid)
	for _, size := range []uint64{0, 1<<61 + 1} {
		_, err := d.Malloc(size)
		require.ErrorIs(t, err, device.ErrInvalid)
	}
	_, err = d.Malloc(1 << 61)
	require.Equal(t, device.ErrOutOfMemory, err)
}

// TestReserve: address space costs nothing and comes from 0x600000000000, never twice.
func TestReserve(t *testing.T) {
	d, addr := small(t, 1), got[device.Addr](t)
	require.EqualValues(t, Granule, d.Granularity())
	a := addr(d.Reserve(10 * Granule))
	b := addr(d.Reserve(Granule))
	require.EqualValues(t, 0x600000000000, a)
	require.Equal(t, a+10*Granule, b)
	require.EqualValues(t, Granule, freeOf(d))
	require.ErrorContains(t, d.Unreserve(a, Granule), "which is no reservation")
	require.ErrorContains(t, d.Unreserve(a+Granule, 9*Granule), "which is no reservation")
	require.NoError(t, d.Unreserve(a, 10*Granule))
	require.ErrorIs(t, d.Unreserve(a, 10*Granule), device.ErrInvalid)
	require.Equal(t, b+Granule, addr(d.Reserve(Granule)))
	for _, size := range []uint64{0, 1, Granule + 512} {
		_, err := d.Reserve(size)
		require.ErrorContains(t, err, "not a positive multiple of 2 MiB")
	}
}

// TestChunks: a handle costs its size from creation until it is released and no longer mapped, in whichever order.
func TestChunks(t *testing.T) {
	d := small(t, 4)
	handle := got[device.Handle](t)
	va := got[device.Addr](t)(d.Reserve(8 * Granule))
	h := handle(d.Create(2 * Granule))
	require.EqualValues(t, 2*Granule, freeOf(d))
	_, err := d.Create(3 * Granule)
	require.Equal(t, device.ErrOutOfMemory, err)
	_, err = d.Create(Granule / 2)
	require.ErrorIs(t, err, device.ErrInvalid)

	require.NoError(t, d.Map(va+Granule, 2*Granule, h))
	require.NoError(t, d.Release(h))
	require.EqualValues(t, 2*Granule, freeOf(d), "released, but mapped")
	require.ErrorContains(t, d.Release(h), "does not exist or is released")
	require.ErrorContains(t, d.Map(va+4*Granule, 2*Granule, h), "not a held chunk of that size")
	require.ErrorContains(t, d.Unreserve(va, 8*Granule), "with 1 mappings in it")
	require.NoError(t, d.Unmap(va+Granule, 2*Granule))
	require.EqualValues(t, 4*Granule, freeOf(d), "the last mapping takes the released chunk with it")

	h2 := handle(d.Create(Granule))
	require.NotEqual(t, h, h2, "a handle is never given twice, though its place is")
	require.ErrorIs(t, d.Release(h), device.ErrInvalid)
	require.NoError(t, d.Map(va, Granule, h2))
	require.NoError(t, d.Unmap(va, Granule))
	require.EqualValues(t, 3*Granule, freeOf(d), "unmapped, but held")
	require.NoError(t, d.Map(va, Granule, h2), "and can be mapped again")
	require.NoError(t, d.Unmap(va, Granule))
	require.NoError(t, d.Release(h2))
	require.EqualValues(t, 4*Granule, freeOf(d))
	require.NoError(t, d.Unreserve(va, 8*Granule))
}

// TestMappings has what a mapping must not do. M is two granules mapped at 2, one at 4, in a reservation of 8; another follows.
func TestMappings(t *testing.T) {
	d := small(t, 100)
	va := got[device.Addr](t)(d.Reserve(8 * Granule))
	got[device.Addr](t)(d.Reserve(8 * Granule))
	two := got[device.Handle](t)(d.Create(2 * Granule))
	one := got[device.Handle](t)(d.Create(Granule))
	spare := got[device.Handle](t)(d.Create(2 * Granule))
	require.NoError(t, d.Map(va+2*Granule, 2*Granule, two))
	require.NoError(t, d.Map(va+4*Granule, Granule, one))
	at := func(granules float64) device.Addr { return va + device.Addr(granules*Granule) }
	for _, c := range []struct {
		name string
		call func() error
		want string
	}{
		{"over a mapping's start", func() error { return d.Map(at(1), 2*Granule, spare) }, "where something is mapped"},
		{"over a mapping's end", func() error { return d.Map(at(3), 2*Granule, spare) }, "where something is mapped"},
		{"half a chunk", func() error { return d.Map(at(0), Granule, spare) }, "not a held chunk of that size"},
		{"out of the reservation's end", func() error { return d.Map(at(7), 2*Granule, spare) }, "not 2 MiB aligned inside one reservation"},
		{"nowhere", func() error { return d.Map(1, 2*Granule, spare) }, "not 2 MiB aligned inside one reservation"},
		{"not aligned", func() error { return d.Map(at(0.5), 2*Granule, spare) }, "not 2 MiB aligned"},
		{"no such handle", func() error { return d.Map(at(0), 2*Granule, 1<<40) }, "not a held chunk"},
		{"unmap the first half of a mapping", func() error { return d.Unmap(at(2), Granule) }, "cuts a mapping"},
		{"unmap the second half", func() error { return d.Unmap(at(3), Granule) }, "cuts a mapping"},
		{"unmap one and a half", func() error { return d.Unmap(at(3), 2*Granule) }, "cuts a mapping"},
		{"unmap a hole", func() error { return d.Unmap(at(0), Granule) }, "is not mapped"},
		{"unmap with a hole behind", func() error { return d.Unmap(at(4), 2*Granule) }, "is not mapped"},
		{"unmap with a hole before", func() error { return d.Unmap(at(1), 3*Granule) }, "is not mapped"},
		{"unmap nothing", func() error { return d.Unmap(at(2), 0) }, "not 2 MiB aligned"},
		{"unmap not aligned", func() error { return d.Unmap(at(2.5), Granule) }, "not 2 MiB aligned"},
	} {
		err := c.call()
		require.ErrorIs(t, err, device.ErrInvalid, c.name)
		require.ErrorContains(t, err, c.want, c.name)
	}
	require.EqualValues(t, 95*Granule, freeOf(d), "failed calls change nothing")
	require.NoError(t, d.Unmap(at(2), 3*Granule), "several whole mappings at once")
	require.NoError(t, d.Map(at(1), 2*Granule, spare))
}

// TestUnmapWithAHoleInside: all or nothing.
func TestUnmapWithAHoleInside(t *testing.T) {
	d := small(t, 8)
	va := got[device.Addr](t)(d.Reserve(8 * Granule))
	for _, i := range []device.Addr{0, 2} {
		require.NoError(t, d.Map(va+i*Granule, Granule, got[device.Handle](t)(d.Create(Granule))))
	}
	require.ErrorContains(t, d.Unmap(va, 3*Granule), "where not all is mapped")
	require.NoError(t, d.Unmap(va, Granule))
	require.NoError(t, d.Unmap(va+2*Granule, Granule))
}

// TestEvents: an event is done once its stream is synchronised later, or it or a later one of its stream is waited for.
func TestEvents(t *testing.T) {
	d := small(t, 1)
	event := got[device.Event](t)
	a1, b1 := event(d.Record(5)), event(d.Record(math.MaxInt32))
	a2 := event(d.Record(5))
	show := func() (s string) {
		for _, e := range []device.Event{a1, a2, b1} {
			s += map[bool]string{true: "done ", false: "busy "}[got[bool](t)(d.Done(e))]
		}
		return s
	}
	require.Equal(t, "busy busy busy ", show())
	require.NoError(t, d.Sync(7))
	require.Equal(t, "busy busy busy ", show(), "another stream")
	require.NoError(t, d.Wait(a1))
	require.Equal(t, "done busy busy ", show())
	require.NoError(t, d.Wait(a2))
	require.NoError(t, d.Wait(a1))
	require.Equal(t, "done done busy ", show(), "to wait for an old one changes nothing")
	a3 := event(d.Record(5))
	require.False(t, got[bool](t)(d.Done(a3)), "work queued after the wait")
	require.NoError(t, d.Sync(5))
	require.True(t, got[bool](t)(d.Done(a3)))
	require.Equal(t, "done done busy ", show())
	require.NoError(t, d.SyncAll())
	require.Equal(t, "done done done ", show())
	require.NoError(t, d.Destroy(a1))

	// Malloc and Free synchronise nothing.
	e := event(d.Record(0))
	require.NoError(t, d.Free(got[device.Addr](t)(d.Malloc(1))))
	require.False(t, got[bool](t)(d.Done(e)))

	for _, e := range []device.Event{0, a3 + 1, device.Event(99) << 40, math.MaxUint64} {
		_, err := d.Done(e)
		require.ErrorContains(t, err, "which was never recorded")
		require.ErrorIs(t, d.Wait(e), device.ErrInvalid)
	}
}

// TestForeign: others take from what is free, and never more.
func TestForeign(t *testing.T) {
	d := small(t, 4)
	a := got[device.Addr](t)(d.Malloc(Granule))
	require.NoError(t, d.SetForeign(3*Granule))
	require.Zero(t, freeOf(d))
	_, err := d.Malloc(1)
	require.Equal(t, device.ErrOutOfMemory, err)
	err = d.SetForeign(3*Granule + 1)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.ErrorContains(t, err, "others cannot take 6291457 bytes, 2097152 of 8388608 are in use")
	require.ErrorIs(t, d.SetForeign(math.MaxUint64), device.ErrOutOfMemory)
	require.NoError(t, d.SetForeign(Granule), "it is a level, not an addition")
	require.EqualValues(t, 2*Granule, freeOf(d))
	require.NoError(t, d.Free(a))
	require.NoError(t, d.SetForeign(4*Granule))
}

// TestNextCapacity: the smallest capacity at which a refused call would have succeeded.
func TestNextCapacity(t *testing.T) {
	d := small(t, 4)
	require.EqualValues(t, uint64(math.MaxUint64), d.NextCapacity())
	got[device.Addr](t)(d.Malloc(3 * Granule))
	_, err := d.Malloc(4 * Granule)
	require.Error(t, err)
	require.EqualValues(t, 7*Granule, d.NextCapacity())
	require.NoError(t, d.SetForeign(Granule))
	_, err = d.Create(2 * Granule)
	require.Error(t, err)
	require.EqualValues(t, 6*Granule, d.NextCapacity())
	_, err = d.Malloc(10 * Granule)
	require.Error(t, err)
	require.EqualValues(t, 6*Granule, d.NextCapacity(), "the smallest counts")
	require.Error(t, d.SetForeign(2*Granule))
	require.EqualValues(t, 5*Granule, d.NextCapacity(), "a new level replaces the old one")
}

// TestLatency: virtual time, charged for each call whether it succeeds or not.
func TestLatency(t *testing.T) {
	d := start(t, Options{Capacity: 4 * Granule, Latency: Latency{
		Malloc: 1, Free: 10, Reserve: 100, Unreserve: 1000, Create: 10_000, Release: 100_000, Map: 1e6, Unmap: 1e7, Sync: 1e8,
	}})
	a := got[device.Addr](t)(d.Malloc(1))
	require.NoError(t, d.Free(a))
	require.Error(t, d.Free(a))
	va := got[device.Addr](t)(d.Reserve(Granule))
	h := got[device.Handle](t)(d.Create(Granule))
	require.NoError(t, d.Map(va, Granule, h))
	require.NoError(t, d.Release(h))
	require.NoError(t, d.Unmap(va, Granule))
	require.NoError(t, d.Unreserve(va, Granule))
	require.NoError(t, d.Wait(got[device.Event](t)(d.Record(0))))
	require.NoError(t, d.Sync(0))
	require.NoError(t, d.SyncAll())
	require.Equal(t, time.Duration(311_111_121), d.Elapsed())
}
