package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Measure names what was measured, and in what. Unit is 'bytes', 'operations' or '1' for a plain ratio; only 'bytes'
// changes how values are written for people.
type Measure struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
}

// Parameter is one setting of a generator, as text.
type Parameter struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Population says which sequences a result speaks about. Two samples may be merged only if all of it is equal.
type Population struct {
	Label      string      `json:"label"`      // for people: 'serving, 2000 operations, classic'
	Generator  string      `json:"generator"`  // name of what made the sequences
	Version    string      `json:"version"`    // of the generator: another version is another population
	Parameters []Parameter `json:"parameters"` // in the generator's order; keys are unique
}

func (p Population) equal(q Population) bool {
	return p.Label == q.Label && p.Generator == q.Generator && p.Version == q.Version &&
		slices.Equal(p.Parameters, q.Parameters)
}

// clone gives results their own parameters, never nil, so that JSON says [] and no caller can change a sample.
func (p Population) clone() Population {
	p.Parameters = append([]Parameter{}, p.Parameters...)
	return p
}

func (p Population) check() error {
	seen := map[string]bool{}
	for _, parameter := range p.Parameters {
		if seen[parameter.Key] {
			return fmt.Errorf("stats: population %q: parameter %q is given twice", p.Label, parameter.Key)
		}
		seen[parameter.Key] = true
	}
	return nil
}

// Sample holds the values of one measure over n sequences of one population, one value a sequence. It never changes
// once made. The zero Sample is empty.
//
// Values are kept sorted and every figure is computed from that order. So it does not matter in what order shards
// arrive: the merged sample agrees with the whole one to the last digit.
type Sample struct {
	measure    Measure
	population Population
	sorted     []float64
}

// NewSample copies values, in any order; none at all is fine. It fails on NaN and infinities (ErrNotFinite) and on a
// parameter given twice.
func NewSample(measure Measure, population Population, values []float64) (Sample, error) {
	if err := population.check(); err != nil {
		return Sample{}, err
	}
	sorted := make([]float64, len(values))
	for i, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return Sample{}, fmt.Errorf("stats: %s: value %d is %v: %w", measure.Name, i, v, ErrNotFinite)
		}
		// -0 equals 0 in any order but prints differently; adding 0 leaves one zero only.
		sorted[i] = v + 0
	}
	slices.Sort(sorted)
	return Sample{measure: measure, population: population.clone(), sorted: sorted}, nil
}

// Merge joins shards of one sample. It fails with ErrMismatch unless measure and population are equal throughout. It
// cannot notice a shard given twice.
func Merge(first Sample, rest ...Sample) (Sample, error) {
	sorted := slices.Clone(first.sorted)
	for _, s := range rest {
		if s.measure != first.measure || !s.population.equal(first.population) {
			return Sample{}, fmt.Errorf("stats: merge %s of %q with %s of %q: %w",
				first.measure.Name, first.population.Label, s.measure.Name, s.population.Label, ErrMismatch)
		}
		sorted = append(sorted, s.sorted...)
	}
	slices.Sort(sorted)
	return Sample{measure: first.measure, population: first.population.clone(), sorted: sorted}, nil
}

// N is the number of values, which is the number of sequences.
func (s Sample) N() int { return len(s.sorted) }

// Measure is what the values measure.
func (s Sample) Measure() Measure { return s.measure }

// Population is where the values come from.
func (s Sample) Population() Population { return s.population.clone() }

// Values is a copy of the values in increasing order.
func (s Sample) Values() []float64 { return slices.Clone(s.sorted) }

// sampleJSON is a sample as stored. N repeats the length, so that a file cut short is noticed.
type sampleJSON struct {
	Measure    Measure    `json:"measure"`
	Population Population `json:"population"`
	N          int        `json:"n"`
	Values     []float64  `json:"values"`
}

// MarshalJSON writes values in increasing order with all their digits: what is read back is equal.
func (s Sample) MarshalJSON() ([]byte, error) {
	return json.Marshal(sampleJSON{s.measure, s.population.clone(), s.N(), append([]float64{}, s.sorted...)})
}

// UnmarshalJSON reads what MarshalJSON wrote. It fails where NewSample does and when n is not the number of values.
func (s *Sample) UnmarshalJSON(data []byte) error {
	var stored sampleJSON
	if err := json.Unmarshal(data, &stored); err != nil {
		return fmt.Errorf("stats: read sample: %w", err)
	}
	if stored.N != len(stored.Values) {
		return fmt.Errorf("stats: read sample: n is %d, but there are %d values", stored.N, len(stored.Values))
	}
	read, err := NewSample(stored.Measure, stored.Population, stored.Values)
	if err != nil {
		return err
	}
	*s = read
	return nil
}
