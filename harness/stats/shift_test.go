package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDifference holds the k-th difference against all of them, sorted.
func TestDifference(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(uint64(testSeed(t)), 1))
	for range 300 {
		x, y := make([]float64, 1+rng.IntN(12)), make([]float64, 1+rng.IntN(12))
		for _, list := range [][]float64{x, y} {
			for i := range list {
				list[i] = rng.NormFloat64()
				if rng.IntN(2) == 0 {
					list[i] = float64(rng.IntN(5) - 2) // ties
				}
			}
			slices.Sort(list)
		}
		var all []float64
		for _, a := range x {
			for _, b := range y {
				all = append(all, b-a+0)
			}
		}
		slices.Sort(all)
		for k, want := range all {
			require.Equal(t, want, difference(x, y, k+1), "%v %v %d", x, y, k)
		}
	}
}

func TestOrdered(t *testing.T) {
	values := []float64{math.Inf(-1), -math.MaxFloat64, -1, -math.SmallestNonzeroFloat64, 0, math.SmallestNonzeroFloat64, 1e-300, 1, math.Inf(1)}
	for i, v := range values {
		require.Equal(t, v, unordered(ordered(v)))
		if i > 0 {
			require.Less(t, ordered(values[i-1]), ordered(v))
		}
	}
	require.Equal(t, ordered(0), ordered(math.Copysign(0, -1)))
}

// TestRankSumLimit counts out all orders of two small samples.
func TestRankSumLimit(t *testing.T) {
	for n := 1; n <= 6; n++ {
		for m := 1; m <= 6; m++ {
			ways := map[int]int{}
			total := 0
			for set := range 1 << (n + m) { // the places of the n values
				ones, u, below := 0, 0, 0
				for i := range n + m {
					if set>>i&1 == 1 {
						ones++
						u += below
					} else {
						below++
					}
				}
				if ones == n {
					ways[u]++
					total++
				}
			}
			for _, half := range []float64{0.005, 0.025, 0.05, 0.2} {
				want, sum := 0, 0
				for u := 0; u <= n*m; u++ {
					if sum += ways[u]; float64(sum)/float64(total) > half {
						want = u
						break
					}
				}
				require.Equal(t, want, rankSumLimit(n, m, half), "%d %d %v", n, m, half)
			}
		}
	}
	// The approximation is that much more careful where it takes over.
	require.Equal(t, 212, rankSumLimit(25, 25, 0.025)) // U up to 211 is in the 5 % of published tables
	approximate := func(n, m float64) int { return int(n*m/2 - 1.959964*math.Sqrt(n*m*(n+m+1)/12) + 0.5) }
	require.Equal(t, 211, approximate(25, 25))
	require.Equal(t, approximate(26, 25), rankSumLimit(26, 25, 0.025))
}

func TestCompareSamples(t *testing.T) {
	s, err := CompareSamples([]float64{1, 2, 3, 4, 5, 6}, []float64{11, 12, 13, 14, 15, 16}, 0.95)
	require.NoError(t, err)
	require.Equal(t, []float64{10, 7, 13}, []float64{*s.Value, *s.Lower, *s.Upper})
	s, err = CompareSamples([]float64{1}, []float64{2}, 0.95)
	require.NoError(t, err)
	require.Equal(t, 1.0, *s.Value)
	require.Nil(t, s.Lower)
	require.Equal(t, []string{"n = 1 and 1 give no interval"}, s.Warnings)
	s, err = CompareSamples(nil, []float64{2}, 0.95)
	require.NoError(t, err)
	require.Nil(t, s.Value)
	require.Equal(t, []string{"n = 0 and 1: nothing to compare"}, s.Warnings)
	_, err = CompareSamples([]float64{math.NaN()}, []float64{2}, 0.95)
	require.ErrorIs(t, err, ErrNotFinite)
	_, err = CompareSamples(nil, nil, 1)
	require.ErrorIs(t, err, ErrRange)
}

func TestSignTest(t *testing.T) {
	require.Equal(t, 1.0, SignTest(0, 0))
	require.Equal(t, 1.0, SignTest(3, 3))
	require.InDelta(t, 2*math.Pow(0.5, 10), SignTest(0, 10), 1e-15)
	require.InDelta(t, 2*11*math.Pow(0.5, 10), SignTest(9, 1), 1e-15)
}

// TestHolm: questions with p-values, by the textbook.
func TestHolm(t *testing.T) {
	for _, c := range []struct {
		p    []float64
		want []bool
	}{
		{nil, []bool{}},
		{[]float64{0.04}, []bool{true}},
		{[]float64{0.01, 0.04, 0.03, 0.005}, []bool{true, false, false, true}}, // 0.005 <= .05/4, 0.01 <= .05/3, 0.03 > .05/2
		{[]float64{0.013, 0.02, 0.02}, []bool{true, true, true}},               // .05/3, then .05/2 for both
		{[]float64{0.02, 0.02, 0.02}, []bool{false, false, false}},
	} {
		yes, levels := Holm(len(c.p), 0.95, func(i int, level float64) bool { return c.p[i] <= 1-level+1e-15 })
		require.Equal(t, c.want, yes, c.p)
		require.Len(t, levels, len(c.p))
	}
}

// TestMeanOfWorkloads: figures of workloads count alike, whatever their n, and the same values give the same interval.
func TestMeanOfWorkloads(t *testing.T) {
	a, b := upTo(101), upTo(11)
	o, err := Mean(0.95, 500, []func(func(int) []int) float64{MedianFigure(a), MedianFigure(b)})
	require.NoError(t, err)
	require.Equal(t, (51.0+6)/2, o.Value)
	require.Less(t, o.Lower, o.Value)
	require.Greater(t, o.Upper, o.Value)
	slices.Reverse(a)
	again, err := Mean(0.95, 500, []func(func(int) []int) float64{MedianFigure(a), MedianFigure(b)})
	require.NoError(t, err)
	require.Equal(t, o, again)
	o, err = Mean(0.95, 500, []func(func(int) []int) float64{ShiftFigure(upTo(50), []float64{7, 7, 7})})
	require.NoError(t, err)
	require.Equal(t, -19.0, o.Value) // lower middle of 50 times 3 differences
	o, err = Mean(0.95, 500, nil)
	require.NoError(t, err)
	require.Zero(t, o.Value)
}
