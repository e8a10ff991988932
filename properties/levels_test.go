package properties_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// refusals runs a trace and returns its judgements.
func refusals(t *testing.T, alloc string, tr *trace.Trace, capacity uint64, judge executor.Judge) *executor.Result {
	t.Helper()
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: alloc, New: spec.New}, executor.Options{
		Device: dev, Properties: properties.All(), Judge: judge,
	})
	require.NoError(t, err)
	return res
}

// TestFreeAtEachLevel: the examples of the contracts, sections 2 and 3.2, with the free bytes in MiB at the last refusal.
func TestFreeAtEachLevel(t *testing.T) {
	for _, c := range []struct {
		name, alloc, text string
		capacity          uint64
		free              [executor.LevelCount]float64
		broken            string
	}{
		{"a cached block that is pinned", "classic", "alloc 0 100MiB\nfree 0\nalloc 1 1572864\nalloc 2 98MiB stream=1\n", 100,
			[8]float64{98.5, 98.5, 98.5, 0, 0, 0, 0, 0}, "bytes rounded settled"},
		{"every second block", "classic", "alloc 9 120MiB\nfree 9\nalloc 0 30MiB\nalloc 1 30MiB\nalloc 2 30MiB\nalloc 3 30MiB\nfree 0\nfree 2\nalloc 4 60MiB\n", 120,
			[8]float64{60, 60, 60, 60, 30, 0, 0, 0}, "bytes rounded settled stream"},
		{"a segment is larger than the request", "classic", "alloc 0 1000\nalloc 1 1049088\n", 20,
			[8]float64{20 - 1000.0/mib, 20 - 1.0/1024, 20 - 1.0/1024, 18, 18, 18, 18, 0}, "bytes rounded settled stream contiguous flushed"},
		{"a page is larger", "expandable", "alloc 0 1000\nalloc 1 1049088\n", 20,
			[8]float64{20 - 1000.0/mib, 20 - 1.0/1024, 20 - 1.0/1024, 18, 18, 18, 18, 0}, "bytes rounded settled stream contiguous flushed"},
		{"pages that blocks share", "expandable", "alloc 0 15MiB\nalloc 1 30MiB\nalloc 2 15MiB\nalloc 3 15MiB\nfree 0\nfree 3\nalloc 4 50MiB\n", 100,
			[8]float64{55, 55, 55, 55, 20, 40, 40, 0}, "bytes rounded settled stream"},
		{"pages of a pool in use", "expandable", "pool begin 1\nalloc 0 40MiB\nfree 0\npool end 1\nalloc 1 70MiB\n", 100,
			[8]float64{100, 100, 100, 60, 60, 60, 60, 0}, "bytes rounded settled"},
		{"two are pending", "classic", "alloc 9 100MiB\nfree 9\nalloc 0 30MiB\nalloc 3 30MiB\nalloc 1 40MiB\nrecord 0 stream=7\nrecord 3 stream=7\n" +
			"free 0\nfree 3\nalloc 2 60MiB\n", 100, [8]float64{60, 60, 0, 0, 0, 0, 0, 0}, "bytes rounded"},
		{"pending", "classic", "alloc 9 100MiB\nfree 9\nalloc 0 60MiB\nalloc 1 40MiB\nrecord 0 stream=7\nfree 0\nalloc 2 60MiB\n", 100,
			[8]float64{60, 60, 0, 0, 0, 0, 0, 0}, "bytes rounded"},
	} {
		tr, err := trace.ParseString(c.name, c.text)
		require.NoError(t, err)
		res := refusals(t, c.alloc, tr, c.capacity*mib, properties.NewJudge())
		require.NotEmpty(t, res.Judgements, c.name)
		d := &res.Judgements[len(res.Judgements)-1].Demands
		var free [executor.LevelCount]float64
		var broken []string
		for l, n := range d.Free {
			free[l] = float64(n) / mib
			if d.Broken.Has(executor.Level(l)) {
				broken = append(broken, executor.Level(l).String())
			}
		}
		require.Equal(t, c.free, free, c.name)
		require.Equal(t, c.broken, strings.Join(broken, " "), c.name)
		require.Equal(t, executor.LevelSet(255), d.Known)
		require.InDelta(t, 1-free[0]/float64(c.capacity), d.Fill, 1e-9)
		for _, l := range executor.Levels() {
			asked := refusals(t, c.alloc, tr, c.capacity*mib, properties.Asking(properties.NewJudge(), l))
			require.Equal(t, d.Broken.Has(l), len(asked.Findings) == 1, "%s %s", c.name, l)
			if d.Broken.Has(l) {
				require.Equal(t, executor.NoFalseOOM+"."+l.String()+"."+c.alloc+".alloc", asked.Findings[0].Signature())
			}
		}
	}
}

// TestLevelsWithoutPromise: of an allocator that declares nothing three levels are known, by its blocks' sizes.
func TestLevelsWithoutPromise(t *testing.T) {
	tr, err := trace.ParseString("direct", "alloc 0 1\nalloc 1 1\nalloc 2 1\nalloc 3 3MiB\n")
	require.NoError(t, err)
	res := refusals(t, "direct", tr, 8<<20, properties.NewJudge())
	require.Len(t, res.Judgements, 1)
	d := &res.Judgements[0].Demands
	require.Equal(t, executor.LevelSet(1<<executor.LevelBytes|1<<executor.LevelRounded|1<<executor.LevelSettled), d.Known)
	require.Equal(t, executor.LevelSet(1<<executor.LevelBytes), d.Broken)
}

// TestLevelsAreOrdered: along the chains the free bytes only fall, and neither purchase nor lookup is ever broken.
func TestLevelsAreOrdered(t *testing.T) {
	seen := 0
	for _, w := range gen.Workloads {
		for seed := range uint64(6) {
			tr := gen.Generate(w, seed, gen.Params{Ops: 600, Capacity: 256 << 20})
			for _, alloc := range []string{"classic", "expandable"} {
				for _, j := range refusals(t, alloc, tr, 256<<20, properties.NewJudge()).Judgements {
					if j.Demands.Known == 0 {
						continue
					}
					seen++
					for _, chain := range properties.LevelChains {
						last := executor.LevelBytes
						for name := range strings.SplitSeq(chain, " >= ") {
							l, err := properties.LevelNamed(name)
							require.NoError(t, err)
							require.GreaterOrEqual(t, j.Demands.Free[last], j.Demands.Free[l], "%s on %s, operation %d: %s", tr.Name, alloc, j.Op, chain)
							last = l
						}
					}
					require.False(t, j.Demands.Broken.Has(executor.LevelPurchase) || j.Demands.Broken.Has(executor.LevelLookup))
				}
			}
		}
	}
	require.Greater(t, seen, 50)
}

func TestLevelNamed(t *testing.T) {
	for i, l := range properties.Levels {
		require.Equal(t, executor.Level(i), l.Level)
		for _, name := range []string{l.Level.String(), l.Contract, strings.ToLower(l.Contract)} {
			got, err := properties.LevelNamed(name)
			require.NoError(t, err)
			require.Equal(t, l.Level, got)
		}
	}
	_, err := properties.LevelNamed("f9")
	require.EqualError(t, err, `"f9" is no level; there are bytes, rounded, settled, stream, contiguous, flushed, purchase, lookup `+
		`(see shatter list properties)`)
}
