package stats

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummaryText(t *testing.T) {
	for name, c := range map[string]struct {
		measure Measure
		values  []float64
		want    string
	}{
		"nothing": {kappa(), nil, "kappa: n = 0"},
		"four": {kappa(), []float64{1, 2, 3, 4}, "kappa: n = 4; min 1; median 2 (n = 4 gives no interval); " +
			"p95 4, at least 3 (n = 4 gives no upper limit); p99 4, at least 3 (n = 4 gives no upper limit); " +
			"max 4; mean 2.5; intervals at 95 %"},
		"twenty": {Measure{"first OOM", "operations"}, upTo(20), "first OOM (operations): n = 20; min 1; median 10 (6 to 15); " +
			"p95 19, at least 17 (n = 20 gives no upper limit); p99 20, at least 19 (n = 20 gives no upper limit); " +
			"max 20; mean 10.5; intervals at 95 %"},
		"bytes": {Measure{"lost", "bytes"}, []float64{512, 12884901888}, "lost: n = 2; min 512 B; median 512 B (n = 2 gives no interval); " +
			"p95 12 GiB, at least 512 B (n = 2 gives no upper limit); p99 12 GiB, at least 12 GiB (n = 2 gives no upper limit); " +
			"max 12 GiB; mean 6 GiB; intervals at 95 %"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := NewSample(c.measure, population(), c.values)
			require.NoError(t, err)
			summary, err := Summarize(s, DefaultLevel)
			require.NoError(t, err)
			require.Equal(t, c.want, summary.String())
		})
	}
}

func TestQuantileText(t *testing.T) {
	q, err := sample(t, upTo(20)...).Quantile(0.05, 0.95)
	require.NoError(t, err)
	require.Equal(t, "1, at most 4 (n = 20 gives no lower limit)", q.Text("1"))
	require.Equal(t, "none (n = 0)", Quantile{}.Text("1"))
}

func TestProportionText(t *testing.T) {
	for want, c := range map[string][2]int{
		"3/20 = 15 % (5.24 % to 36.04 %)": {3, 20},
		"0/20 = 0 % (0 % to 16.11 %)":     {0, 20},
		"0/0 (n = 0 gives no share)":      {0, 0},
	} {
		p, err := Wilson(c[0], c[1], 0.95)
		require.NoError(t, err)
		require.Equal(t, want, p.String())
	}
}

func TestFormatValue(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{0, "1", "0"}, {1, "1", "1"}, {-1.5, "1", "-1.5"}, {1.23456, "1", "1.235"}, {10.25, "1", "10.25"},
		{999.96, "1", "1000"}, {123.456, "1", "123.5"}, {12345.6, "operations", "12346"}, {0.00123456, "1", "0.001235"},
		{1e-5, "1", "1e-05"}, {1e15, "1", "1e+15"}, {100, "1", "100"}, {0.5, "1", "0.5"},
		{1023, "bytes", "1023 B"}, {1024, "bytes", "1 KiB"}, {-2097152, "bytes", "-2 MiB"}, {1.5 * (1 << 40), "bytes", "1.5 TiB"},
		{math.MaxFloat64, "bytes", "1.559e+290 EiB"},
	} {
		require.Equal(t, c.want, formatValue(c.v, c.unit))
	}
}
