package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
	"gonum.org/v1/gonum/stat"
)

func TestSteps(t *testing.T) {
	require.Equal(t, []Step{}, Sample{}.Steps())
	require.Equal(t, []Step{{1, 1, 0.25}, {2, 3, 0.75}, {5, 4, 1}}, sample(t, 2, 5, 1, 2).Steps())
}

func TestECDF(t *testing.T) {
	s := sample(t, 1, 2, 2, 5)
	for x, want := range map[float64]float64{
		math.Inf(-1): 0, 0.9: 0, 1: 0.25, 1.5: 0.25, 2: 0.75, 4.9: 0.75, 5: 1, 6: 1, math.Inf(1): 1,
	} {
		got, err := s.ECDF(x)
		require.NoError(t, err)
		require.Equal(t, want, got, "at %v", x)
	}
	_, err := s.ECDF(math.NaN())
	require.ErrorIs(t, err, ErrNotFinite)
	_, err = Sample{}.ECDF(1)
	require.ErrorIs(t, err, ErrRange)
}

func TestECDFAgainstGonum(t *testing.T) {
	random := rand.New(rand.NewPCG(uint64(testSeed(t)), 3))
	for n := 1; n <= 100; n++ {
		values := make([]float64, n)
		for i := range values {
			values[i] = float64(random.IntN(20))
		}
		s := sample(t, values...)
		for x := -1.0; x < 22; x += 0.5 {
			got, err := s.ECDF(x)
			require.NoError(t, err)
			require.Equal(t, stat.CDF(x, stat.Empirical, s.sorted, nil), got)
		}
		for _, step := range s.Steps() {
			require.Equal(t, stat.CDF(step.Value, stat.Empirical, s.sorted, nil), step.Share)
		}
	}
}

func TestHistogram(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		bins   int
		want   []Bin
	}{
		"empty":      {nil, 3, []Bin{}},
		"one value":  {[]float64{2}, 3, []Bin{{2, 2, 1}}},
		"all equal":  {[]float64{2, 2}, 3, []Bin{{2, 2, 2}}},
		"edges":      {[]float64{0, 1, 2, 3, 4}, 2, []Bin{{0, 2, 2}, {2, 4, 3}}},
		"gap":        {[]float64{0, 0, 9}, 3, []Bin{{0, 3, 2}, {3, 6, 0}, {6, 9, 1}}},
		"one bin":    {[]float64{0, 5}, 1, []Bin{{0, 5, 2}}},
		"full range": {[]float64{-math.MaxFloat64, math.MaxFloat64}, 2, []Bin{{-math.MaxFloat64, 0, 1}, {0, math.MaxFloat64, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := sample(t, c.values...).Histogram(c.bins)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	for _, bins := range []int{0, -1, 65537} {
		_, err := sample(t, 1, 2).Histogram(bins)
		require.ErrorIs(t, err, ErrRange)
		_, err = sample(t, 1, 2).Sparkline(bins)
		require.ErrorIs(t, err, ErrRange)
	}
}

func TestHistogramCountsEveryValueWhereItLies(t *testing.T) {
	properties := gopter.NewProperties(parameters(t))
	properties.Property("bins join, and hold exactly their values", prop.ForAll(
		func(values []float64, bins int) bool {
			s, err := NewSample(kappa(), population(), values)
			if err != nil {
				return false
			}
			histogram, err := s.Histogram(bins)
			if err != nil {
				return false
			}
			total := 0
			for i, bin := range histogram {
				last := i == len(histogram)-1
				count := 0
				for _, v := range s.sorted {
					if v >= bin.Lower && (v < bin.Upper || last && v == bin.Upper) {
						count++
					}
				}
				if count != bin.Count || i > 0 && bin.Lower != histogram[i-1].Upper {
					return false
				}
				total += count
			}
			line, err := s.Sparkline(bins)
			return err == nil && total == s.N() && utf8.RuneCountInString(line) == len(histogram)
		}, gen.SliceOf(gen.OneGenOf(gen.Float64Range(-3, 3), gen.Float64())), gen.IntRange(1, 40)))
	properties.TestingRun(t)
}

func TestSparkline(t *testing.T) {
	line := func(bins int, values ...float64) string {
		text, err := sample(t, values...).Sparkline(bins)
		require.NoError(t, err)
		return text
	}
	require.Equal(t, "", line(8))
	require.Equal(t, "█", line(8, 3, 3, 3))
	require.Equal(t, "█ ▄", line(3, 0, 0, 9))
	many := slices.Repeat([]float64{0}, 1000)
	require.Equal(t, "█  ▁", line(4, append(many, 4)...), "one value in a thousand still shows")
}
