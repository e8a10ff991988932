package campaign_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// testSeed returns the seed of random tests, SHATTER_SEED or 1, and prints it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SHATTER_SEED")
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

// config is a campaign of short sequences on both kinds of workload and two allocators.
func config(t *testing.T, sequences int) campaign.Config {
	c := campaign.Config{
		Params: gen.Params{Ops: 80}, Sequences: sequences, Seed: testSeed(t), Measures: true,
		NewDevice:  func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) },
		Properties: properties.All(), NewJudge: properties.NewJudge,
	}
	for _, name := range []string{"swarm", "mixed", "streams"} {
		w, err := gen.Find(name)
		require.NoError(t, err)
		c.Workloads = append(c.Workloads, w)
	}
	for _, name := range []string{"classic", "expandable"} {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		c.Targets = append(c.Targets, campaign.Target{Name: name, For: func(*trace.Trace) (executor.Target, error) {
			return executor.Target{Name: name, New: spec.New}, nil
		}})
	}
	return c
}

// collect runs a campaign and returns each sequence as JSON, in the order in which they came.
func collect(t *testing.T, c campaign.Config) (indices []int, docs []string) {
	require.NoError(t, campaign.Execute(context.Background(), c, func(s *campaign.Sequence) error {
		data, err := json.Marshal(s)
		indices, docs = append(indices, s.Index), append(docs, string(data))
		return err
	}))
	return indices, docs
}

func upTo(n int) []int {
	var list []int
	for i := range n {
		list = append(list, i)
	}
	return list
}

// TestWorkersChangeNothing: sequences come in order of their index, and are the same, whatever the number of workers.
func TestWorkersChangeNothing(t *testing.T) {
	t.Parallel()
	const n = 30
	c := config(t, n)
	var first []string
	for _, workers := range []int{1, 2, 4, 0} {
		c.Workers = workers
		indices, docs := collect(t, c)
		require.Equal(t, upTo(n), indices, "%d workers", workers)
		if first == nil {
			first = docs
		}
		require.Equal(t, first, docs, "%d workers", workers)
	}
	c.Seed++
	_, docs := collect(t, c)
	require.NotEqual(t, first, docs)
}

// TestShardsPartition: every sequence is run by exactly one shard, and is the same there.
func TestShardsPartition(t *testing.T) {
	t.Parallel()
	const n, shards = 20, 3
	c := config(t, n)
	_, whole := collect(t, c)
	seen := map[int]string{}
	c.Shards = shards
	for shard := range shards {
		c.Shard = shard
		indices, docs := collect(t, c)
		for k, i := range indices {
			require.Equal(t, shard+k*shards, i)
			require.NotContains(t, seen, i)
			seen[i] = docs[k]
		}
	}
	require.Len(t, seen, n)
	for i, doc := range whole {
		require.Equal(t, doc, seen[i])
	}
}

// TestDone: sequences that were run before are left out, wherever they are, and the others are the same, in order.
func TestDone(t *testing.T) {
	t.Parallel()
	const n = 24
	c := config(t, n)
	_, whole := collect(t, c)
	for name, done := range map[string]func(int) bool{
		"none": func(int) bool { return false }, "the first": func(i int) bool { return i < 9 }, "the last": func(i int) bool { return i >= 15 },
		"some": func(i int) bool { return i%5 == 0 || i == 7 || i == 8 }, "all": func(i int) bool { return i < n },
	} {
		for _, shards := range []int{1, 3} {
			for _, workers := range []int{1, 4} {
				c := config(t, n)
				c.Done, c.Workers, c.Shards, c.Shard = done, workers, shards, shards-1
				indices, docs := collect(t, c)
				var want []int
				for i := shards - 1; i < n; i += shards {
					if !done(i) {
						want = append(want, i)
					}
				}
				require.Equal(t, want, indices, "%s, %d shards, %d workers", name, shards, workers)
				for k, i := range indices {
					require.Equal(t, whole[i], docs[k])
				}
			}
		}
	}
}

