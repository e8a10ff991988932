package measure_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const mib = 1 << 20

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func target(t testing.TB, name string) executor.Target {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return executor.Target{Name: name, New: spec.New}
}

// sevenOps is the seven-operation trace on which more memory hurts (contracts 3.3).
const sevenOps = `alloc 0 24MiB
free 0
alloc 1 30MiB
free 1
alloc 2 14MiB
alloc 3 20MiB
alloc 4 14MiB
`

func TestMoreMemoryCanHurt(t *testing.T) {
	tr, err := trace.ParseString("seven", sevenOps)
	require.NoError(t, err)
	s, err := measure.Capacities(context.Background(), executor.Compile(tr), target(t, "classic"), simulated)
	require.NoError(t, err)
	require.Equal(t, []measure.Interval{{From: 50 * mib, To: 54 * mib}, {From: 68 * mib, To: measure.Infinite}}, s.Passes)
	require.EqualValues(t, 48*mib, s.PeakLive)
}
