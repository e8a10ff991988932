package results

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Header says what run a journal is of: with it and the program of the same version the run can be made again.
type Header struct {
	Schema     string `json:"schema"`
	Shatter    string `json:"shatter"`    // version of the program
	Generators int    `json:"generators"` // gen.Version: another one is another population
	Seed       uint64 `json:"seed"`
	// Sequences is how many the run has, 0 if that was left to a deadline. Shard of Shards is the part run here.
	Sequences int `json:"sequences"`
	Shard     int `json:"shard"`
	Shards    int `json:"shards"`
	// Params size all sequences; what is 0 is the workload's own.
	Params     gen.Params `json:"params"`
	Device     string     `json:"device"`
	Capacity   uint64     `json:"capacity,omitempty"` // of the device, if it was given
	Workloads  []string   `json:"workloads"`
	Allocators []string   `json:"allocators"`
	// Flags are those of `shatter run` that the sequences depend on, each --name=value.
	Flags []string `json:"flags"`
}

// Sequence is one generated trace and what became of it on each allocator.
type Sequence struct {
	Index    int    `json:"index"`
	Workload string `json:"workload"`
	Kind     string `json:"kind"` // gen.Kind: only distribution workloads have measures
	Seed     uint64 `json:"seed"` // of the sequence
	Trace    string `json:"trace"`
	Hash     string `json:"hash"` // trace.ID: pairs are formed by it
	Ops      int    `json:"ops"`
	Capacity uint64 `json:"capacity"`
	PeakLive uint64 `json:"peak_live"` // L*
	Runs     []Run  `json:"runs"`      // an allocator each, in the header's order

	made   *trace.Trace
	params gen.Params
}

// Run is a sequence on an allocator.
type Run struct {
	Target    string `json:"target"`    // as the header names it
	Allocator string `json:"allocator"` // with the settings that the trace brought
	Ops       int    `json:"ops"`       // executed: fewer than the trace has after a finding
	// Decisions are digests of all decisions up to sixteen places of the trace, the last one its end (campaign.Digests).
	Decisions []string `json:"decisions,omitempty"`
	OOMs      int      `json:"ooms"`
	// FirstOOM is the first refused operation, nil if none is.
	FirstOOM *int `json:"first_oom,omitempty"`
	// Verdicts, Relaxations and Levels count refusals, in order of appearance, without those that did not occur.
	Verdicts    []Count `json:"verdicts,omitempty"`
	Relaxations []Count `json:"relaxations,omitempty"`
	Levels      []Count `json:"levels,omitempty"`
	// UnknownLevels are those at which no refusal could be held against the free memory: the allocator shows too little.
	UnknownLevels []string `json:"unknown_levels,omitempty"`
	// Refusals has the first of each verdict and known issue.
	Refusals []Refusal          `json:"refusals,omitempty"`
	Findings []executor.Finding `json:"findings,omitempty"`
	Known    []executor.Finding `json:"known,omitempty"`
	// DeviceCalls counts the device's calls, in the order of device.CallKind; MemoryCalls are those that buy, map or return.
	DeviceCalls []uint64 `json:"device_calls"`
	MemoryCalls uint64   `json:"memory_calls"`
	// Of the run at the trace's own capacity, in bytes: bought or mapped and handed out in all, and the peaks. 0 if unknown.
	Bought        uint64 `json:"bought"`
	Allocated     uint64 `json:"allocated"`
	PeakAllocated uint64 `json:"peak_allocated"`
	PeakReserved  uint64 `json:"peak_reserved"`
	Retries       uint64 `json:"retries"`
	Verified      uint64 `json:"verified,omitempty"`
	Faults        int    `json:"faults,omitempty"`
	// Measures are there on distribution workloads.
	Measures *Measures `json:"measures,omitempty"`
	Drift    *Drift    `json:"drift,omitempty"`
}

// Measures are what a distribution workload is for.
type Measures struct {
	Safe  uint64  `json:"c_safe"` // every capacity from here on passes
	Min   uint64  `json:"c_min"`  // the smallest that passes
	Gaps  int     `json:"gaps"`   // intervals between the two that do not
	Kappa float64 `json:"kappa"`  // C_safe / L*
	Lost  uint64  `json:"lost"`   // C_safe - L*
	// LowerBound: C_safe is at least this; not all larger capacities were tried.
	LowerBound bool `json:"lower_bound,omitempty"`
	// Profile is a run that is refused nothing: its state at t*, where live bytes peak.
	Profile measure.Profile `json:"profile"`
	// Lives are the operations up to the first refusal on scarce devices (measure.Scarce).
	Lives []measure.Life `json:"lives"`
}

// Drift is what repeating the beginning of the sequence came to.
type Drift struct {
	Kind      string `json:"kind"`
	PerRepeat uint64 `json:"per_repeat,omitempty"`
}

