package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
)

// Values are 1..n, so limits are ranks. Limits and coverages were computed with exact fractions outside this package.
func TestQuantile(t *testing.T) {
	for name, c := range map[string]struct {
		n            int
		p            float64
		value        float64
		lower, upper float64 // 0: absent
		coverage     float64
	}{
		"one value":         {1, 0.5, 1, 0, 0, 0},
		"n = 4: nothing":    {4, 0.5, 2, 0, 0, 0},
		"n = 5: nothing":    {5, 0.5, 3, 0, 0, 0},
		"n = 6: the range":  {6, 0.5, 3, 1, 6, 0.96875},
		"median of 10":      {10, 0.5, 5, 2, 9, 0.978515625},
		"median of 25":      {25, 0.5, 13, 8, 18, 0.956714749336},
		"median of 100":     {100, 0.5, 50, 40, 61, 0.964799799782},
		"p95 of 20":         {20, 0.95, 19, 17, 0, 0.984098473980},
		"p95 of 71":         {71, 0.95, 68, 63, 0, 0.991205101619},
		"p95 of 72":         {72, 0.95, 69, 64, 72, 0.965490047908},
		"p05 mirrors p95":   {20, 0.05, 1, 0, 4, 0.984098473980},
		"p99 of 367":        {367, 0.99, 364, 359, 0, 0.987380746870},
		"p99 of 368":        {368, 0.99, 365, 360, 368, 0.962415820411},
		"rank not rounded":  {100, 0.07, 7, 2, 13, 0.971579564187},
		"rank of a quarter": {10, 0.25, 3, 0, 6, 0.980272293091},
	} {
		t.Run(name, func(t *testing.T) {
			q, err := sample(t, upTo(c.n)...).Quantile(c.p, 0.95)
			require.NoError(t, err)
			require.Equal(t, c.value, *q.Value)
			require.Equal(t, int(c.value), q.Rank)
			require.Equal(t, c.n, q.N)
			requireLimit(t, c.lower, q.Interval.Lower, q.Interval.LowerRank)
			requireLimit(t, c.upper, q.Interval.Upper, q.Interval.UpperRank)
			if c.coverage == 0 {
				require.Nil(t, q.Interval.Coverage)
				return
			}
			require.InDelta(t, c.coverage, *q.Interval.Coverage, 2e-12)
		})
	}
}

func requireLimit(t *testing.T, want float64, got *float64, rank int) {
	t.Helper()
	require.Equal(t, int(want), rank)
	if want == 0 {
		require.Nil(t, got)
		return
	}
	require.NotNil(t, got)
	require.Equal(t, want, *got)
}

func TestQuantileOfNothing(t *testing.T) {
	q, err := Sample{}.Quantile(0.5, 0.95)
	require.NoError(t, err)
	require.Equal(t, Quantile{P: 0.5, Interval: Interval{Level: 0.95}}, q)
}

func TestQuantileRefuses(t *testing.T) {
	for _, bad := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1)} {
		_, err := sample(t, 1).Quantile(bad, 0.95)
		require.ErrorIs(t, err, ErrRange)
		_, err = sample(t, 1).Quantile(0.5, bad)
		require.ErrorIs(t, err, ErrRange)
	}
}

// gonum has the same definition; they part only where its product is rounded up, as in 100 * 0.07.
func TestQuantileAgainstGonum(t *testing.T) {
	random := rand.New(rand.NewPCG(uint64(testSeed(t)), 1))
	for n := 1; n <= 200; n++ {
		values := make([]float64, n)
		for i := range values {
			values[i] = math.Floor(20 * random.ExpFloat64())
		}
		s := sample(t, values...)
		for _, p := range []float64{0.5, 0.95, 0.99, random.Float64()} {
			if p == 0 {
				continue
			}
			q, err := s.Quantile(p, 0.95)
			require.NoError(t, err)
			require.Equal(t, stat.Quantile(p, stat.Empirical, s.sorted, nil), *q.Value, "n = %d, p = %v", n, p)
		}
	}
}

