package caching

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// edges are the sizes at which something changes; random ones lie 512 bytes or one byte beside them too.
var edges = []uint64{
	1, 512, 1024, 4096, 256 << 10, 512 << 10, 1 * mib, 2 * mib, 5 * mib, 10 * mib, 12 * mib, 20 * mib, 21 * mib, 22 * mib,
	30 * mib, 40 * mib, 41 * mib, 60 * mib, 64 * mib, 100 * mib,
}

func randomSize(rng *rand.Rand, capacity uint64) uint64 {
	switch rng.IntN(40) {
	case 0:
		return 0
	case 1:
		return rng.Uint64N(2*capacity) + 1
	case 2:
		return 1 << (40 + rng.IntN(21))
	}
	n := edges[rng.IntN(len(edges))]
	if rng.IntN(3) > 0 {
		n = edges[rng.IntN(13)] // the smaller ones more often, so that a small device holds several
	}
	switch rng.IntN(6) {
	case 0:
		n++
	case 1:
		n--
	case 2:
		n += 512
	case 3:
		n -= min(n, 512)
	case 4:
		n = rng.Uint64N(n) + 1
	}
	return n
}

var (
	twinConfs = []string{
		"", "", "max_split_size_mb:21", "max_split_size_mb:30", "max_split_size_mb:64,max_non_split_rounding_mb:40",
		"garbage_collection_threshold:0.6", "garbage_collection_threshold:0.05", "roundup_power2_divisions:4",
		"roundup_power2_divisions:[1:2,8:8,>:2]", "max_split_size_mb:21,garbage_collection_threshold:0.3",
		"x_lookup_after_flush:True", "max_split_size_mb:-1",
	}
	twinModes     = []string{"", ",expandable_segments:True", ",expandable_segments:False"}
	twinFractions = []float64{1, 0.99, 0.7, 0.5, 0.1, 0}
	twinStreams   = []device.Stream{0, 1, 7, math.MaxInt32}
)

func twinConf(rng *rand.Rand, modes int) string {
	return strings.Trim(twinConfs[rng.IntN(len(twinConfs))]+twinModes[rng.IntN(modes)], ",")
}

// run makes random operations: how often each kind comes is itself random, so that some runs never sync or never free much.
func (w *twins) run(rng *rand.Rand, ops int) {
	w.t.Helper()
	streams := 1 + rng.IntN(len(twinStreams))
	stream := func() device.Stream { return twinStreams[rng.IntN(streams)] }
	changes := rng.IntN(3) // 0: no change of settings, 1: a few, 2: many
	weights := [12]int{40, 20 + rng.IntN(25), rng.IntN(15), rng.IntN(6), rng.IntN(3), changes, changes * rng.IntN(2), changes * rng.IntN(2)}
	if w.pools {
		weights[8], weights[9], weights[10], weights[11] = 1+rng.IntN(3), 1+rng.IntN(6), rng.IntN(3), rng.IntN(3)
	}
	most := 10 + rng.IntN(120) // live blocks; the reference takes quadratic time
	sum := 0
	for _, v := range weights {
		sum += v
	}
	for range ops {
		kind, left := 0, rng.IntN(sum)
		for left >= weights[kind] {
			left -= weights[kind]
			kind++
		}
		if len(w.live) == 0 && (kind == 1 || kind == 2) || kind == 0 && len(w.live) >= most {
			continue
		}
		switch kind {
		case 0:
			w.alloc(randomSize(rng, w.capacity), stream())
		case 1:
			w.free(rng.IntN(len(w.live)))
		case 2:
			w.record(rng.IntN(len(w.live)), stream())
		case 3:
			if rng.IntN(3) == 0 {
				w.sync(-1)
			} else {
				w.sync(stream())
			}
		case 4:
			w.emptyCache()
		case 5:
			w.configure(twinConf(rng, 3))
		case 6:
			w.setFraction(twinFractions[rng.IntN(len(twinFractions))])
		case 7:
			w.setForeign(rng.Uint64N(w.capacity/(2*mib)) * 2 * mib)
		case 8:
			w.randomBegin(rng, stream)
		case 9:
			if n := len(w.r.Open()); n > 0 {
				w.endPool(w.r.Open()[rng.IntN(n)].Pool)
			}
		case 10:
			w.randomRelease(rng)
		case 11:
			if w.known > 0 {
				w.emptyPool(1 + allocators.PoolID(rng.IntN(int(w.known))))
			}
		}
		w.counts["op"]++
	}
}

