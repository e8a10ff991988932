package reports

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
)

// ReplaySchema is the name and version of the document that Replay is.
const ReplaySchema = "shatter.replay/1"

// Replay is the report of a trace on one allocator. Sizes are bytes.
type ReplayReport struct {
	Schema     string `json:"schema"`
	Trace      string `json:"trace"`
	Operations int    `json:"operations"`
	Capacity   uint64 `json:"capacity"`
	PeakLive   uint64 `json:"peak_live"`
	Allocator  string `json:"allocator"`
	// Executed is less than Operations if a finding ended the run.
	Executed int       `json:"executed"`
	Findings []Finding `json:"findings"`
	Known    []Known   `json:"known"`
	Refusals []Refusal `json:"refusals"`
	End      End       `json:"end"`
}

// Refusal is a refused request.
type Refusal struct {
	Op            int      `json:"op"`
	Operation     string   `json:"operation"`
	Line          int      `json:"line,omitempty"` // of the trace
	Verdict       string   `json:"verdict"`
	Reason        string   `json:"reason,omitempty"`
	Known         string   `json:"known,omitempty"`
	Request       uint64   `json:"request"`
	Rounded       uint64   `json:"rounded"`
	Capacity      uint64   `json:"capacity"` // min(limit, reserved + device free)
	Live          uint64   `json:"live"`     // block sizes of live blocks
	LiveRequested uint64   `json:"live_requested"`
	Pending       uint64   `json:"pending"`
	Reserved      uint64   `json:"reserved"`
	DeviceFree    uint64   `json:"device_free"`
	LargestFree   uint64   `json:"largest_free"`
	Pinned        uint64   `json:"pinned"`
	PinnedBy      int      `json:"pinned_by"`
	Relaxations   []string `json:"relaxations,omitempty"`
	Message       string   `json:"message,omitempty"`
	// Witness and Curve are there for the first refusal, where they exist.
	Witness any               `json:"witness,omitempty"`
	Curve   []measure.Refusal `json:"refusal_curve,omitempty"`

	// WitnessText says the witness in words.
	WitnessText []string `json:"-"`
}

// End is the state at the end of the trace.
type End struct {
	Allocated    uint64 `json:"allocated"`
	Active       uint64 `json:"active"`
	Reserved     uint64 `json:"reserved"`
	Requested    uint64 `json:"requested"`
	DeviceFree   uint64 `json:"device_free"`
	Segments     int    `json:"segments"`
	OOMs         int    `json:"ooms"`
	Retries      uint64 `json:"alloc_retries"`
	DeviceCalls  uint64 `json:"device_calls"`
	PeakReserved uint64 `json:"peak_reserved"`
	// Uncounted: the allocator keeps no statistics, so all but device_free, segments, ooms and device_calls is unknown, and 0.
	Uncounted bool `json:"uncounted,omitempty"`
}

// NewRefusal makes the report of a judged refusal.
func NewRefusal(p *executor.Program, j *executor.Judgement) Refusal {
	r := Refusal{
		Op: j.Op, Operation: p.Trace.Ops[j.Op].String(), Line: p.Trace.Line(j.Op), Verdict: j.Verdict.String(), Reason: j.Reason,
		Known: j.Known, Request: j.Request, Rounded: j.Rounded, Capacity: j.Capacity, Live: j.Live,
		LiveRequested: j.LiveRequested, Pending: j.Active - j.Live, Reserved: j.Reserved, DeviceFree: j.DeviceFree,
		LargestFree: j.LargestFree, Pinned: j.Pinned, PinnedBy: j.PinnedBy,
	}
	for _, set := range j.Relaxed {
		r.Relaxations = append(r.Relaxations, set.String())
	}
	return r
}

// NewEnd takes the state at the end from a result.
func NewEnd(r *executor.Result) End {
	s := &r.Stats
	return End{
		Allocated: s.AllocatedBytes.All.Current, Active: s.ActiveBytes.All.Current, Reserved: s.ReservedBytes.All.Current,
		Requested: s.RequestedBytes.All.Current, DeviceFree: r.DeviceFree, Segments: r.Segments, OOMs: len(r.OOMs),
		Retries: s.NumAllocRetries, DeviceCalls: r.MemoryCalls(), PeakReserved: r.PeakReserved,
		Uncounted: !r.HasStats,
	}
}

