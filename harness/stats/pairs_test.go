package stats

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
)

func TestMatchPairs(t *testing.T) {
	pairs, unmatched := MatchPairs(
		map[string]float64{"c": 3, "a": 1, "b": 2, "only": 9},
		map[string]float64{"b": 20, "c": 30, "a": 10, "x": 0, "y": 0})
	require.Equal(t, []Pair{{1, 10}, {2, 20}, {3, 30}}, pairs)
	require.Equal(t, 3, unmatched)
	pairs, unmatched = MatchPairs(nil, nil)
	require.Equal(t, []Pair{}, pairs)
	require.Zero(t, unmatched)
}

func TestComparePairs(t *testing.T) {
	// Ratios 0.5 five times, 1 twice, 2 three times; the median's limits are the 2nd and 9th of ten.
	pairs := []Pair{{2, 1}, {4, 2}, {1, 1}, {1, 2}, {6, 3}, {3, 6}, {5, 5}, {8, 4}, {2, 1}, {1, 2}}
	c, err := ComparePairs(pairs, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, 0.5, *c.MedianRatio.Value)
	require.Equal(t, 0.5, *c.MedianRatio.Interval.Lower)
	require.Equal(t, 2.0, *c.MedianRatio.Interval.Upper)
	require.InDelta(t, 1-22.0/1024, *c.MedianRatio.Interval.Coverage, 1e-12)
	require.Equal(t, -math.Ln2, *c.MedianLogRatio.Value)
	require.Equal(t, -math.Ln2, *c.MedianLogRatio.Interval.Lower)
	require.Equal(t, math.Ln2, *c.MedianLogRatio.Interval.Upper)
	require.Equal(t, c.MedianRatio.Interval.Coverage, c.MedianLogRatio.Interval.Coverage)
	require.Equal(t, [3]int{5, 2, 3}, [3]int{c.Better.Successes, c.Equal.Successes, c.Worse.Successes})
	require.Empty(t, c.Warnings)
	require.Equal(t, "n = 10 pairs; median ratio 0.5 (0.5 to 2); better 5/10 = 50 % (23.66 % to 76.34 %); "+
		"equal 2/10 = 20 % (5.67 % to 50.98 %); worse 3/10 = 30 % (10.78 % to 60.32 %); intervals at 95 %", c.String())
}

func TestCompareFewPairs(t *testing.T) {
	c, err := ComparePairs(nil, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, []string{"n = 0: no pairs"}, c.Warnings)
	require.Equal(t, "n = 0 pairs", c.String())
	data, err := json.Marshal(c)
	require.NoError(t, err)
	require.Contains(t, string(data), `"median_log_ratio":{"p":0.5,"n":0,"value":null`)

	c, err = ComparePairs([]Pair{{1, 2}, {1, 3}}, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, []string{"n = 2: no interval for the median ratio (n = 6 would give one)"}, c.Warnings)
}

// Equal means equal: a difference in the last digit is better or worse, never rounded away.
func TestCompareNeighbours(t *testing.T) {
	next := math.Nextafter(3, 4)
	c, err := ComparePairs([]Pair{{3, next}, {next, 3}, {3, 3}}, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, [3]int{1, 1, 1}, [3]int{c.Better.Successes, c.Equal.Successes, c.Worse.Successes})
}

func TestComparePairsRefuses(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1)} {
		_, err := ComparePairs([]Pair{{1, 1}, {1, bad}}, DefaultLevel)
		require.ErrorIs(t, err, ErrNotFinite)
		require.ErrorContains(t, err, "pair 1")
		_, err = ComparePairs([]Pair{{bad, 1}}, DefaultLevel)
		require.ErrorIs(t, err, ErrNotFinite)
	}
	for _, pair := range []Pair{{0, 1}, {1, 0}, {-1, 1}, {1, -1}, {1e-300, 1e300}, {1e300, 1e-300}} {
		_, err := ComparePairs([]Pair{pair}, DefaultLevel)
		require.ErrorIs(t, err, ErrRange, "%v", pair)
	}
	_, err := ComparePairs(nil, 2)
	require.ErrorIs(t, err, ErrRange)
}

func TestComparePairsProperties(t *testing.T) {
	pairs := gen.SliceOf(gen.IntRange(0, 63)).Map(func(whole []int) []Pair {
		made := make([]Pair, len(whole))
		for i, v := range whole {
			made[i] = Pair{Baseline: float64(v%8 + 1), Candidate: float64(v/8 + 1)}
		}
		return made
	})
	properties := gopter.NewProperties(parameters(t))
	properties.Property("exchanging the two sides mirrors the shares and the interval", prop.ForAll(
		func(pairs []Pair) bool {
			exchanged := make([]Pair, len(pairs))
			for i, pair := range pairs {
				exchanged[i] = Pair{Baseline: pair.Candidate, Candidate: pair.Baseline}
			}
			a, errA := ComparePairs(pairs, DefaultLevel)
			b, errB := ComparePairs(exchanged, DefaultLevel)
			if errA != nil || errB != nil {
				return false
			}
			mirrored := func(x, y *float64) bool {
				return x == nil && y == nil || x != nil && y != nil && math.Abs(*x+*y) < 1e-12
			}
			return a.Better.Successes == b.Worse.Successes && a.Equal.Successes == b.Equal.Successes &&
				a.Better.Successes+a.Equal.Successes+a.Worse.Successes == len(pairs) &&
				mirrored(a.MedianLogRatio.Interval.Lower, b.MedianLogRatio.Interval.Upper) &&
				mirrored(a.MedianLogRatio.Interval.Upper, b.MedianLogRatio.Interval.Lower)
		}, pairs))
	properties.TestingRun(t)
}
