package reports

import (
	"slices"
	"time"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
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
	Device     string `json:"device"` // as given; the capacity is each trace's own unless given
	Shard      string `json:"shard,omitempty"`
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

	Timing Timing `json:"timing"`
}

// Timing is what varies from run to run.
type Timing struct {
	Seconds             float64 `json:"seconds"`
	OperationsPerSecond float64 `json:"operations_per_second"`
	Workers             int     `json:"workers"`
}

// Finding is a broken property with what reproduces it.
type Finding struct {
	executor.Finding
	Signature string `json:"signature"`
	Trace     string `json:"trace"`
	Capacity  uint64 `json:"capacity"`
	Replay    string `json:"replay"`
	Shrink    string `json:"shrink,omitempty"` // empty if the finding took several runs: those are not shrunk
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
	// Levels counts the refusals that came although enough memory was free, counted at each level (shatter list properties).
	Levels []Count `json:"levels"`
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

	samples   [measureCount][]float64
	lifetimes []stats.Lifetime
	refused   int
}

// The measures of a distribution workload.
const (
	Kappa = iota
	Lost
	IdleCacheAtPeak
	PinnedAtPeak
	MeanIdleCache
	BoughtPerAllocated
	DeviceCalls
	measureCount
)

// Measures names them, with a sentence each on what they say.
var Measures = [measureCount]struct {
	stats.Measure
	Says string
}{
	Kappa: {stats.Measure{Name: "kappa", Unit: "1"},
		"C_safe / L*: the capacity from which on the trace passes, by the peak of live bytes; 1 is no loss"},
	Lost: {stats.Measure{Name: "lost", Unit: "bytes"},
		"C_safe - L*: memory that the allocator needs beyond what is live"},
	IdleCacheAtPeak: {stats.Measure{Name: "idle_cache_at_peak", Unit: "1"},
		"(reserved - allocated) / reserved at the peak of live bytes; it counts cache that a release returns: not fragmentation"},
	PinnedAtPeak: {stats.Measure{Name: "pinned_at_peak", Unit: "bytes"},
		"reserved and used by nobody, but kept by live blocks in the same segment or page, at the peak of live bytes"},
	MeanIdleCache: {stats.Measure{Name: "mean_idle_cache", Unit: "1"},
		"idle by reserved bytes, summed over all operations"},
	BoughtPerAllocated: {stats.Measure{Name: "bought_per_allocated", Unit: "1"},
		"bytes bought or mapped by bytes handed out, at the trace's own capacity: what the cache did not save"},
	DeviceCalls: {stats.Measure{Name: "device_calls", Unit: "1"},
		"calls to buy, map or return memory, by 1,000 operations, at the trace's own capacity"},
}

// Builder makes a Run from sequences, in order.
type Builder struct {
	Run    Run
	start  time.Time
	issues map[string]Known
	found  campaign.Findings
	byName map[string]*Workload
}

