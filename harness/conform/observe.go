package conform

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// defaultCapacity is the device of a trace whose header names none: 80 GiB.
const defaultCapacity = 80 << 30

// Observation is what a run showed of all that an expectation may claim.
type Observation struct {
	// Allocator is NAME[@CONF].
	Allocator string
	// Ops is how many operations were executed, OOMs which of them were refused.
	Ops  int
	OOMs []int
	// Tables are the figures by part, as in an Expectation; at_first_oom is absent without a refusal.
	Tables map[string]map[string]uint64
	// Coarse is the verdict on the first refusal by bytes alone, no-oom without one. Judgements are a judge's, on every refusal.
	Coarse     string
	Judgements []executor.Judgement
	// Findings are broken properties, if any were asked; Known are those that a known issue explains.
	Findings, Known []executor.Finding
}

// Observe runs a trace to its end on a simulated device of the header's capacity, 80 GiB without one. options may have
// properties and a judge; whatever the verdicts are, the run goes on.
func Observe(p *executor.Program, spec *catalog.Spec, options executor.Options) (*Observation, error) {
	capacity, given, err := p.Trace.Capacity()
	if err != nil {
		return nil, err
	}
	if !given {
		capacity = defaultCapacity
	}
	if options.Device, err = simdev.New(simdev.Options{Capacity: capacity}); err != nil {
		return nil, err
	}
	var run *executor.Run
	driver := map[string]uint64{}
	o := &Observation{Allocator: spec.Name, Coarse: "no-oom", Tables: map[string]map[string]uint64{"driver": driver}}
	var events []byte
	onRow, judge := options.OnRow, options.Judge
	options.OnRow = func(w *executor.Row) {
		if events = w.AppendEvents(events[:0]); string(events) != "-" {
			for _, event := range strings.Split(string(events), ";") {
				kind, _, _ := strings.Cut(event, ":")
				driver[kind]++
			}
		}
		if onRow != nil {
			onRow(w)
		}
	}
	options.Judge = func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
		if o.Tables["at_first_oom"] == nil && s.Stats != nil {
			o.Tables["at_first_oom"] = atOOM(s, oom, run.Allocator())
			o.Coarse = coarseVerdict(o.Tables["at_first_oom"])
		}
		if judge != nil {
			j := judge(s, oom)
			j.Op = s.Op
			o.Judgements = append(o.Judgements, j)
		}
		return executor.Judgement{} // a verdict must not end the run
	}
	if run, err = executor.Start(p, executor.Target{Name: spec.Name, New: spec.New}, options); err != nil {
		return nil, err
	}
	for run.More() {
		if err := run.Step(); err != nil {
			return nil, err
		}
	}
	r, err := run.Finish()
	if err != nil {
		return nil, err
	}
	o.Ops, o.OOMs, o.Findings, o.Known = r.Ops, r.OOMs, r.Findings, r.Known
	o.Tables["final"] = map[string]uint64{
		"allocated": r.Stats.AllocatedBytes.All.Current, "active": r.Stats.ActiveBytes.All.Current,
		"reserved": r.Stats.ReservedBytes.All.Current, "device_free": r.DeviceFree, "alloc_retries": r.Stats.NumAllocRetries,
	}
	o.Tables["peak"] = map[string]uint64{"allocated": r.PeakAllocated, "reserved": r.PeakReserved}
	return o, nil
}

// Compare lists the figures of the expectation that the run did not come to.
func (e *Expectation) Compare(o *Observation) ([]ExpectFailure, error) {
	var failures []ExpectFailure
	fail := func(figure, want, got string) {
		failures = append(failures, ExpectFailure{Allocator: o.Allocator, Figure: figure, Want: want, Got: got})
	}
	check := func(figure, want, got string) {
		if want != got {
			fail(figure, want, got)
		}
	}
	if e.OOMOps != nil {
		check("oom_ops", fmt.Sprint(*e.OOMOps), fmt.Sprint(o.OOMs))
	}
	for _, part := range e.parts() {
		if part.figures == nil {
			continue
		}
		table := o.Tables[part.name]
		if table == nil {
			check(part.name, "an OOM", "none")
			continue
		}
		for _, name := range figures[part.name] {
			want, claimed := part.figures[name]
			if claimed || part.name == "driver" {
				check(part.name+"."+name, fmt.Sprint(want), fmt.Sprint(table[name]))
			}
		}
	}
	for _, name := range sortedKeys(e.Most) {
		part, figure, _ := strings.Cut(name, ".")
		if got := o.Tables[part][figure]; got > e.Most[name] {
			fail(name, fmt.Sprintf("at most %d", e.Most[name]), fmt.Sprint(got))
		}
	}
	return failures, e.compareVerdict(o, fail)
}

