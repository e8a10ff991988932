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
	// A pin of 512 bytes in each segment of 2 MiB, and a request for 1 MiB and a byte.
	pin := float64(capacity-capacity/(2<<20)*512) / (1<<20 + 1)
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
		require.GreaterOrEqual(t, r.Levels[executor.LevelBytes].Worst.Ratio(), pin)
		require.GreaterOrEqual(t, r.Levels[executor.LevelRounded].Worst.Ratio(), pin)
		require.Zero(t, r.Levels[executor.LevelPurchase].Refusals, alloc)
		require.Zero(t, r.Levels[executor.LevelLookup].Refusals, alloc)
		require.Zero(t, r.Promise, alloc)
	}
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
