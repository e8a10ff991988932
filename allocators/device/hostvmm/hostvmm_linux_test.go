package hostvmm

import (
	"bytes"
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shatter-gpu/shatter/allocators/device"
)

var _ interface {
	device.Device
	device.Bytes
	device.Foreigner
	device.CapacitySensor
} = (*Device)(nil)

func start(t *testing.T, o Options) *Device {
	t.Helper()
	d, err := New(o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func TestCapacity(t *testing.T) {
	for _, c := range []uint64{0, Granule - 1, MaxCapacity + 1} {
		_, err := New(Options{Capacity: c})
		require.ErrorIs(t, err, device.ErrInvalid)
		require.ErrorContains(t, err, "a host device has 2 MiB to 1 TiB")
	}
}

// TestAliasInMemory looks at the bytes themselves, past Fill and Verify.
func TestAliasInMemory(t *testing.T) {
	d := start(t, Options{Capacity: 4 * Granule})
	a, err := d.Reserve(4 * Granule)
	require.NoError(t, err)
	h, err := d.Create(Granule)
	require.NoError(t, err)
	require.NoError(t, d.Map(a, Granule, h))
	require.NoError(t, d.Map(a+3*Granule, Granule, h))
	one := unsafe.Slice((*byte)(pointer(uint64(a))), Granule)
	two := unsafe.Slice((*byte)(pointer(uint64(a+3*Granule))), Granule)
	one[Granule-1] = 0x5a
	require.EqualValues(t, 0x5a, two[Granule-1])
	runtime.GC() // the collector must not mind addresses that are not its own
	two[0] = 0xa5
	require.EqualValues(t, 0xa5, one[0])
}

// TestFreshMemoryIsZero: what was returned does not come back with its bytes.
func TestFreshMemoryIsZero(t *testing.T) {
	d := start(t, Options{Capacity: Granule})
	for range 3 {
		a, err := d.Malloc(Granule)
		require.NoError(t, err)
		require.True(t, bytes.Equal(make([]byte, Granule), unsafe.Slice((*byte)(pointer(uint64(a))), Granule)))
		require.NoError(t, d.Fill(a, Granule, 1<<40))
		require.NoError(t, d.Free(a))
	}
}

// TestMemoryIsReturned: what was touched costs host memory until it is freed, or released and unmapped.
func TestMemoryIsReturned(t *testing.T) {
	d := start(t, Options{Capacity: 16 * Granule})
	held := func() int64 {
		var s unix.Stat_t
		require.NoError(t, unix.Fstat(d.host.fd, &s))
		return s.Blocks * 512 // stat counts in blocks of 512 bytes on every system
	}
	a, err := d.Malloc(4 * Granule)
	require.NoError(t, err)
	r, err := d.Reserve(4 * Granule)
	require.NoError(t, err)
	h, err := d.Create(4 * Granule)
	require.NoError(t, err)
	require.NoError(t, d.Map(r, 4*Granule, h))
	require.Zero(t, held())
	require.NoError(t, d.Fill(a, 4*Granule, 1))
	require.NoError(t, d.Fill(r, 4*Granule, 1))
	require.EqualValues(t, 8*Granule, held())
	require.NoError(t, d.Free(a))
	require.EqualValues(t, 4*Granule, held())
	require.NoError(t, d.Release(h))
	require.EqualValues(t, 4*Granule, held())
	require.NoError(t, d.Unmap(r, 4*Granule))
	require.Zero(t, held())
}

// TestAddressesAreLowest: in every device alike, so that runs repeat.
func TestAddressesAreLowest(t *testing.T) {
	d := start(t, Options{Capacity: 100 * Granule})
	first, err := d.Malloc(1)
	require.NoError(t, err)
	place := func(size uint64) int {
		a, err := d.Malloc(size * Granule)
		require.NoError(t, err)
		return int((a - first) / Granule)
	}
	require.Equal(t, []int{1, 3, 6}, []int{place(2), place(3), place(1)})
	require.NoError(t, d.Free(first+3*Granule))
	require.Equal(t, []int{7, 3, 5}, []int{place(4), place(2), place(1)})
	a, err := d.Reserve(2 * Granule)
	require.NoError(t, err)
	require.Equal(t, first+11*Granule, a)
}

// TestSecondArena: address space that the first arena has not is had in another one.
func TestSecondArena(t *testing.T) {
	d := start(t, Options{Capacity: Granule})
	size := arenaOf(Granule) * 3 / 4 / Granule * Granule
	a, err := d.Reserve(size)
	require.NoError(t, err)
	b, err := d.Reserve(size)
	require.NoError(t, err)
	require.True(t, b+device.Addr(size) <= a || a+device.Addr(size) <= b)
	require.Len(t, d.host.arenas, 2)
	h, err := d.Create(Granule)
	require.NoError(t, err)
	require.NoError(t, d.Map(b, Granule, h))
	require.NoError(t, d.Fill(b, Granule, 1))
	require.NoError(t, d.Unmap(b, Granule))
	require.NoError(t, d.Unreserve(b, size))
	require.NoError(t, d.Unreserve(a, size))
}

// TestAreaGuard: the call that would come near the kernel's limit is refused as a fault of the environment, changes nothing,
// and succeeds once there is room.
func TestAreaGuard(t *testing.T) {
	before := areas.Load()
	d := start(t, Options{Capacity: 100 * Granule, MaxAreas: before + areasOfArena + 3*areasOfMapping})
	a, err := d.Reserve(100 * Granule)
	require.NoError(t, err)
	var handles []device.Handle
	for i := range device.Addr(3) {
		h, err := d.Create(Granule)
		require.NoError(t, err)
		require.NoError(t, d.Map(a+2*i*Granule, Granule, h))
		handles = append(handles, h)
	}
	h, err := d.Create(Granule)
	require.NoError(t, err)
	free, _ := d.Info()
	err = d.Map(a+50*Granule, Granule, h)
	require.ErrorIs(t, err, device.ErrEnvironment)
	require.ErrorContains(t, err, "raise vm.max_map_count")
	_, err = d.Malloc(1)
	require.ErrorIs(t, err, device.ErrEnvironment)
	now, _ := d.Info()
	require.Equal(t, free, now)
	require.ErrorIs(t, d.Fill(a+50*Granule, 8, 1), device.ErrFault)

	require.NoError(t, d.Unmap(a, Granule))
	require.NoError(t, d.Map(a+50*Granule, Granule, h))
	require.NoError(t, d.Release(handles[0]))
	require.NoError(t, d.Close())
	require.Equal(t, before, areas.Load())
}

// TestManyScatteredMappings: a device much larger than the host's memory, mapped in pages that cannot merge.
func TestManyScatteredMappings(t *testing.T) {
	const pages = 5000
	d := start(t, Options{Capacity: 100 << 30})
	a, err := d.Reserve(2 * pages * 5 * Granule)
	require.NoError(t, err)
	at := func(i int) device.Addr { return a + device.Addr(2*i*10)*Granule/2 }
	for i := range pages {
		h, err := d.Create(10 * Granule / 2)
		require.NoError(t, err)
		require.NoError(t, d.Map(at(i), 10*Granule/2, h))
		require.NoError(t, d.Fill(at(i), 8, uint64(i)))
	}
	for i := range pages {
		_, ok, err := d.Verify(at(i), 8, uint64(i))
		require.NoError(t, err)
		require.True(t, ok, i)
	}
}

// TestClosed: a closed device refuses, and touches nothing.
func TestClosed(t *testing.T) {
	d := start(t, Options{Capacity: 4 * Granule})
	a, err := d.Malloc(1)
	require.NoError(t, err)
	r, err := d.Reserve(Granule)
	require.NoError(t, err)
	h, err := d.Create(Granule)
	require.NoError(t, err)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.Malloc(1)
	require.ErrorIs(t, err, device.ErrInvalid)
	require.ErrorIs(t, d.Free(a), device.ErrInvalid)
	require.ErrorIs(t, d.Map(r, Granule, h), device.ErrInvalid)
	require.ErrorIs(t, d.Unreserve(r, Granule), device.ErrInvalid)
	require.ErrorIs(t, d.Release(h), device.ErrInvalid)
	require.ErrorIs(t, d.Fill(a, 8, 1), device.ErrFault)
}

// TestNextCapacity: the smallest device on which a refused call would have succeeded.
func TestNextCapacity(t *testing.T) {
	d := start(t, Options{Capacity: 4 * Granule})
	_, err := d.Malloc(Granule)
	require.NoError(t, err)
	_, err = d.Create(5 * Granule)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.EqualValues(t, 6*Granule, d.NextCapacity())
	_, err = d.Malloc(4 * Granule)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.EqualValues(t, 5*Granule, d.NextCapacity())
}

func BenchmarkMapUnmap(b *testing.B) {
	d, err := New(Options{Capacity: 1 << 30})
	require.NoError(b, err)
	defer d.Close()
	a, err := d.Reserve(1 << 30)
	require.NoError(b, err)
	h, err := d.Create(Granule)
	require.NoError(b, err)
	for b.Loop() {
		if d.Map(a, Granule, h) != nil || d.Unmap(a, Granule) != nil {
			b.Fatal("map or unmap failed")
		}
	}
}

func BenchmarkFill(b *testing.B) {
	d, err := New(Options{Capacity: 1 << 30})
	require.NoError(b, err)
	defer d.Close()
	a, err := d.Malloc(64 << 20)
	require.NoError(b, err)
	b.SetBytes(64 << 20)
	for b.Loop() {
		require.NoError(b, d.Fill(a, 64<<20, 1))
	}
}
