package stats

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
)

func TestNewSampleRefuses(t *testing.T) {
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		_, err := NewSample(kappa(), population(), []float64{1, bad})
		require.ErrorIs(t, err, ErrNotFinite)
		require.ErrorContains(t, err, "value 1")
	}
	twice := population()
	twice.Parameters = []Parameter{{"ops", "1"}, {"ops", "2"}}
	_, err := NewSample(kappa(), twice, nil)
	require.ErrorContains(t, err, `"ops" is given twice`)
}

func TestSampleIsNotSharedWithCallers(t *testing.T) {
	values, p := []float64{2, 1}, population()
	s, err := NewSample(kappa(), p, values)
	require.NoError(t, err)
	values[0], p.Parameters[0].Value = 9, "changed"
	s.Values()[0] = 9
	s.Population().Parameters[0].Value = "changed"
	summary, err := Summarize(s, DefaultLevel)
	require.NoError(t, err)
	summary.Population.Parameters[0].Value = "changed"

	require.Equal(t, []float64{1, 2}, s.Values())
	require.Equal(t, population(), s.Population())
	require.Equal(t, kappa(), s.Measure())
}

func TestNegativeZeroIsZero(t *testing.T) {
	s := sample(t, math.Copysign(0, -1), 0)
	for _, v := range s.Values() {
		require.False(t, math.Signbit(v))
	}
}

func TestMergeRefusesOtherPopulations(t *testing.T) {
	change := map[string]func(*Measure, *Population){
		"measure":   func(m *Measure, _ *Population) { m.Name = "lost" },
		"unit":      func(m *Measure, _ *Population) { m.Unit = "bytes" },
		"label":     func(_ *Measure, p *Population) { p.Label = "other" },
		"generator": func(_ *Measure, p *Population) { p.Generator = "other" },
		"version":   func(_ *Measure, p *Population) { p.Version = "4" },
		"value":     func(_ *Measure, p *Population) { p.Parameters[0].Value = "1" },
		"order":     func(_ *Measure, p *Population) { slices.Reverse(p.Parameters) },
		"fewer":     func(_ *Measure, p *Population) { p.Parameters = nil },
	}
	for name, f := range change {
		t.Run(name, func(t *testing.T) {
			m, p := kappa(), population()
			f(&m, &p)
			other, err := NewSample(m, p, []float64{1})
			require.NoError(t, err)
			_, err = Merge(sample(t, 1), sample(t, 2), other)
			require.ErrorIs(t, err, ErrMismatch)
		})
	}
}

func TestSampleJSON(t *testing.T) {
	s := sample(t, 3, 0.1, 1e300)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.Equal(t, `{"measure":{"name":"kappa","unit":"1"},"population":{"label":"serving on classic",`+
		`"generator":"serving","version":"3","parameters":[{"key":"ops","value":"2000"},{"key":"capacity","value":"80GiB"}]},`+
		`"n":3,"values":[0.1,3,1e+300]}`, string(data))
	var back Sample
	require.NoError(t, json.Unmarshal(data, &back))
	require.Equal(t, s, back)

	data, err = json.Marshal(Sample{})
	require.NoError(t, err)
	require.Contains(t, string(data), `"parameters":[]},"n":0,"values":[]`)
}

func TestSampleJSONRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"cut short": `{"n":3,"values":[1,2]}`,
		"twice":     `{"population":{"parameters":[{"key":"a"},{"key":"a"}]},"n":0,"values":[]}`,
		"no number": `{"n":1,"values":["NaN"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var s Sample
			require.Error(t, json.Unmarshal([]byte(text), &s))
		})
	}
}

// However values are split into shards and in whatever order the shards come, the summary is the same bytes.
func TestMergeOrderDoesNotMatter(t *testing.T) {
	properties := gopter.NewProperties(parameters(t))
	properties.Property("merged equals whole, byte for byte", prop.ForAll(
		func(values []float64, shards uint8, turn uint8) bool {
			k := int(shards)%5 + 1
			parts := make([][]float64, k)
			for i, v := range values {
				parts[i%k] = append(parts[i%k], v)
			}
			samples := make([]Sample, k)
			for i := range parts {
				// Any rotation, and the order within a shard reversed.
				slices.Reverse(parts[i])
				s, err := NewSample(kappa(), population(), parts[i])
				if err != nil {
					return false
				}
				samples[(i+int(turn))%k] = s
			}
			merged, err := Merge(samples[0], samples[1:]...)
			if err != nil {
				return false
			}
			whole, err := NewSample(kappa(), population(), values)
			if err != nil {
				return false
			}
			return slices.Equal(merged.sorted, whole.sorted) && summaryJSON(merged) == summaryJSON(whole)
		},
		gen.SliceOf(gen.OneGenOf(gen.Float64Range(-1e9, 1e9), gen.Float64Range(-math.MaxFloat64, math.MaxFloat64),
			gen.OneConstOf(0.0, math.Copysign(0, -1), 0.1, 1.0))),
		gen.UInt8(), gen.UInt8(),
	))
	properties.TestingRun(t)
}

func summaryJSON(s Sample) string {
	summary, err := Summarize(s, DefaultLevel)
	if err != nil {
		return err.Error()
	}
	data, err := json.Marshal(summary)
	if err != nil {
		return err.Error()
	}
	return string(data) + summary.String()
}
