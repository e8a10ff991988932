package device_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// TestRecorder: every call that moves memory or waits is noted with its figures, refusals as such; what failed otherwise and
// what only asks is not.
func TestRecorder(t *testing.T) {
	const page = 2 << 20
	dev, err := simdev.New(simdev.Options{Capacity: 2 * page})
	require.NoError(t, err)
	r := &device.Recorder{Device: dev}
	must := func(err error) { t.Helper(); require.NoError(t, err) }

	a, err := r.Malloc(page)
	must(err)
	_, err = r.Malloc(2 * page)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	must(r.Free(a))
	require.ErrorIs(t, r.Free(a), device.ErrInvalid)
	v, err := r.Reserve(4 * page)
	must(err)
	_, err = r.Reserve(1)
	require.Error(t, err)
	h, err := r.Create(page)
	must(err)
	_, err = r.Create(2 * page)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	must(r.Map(v+page, page, h))
	require.Error(t, r.Map(v+page, page, h))
	require.Error(t, r.Unmap(v, page))
	must(r.Unmap(v+page, page))
	must(r.Release(h))
	require.Error(t, r.Release(h))
	must(r.Unreserve(v, 4*page))
	require.Error(t, r.Unreserve(v, 4*page))
	e, err := r.Record(1)
	must(err)
	_, err = r.Done(e)
	must(err)
	must(r.Wait(e))
	must(r.Sync(1))
	must(r.SyncAll())
	must(r.Destroy(e))
	free, total := r.Info()
	require.Equal(t, []uint64{2 * page, 2 * page}, []uint64{free, total})

	require.Equal(t, []device.Call{
		{Kind: device.CallMalloc, Addr: a, Size: page}, {Kind: device.CallMallocFail, Size: 2 * page}, {Kind: device.CallFree, Addr: a},
		{Kind: device.CallReserve, Addr: v, Size: 4 * page},
		{Kind: device.CallCreate, Size: page, Handle: h}, {Kind: device.CallCreateFail, Size: 2 * page},
		{Kind: device.CallMap, Addr: v + page, Size: page, Handle: h}, {Kind: device.CallUnmap, Addr: v + page, Size: page},
		{Kind: device.CallRelease, Handle: h}, {Kind: device.CallUnreserve, Addr: v, Size: 4 * page},
		{Kind: device.CallWait}, {Kind: device.CallWait, Addr: 1, Size: device.WaitedStream}, {Kind: device.CallWait, Size: device.WaitedDevice},
	}, r.Calls)
	r.Reset()
	require.Empty(t, r.Calls)
}
