package counterexample_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/counterexample"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/properties"
)

func search(t *testing.T, alloc string, capacity uint64, sequences, workers int) *counterexample.Search {
	t.Helper()
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	return &counterexample.Search{
		Target:    executor.Target{Name: alloc, New: spec.New},
		NewDevice: func(c uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: c}) },
		NewJudge:  properties.NewJudge, Capacity: capacity, Least: 1 << 20, Sequences: sequences, Ops: 60, Seed: 1, Workers: workers,
	}
}

// TestSearch: what nobody promises is broken within a few sequences, what is promised is not, and the three-call pin does not
// beat what the search reports.
func TestSearch(t *testing.T) {
	const capacity = 1 << 30
	for _, alloc := range []string{"classic", "expandable"} {
		s := search(t, alloc, capacity, 1500, 2)
		r, err := s.Run(context.Background(), nil)
		require.NoError(t, err)
		require.Equal(t, 1500, r.Sequences)
		for l := executor.LevelBytes; l <= executor.LevelFlushed; l++ {
			rec := &r.Levels[l]
			require.NotZero(t, rec.Refusals, "%s %s", alloc, l)
			short, err := s.Shorten(context.Background(), rec.Shortest, l)
			require.NoError(t, err)
			require.LessOrEqual(t, len(short.Trace.Ops), 2, "%s %s", alloc, l)
			require.GreaterOrEqual(t, short.Request, uint64(1<<20))
			require.GreaterOrEqual(t, short.Free, short.Request)
		}
		for _, p := range counterexample.Pins {
			m, err := s.Measure(p)
			require.NoError(t, err)
			require.True(t, m.Refused, "%s %s", alloc, p.Name)
			for _, l := range executor.Levels() {
				if m.Demands.Broken.Has(l) {
					require.GreaterOrEqual(t, r.Levels[l].Worst.Ratio(), m.Ratio(l), "%s %s %s", alloc, p.Name, l)
				}
			}
		}
		require.Zero(t, r.Levels[executor.LevelPurchase].Refusals, alloc)
		require.Zero(t, r.Levels[executor.LevelLookup].Refusals, alloc)
		require.Zero(t, r.Promise, alloc)
	}
}

// TestPins: what the pins come to on 200 MiB, to the byte, as PyTorch 2.6.0 itself has it: 1 MiB and a byte refused with 100 small
// triples, 19 MiB with ten large ones. No promise is broken: the small one's holes lie in the other pool, those of the large one
// are too small.
func TestPins(t *testing.T) {
	const (
		mib   = 1 << 20
		blind = executor.LevelSet(1<<executor.LevelBytes | 1<<executor.LevelRounded | 1<<executor.LevelSettled)
	)
	for _, alloc := range []string{"classic", "expandable"} {
		s := search(t, alloc, 200*mib, 1, 1)
		for i, c := range []struct {
			operations int
			free       uint64
			verdict    executor.Verdict
			broken     executor.LevelSet
		}{
			{100*5 + 1, 200*mib - 100*512, executor.Policy, blind},
			{10*5 + 1, 200*mib - 10*(mib+512), executor.Fragmentation, blind | 1<<executor.LevelStream},
		} {
			m, err := s.Measure(counterexample.Pins[i])
			require.NoError(t, err)
			require.True(t, m.Refused)
			require.Equal(t, c.verdict, m.Verdict, "%s pin %d", alloc, i)
			require.Equal(t, c.operations, m.Operations)
			require.Equal(t, c.broken, m.Demands.Broken, "%s pin %d", alloc, i)
			require.Equal(t, c.free, m.Demands.Free[executor.LevelBytes])
			require.InDelta(t, float64(c.free)/float64(counterexample.Pins[i].Request), m.Ratio(executor.LevelBytes), 1e-9)
			require.InDelta(t, 1-float64(c.free)/(200*mib), m.Demands.Fill, 1e-9)
		}
	}
	m, err := search(t, "best-fit", 200*mib, 1, 1).Measure(counterexample.Pins[0])
	require.NoError(t, err)
	require.False(t, m.Refused, "one arena has no pools: what lies between two pins is more than is asked for")
}

// TestSearchIsDeterministic: the same whatever the number of workers.
func TestSearchIsDeterministic(t *testing.T) {
	var first *counterexample.Result
	for _, workers := range []int{1, 3} {
		r, err := search(t, "classic", 256<<20, 600, workers).Run(context.Background(), nil)
		require.NoError(t, err)
		if first == nil {
			first = r
			continue
		}
		for l := range r.Levels {
			a, b := &first.Levels[l], &r.Levels[l]
			require.Equal(t, a.Refusals, b.Refusals)
			if a.Refusals > 0 {
				require.Equal(t, a.Worst.Trace.Format(), b.Worst.Trace.Format())
				require.Equal(t, a.Shortest.Trace.Format(), b.Shortest.Trace.Format())
			}
		}
	}
}