// randomBegin opens a new pool or one that is in use.
func (w *twins) randomBegin(rng *rand.Rand, stream func() device.Stream) {
	r := allocators.Redirection{Pool: w.known + 1, Stream: allocators.AnyStream, Capture: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		r.Stream = stream()
	}
	if id := 1 + allocators.PoolID(rng.IntN(int(w.known)+2)); id <= w.known {
		r.Pool = id
	}
	if w.r.Uses(r.Pool) == 0 && r.Pool <= w.known || w.isOpen(r.Pool) {
		return // released, or open
	}
	w.known = max(w.known, r.Pool)
	w.counts["pool"]++
	w.beginPool(r)
}

func (w *twins) isOpen(id allocators.PoolID) bool {
	return slices.ContainsFunc(w.r.Open(), func(o allocators.Redirection) bool { return o.Pool == id })
}

func (w *twins) randomRelease(rng *rand.Rand) {
	if w.known == 0 {
		return
	}
	id := 1 + allocators.PoolID(rng.IntN(int(w.known)))
	if n := w.r.Uses(id); n > 1 || n == 1 && !w.isOpen(id) {
		w.releasePool(id)
	}
}

// closePools ends and releases all.
func (w *twins) closePools() {
	for len(w.r.Open()) > 0 {
		w.endPool(w.r.Open()[0].Pool)
	}
	for id := range w.known {
		for w.r.Uses(id+1) > 0 {
			w.releasePool(id + 1)
		}
	}
}

// TestPoolTwins compares with the reference where private pools come and go, under the rules of every version that differ in them.
func TestPoolTwins(t *testing.T) {
	t.Parallel()
	sum := map[string]int{}
	for i := range 120 {
		rng := rand.New(rand.NewPCG(20260202, uint64(i)))
		capacity := uint64(20+rng.IntN(150)) * 2 * mib
		rules := RuleVersions()[i%len(RuleVersions())]
		set, _, err := ParseSettings(strings.Trim("x_rules:"+rules+","+twinConf(rng, 2), ","))
		require.NoError(t, err)
		w := newTwins(t, fmt.Sprintf("run %d", i), capacity, set)
		w.pools = true
		w.run(rng, 400)
		w.closePools()
		for len(w.live) > 0 {
			w.free(0)
		}
		w.emptyCache()
		require.Zero(t, w.r.Reserved(), w.name)
		require.Empty(t, w.a.deferred)
		for _, p := range w.a.privates {
			require.Zero(t, p.uses)
			require.Positive(t, p.segments, "%s: a pool without a segment is forgotten", w.name)
		}
		for k, n := range w.counts {
			sum[k] += n
		}
	}
	t.Logf("%v", sum)
	for _, kind := range []string{"oom", "malloc", "free", "map", "unmap", "pool", "deferred", "held-flush"} {
		require.Greater(t, sum[kind], 100, "%s is too rare for the comparison to mean much", kind)
	}
}

// TestTwins compares with the reference after every one of 200,000 random operations.
func TestTwins(t *testing.T) {
	t.Parallel()
	const workers, runs, ops = 4, 100, 580
	seed := uint64(20260101)
	t.Logf("seed %d", seed)
	totals := make([]map[string]int, workers)
	t.Run("workers", func(t *testing.T) {
		for worker := range workers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				total := map[string]int{}
				totals[worker] = total
				for i := range runs {
					rng := rand.New(rand.NewPCG(seed, uint64(worker*runs+i)))
					capacity := uint64(1+rng.IntN(150)) * 2 * mib
					set, _, err := ParseSettings(twinConf(rng, 2))
					require.NoError(t, err)
					if rng.IntN(3) == 0 {
						set.HasFraction, set.Fraction = true, twinFractions[rng.IntN(len(twinFractions))]
					}
					w := newTwins(t, fmt.Sprintf("worker %d, run %d", worker, i), capacity, set)
					w.run(rng, ops)
					for len(w.live) > 0 {
						w.free(0)
					}
					w.emptyCache()
					for k, n := range w.counts {
						total[k] += n
					}
				}
			})
		}
	})
	sum := map[string]int{}
	for _, m := range totals {
		for k, n := range m {
			sum[k] += n
		}
	}
	t.Logf("%v", sum)
	require.GreaterOrEqual(t, sum["op"], 200_000)
	for _, kind := range []string{"oom", "malloc", "mallocfail", "free", "reserve", "unreserve", "map", "unmap", "createfail"} {
		require.Greater(t, sum[kind], 1000, "%s is too rare for the comparison to mean much", kind)
	}
}
