package reports_test

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// leaky loses a segment of 2 MiB every 1,000 operations: a block on a stream that nobody else uses, never freed.
type leaky struct {
	*caching.Allocator
	operations, lost int
}

func (l *leaky) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	for l.operations++; l.operations >= 1000; l.operations -= 1000 {
		l.lost++
		if _, err := l.Allocator.Alloc(512, device.Stream(1<<20+l.lost)); err != nil {
			return allocators.Block{}, err
		}
	}
	return l.Allocator.Alloc(n, s)
}

func (l *leaky) Free(a device.Addr) error {
	l.operations++
	return l.Allocator.Free(a)
}

// The populations: the two distribution workloads in turns. On the small device a leak shows in C_safe; on a real one it is far below
// 1 % of it, and the size of pages shows in the calls of the device.
var (
	smallDevice = gen.Params{Ops: 4000, Capacity: 256 << 20}
	realDevice  = gen.Params{Ops: 1000, Capacity: 80 << 30}
)

// builds are allocators that all call themselves expandable, as builds of one program do, and one that is another.
var builds = map[string]func(device.Device) (allocators.Allocator, error){
	"unchanged":       caches(expandable()),
	"pages of 22 MiB": caches(withPages(22 << 20)),
	"leak": func(d device.Device) (allocators.Allocator, error) {
		a, err := caching.New(d, expandable())
		return &leaky{Allocator: a}, err
	},
	"classic": caches(caching.DefaultSettings()),
}

func caches(set caching.Settings) func(device.Device) (allocators.Allocator, error) {
	return func(d device.Device) (allocators.Allocator, error) { return caching.New(d, set) }
}

func expandable() caching.Settings { return withPages(20 << 20) }

func withPages(size uint64) caching.Settings {
	set := caching.DefaultSettings()
	set.Expandable, set.Rules.LargeSegment = true, size
	return set
}

// pool runs n sequences on a build.
func pool(t *testing.T, p gen.Params, seed uint64, n int, build string) *results.Journal {
	t.Helper()
	name := "expandable"
	if build == "classic" {
		name = build
	}
	cfg := campaign.Config{
		Params: p, Sequences: n, Seed: seed, Measures: true, Decisions: true, NewDevice: simulated,
		Targets: []campaign.Target{{Name: name, For: func(*trace.Trace) (executor.Target, error) {
			return executor.Target{Name: name, New: builds[build]}, nil
		}}},
	}
	j := &results.Journal{Header: results.Header{
		Generators: gen.Version, Seed: seed, Params: p, Shards: 1, Device: "sim", Allocators: []string{name}, Workloads: []string{"mixed", "step"},
	}}
	for _, name := range j.Workloads {
		w, err := gen.Find(name)
		require.NoError(t, err)
		cfg.Workloads = append(cfg.Workloads, w)
	}
	require.NoError(t, campaign.Execute(context.Background(), cfg, func(s *campaign.Sequence) error {
		r := results.Of(s, gen.Distribution, p)
		r.Forget()
		j.Sequences = append(j.Sequences, r)
		return nil
	}))
	return j
}

// drawn draws k disjoint runs of n sequences each, half of either workload, without replacement within a repetition. Repetitions draw
// from the same pool: they are not independent of one another as fresh runs would be.
func drawn(rng *rand.Rand, pool *results.Journal, n, k int) []*results.Journal {
	out := make([]*results.Journal, k)
	for i := range out {
		out[i] = &results.Journal{Header: pool.Header}
	}
	for half := range 2 {
		places := rng.Perm(len(pool.Sequences) / 2)
		for i := range k * n / 2 {
			j := out[i%k]
			j.Sequences = append(j.Sequences, pool.Sequences[2*places[i]+half])
		}
	}
	return out
}

