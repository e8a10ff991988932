package reports

import (
	"github.com/shatter-gpu/shatter/harness/executor"
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
type Count = results.Count

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
