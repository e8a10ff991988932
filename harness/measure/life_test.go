package measure_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
)

func TestScarceCapacity(t *testing.T) {
	const granule = 2 << 20
	for _, c := range []struct{ live, perMille, want uint64 }{
		{0, 1020, granule}, {1, 1200, granule}, {100 << 20, 1000, 100 << 20}, {100 << 20, 1020, 102 << 20}, {100 << 20, 1200, 120 << 20},
		{999, 1200, granule}, {80 << 30, 1050, 84 << 30}, {math.MaxUint64 / 2, 1200, (math.MaxUint64/2 + math.MaxUint64/10) / granule * granule},
	} {
		require.Equal(t, c.want, measure.ScarceCapacity(c.live, c.perMille), "%d %d", c.live, c.perMille)
	}
}

// TestLives holds lives, most of which follow from the spectrum, against whole runs at each capacity.
func TestLives(t *testing.T) {
	t.Parallel()
	newDevice := func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) }
	refused, passed := 0, 0
	for _, name := range []string{"classic", "expandable"} {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		target := executor.Target{Name: name, New: spec.New}
		for seed := range uint64(6) {
			w, err := gen.Find("mixed")
			require.NoError(t, err)
			p := executor.Compile(gen.Generate(w, seed, gen.Params{Ops: 300, Capacity: 512 << 20}))
			s, err := measure.Capacities(context.Background(), p, target, newDevice)
			require.NoError(t, err)
			lives, err := measure.LivesOf(p, target, newDevice, s)
			require.NoError(t, err)
			require.Len(t, lives, len(measure.Scarce))
			for i, l := range lives {
				require.Equal(t, measure.Scarce[i], l.PerMille)
				dev, err := newDevice(measure.ScarceCapacity(s.PeakLive, l.PerMille))
				require.NoError(t, err)
				res, err := executor.Execute(p, target, executor.Options{Device: dev})
				require.NoError(t, err)
				want := measure.Life{PerMille: l.PerMille, Served: p.Len()}
				if len(res.OOMs) > 0 {
					want.Served, want.OOM = res.OOMs[0], true
					refused++
				} else {
					passed++
				}
				require.Equal(t, want, l, "%s seed %d", name, seed)
			}
		}
	}
	require.Positive(t, refused)
	require.Positive(t, passed)
}

func TestPassesAt(t *testing.T) {
	s := measure.Spectrum{Passes: []measure.Interval{{From: 10, To: 20}, {From: 30, To: measure.Infinite}}}
	for capacity, want := range map[uint64]bool{0: false, 9: false, 10: true, 19: true, 20: false, 29: false, 30: true, 1 << 60: true} {
		require.Equal(t, want, s.PassesAt(capacity), capacity)
	}
}