func compared(t *testing.T, a, b *results.Journal, margin float64, mode string) *reports.Comparison {
	t.Helper()
	c, err := reports.Compare([2]string{"a", "b"}, a, b, reports.Options{Margin: margin, Level: 0.95, Resamples: -1})
	require.NoError(t, err)
	require.Equal(t, mode, c.Mode)
	return c
}

// TestPower shows what `shatter compare` is good for. SHATTER_POWER=1 runs all of it, some minutes; else the figures are few, and the
// limits wide.
func TestPower(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	full := os.Getenv("SHATTER_POWER") != ""
	size, many, few, n := 4000, 1000, 100, 500
	if !full {
		size, many, few, n = 160, 10, 3, 80
	}
	seed := uint64(1)
	rng := rand.New(rand.NewPCG(seed, 0))
	populations := []gen.Params{smallDevice}
	if full {
		populations = append(populations, realDevice)
	}
	for _, p := range populations {
		unchanged := pool(t, p, seed, size, "unchanged")

		// Equal builds with different seeds. The stated rate is 5 % for any line of the comparison, at a margin of 0; the margin of 1 % that
		// compare has makes it rarer still.
		for _, margin := range []float64{0, reports.DefaultMargin} {
			alarms, worse := 0, 0
			for range many {
				d := drawn(rng, unchanged, n, 2)
				switch compared(t, d[0], d[1], margin, reports.ModeSamples).Verdict {
				case reports.Worse:
					worse++
					alarms++
				case reports.Better:
					alarms++
				}
			}
			rate, allowed := float64(alarms)/float64(many), 0.05+2*math.Sqrt(0.05*0.95/float64(many))
			t.Logf("%v, seed %d: equal builds, margin %g, %d repetitions of %d and %d sequences: %d false alarms (%.4f; %d of them worse), allowed %.4f",
				p, seed, margin, many, n, n, alarms, rate, worse, allowed)
			require.LessOrEqual(t, rate, allowed)
		}
		for _, build := range []string{"pages of 22 MiB", "leak"} {
			if build == "leak" != (p == smallDevice) {
				continue
			}
			changed := pool(t, p, seed+1, size/2, build)
			found := map[string]int{}
			lines := map[string]int{}
			for range few {
				c := compared(t, drawn(rng, unchanged, n, 1)[0], drawn(rng, changed, n, 1)[0], reports.DefaultMargin, reports.ModeSamples)
				found[c.Verdict]++
				for _, m := range c.Measures {
					if m.Verdict != reports.Equal {
						lines[m.Verdict+" "+m.Workload+" "+m.Measure.Name]++
					}
				}
			}
			t.Logf("%v, seeds %d and %d: %s, %d repetitions of %d and %d sequences: %v; %v", p, seed, seed+1, build, few, n, n, found, lines)
			require.GreaterOrEqual(t, float64(found[reports.Worse]+found[reports.Better])/float64(few), 0.9)
			// On the same traces it is seen without statistics.
			same := pool(t, p, seed, 20, build)
			c := compared(t, unchanged, same, reports.DefaultMargin, reports.ModeExact)
			t.Logf("%v: %s on the same 20 traces: %d of %d alike in every decision, C_safe lower %d, higher %d", p, build, c.Exact.SameDecisions,
				c.Exact.Decided, c.Exact.SafeLower, c.Exact.SafeHigher)
			require.Less(t, c.Exact.SameDecisions, c.Exact.Decided)
		}
		c, err := reports.Compare([2]string{"classic", "expandable"}, pool(t, p, seed, n, "classic"), unchanged,
			reports.Options{Margin: reports.DefaultMargin, Level: 0.95})
		require.NoError(t, err)
		require.Equal(t, reports.ModePairs, c.Mode)
		var text strings.Builder
		require.NoError(t, c.WriteText(&text, reports.Terminal{}))
		t.Log(text.String())
		for _, o := range c.Overall {
			require.True(t, o.Lower < o.Value && o.Value < o.Upper)
		}
	}
}
