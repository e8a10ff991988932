package stats

import (
	"fmt"
	"math"
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
)

// exactCDF is P(B <= k) for k = 0..n in exact fractions, from the definition.
func exactCDF(n int, p *big.Rat) []*big.Rat {
	q := new(big.Rat).Sub(big.NewRat(1, 1), p)
	power := func(x *big.Rat, k int) *big.Rat {
		e := big.NewInt(int64(k))
		return new(big.Rat).SetFrac(new(big.Int).Exp(x.Num(), e, nil), new(big.Int).Exp(x.Denom(), e, nil))
	}
	cdf, sum := make([]*big.Rat, n+1), new(big.Rat)
	for k := range cdf {
		term := new(big.Rat).SetInt(new(big.Int).Binomial(int64(n), int64(k)))
		term.Mul(term, power(p, k)).Mul(term, power(q, n-k))
		cdf[k] = new(big.Rat).Set(sum.Add(sum, term))
	}
	return cdf
}

// The brute-force twin of limitRanks: for every n up to 60 it looks at all ranks with exact arithmetic.
func TestLimitRanksAgainstExactFractions(t *testing.T) {
	one, two := big.NewRat(1, 1), big.NewRat(2, 1)
	quantiles := []*big.Rat{big.NewRat(1, 2), big.NewRat(95, 100), big.NewRat(99, 100), big.NewRat(1, 10)}
	levels := []*big.Rat{big.NewRat(1, 2), big.NewRat(8, 10), big.NewRat(9, 10), big.NewRat(95, 100), big.NewRat(99, 100)}
	both := 0
	for _, quantile := range quantiles {
		p, _ := quantile.Float64()
		for n := 1; n <= 60; n++ {
			cdf := exactCDF(n, quantile)
			for _, exactLevel := range levels {
				level, _ := exactLevel.Float64()
				half := new(big.Rat).Sub(one, exactLevel)
				half.Quo(half, two)
				wantLower, wantUpper := 0, 0
				exactLowerTail, exactUpperTail := new(big.Rat), new(big.Rat)
				for rank := 1; rank <= n; rank++ {
					if cdf[rank-1].Cmp(half) <= 0 {
						wantLower, exactLowerTail = rank, cdf[rank-1]
					}
					above := new(big.Rat).Sub(one, cdf[rank-1]) // P(B >= rank)
					if wantUpper == 0 && above.Cmp(half) <= 0 {
						wantUpper, exactUpperTail = rank, above
					}
				}
				at := fmt.Sprintf("n = %d, p = %v, level = %v", n, p, level)
				lower, upper, lowerTail, upperTail := limitRanks(n, p, level)
				require.Equal(t, wantLower, lower, at)
				require.Equal(t, wantUpper, upper, at)
				requireNear(t, exactLowerTail, lowerTail, at)
				requireNear(t, exactUpperTail, upperTail, at)
				if lower > 0 && upper > 0 {
					both++
					coverage := new(big.Rat).Sub(one, exactLowerTail)
					coverage.Sub(coverage, exactUpperTail)
					require.True(t, coverage.Cmp(exactLevel) >= 0, at)
				}
			}
		}
	}
	require.Greater(t, both, 300, "hardly anything was compared")
}

func requireNear(t *testing.T, want *big.Rat, got float64, at string) {
	t.Helper()
	w, _ := want.Float64()
	require.InDelta(t, w, got, 1e-12, at)
}

// Large n: against a sum of logarithms of single probabilities, which shares no code with the incomplete beta function.
func TestTailsOfLargeSamples(t *testing.T) {
	for _, n := range []int{200, 1000, 20000} {
		for _, p := range []float64{0.5, 0.95, 0.99, 0.001} {
			for _, z := range []float64{-4, -2, -0.5, 0, 1, 3} {
				k := int(float64(n)*p + z*math.Sqrt(float64(n)*p*(1-p)))
				if k < 0 || k > n {
					continue
				}
				sum := 0.0
				for i := 0; i <= k; i++ {
					sum += math.Exp(logChoose(n, i) + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
				}
				require.InDelta(t, sum, atMost(k, n, p), 1e-9, "n = %d, p = %v, k = %d", n, p, k)
				require.InDelta(t, 1-sum, atLeast(k+1, n, p), 1e-9, "n = %d, p = %v, k = %d", n, p, k)
			}
		}
	}
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

func TestTailsOutsideTheRange(t *testing.T) {
	require.Equal(t, 0.0, atMost(-1, 5, 0.5))
	require.Equal(t, 1.0, atMost(5, 5, 0.5))
	require.Equal(t, 1.0, atMost(6, 5, 0.5))
	require.Equal(t, 1.0, atLeast(0, 5, 0.5))
	require.Equal(t, 1.0, atLeast(-3, 5, 0.5))
	require.Equal(t, 0.0, atLeast(6, 5, 0.5))
}

func TestSizeFor(t *testing.T) {
	for _, c := range []struct {
		p, level float64
		want     int
	}{{0.5, 0.95, 6}, {0.95, 0.95, 72}, {0.99, 0.95, 368}, {0.05, 0.95, 72}, {0.5, 0.99, 8}, {0.5, 1e-9, 2}, {0.5, 0.5, 2}, {0.95, 0.9, 59}} {
		n, err := SizeFor(c.p, c.level)
		require.NoError(t, err)
		require.Equal(t, c.want, n, "p = %v, level = %v", c.p, c.level)

		lower, upper, _, _ := limitRanks(n, c.p, c.level)
		require.Positive(t, lower)
		require.Positive(t, upper)
		if n > 1 {
			lower, upper, _, _ = limitRanks(n-1, c.p, c.level)
			require.Zero(t, min(lower, upper), "one value fewer would do: p = %v, level = %v", c.p, c.level)
		}
	}
	for _, bad := range [][2]float64{{0, 0.9}, {1, 0.9}, {math.NaN(), 0.9}, {0.5, 0}, {0.5, 1}, {0.5, math.NaN()}, {5e-324, 0.9}} {
		_, err := SizeFor(bad[0], bad[1])
		require.ErrorIs(t, err, ErrRange, "%v", bad)
	}
}
