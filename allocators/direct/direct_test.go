package direct

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

const mib = 1 << 20

func start(t *testing.T, capacity uint64) (*Allocator, *device.Recorder) {
	t.Helper()
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	r := &device.Recorder{Device: dev}
	return New(r), r
}

// TestEveryCallGoesToTheDevice: sizes are rounded to the granule and nothing is kept.
func TestEveryCallGoesToTheDevice(t *testing.T) {
	a, dev := start(t, 8*mib)
	x, err := a.Alloc(1, 0)
	require.NoError(t, err)
	require.EqualValues(t, 2*mib, x.Size)
	y, err := a.Alloc(2*mib+1, 3)
	require.NoError(t, err)
	require.EqualValues(t, 4*mib, y.Size)
	require.NoError(t, a.Free(x.Addr))
	require.Equal(t, []device.CallKind{device.CallMalloc, device.CallMalloc, device.CallFree},
		[]device.CallKind{dev.Calls[0].Kind, dev.Calls[1].Kind, dev.Calls[2].Kind})

	s := a.Stats()
	require.Equal(t, []uint64{1, 4 * mib, 4 * mib, 2*mib + 1, 1, 2, 1}, []uint64{
		s.Allocation.All.Current, s.AllocatedBytes.All.Current, s.ReservedBytes.All.Current, s.RequestedBytes.All.Current,
		s.Segment.All.Current, s.NumDeviceAlloc, s.NumDeviceFree,
	})
	require.EqualValues(t, 6*mib, s.ReservedBytes.All.Peak)
	require.NoError(t, a.Free(y.Addr))
	free, _ := dev.Info()
	require.EqualValues(t, 8*mib, free)
	require.Zero(t, s.ActiveBytes.All.Current)
}

func TestRefusal(t *testing.T) {
	a, dev := start(t, 8*mib)
	_, err := a.Alloc(5*mib, 0)
	require.NoError(t, err)
	_, err = a.Alloc(3*mib, 2)
	var oom *allocators.OOMError
	require.True(t, errors.As(err, &oom))
	require.Equal(t, allocators.OOMError{
		Request: 3 * mib, Rounded: 4 * mib, SegmentSize: 4 * mib, Total: 8 * mib, DeviceFree: 2 * mib, Allocated: 6 * mib,
		Reserved: 6 * mib, Stream: 2,
	}, *oom)
	require.EqualValues(t, 1, a.Stats().NumOOMs)
	require.EqualValues(t, 10*mib, dev.Device.(device.CapacitySensor).NextCapacity())
	_, err = a.Alloc(1<<60+1, 0)
	require.EqualError(t, err, "a request must be at most 2^60 bytes: invalid device call")
	require.NotErrorIs(t, err, device.ErrOutOfMemory)
}

// TestFreeWaitsForRecordedUses as cudaFree waits for the device: only then may the memory go to another.
func TestFreeWaitsForRecordedUses(t *testing.T) {
	a, dev := start(t, 8*mib)
	x, err := a.Alloc(mib, 0)
	require.NoError(t, err)
	e, err := dev.Record(7)
	require.NoError(t, err)
	other, err := dev.Record(8)
	require.NoError(t, err)
	require.NoError(t, a.Record(x.Addr, 7))
	require.NoError(t, a.Free(x.Addr))
	done, err := dev.Done(e)
	require.NoError(t, err)
	require.True(t, done)
	done, err = dev.Done(other)
	require.NoError(t, err)
	require.False(t, done)
}

func TestPointers(t *testing.T) {
	a, _ := start(t, 8*mib)
	b, err := a.Alloc(0, 0)
	require.NoError(t, err)
	require.Equal(t, allocators.Block{}, b)
	require.NoError(t, a.Free(0))
	b, err = a.Alloc(1, 0)
	require.NoError(t, err)
	require.ErrorIs(t, a.Free(b.Addr+512), allocators.ErrInvalidPointer)
	require.ErrorIs(t, a.Record(b.Addr+512, 1), allocators.ErrInvalidPointer)
	require.NoError(t, a.Free(b.Addr))
	require.EqualError(t, a.Free(b.Addr), "free of 0x7f0000000000: invalid device pointer")
}
