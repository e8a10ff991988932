package reports

import (
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// MeasureComparison is what the sequences show of one measure of one workload.
type MeasureComparison struct {
	Baseline   stats.Population `json:"baseline"`
	Candidate  stats.Population `json:"candidate"`
	Workload   string           `json:"workload"`
	Allocators [2]string        `json:"allocators"`
	Measure    stats.Measure    `json:"measure"`
	// N are the sequences of each side; pairs have as many on both.
	N [2]int `json:"n"`
	// Medians are those of the two sides, in the unit of the measure.
	Medians [2]*float64 `json:"medians"`
	// Change is by how much the candidate is above the baseline: a share of the baseline (0.01 is 1 % more), or for pinned_at_peak
	// a difference in shares of L*. Of pairs it is the median of the ratios; of other samples the median of the ratios of every
	// value of one to every value of the other. Absent where there are too few sequences.
	Change *float64 `json:"change"`
	Lower  *float64 `json:"lower"`
	Upper  *float64 `json:"upper"`
	// Level is that of the interval: the family's, shared out by Holm.
	Level float64 `json:"level"`
	// Margin is how much the change may be; Verdict is worse or better if the whole interval lies beyond it, equal if it lies within
	// at the family's level, and undecided else.
	Margin  float64 `json:"margin"`
	Verdict string  `json:"verdict"`
	// Pairs only: how many are better, equal, worse, and the two-sided sign test, for those who ask: the verdict does not use it.
	Shares   *stats.PairComparison `json:"pairs,omitempty"`
	SignTest *float64              `json:"sign_test,omitempty"`
	Warnings []string              `json:"warnings"`

	a, b []float64 // logarithms, or shares of L*; pairs are at the same place
}

// compared are the measures that decide. All are better when smaller.
var compared = []struct {
	measure int
	price   bool // the margin is PriceFactor times as wide
	share   bool // of L*, compared by difference since it may be 0
}{{measure: Kappa}, {measure: PinnedAtPeak, share: true}, {measure: BoughtPerAllocated, price: true}, {measure: DeviceCalls, price: true}}

// fewSequences is under how many of a workload resampling them is said to be too sure of itself.
const fewSequences = 30

// statistically compares samples, or pairs.
func (c *comparer) statistically() error {
	for _, p := range c.pairs {
		var overall []func(func(int) []int) float64
		var names []string
		few := fewSequences
		for _, w := range c.workloads() {
			for _, of := range compared {
				m := MeasureComparison{
					Workload: w.Name, Allocators: [2]string{c.a.Allocators[p[0]], c.b.Allocators[p[1]]}, Measure: Measures[of.measure].Measure,
					Margin: c.Margin, Warnings: []string{},
				}
				m.Baseline, m.Candidate = population(w, c.Baseline.Params, m.Allocators[0]), population(w, c.Candidate.Params, m.Allocators[1])
				if of.price {
					m.Margin *= PriceFactor
				}
				if of.share {
					m.Measure.Unit = "share"
				}
				take := func(s *results.Sequence, k int) (float64, bool) {
					v, ok := Measures[of.measure].Of(s, &s.Runs[k])
					switch {
					case of.share:
						return v / float64(max(s.PeakLive, 1)), ok
					default:
						return math.Log(v), ok && v > 0
					}
				}
				missing := c.collect(&m, p, take)
				if missing > 0 {
					m.Warnings = append(m.Warnings, fmt.Sprintf("%d values are missing or 0, and left out", missing))
				}
				if len(m.a) == 0 || len(m.b) == 0 {
					continue
				}
				if err := m.describe(c.Mode); err != nil {
					return err
				}
				if of.measure == Kappa {
					names = append(names, w.Name)
					few = min(few, m.N[0], m.N[1])
					overall = append(overall, m.figure(c.Mode))
				}
				c.Measures = append(c.Measures, m)
			}
		}
		if len(names) > 0 && c.draws > 0 {
			if few < fewSequences {
				c.Warnings = append(c.Warnings, fmt.Sprintf("the mean over workloads rests on as few as %d sequences of one: its interval is too narrow", few))
			}
			o, err := stats.Mean(c.Level, c.draws, overall)
			if err != nil {
				return err
			}
			o.Value, o.Lower, o.Upper = relative(o.Value), relative(o.Lower), relative(o.Upper)
			c.Overall = append(c.Overall, Overall{c.a.Allocators[p[0]], c.b.Allocators[p[1]], Measures[Kappa].Measure, names, o})
		}
	}
	if len(c.Measures) == 0 {
		return fmt.Errorf("%s and %s %w: no workload with measures is in both (shatter list workloads names them: distribution)",
			c.Baseline.Name, c.Candidate.Name, ErrCompare)
	}
	c.decide()
	return nil
}

// collect takes the values; missing counts sequences without one.
func (c *comparer) collect(m *MeasureComparison, p [2]int, take func(*results.Sequence, int) (float64, bool)) (missing int) {
	if c.Mode == ModePairs {
		for _, s := range c.shared {
			if s[0].Workload != m.Workload {
				continue
			}
			x, ok1 := take(s[0], p[0])
			y, ok2 := take(s[1], p[1])
			if !ok1 || !ok2 {
				missing++
				continue
			}
			m.a, m.b = append(m.a, x), append(m.b, y)
		}
		return missing
	}
	from := func(j *results.Journal, k int) (out []float64) {
		for _, s := range j.Sequences {
			if s.Workload != m.Workload {
				continue
			}
			if v, ok := take(s, k); ok {
				out = append(out, v)
			} else {
				missing++
			}
		}
		return out
	}
	m.a, m.b = from(c.a, p[0]), from(c.b, p[1])
	return missing
}

// plain undoes the logarithm.
func (m *MeasureComparison) plain(v float64) float64 {
	if m.Measure.Unit == "share" {
		return v
	}
	return math.Exp(v)
}

// describe fills what does not depend on the family.
func (m *MeasureComparison) describe(mode string) error {
	m.N = [2]int{len(m.a), len(m.b)}
	for i, values := range [][]float64{m.a, m.b} {
		s, err := stats.NewSample(m.Measure, stats.Population{}, values)
		if err != nil {
			return err
		}
		q, err := s.Quantile(0.5, stats.DefaultLevel)
		if err != nil {
			return err
		}
		v := m.plain(*q.Value)
		m.Medians[i] = &v
	}
	if mode != ModePairs {
		return nil
	}
	pairs := make([]stats.Pair, len(m.a))
	for i := range pairs {
		pairs[i] = stats.Pair{Baseline: math.Exp(m.a[i]), Candidate: math.Exp(m.b[i])} // a difference of shares keeps its sign
	}
	shares, err := stats.ComparePairs(pairs, stats.DefaultLevel)
	if err != nil {
		return err
	}
	p := stats.SignTest(shares.Better.Successes, shares.Worse.Successes)
	m.Shares, m.SignTest = &shares, &p
	return nil
}

// at is the change with its interval at a level, before it is made a share.
func (m *MeasureComparison) at(mode string, level float64) (value, lower, upper *float64) {
	if mode == ModePairs {
		d := make([]float64, len(m.a))
		for i := range d {
			d[i] = m.b[i] - m.a[i]
		}
		s, err := stats.NewSample(m.Measure, stats.Population{}, d)
		if err != nil {
			return nil, nil, nil
		}
		q, err := s.Quantile(0.5, level)
		if err != nil || q.Interval.Lower == nil || q.Interval.Upper == nil {
			return q.Value, nil, nil
		}
		return q.Value, q.Interval.Lower, q.Interval.Upper
	}
	s, err := stats.CompareSamples(m.a, m.b, level)
	if err != nil {
		return nil, nil, nil
	}
	return s.Value, s.Lower, s.Upper
}

// figure is the change for the mean over workloads.
func (m *MeasureComparison) figure(mode string) func(func(int) []int) float64 {
	if mode != ModePairs {
		return stats.ShiftFigure(m.a, m.b)
	}
	d := make([]float64, len(m.a))
	for i := range d {
		d[i] = m.b[i] - m.a[i]
	}
	return stats.MedianFigure(d)
}

// share makes a change what the document says it is.
func (m *MeasureComparison) share(v *float64) *float64 {
	if v == nil || m.Measure.Unit == "share" {
		return v
	}
	r := relative(*v)
	return &r
}

// decide gives the verdicts: Holm over all measures of all workloads.
func (c *comparer) decide() {
	beyond := func(i int, level float64) bool {
		m := &c.Measures[i]
		v, lower, upper := m.at(c.Mode, level)
		m.Level, m.Change, m.Lower, m.Upper = level, m.share(v), m.share(lower), m.share(upper)
		switch {
		case m.Lower == nil:
			m.Verdict = Undecided
		case *m.Lower > m.Margin:
			m.Verdict = Worse
		case *m.Upper < -m.Margin:
			m.Verdict = Better
		default:
			m.Verdict = Undecided
		}
		return m.Verdict != Undecided
	}
	shown, _ := stats.Holm(len(c.Measures), c.Level, beyond)
	count := map[string]int{}
	for i := range c.Measures {
		m := &c.Measures[i]
		if !shown[i] {
			if m.Lower == nil {
				m.Warnings = append(m.Warnings, fmt.Sprintf("n = %d and %d give no interval", m.N[0], m.N[1]))
			}
			if _, lower, upper := m.at(c.Mode, c.Level); lower != nil && *m.share(lower) >= -m.Margin && *m.share(upper) <= m.Margin {
				m.Verdict = Equal
			}
		}
		count[m.Verdict]++
	}
	switch {
	case count[Worse] > 0:
		c.Verdict = Worse
	case count[Better] > 0:
		c.Verdict = Better
	case count[Undecided] > 0:
		c.Verdict = Undecided
	default:
		c.Verdict = Equal
	}
}
