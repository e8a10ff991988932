package properties_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
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

// fewLive makes a trace with at most ten live blocks on a small device, which ends wherever a request is refused.
func fewLive(seed uint64, uses bool) (*trace.Trace, uint64) {
	rng := rand.New(rand.NewPCG(seed, 5))
	capacity := uint64(30+2*rng.IntN(40)) << 20
	sizes := []uint64{512 << 10, 1 << 20, 2 << 20, 3<<20 + 5, 5 << 20, 9 << 20, 12 << 20, 18 << 20, 20 << 20}
	t := &trace.Trace{Name: fmt.Sprintf("fewlive:%d", seed)}
	var live []uint64
	for id := uint64(0); len(t.Ops) < 60; {
		switch {
		case len(live) < 10 && rng.IntN(5) < 3:
			n := sizes[rng.IntN(len(sizes))]
			if rng.IntN(4) == 0 {
				n = 1 + rng.Uint64N(capacity/2)
			}
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: n, Stream: device.Stream(rng.IntN(8) / 7)})
			live = append(live, id)
			id++
		case uses && len(live) > 0 && rng.IntN(10) == 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Record, ID: live[rng.IntN(len(live))], Stream: 2})
		case len(live) > 0:
			i := rng.IntN(len(live))
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Free, ID: live[i]})
			live = slices.Delete(live, i, i+1)
		}
	}
	return t, capacity
}

// without replays a trace up to a request with some ids freed before it and all work done, and tells whether it is served.
func without(t *testing.T, tr *trace.Trace, op int, target executor.Target, capacity uint64, ids []uint64) bool {
	ops := slices.Clone(tr.Ops[:op])
	for _, id := range ids {
		ops = append(ops, trace.Op{Kind: trace.Free, ID: id})
	}
	ops = append(ops, trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}, tr.Ops[op])
	dev, err := simulated(capacity)
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(&trace.Trace{Ops: ops}), target, executor.Options{Device: dev})
	require.NoError(t, err)
	return !slices.Contains(res.OOMs, len(ops)-1)
}

// fewest finds by replay of all subsets, smallest first, how many of the ids must go for the request to be served; -1 if none.
func fewest(ids []uint64, served func([]uint64) bool) int {
	best := -1
	for set := 1; set < 1<<len(ids); set++ {
		var pick []uint64
		for i, id := range ids {
			if set>>i&1 != 0 {
				pick = append(pick, id)
			}
		}
		if (best < 0 || len(pick) < best) && served(pick) {
			best = len(pick)
		}
	}
	return best
}

// held are the ids of live blocks at a refusal, and those of them that share a segment or page with idle memory.
func held(t *testing.T, tr *trace.Trace, op int, target executor.Target, capacity uint64) (live, pinning []uint64) {
	dev, err := simulated(capacity)
	require.NoError(t, err)
	r, err := executor.Start(executor.Compile(tr), target, executor.Options{Device: dev, OnRow: func(*executor.Row) {}})
	require.NoError(t, err)
	for r.Position() <= op {
		require.NoError(t, r.Step())
	}
	var snap allocators.Snapshot
	r.Allocator().(allocators.Snapshotter).Snapshot(&snap)
	at := map[device.Addr]uint64{}
	for i, b := range r.View().Blocks {
		if e := r.View().Entries[i]; e != nil {
			at[b.Addr] = tr.Ops[e.Op].ID
		}
	}
	for k := range snap.Segments {
		g := &snap.Segments[k]
		unit := device.Addr(g.Size)
		if g.Expandable {
			unit = device.Addr(g.PageSize)
		}
		blocks := snap.BlocksOf(k)
		for i := range blocks {
			b := &blocks[i]
			if b.State != allocators.Live {
				continue
			}
			live = append(live, at[b.Addr])
			from := b.Addr - (b.Addr-g.Addr)%unit
			to := b.End() + (unit-(b.End()-g.Addr)%unit)%unit
			if slices.ContainsFunc(blocks, func(o allocators.BlockInfo) bool {
				return (o.State == allocators.Free || o.State == allocators.Pending) && o.Addr < to && o.End() > from
			}) {
				pinning = append(pinning, at[b.Addr])
			}
		}
	}
	return live, pinning
}

// TestWitnessIsMinimal holds witnesses against an exhaustive search by replay, on states with at most ten live blocks.
func TestWitnessIsMinimal(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	judged, exact, sizes := 0, 0, map[int]int{}
	for _, name := range []string{"classic", "expandable", "classic@max_split_size_mb:21", "expandable@x_memory_fraction:0.9"} {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		target := executor.Target{Name: name, New: spec.New}
		for k := range uint64(8) {
			tr, capacity := fewLive(seed*1000+k, k%4 == 3)
			dev, err := simulated(capacity)
			require.NoError(t, err)
			p := executor.Compile(tr)
			res, err := executor.Execute(p, target, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
			require.NoError(t, err)
			for i := range res.Judgements {
				j := &res.Judgements[i]
				if j.Verdict != executor.Fragmentation && j.Verdict != executor.Policy {
					continue
				}
				where := fmt.Sprintf("%s, %s, capacity %d, operation %d: %s", name, tr.Name, capacity, j.Op, &tr.Ops[j.Op])
				judged++
				w, err := properties.FindWitness(p, target, simulated, capacity, j.Op)
				require.NoError(t, err)
				served := func(ids []uint64) bool { return without(t, tr, j.Op, target, capacity, ids) }
				live, pinning := held(t, tr, j.Op, target, capacity)
				all := fewest(live, served)
				if w == nil {
					require.Equal(t, -1, all, where)
					continue
				}
				require.True(t, w.Confirmed(), "%s: %+v", where, w)
				pins := fewest(pinning, served)
				if pins < 0 {
					pins = all
				}
				found := len(w.Blocks)
				if w.Exact {
					exact++
					sizes[found]++
					require.Equal(t, pins, found, "%s: %+v", where, w)
				}
				require.GreaterOrEqual(t, found, pins, where)
				if w.Any != nil {
					found = len(w.Any)
				}
				if w.Exact {
					require.Equal(t, all, found, "%s: %+v", where, w)
				}
			}
		}
	}
	t.Logf("%d refusals, %d with an exact witness, of sizes %v", judged, exact, sizes)
}
