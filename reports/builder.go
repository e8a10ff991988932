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
			results.Add(of.to, c.Name, c.Count)
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
