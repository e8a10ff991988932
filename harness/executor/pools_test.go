package executor_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/properties"
)

// outcomes runs a trace with all properties and returns each operation's outcome.
func outcomes(t *testing.T, name, text string) ([]executor.Outcome, *executor.Result) {
	var out []executor.Outcome
	res, err := executor.Execute(parse(t, text), target(t, name), executor.Options{
		Device: sim(t, 100*mib), Properties: properties.All(), Judge: properties.NewJudge(),
		OnRow: func(r *executor.Row) { out = append(out, r.Outcome) },
	})
	require.NoError(t, err)
	return out, res
}

// TestPoolsOutcomes: private pools on an allocator that has them, and on one that has none, which says so.
func TestPoolsOutcomes(t *testing.T) {
	const (
		ok, oom, skip, unsupported = executor.OK, executor.OOM, executor.Skip, executor.Unsupported
		text                       = `
alloc 0 60MiB
free 0
pool begin 1 capture
alloc 1 60MiB
use 1 stream=0
empty_cache
pool end 1
pool release 1
empty_cache pool=1
alloc 2 0
use 2 stream=0
alloc 3 60MiB
use 3 stream=1
`
	)
	got, res := outcomes(t, "classic", text)
	require.Empty(t, res.Findings)
	require.Equal(t, []executor.Outcome{ok, ok, ok, oom, skip, unsupported, ok, ok, ok, ok, ok, ok, ok}, got)
	got, res = outcomes(t, "direct", text)
	require.Empty(t, res.Findings)
	require.Equal(t, []executor.Outcome{
		ok, ok, unsupported, ok, ok, ok, unsupported, unsupported, unsupported, ok, ok, oom, skip,
	}, got, "direct gives no memory of its own back: 60 MiB of 100 are live")
	require.Equal(t, "unsupported", unsupported.String())
}

// TestStateOfPools: what properties see of the pools.
func TestStateOfPools(t *testing.T) {
	type seen struct {
		pool         allocators.PoolID
		open         int
		uses         int
		held, robbed bool
	}
	var got []seen
	watch := executor.Property{ID: "watch", Op: func(s *executor.State) *executor.Violation {
		got = append(got, seen{s.Pool, len(s.Open), s.PoolUses[1], s.Held, s.Robbed != nil})
		require.True(t, s.HasPools)
		return nil
	}}
	for name, held := range map[string]bool{"classic": true, "classic@x_rules:2.13": false} {
		got = nil
		res, err := executor.Execute(parse(t, `
pool begin 1 stream=3
alloc 0 1MiB stream=3
alloc 1 1MiB
pool end 1
pool begin 1
pool end 1
pool release 1
free 0
`), target(t, name), executor.Options{Device: sim(t, 100*mib), Properties: []executor.Property{watch}})
		require.NoError(t, err)
		require.Empty(t, res.Findings)
		require.Equal(t, []seen{
			{0, 1, 1, held, false}, {1, 1, 1, held, false}, {0, 1, 1, held, false}, {0, 0, 1, false, false}, {0, 1, 2, held, false},
			{0, 0, 2, false, false}, {0, 0, 1, false, false}, {0, 0, 1, false, false},
		}, got, name)
	}
}

// TestPoolWaitsForItself: emptying a pool waits for the work of its own blocks. What was held back before one of them is done then, what
// was held back behind them is not, until somebody waits for all, or for a pool of which there was something behind it.
func TestPoolWaitsForItself(t *testing.T) {
	const head = `
alloc 0 1
pool begin 1
alloc 1 1
pool end 1
pool begin 2
alloc 3 1
pool end 2
record 0 stream=1
record 1 stream=1
record 3 stream=1
pool begin 1
`
	const tail = `
pool end 1
pool release 1
pool release 1
pool release 2
empty_cache pool=1
alloc 2 1048577
`
	for _, c := range []struct {
		frees, then string
		active      uint64
	}{
		{"free 1 free 0 free 3", "", 1049088 + 1024},
		{"free 0 free 1 free 3", "", 1049088 + 512},
		{"free 0 free 3 free 1", "", 1049088},
		{"free 1 free 0 free 3", "empty_cache", 1049088},
		{"free 1 free 0 free 3", "sync stream=1\nalloc 4 512\nfree 4", 1049088},
		{"free 1 free 3 free 0", "empty_cache pool=2\nalloc 4 512\nfree 4", 1049088 + 512},
		{"free 1 free 0 free 3", "empty_cache pool=2\nalloc 4 512\nfree 4", 1049088},
	} {
		text := head + strings.ReplaceAll(c.frees, " free", "\nfree") + tail + c.then + "\n"
		res, err := executor.Execute(parse(t, text), target(t, "classic"), executor.Options{Device: sim(t, 22*mib+4*mib), Properties: properties.All()})
		require.NoError(t, err)
		require.Empty(t, res.Findings, c)
		require.Equal(t, c.active, res.Stats.ActiveBytes.All.Current, c)
	}
}

// TestStartWithPools: segments of private pools in the state to start from are in use.
func TestStartWithPools(t *testing.T) {
	got, res := outcomes(t, "classic", `
segment 0 20971520 stream=0 pool=large private=3
block 0 5242880 requested=5242880 at=0+0
segment 1 20971520 stream=0 pool=large
empty_cache
pool begin 3
alloc 1 5MiB
pool end 3
pool release 3
free 0
free 1
pool release 3
empty_cache
`)
	require.Empty(t, res.Findings)
	for i, o := range got {
		require.Equal(t, executor.OK, o, i)
	}
	require.EqualValues(t, 100*mib, res.DeviceFree)
	require.EqualValues(t, 40*mib, res.PeakReserved)
}

// TestStartedBlockIsOfItsPool: emptying a private pool waits for the work of a block that the trace starts with in it, and of no other.
func TestStartedBlockIsOfItsPool(t *testing.T) {
	for segment, active := range map[string]uint64{"segment 0 20MiB pool=large private=3": 0, "segment 0 20MiB pool=large": 5 * mib} {
		res, err := executor.Execute(parse(t, segment+`
block 0 5MiB requested=5MiB at=0+0
segment 1 20MiB pool=large private=3
record 0 stream=1
free 0
pool release 3
empty_cache pool=3
`), target(t, "classic"), executor.Options{Device: sim(t, 100*mib), Properties: properties.All()})
		require.NoError(t, err)
		require.Empty(t, res.Findings, segment)
		require.Equal(t, active, res.Stats.ActiveBytes.All.Current, segment)
	}
}

// TestRewindClosesPools: a run that goes again begins without pools.
func TestRewindClosesPools(t *testing.T) {
	r, err := executor.Start(parse(t, "pool begin 1\nalloc 0 5MiB\nrecord 0 stream=1\nfree 0\nalloc 1 60MiB\n"), target(t, "classic"),
		executor.Options{Device: sim(t, 100*mib), Properties: properties.All()})
	require.NoError(t, err)
	for range 3 {
		for r.More() {
			require.NoError(t, r.Step())
		}
		require.Empty(t, r.Result().Findings)
		require.Empty(t, r.Result().OOMs)
		require.NoError(t, r.Rewind())
	}
	_, err = r.Finish()
	require.NoError(t, err)
	require.Empty(t, r.Result().Findings)
}
