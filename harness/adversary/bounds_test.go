package adversary_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/adversary"
)

const (
	mib = 1 << 20
	gib = 1 << 30
)

var controls = []string{"first-fit", "best-fit", "worst-fit", "next-fit", "buddy"}

func opponent(t testing.TB, name string, capacity uint64) allocators.Allocator {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	a, err := spec.New(dev)
	require.NoError(t, err)
	return a
}

func find(t testing.TB, name string) *adversary.Adversary {
	a, err := adversary.Find(name)
	require.NoError(t, err)
	return a
}

// Five policies, one number: Robson's adversary takes exactly its bound from each, and the aligned one from the buddy system.
func TestRobsonIsExact(t *testing.T) {
	for _, c := range []struct{ m, n, want, aligned int }{
		{256, 16, 753, 768}, {512, 64, 1985, 2048}, {1024, 128, 4481, 4608}, {2048, 256, 9985, 10240},
	} {
		require.Equal(t, c.want, adversary.RobsonBound(c.m, c.n))
		require.Equal(t, c.aligned, adversary.AlignedBound(c.m, c.n))
		for _, name := range controls {
			for _, unit := range []uint64{512, 2 * mib} {
				want := c.want
				if name == "buddy" {
					want = c.aligned
				}
				got, err := find(t, "robson").Play(opponent(t, name, 64*gib), adversary.Params{Unit: unit, Live: c.m, Largest: c.n})
				require.NoError(t, err)
				require.False(t, got.Refused)
				require.NoError(t, got.Trace.Validate())
				require.LessOrEqual(t, got.Peak, uint64(c.m)*unit)
				require.EqualValues(t, want, got.Reached/unit, "%s, M = %d, n = %d", name, c.m, c.n)
			}
		}
	}
}

// Carve-and-pin takes far more from best fit than any logarithm: at least 0.40 m M.
func TestCarveAndPin(t *testing.T) {
	for _, m := range []int{16, 64} {
		got, err := find(t, "carve-and-pin").Play(opponent(t, "best-fit", 8*gib), adversary.Params{Unit: 512, Live: 4096, Largest: m})
		require.NoError(t, err)
		require.LessOrEqual(t, got.Peak, uint64(4096*512))
		factor := float64(got.Reached) / 512 / 4096 / float64(m)
		t.Logf("m = %d: %.2f M = %.3f m M", m, factor*float64(m), factor)
		require.GreaterOrEqual(t, factor, 0.40)
	}
}
