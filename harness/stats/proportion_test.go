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

// The middle rows are in Newcombe, Two-sided confidence intervals for the single proportion, Statistics in Medicine 17,
// 1998, table I, method 3.
func TestWilson(t *testing.T) {
	for _, c := range []struct {
		successes, n int
		lower, upper float64
	}{
		{0, 1, 0, 0.7935},
		{1, 1, 0.2065, 1},
		{81, 263, 0.2553, 0.3662},
		{15, 148, 0.0624, 0.1605},
		{0, 20, 0, 0.1611},
		{1, 29, 0.0061, 0.1718},
		{20, 20, 0.8389, 1},
	} {
		p, err := Wilson(c.successes, c.n, 0.95)
		require.NoError(t, err)
		require.InDelta(t, c.lower, *p.Lower, 5e-5, "%d of %d", c.successes, c.n)
		require.InDelta(t, c.upper, *p.Upper, 5e-5, "%d of %d", c.successes, c.n)
		require.Empty(t, p.Warnings)
		if c.successes == 0 {
			require.Equal(t, 0.0, *p.Lower)
		}
		if c.successes == c.n {
			require.Equal(t, 1.0, *p.Upper)
		}
	}
}

func TestWilsonOfNothing(t *testing.T) {
	p, err := Wilson(0, 0, 0.95)
	require.NoError(t, err)
	data, err := json.Marshal(p)
	require.NoError(t, err)
	require.Equal(t, `{"successes":0,"n":0,"share":null,"level":0.95,"lower":null,"upper":null,`+
		`"warnings":["n = 0: no share, no interval"]}`, string(data))
}

func TestWilsonRefuses(t *testing.T) {
	for _, c := range []struct {
		successes, n int
		level        float64
	}{{-1, 5, 0.95}, {6, 5, 0.95}, {0, -1, 0.95}, {1, 2, 0}, {1, 2, 1}, {1, 2, math.NaN()}} {
		_, err := Wilson(c.successes, c.n, c.level)
		require.ErrorIs(t, err, ErrRange, "%v", c)
	}
}

func TestWilsonProperties(t *testing.T) {
	properties := gopter.NewProperties(parameters(t))
	// The limits are the shares whose score test just reaches z: the equation that Wilson solved.
	properties.Property("limits solve the score equation, contain the share and mirror", prop.ForAll(
		func(a, b int, level float64) bool {
			successes, n := min(a, b), max(a, b)
			p, err := Wilson(successes, n, level)
			mirror, err2 := Wilson(n-successes, n, level)
			if err != nil || err2 != nil {
				return false
			}
			z := math.Sqrt2 * math.Erfinv(level)
			solves := func(limit float64) bool {
				distance := math.Abs(*p.Share - limit)
				return math.Abs(distance-z*math.Sqrt(limit*(1-limit)/float64(n))) < 1e-9
			}
			return *p.Lower >= 0 && *p.Lower <= *p.Share && *p.Share <= *p.Upper && *p.Upper <= 1 &&
				solves(*p.Lower) && solves(*p.Upper) &&
				math.Abs(*mirror.Lower-(1-*p.Upper)) < 1e-12 && math.Abs(*mirror.Upper-(1-*p.Lower)) < 1e-12
		}, gen.IntRange(0, 5000), gen.IntRange(1, 5000), gen.Float64Range(0.01, 0.999)))
	properties.TestingRun(t)
}

func TestLevelNextToOneStaysFinite(t *testing.T) {
	p, err := Wilson(3, 10, math.Nextafter(1, 0))
	require.NoError(t, err)
	require.Less(t, *p.Upper, 1.0)
	require.Greater(t, *p.Lower, 0.0)
}
