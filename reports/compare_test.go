package reports_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

// invented is a run of n sequences of mixed on an allocator, with a kappa each; hashes begin with a name.
func invented(hash, allocator string, kappa ...float64) *results.Journal {
	j := &results.Journal{Header: results.Header{
		Shatter: "devel", Generators: gen.Version, Sequences: len(kappa), Shards: 1, Device: "sim", Workloads: []string{"mixed"}, Allocators: []string{allocator},
	}}
	for i, k := range kappa {
		const live = 1 << 30
		safe := uint64(k * live)
		j.Sequences = append(j.Sequences, &results.Sequence{
			Index: i, Workload: "mixed", Kind: "distribution", Trace: fmt.Sprintf("gen:mixed:%d", i), Hash: hash + fmt.Sprint(i), Ops: 160, Capacity: 80 << 30, PeakLive: live,
			Runs: []results.Run{{
				Target: allocator, Allocator: allocator, Ops: 160, Decisions: digests(hash), DeviceCalls: make([]uint64, 11), MemoryCalls: 10, Bought: 2 << 30, Allocated: 4 << 30,
				Measures: &results.Measures{Safe: safe, Min: safe, Kappa: float64(safe) / live, Lost: safe - live, Lives: make([]measure.Life, len(measure.Scarce))},
			}},
		})
	}
	return j
}

func digests(s string) []string {
	out := make([]string, campaign.Digests)
	for i := range out {
		out[i] = s
	}
	return out
}

func spread(n int, from, step float64) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = from + step*float64(i)
	}
	return out
}

func compareThem(t *testing.T, a, b *results.Journal, o reports.Options) *reports.Comparison {
	t.Helper()
	if o.Level == 0 {
		o.Level = 0.95
	}
	c, err := reports.Compare([2]string{"A", "B"}, a, b, o)
	require.NoError(t, err)
	data, err := json.Marshal(c)
	require.NoError(t, err)
	require.NotContains(t, string(data), "null,\"warnings", "lists are empty, not absent")
	return c
}

// TestCompareExactly: what changed on the same traces, each kind of change.
func TestCompareExactly(t *testing.T) {
	margin := reports.Options{Margin: 0.01}
	base := func() *results.Journal { return invented("x", "a", 1.2, 1.3, 1.4) }
	c := compareThem(t, base(), base(), margin)
	require.Equal(t, []any{reports.ModeExact, reports.Equal, 3, 3}, []any{c.Mode, c.Verdict, c.Exact.SameDecisions, c.Exact.Decided})
	require.Empty(t, c.Exact.Changes)
	require.Empty(t, c.Measures, "no statistics")

	b := base()
	b.Sequences[1].Runs[0].Decisions[5], b.Sequences[1].Runs[0].Decisions[15] = "y", "y"
	c = compareThem(t, base(), b, margin)
	require.Equal(t, reports.Equal, c.Verdict, "other decisions, the same C_safe")
	require.Equal(t, 2, c.Exact.SameDecisions)
	require.Equal(t, [2]int{50, 60}, [2]int{c.Exact.Changes[0].From, c.Exact.Changes[0].To})

	for _, of := range []struct {
		factor float64
		want   string
		counts [4]int // lower, better, higher, worse
	}{{1.005, reports.Equal, [4]int{0, 0, 1, 0}}, {1.02, reports.Worse, [4]int{0, 0, 1, 1}}, {0.995, reports.Equal, [4]int{1, 0, 0, 0}}, {0.9, reports.Better, [4]int{1, 1, 0, 0}}} {
		b = base()
		m := b.Sequences[2].Runs[0].Measures
		m.Safe = uint64(float64(m.Safe) * of.factor)
		c = compareThem(t, base(), b, margin)
		e := c.Exact
		require.Equal(t, of.want, c.Verdict, of.factor)
		require.Equal(t, of.counts, [4]int{e.SafeLower, e.SafeBetter, e.SafeHigher, e.SafeWorse})
		require.Len(t, e.Changes, 1)
		require.Equal(t, of.want, e.Changes[0].Verdict)
	}

	a, b, op := base(), base(), 7
	b.Sequences[0].Runs[0].FirstOOM = &op
	require.Equal(t, reports.Worse, compareThem(t, a, b, margin).Verdict, "refused now")
	require.Equal(t, reports.Better, compareThem(t, b, a, margin).Verdict, "no longer refused")
	b.Sequences[0].Capacity /= 2
	c = compareThem(t, a, b, margin)
	require.Equal(t, reports.Equal, c.Verdict, "on a smaller device")
	require.Equal(t, []string{"decisions are compared only on devices of the same capacity"}, c.Warnings)

	b = base()
	b.Sequences = b.Sequences[:2]
	c = compareThem(t, base(), b, margin)
	require.Equal(t, []string{"A has 1 traces that the other one has not: they are left out",
		"B has 2 sequences of its 3: those that take long may be missing"}, c.Warnings)
}