func (e *Expectation) compareVerdict(o *Observation, fail func(figure, want, got string)) error {
	verdict, fits := o.Coarse, []string{o.Coarse}
	var first executor.Judgement
	if len(o.Judgements) > 0 {
		first = o.Judgements[0]
		verdict = first.Verdict.String()
		fits = []string{verdict}
		for coarse, verdicts := range verdictsOf {
			if slices.Contains(verdicts, first.Verdict) {
				fits = append(fits, coarse)
			}
		}
	} else if len(o.OOMs) > 0 && (e.Verdict != nil && judgesWord(*e.Verdict) || e.Relaxed != nil || e.Known != nil) {
		return fmt.Errorf("its verdict, relaxed or known needs a judge, and there is none")
	}
	if e.Verdict != nil && !slices.Contains(fits, *e.Verdict) {
		fail("verdict", *e.Verdict, verdict)
	}
	if e.Coarse != nil && *e.Coarse != o.Coarse {
		fail("coarse", *e.Coarse, o.Coarse)
	}
	if e.Relaxed != nil {
		if want, got := fmt.Sprint(*e.Relaxed), fmt.Sprint(relaxedWords(&first)); want != got {
			fail("relaxed", want, got)
		}
	}
	if e.Known != nil && *e.Known != first.Known {
		fail("known", *e.Known, first.Known)
	}
	if e.Breaks != nil && *e.Breaks != o.breaks() {
		fail("breaks", *e.Breaks, o.breaks())
	}
	return nil
}

// breaks is the first broken property.
func (o *Observation) breaks() string {
	for _, list := range [][]executor.Finding{o.Findings, o.Known} {
		if len(list) > 0 {
			return list[0].Property + "/" + list[0].Rule
		}
	}
	return ""
}

func relaxedWords(j *executor.Judgement) []string {
	out := []string{}
	for _, r := range j.Relaxed {
		out = append(out, r.String())
	}
	return out
}

// Record is the expectation that claims what a run under these settings showed: refusals, verdict, bytes held and device calls.
func (o *Observation) Record(conf string, fraction *float64) *Expectation {
	ooms, verdict, coarse := append([]int{}, o.OOMs...), "no-oom", o.Coarse
	e := &Expectation{
		Conf: &conf, Fraction: fraction, OOMOps: &ooms, Final: maps.Clone(o.Tables["final"]),
		Peak: maps.Clone(o.Tables["peak"]), Driver: maps.Clone(o.Tables["driver"]), Verdict: &verdict,
	}
	if len(o.OOMs) > 0 {
		e.Coarse = &coarse
	}
	if b := o.breaks(); b != "" {
		e.Breaks = &b
	}
	if len(o.Judgements) > 0 {
		first := o.Judgements[0]
		verdict = first.Verdict.String()
		if len(first.Relaxed) > 0 {
			words := relaxedWords(&first)
			e.Relaxed = &words
		}
		if first.Known != "" {
			e.Known = &first.Known
		}
	}
	return e
}

func sortedKeys(m map[string]uint64) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// atOOM takes the state after a refused operation. `live` means active bytes here; the cached bytes and the largest free
// block are over all pools and streams.
func atOOM(s *executor.State, oom *allocators.OOMError, a allocators.Allocator) map[string]uint64 {
	active := s.Stats.ActiveBytes.All.Current
	var snap allocators.Snapshot
	var largest uint64
	if list, ok := a.(allocators.Snapshotter); ok {
		list.Snapshot(&snap)
	}
	for i := range snap.Blocks {
		if b := &snap.Blocks[i]; b.State == allocators.Free {
			largest = max(largest, b.Size)
		}
	}
	return map[string]uint64{
		"op": uint64(s.Op), "asked": s.Operation.Bytes, "rounded": oom.Rounded, "live": active,
		"total_free": s.Capacity - active, "requested_free": s.Capacity - s.Stats.RequestedBytes.All.Current,
		"device_free": s.DeviceFree, "cached": s.Stats.ReservedBytes.All.Current - active, "largest_cached": largest,
	}
}

// coarseVerdict is the verdict of the recording: it asks for bytes only.
func coarseVerdict(at map[string]uint64) string {
	switch {
	case at["total_free"] >= at["rounded"]:
		return "false-oom"
	case at["requested_free"] >= at["rounded"]:
		return "rounding-oom"
	default:
		return "genuine-oom"
	}
}
