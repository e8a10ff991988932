package reports

import (
	"slices"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// RunSchema is the name and version of the document that Run is.
const RunSchema = "shatter.run/1"

// Run is the report of `shatter run`. Sizes are bytes.
type Run struct {
	Schema  string `json:"schema"`
	Shatter string `json:"shatter"` // version of the program
	// Seed and Generators (the generators' version) make the same sequences again.
	Seed       uint64 `json:"seed"`
	Generators int    `json:"generators"`
	// Params size all sequences; absent: the workloads' own.
	Params string `json:"params,omitempty"`
	Device string `json:"device"` // as given; the capacity is each trace's own unless given
	Shard  string `json:"shard,omitempty"`
	// ReplayFlags are the flags that replay lines carry beside allocator and capacity.
	ReplayFlags []string `json:"replay_flags,omitempty"`
	// Allocators are the targets, in the order of all lists below.
	Allocators []string `json:"allocators"`
	Properties []string `json:"properties"`
	// Sequences is how many traces were run on every allocator, Operations the operations executed and checked.
	Sequences   int  `json:"sequences"`
	Operations  int  `json:"operations"`
	Interrupted bool `json:"interrupted"`
	// VerifiedBytes is how many bytes of blocks were compared with what had been written; Faults how many device calls failed
	// as planned.
	VerifiedBytes uint64 `json:"verified_bytes,omitempty"`
	Faults        int    `json:"faults,omitempty"`

	Findings []Finding `json:"findings"`
	Known    []Known   `json:"known"`
	// Refusals are the out-of-memory outcomes, an entry an allocator.
	Refusals []Refusals `json:"refusals"`
	// Drift is there if relations were asked.
	Drift []Drift `json:"drift,omitempty"`
	// Examples has the first refusal of each verdict.
	Examples  []Example  `json:"examples"`
	Workloads []Workload `json:"workloads"`
	// Waterfalls say what C_safe is made of, for the trace with the median kappa of each workload.
	Waterfalls []Waterfall `json:"waterfalls"`

	// Timing is absent from a results folder's summary.json.
	Timing *Timing `json:"timing,omitempty"`
}

// Timing is what varies from run to run.
type Timing struct {
	Seconds             float64 `json:"seconds"`
	OperationsPerSecond float64 `json:"operations_per_second"`
	Workers             int     `json:"workers"`
	// Resumed is how many sequences were there before: seconds and rate are of the others.
	Resumed int `json:"resumed,omitempty"`
}

// Finding is a broken property with what reproduces it.
type Finding struct {
	executor.Finding
	Signature string `json:"signature"`
	Trace     string `json:"trace"`
	Capacity  uint64 `json:"capacity"`
	Replay    string `json:"replay"`
	Shrink    string `json:"shrink,omitempty"`
	// Count is how many findings had this signature; the one with the smallest trace is shown. First is the trace that showed
	// it first.
	Count int    `json:"count"`
	First string `json:"first,omitempty"`
}

// Known counts the findings that a known upstream issue explains.
type Known struct {
	ID      string `json:"id"`
	URL     string `json:"url"`
	Summary string `json:"summary"`
	Count   int    `json:"count"`
	// Sequences is how many (sequence, allocator) pairs showed it.
	Sequences int    `json:"sequences"`
	Replay    string `json:"replay"` // of the first
}

// Refusals are an allocator's out-of-memory outcomes.
type Refusals struct {
	Allocator string `json:"allocator"`
	OOMs      int    `json:"ooms"`
	// Verdicts counts by verdict, in the order of executor.Verdicts.
	Verdicts []Count `json:"verdicts"`
	// Relaxations counts, for the verdict policy, each minimal set of rules whose relaxation would have served.
	Relaxations []Count `json:"relaxations"`
	// Levels counts the refusals that came although enough memory was free, counted at each level (shatter list properties). A level
	// that is not in the list could not be computed: the allocator shows too little.
	Levels []Count `json:"levels"`

	known executor.LevelSet // levels that could be computed
}

// Drift is what repeating the beginnings of a sample of the sequences from their end state came to.
type Drift struct {
	Allocator string `json:"allocator"`
	Bounded   int    `json:"bounded"` // the state came back
	Grows     int    `json:"grows"`
	Undecided int    `json:"undecided"`
	// Fastest is the largest growth a repeat, in bytes, and Trace the sequence.
	Fastest uint64 `json:"fastest"`
	Trace   string `json:"trace,omitempty"`
}

// Count is a named number.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Example is a refusal to look at.
type Example struct {
	Verdict   string `json:"verdict"`
	Relaxed   string `json:"relaxed,omitempty"`
	Allocator string `json:"allocator"`
	Trace     string `json:"trace"`
	Capacity  uint64 `json:"capacity"`
	Op        int    `json:"op"`
	Request   uint64 `json:"request"`
	Free      uint64 `json:"free"` // bytes that are not live
	Known     string `json:"known,omitempty"`
	Replay    string `json:"replay"`
}

// Waterfall says what C_safe of a trace is made of, in bytes.
type Waterfall struct {
	Workload  string `json:"workload"`
	Allocator string `json:"allocator"`
	Trace     string `json:"trace"`
	*measure.Waterfall
}

// Workload is what the sequences of one workload came to. Measures are there for distribution workloads only: the sequences
// of the others are made to break things, and their rates mean nothing.
type Workload struct {
	Name      string           `json:"name"`
	Kind      string           `json:"kind"`
	Sequences int              `json:"sequences"`
	Targets   []WorkloadTarget `json:"allocators"`
}

// WorkloadTarget is a workload on an allocator.
type WorkloadTarget struct {
	Allocator string `json:"allocator"`
	// Refused is the share of sequences with a refusal at the trace's own capacity.
	Refused stats.Proportion `json:"refused"`
	// Measures over the sequences; empty for workloads that look for findings.
	Measures []stats.Summary `json:"measures"`
	// ServedToOOM is the survival curve of operations to the first refusal.
	ServedToOOM *stats.SurvivalCurve `json:"served_to_oom,omitempty"`
	// Scarce are the survival curves on devices of 1.02, 1.05, 1.1 and 1.2 L*.
	Scarce []Scarce `json:"scarce,omitempty"`
	// LowerBounds is in how many sequences C_safe, and so kappa and lost, are lower bounds: not all larger capacities were tried.
	LowerBounds int `json:"lower_bounds,omitempty"`

	samples   [measureCount][]float64
	scarce    [len(measure.Scarce)][]stats.Lifetime
	lifetimes []stats.Lifetime
	refused   int
}

// Scarce is a survival curve of operations to the first refusal on a device with little to spare.
type Scarce struct {
	PerMille uint64              `json:"per_mille"` // the device, in thousandths of L*
	Curve    stats.SurvivalCurve `json:"curve"`
}

// Builder makes a Run from sequences, in order of the index.
type Builder struct {
	Run    Run
	issues map[string]Known
	found  campaign.Findings
	byName map[string]*Workload
}

// NewBuilder starts a report. issues are the known upstream issues by id.
func NewBuilder(r Run, issues []Known) *Builder {
	r.Schema = RunSchema
	r.Generators = gen.Version
	r.Findings, r.Known, r.Examples, r.Workloads, r.Waterfalls = []Finding{}, []Known{}, []Example{}, []Workload{}, []Waterfall{}
	b := &Builder{Run: r, issues: map[string]Known{}, byName: map[string]*Workload{}}
	for _, k := range issues {
		b.issues[k.ID] = k
	}
	for _, a := range r.Allocators {
		b.Run.Refusals = append(b.Run.Refusals, newRefusals(a))
	}
	return b
}

func newRefusals(allocator string) Refusals {
	f := Refusals{Allocator: allocator, Relaxations: []Count{}}
	for _, v := range executor.Verdicts {
		f.Verdicts = append(f.Verdicts, Count{Name: v.String()})
	}
	for _, l := range executor.Levels() {
		f.Levels = append(f.Levels, Count{Name: l.String()})
	}
	return f
}

// Add enters a sequence.
func (b *Builder) Add(s *results.Sequence) error {
	b.Run.Sequences++
	w := b.byName[s.Workload]
	if w == nil {
		w = &Workload{Name: s.Workload, Kind: s.Kind}
		for _, a := range b.Run.Allocators {
			w.Targets = append(w.Targets, WorkloadTarget{Allocator: a})
		}
		b.byName[s.Workload] = w
	}
	w.Sequences++
	for i := range s.Runs {
		r := &s.Runs[i]
		b.Run.Operations += r.Ops
		b.Run.VerifiedBytes += r.Verified
		b.Run.Faults += r.Faults
		b.addRefusals(&b.Run.Refusals[i], s, r)
		if err := b.addFindings(s, r); err != nil {
			return err
		}
		b.addDrift(s, r)
		w.Targets[i].add(s, r)
	}
	return nil
}

func (b *Builder) addRefusals(f *Refusals, s *results.Sequence, r *results.Run) {
	f.OOMs += r.OOMs
	if r.OOMs > 0 {
		for _, l := range executor.Levels() {
			if !slices.Contains(r.UnknownLevels, l.String()) {
				f.known |= 1 << l
			}
		}
	}
	for _, of := range []struct {
		to   *[]Count
		from []results.Count
	}{{&f.Verdicts, r.Verdicts}, {&f.Relaxations, r.Relaxations}, {&f.Levels, r.Levels}} {
		for _, c := range of.from {
			add(of.to, c.Name, c.Count)
		}
	}
	for _, j := range r.Refusals {
		if !slices.ContainsFunc(b.Run.Examples, func(e Example) bool { return e.Verdict == j.Verdict && e.Known == j.Known }) {
			b.Run.Examples = append(b.Run.Examples, Example{
				Verdict: j.Verdict, Relaxed: j.Relaxed, Allocator: r.Allocator, Trace: s.Trace, Capacity: s.Capacity, Op: j.Op, Request: j.Request,
				Free: j.Free, Known: j.Known, Replay: Replay(s.Trace, r.Allocator, s.Capacity, b.Run.ReplayFlags...),
			})
		}
	}
}

func (b *Builder) addDrift(s *results.Sequence, r *results.Run) {
	if r.Drift == nil {
		return
	}
	i := slices.IndexFunc(b.Run.Drift, func(d Drift) bool { return d.Allocator == r.Target })
	if i < 0 {
		i = len(b.Run.Drift)
		b.Run.Drift = append(b.Run.Drift, Drift{Allocator: r.Target})
	}
	switch d := &b.Run.Drift[i]; r.Drift.Kind {
	case drift.Bounded.String():
		d.Bounded++
	case drift.Undecided.String():
		d.Undecided++
	case drift.Grows.String():
		d.Grows++
		if r.Drift.PerRepeat > d.Fastest {
			d.Fastest, d.Trace = r.Drift.PerRepeat, s.Trace
		}
	}
}

func add(list *[]Count, name string, n int) {
	for i := range *list {
		if (*list)[i].Name == name {
			(*list)[i].Count += n
			return
		}
	}
	*list = append(*list, Count{name, n})
}

func (b *Builder) addFindings(s *results.Sequence, r *results.Run) error {
	for _, f := range r.Findings {
		made, err := s.Made()
		if err != nil {
			return err
		}
		i, smallest := b.found.Add(f, made, f.Target, s.Capacity)
		if i == len(b.Run.Findings) {
			b.Run.Findings = append(b.Run.Findings, Finding{First: s.Trace})
		}
		g := &b.Run.Findings[i]
		g.Count++
		if smallest {
			g.Finding, g.Signature, g.Trace, g.Capacity = f, f.Signature(), s.Trace, s.Capacity
			g.Replay = Replay(s.Trace, f.Target, s.Capacity, b.Run.ReplayFlags...)
			g.Shrink = Shrink(&f, s.Trace, f.Target, s.Capacity, b.Run.ReplayFlags...)
		}
	}
	counted := map[string]bool{}
	for _, f := range r.Known {
		i := slices.IndexFunc(b.Run.Known, func(k Known) bool { return k.ID == f.Known })
		if i < 0 {
			k := b.issues[f.Known]
			k.ID, k.Replay = f.Known, Replay(s.Trace, f.Target, s.Capacity, b.Run.ReplayFlags...)
			b.Run.Known = append(b.Run.Known, k)
			i = len(b.Run.Known) - 1
		}
		b.Run.Known[i].Count++
		if !counted[f.Known] {
			counted[f.Known] = true
			b.Run.Known[i].Sequences++
		}
	}
	return nil
}

// Found are the findings with their traces, in the order of Run.Findings.
func (b *Builder) Found() []campaign.Distinct { return b.found.All() }

// add enters what a sequence came to on the allocator.
func (t *WorkloadTarget) add(s *results.Sequence, r *results.Run) {
	life := stats.Lifetime{Served: r.Ops}
	if r.FirstOOM != nil {
		t.refused++
		life = stats.Lifetime{Served: *r.FirstOOM, OOM: true}
	}
	t.lifetimes = append(t.lifetimes, life)
	if r.Measures == nil {
		return
	}
	if r.Measures.LowerBound {
		t.LowerBounds++
	}
	for i, l := range r.Measures.Lives {
		t.scarce[i] = append(t.scarce[i], stats.Lifetime{Served: l.Served, OOM: l.OOM})
	}
	for m := range Measures {
		if v, ok := Measures[m].Of(s, r); ok {
			t.samples[m] = append(t.samples[m], v)
		}
	}
}

// Finish computes the distributions. It may be called once.
func (b *Builder) Finish(interrupted bool) (*Run, error) {
	r := &b.Run
	r.Interrupted = interrupted
	for _, w := range gen.All() {
		done := b.byName[w.Name]
		if done == nil {
			continue
		}
		for i := range done.Targets {
			if err := done.Targets[i].finish(w, r.Params); err != nil {
				return nil, err
			}
		}
		r.Workloads = append(r.Workloads, *done)
	}
	for i := range r.Refusals {
		f := &r.Refusals[i]
		slices.SortStableFunc(f.Relaxations, func(a, b Count) int { return b.Count - a.Count })
		if f.known == 0 {
			continue // no refusal was judged
		}
		var known []Count
		for _, l := range executor.Levels() {
			if f.known.Has(l) {
				known = append(known, f.Levels[l])
			}
		}
		f.Levels = known
	}
	return r, nil
}

func (t *WorkloadTarget) finish(w gen.Workload, params string) error {
	var err error
	if t.Refused, err = stats.Wilson(t.refused, len(t.lifetimes), stats.DefaultLevel); err != nil {
		return err
	}
	t.Measures = []stats.Summary{}
	if w.Kind != gen.Distribution {
		return nil
	}
	curve, err := stats.Survival(t.lifetimes, nil, stats.DefaultLevel)
	if err != nil {
		return err
	}
	t.ServedToOOM = &curve
	for i, lives := range t.scarce {
		if len(lives) == 0 {
			continue
		}
		curve, err := stats.Survival(lives, nil, stats.DefaultLevel)
		if err != nil {
			return err
		}
		t.Scarce = append(t.Scarce, Scarce{PerMille: measure.Scarce[i], Curve: curve})
	}
	for m, values := range t.samples {
		if len(values) == 0 {
			continue
		}
		sample, err := stats.NewSample(Measures[m].Measure, population(w, params, t.Allocator), values)
		if err != nil {
			return err
		}
		sum, err := stats.Summarize(sample, stats.DefaultLevel)
		if err != nil {
			return err
		}
		t.Measures = append(t.Measures, sum)
	}
	return nil
}

// measure returns the summary of a measure, nil if it was not taken.
func (t *WorkloadTarget) measure(m int) *stats.Summary {
	for i := range t.Measures {
		if t.Measures[i].Measure.Name == Measures[m].Name {
			return &t.Measures[i]
		}
	}
	return nil
}