// counted writes the end of an allocator that keeps statistics.
func (p *printer) counted(e *End) {
	p.line("  end: active %s, reserved %s in %s segments, device free %s",
		exact(e.Active), exact(e.Reserved), thousands(e.Segments), Size(e.DeviceFree))
	p.line("       %s refusals, %s retries, %s device calls, peak reserved %s",
		thousands(e.OOMs), thousands(int(e.Retries)), thousands(int(e.DeviceCalls)), Size(e.PeakReserved))
}

// shown is how many refusals are described one by one.
const shown = 3

// WriteText writes the report for people. first says whether the trace's own line comes before it.
func (r *ReplayReport) WriteText(w io.Writer, first bool) error {
	p := &printer{w: w}
	if first {
		p.line("%s: %s operations on a device of %s, peak live %s",
			filepath.Base(r.Trace), thousands(r.Operations), Size(r.Capacity), Size(r.PeakLive))
	}
	p.line("%s", r.Allocator)
	for i := range r.Refusals {
		if i == shown {
			p.line("  and %s more refusals: %s", thousands(len(r.Refusals)-shown), r.byVerdict())
			break
		}
		p.refusal(&r.Refusals[i])
	}
	switch {
	case len(r.Refusals) > 0:
	case r.End.OOMs > 0:
		p.line("  %s refusals", thousands(r.End.OOMs))
	default:
		p.line("  every request is served")
	}
	e := &r.End
	if e.Uncounted {
		p.line("  end: active and reserved unknown, %s segments, device free %s", thousands(e.Segments), Size(e.DeviceFree))
		p.line("       %s refusals, %s device calls", thousands(e.OOMs), thousands(int(e.DeviceCalls)))
	} else {
		p.counted(e)
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		p.line("  FINDING %s", f.Signature)
		p.line("    %s", f.String())
		p.line("    %s", f.Replay)
		if f.Shrink != "" {
			p.line("    %s", f.Shrink)
		}
	}
	for _, k := range r.Known {
		p.line("  known issue %s: %d times (%s)", k.ID, k.Count, k.Summary)
	}
	return p.err
}

func (p *printer) refusal(f *Refusal) {
	p.line("  operation %d refused: %s asked with %s free of %s (%s of it at the device)",
		f.Op, Size(f.Request), Size(f.Capacity-min(f.Capacity, f.Live)), Size(f.Capacity), Size(f.DeviceFree))
	verdict := f.Verdict
	if f.Known != "" {
		verdict += ", known issue " + f.Known
	}
	p.line("    verdict: %s: %s", verdict, VerdictMeaning[f.Verdict])
	if f.Reason != "" {
		p.line("    because: %s", f.Reason)
	}
	if len(f.Relaxations) > 0 {
		p.line("    would be served without one of these rules: %s", strings.Join(f.Relaxations, ", "))
	}
	if f.Pending > 0 {
		p.line("    %s freed by the program still wait for other streams", Size(f.Pending))
	}
	if f.Pinned > 0 {
		p.line("    %d live blocks pin %s; the largest free block has %s", f.PinnedBy, Size(f.Pinned), Size(f.LargestFree))
	}
	for _, l := range f.WitnessText {
		p.line("    %s", l)
	}
	if len(f.Curve) > 0 {
		var words []string
		for _, c := range f.Curve {
			words = append(words, fmt.Sprintf("%s x %s", thousands(c.Served), curveSize(c.Bytes)))
		}
		p.line("    still served in a row: %s", strings.Join(words, ", "))
	}
}

func curveSize(n uint64) string {
	if n == 1<<20+1 {
		return "1 MiB+1"
	}
	return Size(n)
}

func (r *ReplayReport) byVerdict() string {
	var counts []Count
	for i := range r.Refusals[shown:] {
		results.Add(&counts, r.Refusals[shown+i].Verdict, 1)
	}
	slices.SortStableFunc(counts, func(a, b Count) int { return b.Count - a.Count })
	var words []string
	for _, c := range counts {
		words = append(words, fmt.Sprintf("%s %s", c.Name, thousands(c.Count)))
	}
	return strings.Join(words, ", ")
}

// exact writes bytes with all their digits, and for people.
func exact(n uint64) string {
	return fmt.Sprintf("%s B (%s)", thousands(int(n)), Size(n))
}