// TestCompareStatistically: samples and pairs that differ by more, by less and by nothing; the verdict follows the interval and the margin.
func TestCompareStatistically(t *testing.T) {
	margin := reports.Options{Margin: 0.01}
	base := spread(60, 1.2, 0.0005)
	for _, of := range []struct {
		factor float64
		want   string
	}{{1, reports.Equal}, {1.004, reports.Equal}, {1.03, reports.Worse}, {0.96, reports.Better}, {1.01, reports.Undecided}} {
		var other []float64
		for _, k := range base {
			other = append(other, k*of.factor)
		}
		for mode, b := range map[string]*results.Journal{reports.ModeSamples: invented("y", "a", other...), reports.ModePairs: invented("x", "b", other...)} {
			c := compareThem(t, invented("x", "a", base...), b, margin)
			require.Equal(t, mode, c.Mode)
			want := of.want
			require.Len(t, c.Measures, 4)
			m := c.Measures[0]
			require.Equal(t, "kappa", m.Measure.Name)
			require.InDelta(t, of.factor-1, *m.Change, 0.002, "%s %v", mode, of.factor)
			if mode == reports.ModePairs && of.factor == 1.01 {
				continue // exact ratios, but for the last digits: they are at the margin itself
			}
			require.Equal(t, want, m.Verdict, "%s %v: %v to %v", mode, of.factor, *m.Lower, *m.Upper)
			require.Equal(t, want, c.Verdict)
			require.Len(t, c.Overall, 1)
			require.Equal(t, []string{"mixed"}, c.Overall[0].Names)
			require.InDelta(t, *m.Change, c.Overall[0].Value, 1e-9)
			require.Equal(t, mode == reports.ModePairs, m.Shares != nil)
			var text strings.Builder
			require.NoError(t, c.WriteText(&text, reports.Terminal{}))
			require.True(t, strings.HasPrefix(text.String(), want+": "))
			require.Contains(t, text.String(), "For these workloads (mixed)")
		}
	}
	// The price has a margin five times as wide.
	b := invented("y", "a", base...)
	for _, s := range b.Sequences {
		s.Runs[0].MemoryCalls = 11
	}
	c := compareThem(t, invented("x", "a", base...), b, margin)
	require.Equal(t, reports.Worse, c.Verdict)
	require.Equal(t, reports.Worse, c.Measures[3].Verdict)
	require.InDelta(t, 0.1, *c.Measures[3].Change, 1e-12)
	var text strings.Builder
	require.NoError(t, c.WriteText(&text, reports.Terminal{}))
	require.Contains(t, text.String(), "(5 % for the price) in device_calls of mixed, ")
	// Two sequences decide nothing.
	c = compareThem(t, invented("x", "a", 1, 1.1), invented("y", "a", 5, 6), margin)
	require.Equal(t, reports.Undecided, c.Verdict)
	require.Contains(t, c.Measures[0].Warnings, "n = 2 and 2 give no interval")
}

func TestCompareErrors(t *testing.T) {
	a := invented("x", "a", 1.1, 1.2)
	for _, of := range []struct {
		change func(*results.Journal)
		o      reports.Options
		want   string
	}{
		{func(j *results.Journal) { j.Generators++ }, reports.Options{}, "generators 1 and 2 make other sequences"},
		{func(j *results.Journal) { j.Params.Ops = 9 }, reports.Options{}, "other parameters (the workloads' own; ops=9)"},
		{func(j *results.Journal) { j.Allocators = []string{"b", "c"} }, reports.Options{}, "no allocator is in both"},
		{func(*results.Journal) {}, reports.Options{Alloc: "z"}, "A has no allocator z"},
		{func(*results.Journal) {}, reports.Options{Alloc: "a", Against: "z"}, "B has no allocator z"},
		{func(*results.Journal) {}, reports.Options{Margin: -1}, "margin -1"},
		{func(*results.Journal) {}, reports.Options{Level: 2}, "level 2"},
		{func(j *results.Journal) { j.Sequences[0].Workload, j.Sequences[1].Workload = "waves", "waves" }, reports.Options{}, "no workload with measures"},
	} {
		b := invented("y", "a", 1.1, 1.2)
		of.change(b)
		if of.o.Level == 0 {
			of.o.Level = 0.95
		}
		_, err := reports.Compare([2]string{"A", "B"}, a, b, of.o)
		require.ErrorContains(t, err, of.want)
	}
}
