package stats

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func summarize(t *testing.T, values ...float64) Summary {
	t.Helper()
	summary, err := Summarize(sample(t, values...), DefaultLevel)
	require.NoError(t, err)
	return summary
}

func TestSummaryJSON(t *testing.T) {
	const head = `{"measure":{"name":"kappa","unit":"1"},"population":{"label":"serving on classic","generator":"serving",` +
		`"version":"3","parameters":[{"key":"ops","value":"2000"},{"key":"capacity","value":"80GiB"}]},`
	for name, c := range map[string]struct {
		values []float64
		want   string
	}{
		"nothing": {nil, `"n":0,"level":0.95,"min":null,` +
			`"median":{"p":0.5,"n":0,"value":null,"rank":0,"interval":{"level":0.95,"coverage":null,"lower":null,"upper":null,"lower_rank":0,"upper_rank":0}},` +
			`"p95":{"p":0.95,"n":0,"value":null,"rank":0,"interval":{"level":0.95,"coverage":null,"lower":null,"upper":null,"lower_rank":0,"upper_rank":0}},` +
			`"p99":{"p":0.99,"n":0,"value":null,"rank":0,"interval":{"level":0.95,"coverage":null,"lower":null,"upper":null,"lower_rank":0,"upper_rank":0}},` +
			`"max":null,"mean":null,"histogram":[],"warnings":["n = 0: no values"]}`},
		"six": {[]float64{6, 1, 2, 3, 4, 5.5}, `"n":6,"level":0.95,"min":1,` +
			`"median":{"p":0.5,"n":6,"value":3,"rank":3,"interval":{"level":0.95,"coverage":0.96875,"lower":1,"upper":6,"lower_rank":1,"upper_rank":6}},` +
			`"p95":{"p":0.95,"n":6,"value":6,"rank":6,"interval":{"level":0.95,"coverage":0.99777015625,"lower":4,"upper":null,"lower_rank":4,"upper_rank":0}},` +
			`"p99":{"p":0.99,"n":6,"value":6,"rank":6,"interval":{"level":0.95,"coverage":0.998539552395,"lower":5.5,"upper":null,"lower_rank":5,"upper_rank":0}},` +
			`"max":6,"mean":3.5833333333333335,"histogram":` +
			`[{"lower":1,"upper":1.4166666666666665,"count":1},{"lower":1.4166666666666665,"upper":1.8333333333333335,"count":0},{"lower":1.8333333333333335,"upper":2.25,"count":1},` +
			`{"lower":2.25,"upper":2.666666666666667,"count":0},{"lower":2.666666666666667,"upper":3.083333333333333,"count":1},{"lower":3.083333333333333,"upper":3.5,"count":0},` +
			`{"lower":3.5,"upper":3.9166666666666665,"count":0},{"lower":3.9166666666666665,"upper":4.333333333333333,"count":1},{"lower":4.333333333333333,"upper":4.75,"count":0},` +
			`{"lower":4.75,"upper":5.166666666666667,"count":0},{"lower":5.166666666666667,"upper":5.583333333333333,"count":1},{"lower":5.583333333333333,"upper":6,"count":1}],"warnings":[` +
			`"n = 6: no upper limit for the p95 (n = 72 would give one)","n = 6: the p95 is the largest value seen",` +
			`"n = 6: no upper limit for the p99 (n = 368 would give one)","n = 6: the p99 is the largest value seen"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := json.Marshal(summarize(t, c.values...))
			require.NoError(t, err)
			require.Equal(t, head+c.want, string(data))
		})
	}
}

func TestSummaryWarnings(t *testing.T) {
	require.Contains(t, summarize(t, 1, 2, 3, 4).Warnings, "n = 4: no interval for the median (n = 6 would give one)")
	require.Equal(t, []string{"n = 100: no upper limit for the p99 (n = 368 would give one)"}, summarize(t, upTo(100)...).Warnings)
	require.Equal(t, []string{}, summarize(t, upTo(368)...).Warnings)
}

func TestSummarizeRefuses(t *testing.T) {
	for _, level := range []float64{0, 1, -1, math.NaN(), math.Inf(1)} {
		_, err := Summarize(sample(t, 1), level)
		require.ErrorIs(t, err, ErrRange)
	}
}

func TestMean(t *testing.T) {
	for name, c := range map[string]struct {
		values []float64
		want   float64
	}{
		"small beside large":   {[]float64{1e16, 1, 1, 1, 1, -1e16}, 4.0 / 6},
		"sum overflows":        {[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
		"sum overflows, mixed": {[]float64{math.MaxFloat64, math.MaxFloat64, -math.MaxFloat64, -math.MaxFloat64}, 0},
		"within the range":     {[]float64{0.1, 0.1, 0.1}, 0.1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, *summarize(t, c.values...).Mean)
		})
	}
}