// Count is a named number.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Refusal is a refused request.
type Refusal struct {
	Verdict string `json:"verdict"`
	Known   string `json:"known,omitempty"`
	Relaxed string `json:"relaxed,omitempty"`
	Op      int    `json:"op"`
	Request uint64 `json:"request"`
	Free    uint64 `json:"free"` // bytes that were not live
}

// Of takes down a sequence of a campaign.
func Of(s *campaign.Sequence, kind gen.Kind, params gen.Params) *Sequence {
	out := &Sequence{
		Index: s.Index, Workload: s.Workload, Kind: kind.String(), Seed: s.Seed, Trace: s.Trace.Name, Hash: s.Trace.ID(),
		Ops: len(s.Trace.Ops), Capacity: s.Capacity, PeakLive: s.PeakLive, made: s.Trace, params: params,
	}
	for i := range s.Runs {
		out.Runs = append(out.Runs, runOf(&s.Runs[i]))
	}
	return out
}

func runOf(r *campaign.Run) Run {
	res := r.Result
	out := Run{
		Target: r.Target, Allocator: r.Allocator, Ops: res.Ops, Decisions: r.Decisions, OOMs: len(res.OOMs),
		Findings: res.Findings, Known: res.Known, DeviceCalls: res.DeviceCalls[:device.CallWait+1], MemoryCalls: res.MemoryCalls(),
		PeakAllocated: res.PeakAllocated, PeakReserved: res.PeakReserved, Verified: res.Verified, Faults: res.Faults,
		Bought: res.Stats.ReservedBytes.All.Allocated, Allocated: res.Stats.AllocatedBytes.All.Allocated, Retries: res.Stats.NumAllocRetries,
	}
	if len(res.OOMs) > 0 {
		out.FirstOOM = &res.OOMs[0]
	}
	var known executor.LevelSet
	for i := range res.Judgements {
		out.judged(&res.Judgements[i])
		known |= res.Judgements[i].Demands.Known
	}
	if len(res.Judgements) > 0 {
		for _, l := range executor.Levels() {
			if !known.Has(l) {
				out.UnknownLevels = append(out.UnknownLevels, l.String())
			}
		}
	}
	if r.Drift != nil {
		out.Drift = &Drift{r.Drift.Kind.String(), r.Drift.PerRepeat}
	}
	if r.Spectrum != nil && r.Profile != nil {
		out.Measures = &Measures{
			Safe: r.Spectrum.Safe(), Min: r.Spectrum.Min(), Gaps: len(r.Spectrum.Gaps()), Kappa: r.Spectrum.Kappa(), Lost: r.Spectrum.Lost(),
			Profile: *r.Profile, Lives: r.Lives, LowerBound: r.LowerBound,
		}
	}
	return out
}

// judged counts a refusal.
func (r *Run) judged(j *executor.Judgement) {
	verdict := j.Verdict.String()
	Add(&r.Verdicts, verdict, 1)
	for _, set := range j.Relaxed {
		Add(&r.Relaxations, set.String(), 1)
	}
	for _, l := range executor.Levels() {
		if j.Demands.Broken.Has(l) {
			Add(&r.Levels, l.String(), 1)
		}
	}
	for i := range r.Refusals {
		if r.Refusals[i].Verdict == verdict && r.Refusals[i].Known == j.Known {
			return
		}
	}
	first := Refusal{Verdict: verdict, Known: j.Known, Op: j.Op, Request: j.Request, Free: j.Free()}
	if len(j.Relaxed) > 0 {
		first.Relaxed = j.Relaxed[0].String()
	}
	r.Refusals = append(r.Refusals, first)
}

// Add adds n to the number with this name, which comes last if it is new.
func Add(list *[]Count, name string, n int) {
	for i := range *list {
		if (*list)[i].Name == name {
			(*list)[i].Count += n
			return
		}
	}
	*list = append(*list, Count{name, n})
}

// Made returns the trace itself: the one that was run, or for a sequence that was read, the trace made again from its seed. It
// fails if this program's generators make another trace.
func (s *Sequence) Made() (*trace.Trace, error) {
	if s.made != nil {
		return s.made, nil
	}
	w, err := gen.Find(s.Workload)
	if err != nil {
		return nil, fmt.Errorf("sequence %d: %w", s.Index, err)
	}
	t := gen.Generate(w, s.Seed, s.params)
	t.Name = s.Trace
	if t.ID() != s.Hash {
		return nil, fmt.Errorf("sequence %d: %s is another trace now (%s, was %s): the generators have changed; use the program that made it",
			s.Index, s.Trace, t.ID(), s.Hash)
	}
	return t, nil
}

// Forget lets go of the trace: Made makes it again if it is asked for. A trace with a finding is kept.
func (s *Sequence) Forget() {
	for i := range s.Runs {
		if len(s.Runs[i].Findings) > 0 {
			return
		}
	}
	s.made = nil
}