// Monte Carlo: how often the interval holds the true quantile. Exact for a continuous distribution, no less for one
// with many ties, at least the level for both.
func TestCoverageByDrawing(t *testing.T) {
	const draws = 4000
	random := rand.New(rand.NewPCG(uint64(testSeed(t)), 2))
	geometric := func() float64 { return math.Floor(2 * random.ExpFloat64()) }
	for name, c := range map[string]struct {
		n        int
		p, truth float64
		draw     func() float64
		exact    bool
	}{
		"median, exponential": {30, 0.5, math.Ln2, random.ExpFloat64, true},
		"p95, exponential":    {100, 0.95, -math.Log(0.05), random.ExpFloat64, true},
		"p95, one-sided":      {20, 0.95, -math.Log(0.05), random.ExpFloat64, true},
		"p99, uniform":        {400, 0.99, 0.99, random.Float64, true},
		"median, ties":        {30, 0.5, 1, geometric, false}, // P(0) = 0.39, P(0 or 1) = 0.63
	} {
		t.Run(name, func(t *testing.T) {
			held, reached := 0, 0.0
			values := make([]float64, c.n)
			for range draws {
				for i := range values {
					values[i] = c.draw()
				}
				slices.Sort(values)
				q := quantile(values, c.p, 0.95)
				reached = *q.Interval.Coverage
				if (q.Interval.Lower == nil || *q.Interval.Lower <= c.truth) &&
					(q.Interval.Upper == nil || c.truth <= *q.Interval.Upper) {
					held++
				}
			}
			require.GreaterOrEqual(t, reached, 0.95)
			// Five standard errors: a wrong alarm in two million seeds.
			slack := 5 * math.Sqrt(reached*(1-reached)/draws)
			share := float64(held) / draws
			require.Greater(t, share, reached-slack)
			if c.exact {
				require.Less(t, share, reached+slack)
			}
		})
	}
}

func TestQuantileProperties(t *testing.T) {
	// Whole numbers, so that ties are common.
	values := gen.SliceOf(gen.IntRange(-20, 20)).Map(func(whole []int) []float64 {
		floats := make([]float64, len(whole))
		for i, v := range whole {
			floats[i] = float64(v)
		}
		slices.Sort(floats)
		return floats
	})
	inside := gen.Float64Range(0.001, 0.999)
	properties := gopter.NewProperties(parameters(t))
	properties.Property("the interval contains the estimate, which was observed", prop.ForAll(
		func(sorted []float64, p, level float64) bool {
			q := quantile(sorted, p, level)
			if len(sorted) == 0 {
				return q.Value == nil && q.Interval.Lower == nil && q.Interval.Upper == nil && q.Interval.Coverage == nil
			}
			i := q.Interval
			return slices.Contains(sorted, *q.Value) &&
				(i.Lower == nil || i.LowerRank <= q.Rank && *i.Lower <= *q.Value) &&
				(i.Upper == nil || i.UpperRank >= q.Rank && *i.Upper >= *q.Value)
		}, values, inside, inside))
	properties.Property("coverage reaches the level", prop.ForAll(
		func(n int, p, level float64) bool {
			i := quantile(upTo(n), p, level).Interval
			switch {
			case i.Lower == nil && i.Upper == nil:
				return i.Coverage == nil
			case i.Lower == nil || i.Upper == nil:
				return *i.Coverage >= (1+level)/2-1e-12
			}
			return *i.Coverage >= level-1e-12
		}, gen.IntRange(1, 400), inside, inside))
	properties.Property("quantiles do not fall as p grows", prop.ForAll(
		func(sorted []float64, p, q float64) bool {
			if len(sorted) == 0 {
				return true
			}
			low, high := quantile(sorted, min(p, q), 0.95), quantile(sorted, max(p, q), 0.95)
			return *low.Value <= *high.Value && low.Interval.LowerRank <= high.Interval.LowerRank
		}, values, inside, inside))
	properties.Property("a higher level never gives a narrower interval", prop.ForAll(
		func(n int, p, a, b float64) bool {
			narrow, wide := quantile(upTo(n), p, min(a, b)).Interval, quantile(upTo(n), p, max(a, b)).Interval
			return wide.LowerRank <= narrow.LowerRank &&
				(wide.UpperRank == 0 || narrow.UpperRank != 0 && wide.UpperRank >= narrow.UpperRank)
		}, gen.IntRange(1, 400), inside, inside, inside))
	properties.TestingRun(t)
}
