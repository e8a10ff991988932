package reports

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// CompareSchema is the name and version of the document that Comparison is.
const CompareSchema = "shatter.compare/1"

// DefaultMargin is the change of C_safe, as a share of it, that a comparison lets pass.
const DefaultMargin = 0.01

// PriceFactor is how many times the margin the price may change: calls of the device and bytes bought.
const PriceFactor = 5

// Comparison is what changed from one run to another. What both ran, trace by trace, is compared exactly, without statistics, if it
// was the same allocator. Else statistics say what the sequences show of their population.
type Comparison struct {
	Schema    string  `json:"schema"`
	Baseline  Side    `json:"baseline"`
	Candidate Side    `json:"candidate"`
	Margin    float64 `json:"margin"` // of C_safe
	Level     float64 `json:"level"`  // of the whole family of Measures together
	// Mode is exact (the same traces on the same allocators), pairs (the same traces on other ones) or samples (other traces).
	Mode string `json:"mode"`
	// Verdict is worse if anything is, beyond its margin; else better, equal, or undecided.
	Verdict  string              `json:"verdict"`
	Exact    *Exact              `json:"exact,omitempty"`
	Measures []MeasureComparison `json:"measures,omitempty"`
	// Overall is there for kappa on each allocator, if statistics were used: the mean over workloads of the change of its logarithm.
	Overall  []Overall `json:"overall,omitempty"`
	Warnings []string  `json:"warnings"`
}

// The modes.
const (
	ModeExact   = "exact"
	ModePairs   = "pairs"
	ModeSamples = "samples"
)

// The verdicts of comparisons.
const (
	Worse     = "worse"
	Better    = "better"
	Equal     = "equal"
	Undecided = "undecided"
)

// Side is one of the two runs.
type Side struct {
	Name       string   `json:"name"`
	Shatter    string   `json:"shatter"`
	Generators int      `json:"generators"`
	Seed       uint64   `json:"seed"`
	Params     string   `json:"params,omitempty"`
	Device     string   `json:"device"`
	Sequences  int      `json:"sequences"`
	Allocators []string `json:"allocators"` // those compared, in the same order on both sides
}

// Overall is the equally weighted mean over workloads.
type Overall struct {
	Baseline  string        `json:"baseline"`
	Candidate string        `json:"candidate"`
	Measure   stats.Measure `json:"measure"`
	Names     []string      `json:"workloads"`
	stats.Overall
}

// Options of a comparison.
type Options struct {
	Margin, Level float64
	// Alloc is the allocator of the baseline to compare, Against that of the candidate; empty: all that have the same name.
	Alloc, Against string
	// Resamples is how many the mean over workloads takes: 0 for stats.Resamples, negative for no mean at all.
	Resamples int
}

// ErrCompare: two runs cannot be compared.
var ErrCompare = errors.New("cannot be compared")

// comparer is a comparison at work.
type comparer struct {
	Comparison
	a, b   *results.Journal
	shared [][2]*results.Sequence // by trace hash, in the baseline's order
	pairs  [][2]int               // runs to compare, as places in Sequence.Runs
	draws  int                    // Options.Resamples
}

// Compare compares two runs.
func Compare(names [2]string, a, b *results.Journal, o Options) (*Comparison, error) {
	if !(o.Margin >= 0) || !(o.Level > 0 && o.Level < 1) {
		return nil, fmt.Errorf("margin %v, level %v: a margin is at least 0, a level between 0 and 1", o.Margin, o.Level)
	}
	c := &comparer{a: a, b: b, draws: o.Resamples}
	if c.draws == 0 {
		c.draws = stats.Resamples
	}
	c.Schema, c.Margin, c.Level, c.Warnings = CompareSchema, o.Margin, o.Level, []string{}
	c.Baseline, c.Candidate = side(names[0], a), side(names[1], b)
	if a.Generators != b.Generators {
		return nil, fmt.Errorf("%s and %s %w: generators %d and %d make other sequences", names[0], names[1], ErrCompare, a.Generators, b.Generators)
	}
	if err := c.match(o); err != nil {
		return nil, err
	}
	c.share()
	c.warn()
	switch {
	case len(c.shared) > 0 && slices.Equal(c.Baseline.Allocators, c.Candidate.Allocators):
		c.Mode = ModeExact
		c.exactly()
		return &c.Comparison, nil
	case len(c.shared) > 0:
		c.Mode = ModePairs
	case a.Params != b.Params:
		return nil, fmt.Errorf("%s and %s %w: no trace is in both, and their sequences are made with other parameters (%s; %s)",
			names[0], names[1], ErrCompare, orDefaults(a.Params), orDefaults(b.Params))
	default:
		c.Mode = ModeSamples
	}
	if err := c.statistically(); err != nil {
		return nil, err
	}
	return &c.Comparison, nil
}