// TestSequences: what a sequence carries, measures for distribution workloads only.
func TestSequences(t *testing.T) {
	t.Parallel()
	c := config(t, 12)
	c.Capacity = 300 << 20
	require.NoError(t, campaign.Execute(context.Background(), c, func(s *campaign.Sequence) error {
		w := c.Workloads[s.Index%3]
		require.Equal(t, w.Name, s.Workload)
		require.Equal(t, gen.Seed(c.Seed, w.Name, uint64(s.Index/3)), s.Seed)
		require.Equal(t, campaign.Name(w.Name, s.Seed, c.Params), s.Trace.Name)
		require.Equal(t, gen.Generate(w, s.Seed, c.Params).Ops, s.Trace.Ops)
		require.EqualValues(t, c.Capacity, s.Capacity)
		require.Len(t, s.Runs, 2)
		for i, r := range s.Runs {
			require.Equal(t, c.Targets[i].Name, r.Target)
			require.Empty(t, r.Result.Findings)
			require.Equal(t, 80, r.Result.Ops)
			require.Equal(t, w.Kind == gen.Distribution, r.Spectrum != nil)
			require.Equal(t, w.Kind == gen.Distribution, r.Profile != nil)
			if r.Spectrum != nil {
				require.Equal(t, s.PeakLive, r.Spectrum.PeakLive)
			}
		}
		return nil
	}))
}

// TestSinkStops: an error of the sink ends the campaign; nothing is handed over after it.
func TestSinkStops(t *testing.T) {
	t.Parallel()
	enough := errors.New("enough")
	for _, workers := range []int{1, 4} {
		c := config(t, 1000)
		c.Workers = workers
		got := 0
		err := campaign.Execute(context.Background(), c, func(s *campaign.Sequence) error {
			require.Equal(t, got, s.Index)
			got++
			if got == 5 {
				return enough
			}
			return nil
		})
		require.ErrorIs(t, err, enough)
		require.Equal(t, 5, got, "%d workers", workers)
	}
}

// TestCancel: when the context ends what is finished is handed over up to the first gap.
func TestCancel(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 3} {
		c := config(t, 0) // without end
		c.Workers = workers
		c.Measures = false
		ctx, cancel := context.WithCancel(context.Background())
		var begun atomic.Int32
		first := c.Targets[0].For
		c.Targets[0].For = func(tr *trace.Trace) (executor.Target, error) {
			begun.Add(1)
			return first(tr)
		}
		got, before := 0, int32(0)
		err := campaign.Execute(ctx, c, func(s *campaign.Sequence) error {
			require.Equal(t, got, s.Index)
			if got++; got == 7 {
				before = begun.Load()
				cancel()
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.GreaterOrEqual(t, got, 7)
		// A worker may have been about to begin.
		require.LessOrEqual(t, int(begun.Load()-before), workers, "sequences were begun after the end")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := campaign.Execute(ctx, config(t, 5), func(*campaign.Sequence) error {
		t.Fatal("a sequence of a campaign that never began")
		return nil
	})
	require.ErrorIs(t, err, context.Canceled)
}

// TestErrors: what cannot be run is an error, and stops all workers.
func TestErrors(t *testing.T) {
	t.Parallel()
	ctx, none := context.Background(), func(*campaign.Sequence) error { return nil }
	c := config(t, 10)
	c.Targets = nil
	require.ErrorIs(t, campaign.Execute(ctx, c, none), executor.ErrHarness)
	c = config(t, 10)
	c.Workloads = nil
	require.ErrorIs(t, campaign.Execute(ctx, c, none), executor.ErrHarness)

	sick := errors.New("no such device")
	c = config(t, 1000)
	c.Workers = 4
	var made atomic.Int32
	c.NewDevice = func(capacity uint64) (device.Device, error) {
		if made.Add(1) > 10 {
			return nil, sick
		}
		return simdev.New(simdev.Options{Capacity: capacity})
	}
	require.ErrorIs(t, campaign.Execute(ctx, c, none), sick)
	require.Less(t, made.Load(), int32(10+5*4))

	c = config(t, 10)
	c.Targets[1].For = func(*trace.Trace) (executor.Target, error) { return executor.Target{}, sick }
	err := campaign.Execute(ctx, c, none)
	require.ErrorIs(t, err, sick)
	require.ErrorContains(t, err, "on expandable")
}