// NewBuilder starts a report. issues are the known upstream issues by id.
func NewBuilder(r Run, issues []Known, start time.Time) *Builder {
	r.Schema = RunSchema
	r.Generators = gen.Version
	r.Findings, r.Known, r.Examples, r.Workloads, r.Waterfalls = []Finding{}, []Known{}, []Example{}, []Workload{}, []Waterfall{}
	b := &Builder{Run: r, start: start, issues: map[string]Known{}, byName: map[string]*Workload{}}
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
func (b *Builder) Add(s *campaign.Sequence, kind gen.Kind) {
	b.Run.Sequences++
	w := b.byName[s.Workload]
	if w == nil {
		w = &Workload{Name: s.Workload, Kind: kind.String()}
		for _, a := range b.Run.Allocators {
			w.Targets = append(w.Targets, WorkloadTarget{Allocator: a})
		}
		b.byName[s.Workload] = w
	}
	w.Sequences++
	for i := range s.Runs {
		r := &s.Runs[i]
		b.Run.Operations += r.Result.Ops
		b.Run.VerifiedBytes += r.Result.Verified
		b.Run.Faults += r.Result.Faults
		b.addRefusals(&b.Run.Refusals[i], s, r)
		b.addFindings(s, r)
		b.addDrift(s, r)
		w.Targets[i].add(s, r)
	}
}

func (b *Builder) addRefusals(f *Refusals, s *campaign.Sequence, r *campaign.Run) {
	f.OOMs += len(r.Result.OOMs)
	for k := range r.Result.Judgements {
		j := &r.Result.Judgements[k]
		name := j.Verdict.String()
		add(&f.Verdicts, name, 1)
		for _, set := range j.Relaxed {
			add(&f.Relaxations, set.String(), 1)
		}
		for l := range f.Levels {
			if j.Demands.Broken.Has(executor.Level(l)) {
				f.Levels[l].Count++
			}
		}
		if !slices.ContainsFunc(b.Run.Examples, func(e Example) bool { return e.Verdict == name && e.Known == j.Known }) {
			e := Example{
				Verdict: name, Allocator: r.Allocator, Trace: s.Trace.Name, Capacity: s.Capacity, Op: j.Op, Request: j.Request,
				Free: j.Free(), Known: j.Known, Replay: Replay(s.Trace.Name, r.Allocator, s.Capacity, b.Run.ReplayFlags...),
			}
			if len(j.Relaxed) > 0 {
				e.Relaxed = j.Relaxed[0].String()
			}
			b.Run.Examples = append(b.Run.Examples, e)
		}
	}
}

func (b *Builder) addDrift(s *campaign.Sequence, r *campaign.Run) {
	if r.Drift == nil {
		return
	}
	i := slices.IndexFunc(b.Run.Drift, func(d Drift) bool { return d.Allocator == r.Target })
	if i < 0 {
		i = len(b.Run.Drift)
		b.Run.Drift = append(b.Run.Drift, Drift{Allocator: r.Target})
	}
	switch d := &b.Run.Drift[i]; r.Drift.Kind {
	case drift.Bounded:
		d.Bounded++
	case drift.Undecided:
		d.Undecided++
	case drift.Grows:
		d.Grows++
		if r.Drift.PerRepeat > d.Fastest {
			d.Fastest, d.Trace = r.Drift.PerRepeat, s.Trace.Name
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

func (b *Builder) addFindings(s *campaign.Sequence, r *campaign.Run) {
	for _, f := range r.Result.Findings {
		i, smallest := b.found.Add(f, s.Trace, f.Target, s.Capacity)
		if i == len(b.Run.Findings) {
			b.Run.Findings = append(b.Run.Findings, Finding{First: s.Trace.Name})
		}
		g := &b.Run.Findings[i]
		g.Count++
		if smallest {
			g.Finding, g.Signature, g.Trace, g.Capacity = f, f.Signature(), s.Trace.Name, s.Capacity
			g.Replay = Replay(s.Trace.Name, f.Target, s.Capacity, b.Run.ReplayFlags...)
			g.Shrink = Shrink(&f, s.Trace.Name, f.Target, s.Capacity, b.Run.ReplayFlags...)
		}
	}
	counted := map[string]bool{}
	for _, f := range r.Result.Known {
		i := slices.IndexFunc(b.Run.Known, func(k Known) bool { return k.ID == f.Known })
		if i < 0 {
			k := b.issues[f.Known]
			k.ID, k.Replay = f.Known, Replay(s.Trace.Name, f.Target, s.Capacity, b.Run.ReplayFlags...)
			b.Run.Known = append(b.Run.Known, k)
			i = len(b.Run.Known) - 1
		}
		b.Run.Known[i].Count++
		if !counted[f.Known] {
			counted[f.Known] = true
			b.Run.Known[i].Sequences++
		}
	}
}

// add enters what a sequence came to on the allocator.
func (t *WorkloadTarget) add(s *campaign.Sequence, r *campaign.Run) {
	res := r.Result
	life := stats.Lifetime{Served: res.Ops}
	if len(res.OOMs) > 0 {
		t.refused++
		life = stats.Lifetime{Served: res.OOMs[0], OOM: true}
	}
	t.lifetimes = append(t.lifetimes, life)
	if r.Spectrum == nil || r.Profile == nil {
		return
	}
	put := func(m int, v float64) { t.samples[m] = append(t.samples[m], v) }
	put(Kappa, r.Spectrum.Kappa())
	put(Lost, float64(r.Spectrum.Lost()))
	put(IdleCacheAtPeak, r.Profile.Peak.IdleCache())
	put(PinnedAtPeak, float64(r.Profile.Peak.Pinned))
	put(MeanIdleCache, r.Profile.MeanIdleCache)
	if allocated := res.Stats.AllocatedBytes.All.Allocated; allocated > 0 {
		put(BoughtPerAllocated, float64(res.Stats.ReservedBytes.All.Allocated)/float64(allocated))
	}
	if res.Ops > 0 {
		put(DeviceCalls, 1000*float64(memoryCalls(res))/float64(res.Ops))
	}
}

// Finish computes the distributions. It may be called once.
func (b *Builder) Finish(interrupted bool, workers int, now time.Time) (*Run, error) {
	r := &b.Run
	r.Interrupted = interrupted
	for _, w := range gen.All() {
		done := b.byName[w.Name]
		if done == nil {
			continue
		}
		for i := range done.Targets {
			if err := done.Targets[i].finish(w); err != nil {
				return nil, err
			}
		}
		r.Workloads = append(r.Workloads, *done)
	}
	for i := range r.Refusals {
		slices.SortStableFunc(r.Refusals[i].Relaxations, func(a, b Count) int { return b.Count - a.Count })
	}
	seconds := now.Sub(b.start).Seconds()
	r.Timing = Timing{Seconds: seconds, OperationsPerSecond: float64(r.Operations) / seconds, Workers: workers}
	return r, nil
}

func (t *WorkloadTarget) finish(w gen.Workload) error {
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
	for m, values := range t.samples {
		if len(values) == 0 {
			continue
		}
		sample, err := stats.NewSample(Measures[m].Measure, population(w, t.Allocator), values)
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