func orDefaults(p gen.Params) string {
	if s := p.String(); s != "" {
		return s[1:]
	}
	return "the workloads' own"
}

func side(name string, j *results.Journal) Side {
	s := Side{Name: name, Shatter: j.Shatter, Generators: j.Generators, Seed: j.Seed, Device: j.Device, Sequences: len(j.Sequences), Allocators: []string{}}
	if p := j.Params.String(); p != "" {
		s.Params = p[1:]
	}
	return s
}

// match finds the allocators to compare.
func (c *comparer) match(o Options) error {
	add := func(i, k int) {
		c.pairs = append(c.pairs, [2]int{i, k})
		c.Baseline.Allocators = append(c.Baseline.Allocators, c.a.Allocators[i])
		c.Candidate.Allocators = append(c.Candidate.Allocators, c.b.Allocators[k])
	}
	if o.Alloc == "" {
		if o.Against != "" {
			return fmt.Errorf("--against %s: give --alloc too, the baseline's", o.Against)
		}
		for i, name := range c.a.Allocators {
			if k := slices.Index(c.b.Allocators, name); k >= 0 {
				add(i, k)
			}
		}
		if len(c.pairs) == 0 && len(c.a.Allocators) == 1 && len(c.b.Allocators) == 1 {
			add(0, 0)
		}
		if len(c.pairs) == 0 {
			return fmt.Errorf("%s and %s %w: no allocator is in both (%v; %v); give --alloc and --against",
				c.Baseline.Name, c.Candidate.Name, ErrCompare, c.a.Allocators, c.b.Allocators)
		}
		return nil
	}
	if o.Against == "" {
		o.Against = o.Alloc
	}
	i, k := slices.Index(c.a.Allocators, o.Alloc), slices.Index(c.b.Allocators, o.Against)
	if i < 0 {
		return fmt.Errorf("%s has no allocator %s; it has %v", c.Baseline.Name, o.Alloc, c.a.Allocators)
	}
	if k < 0 {
		return fmt.Errorf("%s has no allocator %s; it has %v", c.Candidate.Name, o.Against, c.b.Allocators)
	}
	add(i, k)
	return nil
}

// share finds the traces that both ran.
func (c *comparer) share() {
	other := map[string]*results.Sequence{}
	for _, s := range c.b.Sequences {
		other[s.Hash] = s
	}
	for _, s := range c.a.Sequences {
		if t := other[s.Hash]; t != nil {
			c.shared = append(c.shared, [2]*results.Sequence{s, t})
			delete(other, s.Hash) // a trace that came twice is one pair
		}
	}
}

func (c *comparer) warn() {
	for _, of := range []struct {
		side Side
		j    *results.Journal
	}{{c.Baseline, c.a}, {c.Candidate, c.b}} {
		if of.j.Header.Sequences > 0 && !of.j.Complete() {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s has %d sequences of its %d: those that take long may be missing",
				of.side.Name, len(of.j.Sequences), of.j.Header.Sequences))
		}
		if n := len(of.j.Sequences) - len(c.shared); len(c.shared) > 0 && n > 0 {
			c.Warnings = append(c.Warnings, fmt.Sprintf("%s has %d traces that the other one has not: they are left out", of.side.Name, n))
		}
	}
}

// workloads lists the distribution workloads that both sides have, in the generators' order.
func (c *comparer) workloads() []gen.Workload {
	has := func(j *results.Journal, name string) bool {
		return slices.ContainsFunc(j.Sequences, func(s *results.Sequence) bool { return s.Workload == name })
	}
	var out []gen.Workload
	for _, w := range gen.All() {
		if w.Kind == gen.Distribution && has(c.a, w.Name) && has(c.b, w.Name) {
			out = append(out, w)
		}
	}
	return out
}

// relative makes a change of a logarithm a share: 0.01 is 1 % more.
func relative(log float64) float64 { return math.Expm1(log) }
