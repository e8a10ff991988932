package html

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// Run is the input of WriteRun: a results folder, and what was replayed to be looked at.
type Run struct {
	*reports.Folder
	// Findings has an entry for each of Folder.Run.Findings that is shown, in their order.
	Findings []FindingCase
	// Medians has, by workload, the trace with the median kappa, at the peak of its live bytes.
	Medians map[string]*Case
	// Examples are the traces of Folder.Run.Examples, each once.
	Examples []*Case
	// Notes say what could not be shown.
	Notes []string
}

// FindingCase is a finding to look at.
type FindingCase struct {
	// Shrunk is the smallest trace that shows it, nil if it was not shrunk; Note says how small, or why not.
	Shrunk *trace.Trace
	Note   string
	Case   *Case
}

type runView struct {
	head
	Run       *reports.Run
	Findings  []findingSection
	More      int // findings that are not shown one by one
	Summary   [][]string
	Measures  []says
	Workloads []workloadView
	Others    []string
	Verdicts  table
	Relaxed   table
	Levels    table
	Examples  []exampleView
	Maps      []mapView
	Notes     []string
}

type says struct{ Name, Says string }

type findingSection struct {
	findingView
	Count  string
	Note   string
	Shrunk *textView
	Map    mapView
}

type workloadView struct {
	Name, Says string
	N          string
	Figures    []figure
	Note       string
	Map        mapView
	MapTitle   string
}

type exampleView struct {
	What, Replay string
	Map          string // id of the map that shows it
	Op           int
}

// table is a header and rows; the first cell of a row is its name, the last a sentence if Says.
type table struct {
	Head []string
	Rows [][]string
	Says bool
}

// WriteRun writes the page of a run.
func WriteRun(w io.Writer, in *Run) error {
	r := in.Run
	v := &runView{Run: r, Notes: in.Notes}
	v.Title = fmt.Sprintf("shatter run, seed %d", r.Seed)
	v.Verdict, v.Tone = runVerdict(r)
	v.Lead = runLead(r)
	v.Facts = runFacts(r)
	maps := 0
	id := func() string { maps++; return fmt.Sprintf("map-%d", maps) }
	for i, f := range in.Findings {
		s := findingSection{findingView: newFinding(&r.Findings[i]), Count: thousands(float64(r.Findings[i].Count)), Note: f.Note}
		if f.Shrunk != nil {
			t := newText(f.Shrunk)
			s.Shrunk = &t
		}
		if f.Case != nil {
			s.Map = newMap(id(), f.Case)
		} else {
			s.Map = mapView{Missing: "There is no memory map of it."}
		}
		v.Findings = append(v.Findings, s)
	}
	v.More = len(r.Findings) - len(in.Findings)
	v.Summary = summaryRows(r)
	for _, m := range reports.Measures {
		v.Measures = append(v.Measures, says{strings.ReplaceAll(m.Name, "_", " "), m.Says})
	}
	v.Measures = append(v.Measures, says{"refused", "sequences with a refusal at the trace's own capacity; on other workloads than these, which are made to break things, such rates mean nothing"})
	for i := range r.Workloads {
		k := &r.Workloads[i]
		if k.Kind != gen.Distribution.String() {
			v.Others = append(v.Others, k.Name)
			continue
		}
		view := workloadView{Name: k.Name, N: sequences(k.Sequences), Figures: workloadFigures(in, k)}
		if g, err := gen.Find(k.Name); err == nil {
			view.Says = upper(g.Summary)
		}
		if c := in.Medians[k.Name]; c != nil {
			view.Map = newMap(id(), c)
			view.MapTitle = fmt.Sprintf("The trace with the median kappa on %s: %s, on a device of %s", r.Allocators[0], c.Trace.Name, reports.Size(c.Capacity))
		} else {
			view.Map = mapView{Missing: "The trace with the median kappa was not replayed."}
		}
		v.Workloads = append(v.Workloads, view)
	}
	v.Verdicts, v.Relaxed, v.Levels = verdictTable(r), relaxedTable(r), levelTable(r)
	shown := map[string]string{}
	for _, c := range in.Examples {
		m := newMap(id(), c)
		shown[caseKey(c.Trace.Name, c.Capacity)] = m.ID
		v.Maps = append(v.Maps, m)
	}
	for _, e := range r.Examples {
		what := e.Verdict
		if e.Known != "" {
			what += " (known issue " + e.Known + ")"
		}
		if e.Relaxed != "" {
			what += ", without the rule " + e.Relaxed + " it would be served"
		}
		what = fmt.Sprintf("%s: operation %s asked %s with %s not live, on %s", what, thousands(float64(e.Op)), reports.Size(e.Request), reports.Size(e.Free), e.Allocator)
		v.Examples = append(v.Examples, exampleView{What: upper(what), Replay: e.Replay, Map: shown[caseKey(e.Trace, e.Capacity)], Op: e.Op})
	}
	return execute(w, "run", v)
}

func sequences(n int) string {
	if n == 1 {
		return "1 sequence"
	}
	return thousands(float64(n)) + " sequences"
}

func caseKey(name string, capacity uint64) string { return fmt.Sprintf("%s at %d", name, capacity) }

// runVerdict is the outcome in a sentence.
func runVerdict(r *reports.Run) (words, tone string) {
	on := fmt.Sprintf("%s operations in %s on %s", thousands(float64(r.Operations)), sequences(r.Sequences), list(r.Allocators))
	switch n := len(r.Findings); {
	case n == 1:
		words, tone = "One finding: "+r.Findings[0].Property+" does not hold, in "+on+".", "bad"
	case n > 1:
		words, tone = fmt.Sprintf("%d findings, the first: %s does not hold, in %s.", n, r.Findings[0].Property, on), "bad"
	default:
		words, tone = fmt.Sprintf("No findings: all %d properties held in %s.", len(r.Properties), on), "good"
	}
	if r.Interrupted {
		words += " The run was interrupted: the figures are those of the sequences that were finished."
		if tone == "good" {
			tone = "warn"
		}
	}
	return words, tone
}

// runLead says how memory fragments, a sentence a workload, and what known issues were met.
func runLead(r *reports.Run) []string {
	var out []string
	for i := range r.Workloads {
		w := &r.Workloads[i]
		var words []string
		for k := range w.Targets {
			t := &w.Targets[k]
			kappa, lost := t.Measure(reports.Kappa), t.Measure(reports.Lost)
			if kappa == nil || lost == nil || kappa.Median.Value == nil || lost.Median.Value == nil {
				continue
			}
			words = append(words, fmt.Sprintf("%s needs %s more than what is live (%.1f %% of it)", t.Allocator,
				reports.Size(uint64(*lost.Median.Value)), 100*(*kappa.Median.Value-1)))
		}
		if len(words) > 0 {
			out = append(out, fmt.Sprintf("On %s, in the median, %s.", w.Name, strings.Join(words, ", ")))
		}
	}
	for _, k := range r.Known {
		out = append(out, fmt.Sprintf("Known issue %s, %s times in %s runs: %s.", k.ID, thousands(float64(k.Count)), thousands(float64(k.Sequences)), k.Summary))
	}
	return out
}

func runFacts(r *reports.Run) []fact {
	facts := []fact{{"seed", fmt.Sprint(r.Seed)}, {"generators", fmt.Sprintf("version %d", r.Generators)}, {"device", r.Device}}
	if r.Params != "" {
		facts = append(facts, fact{"parameters", r.Params})
	}
	if r.Shard != "" {
		facts = append(facts, fact{"shard", r.Shard})
	}
	if len(r.ReplayFlags) > 0 {
		facts = append(facts, fact{"flags", strings.Join(r.ReplayFlags, " ")})
	}
	if r.VerifiedBytes > 0 {
		facts = append(facts, fact{"bytes compared", reports.Size(r.VerifiedBytes)})
	}
	if r.Faults > 0 {
		facts = append(facts, fact{"device calls failed as planned", thousands(float64(r.Faults))})
	}
	return append(facts, fact{"shatter", r.Shatter})
}

// summaryRows are the medians and their intervals, a row a workload and allocator.
func summaryRows(r *reports.Run) [][]string {
	var rows [][]string
	for i := range r.Workloads {
		w := &r.Workloads[i]
		name := w.Name
		for k := range w.Targets {
			t := &w.Targets[k]
			kappa := t.Measure(reports.Kappa)
			if kappa == nil {
				continue
			}
			row := []string{name, t.Allocator, thousands(float64(kappa.N)), reports.Interval(kappa.Median, "1"), reports.Bound(kappa.P95, "1")}
			for _, m := range []struct {
				measure int
				unit    string
			}{{reports.Lost, "bytes"}, {reports.PinnedAtPeak, "bytes"}, {reports.IdleCacheAtPeak, "share"}} {
				cell := "-"
				if s := t.Measure(m.measure); s != nil {
					cell = reports.Interval(s.Median, m.unit)
				}
				row = append(row, cell)
			}
			rows = append(rows, append(row, fmt.Sprintf("%s of %s", thousands(float64(t.Refused.Successes)), thousands(float64(t.Refused.N)))))
			name = ""
		}
	}
	return rows
}

func verdictTable(r *reports.Run) table {
	t := table{Head: []string{"verdict"}, Says: true}
	for _, f := range r.Refusals {
		t.Head = append(t.Head, f.Allocator)
	}
	t.Head = append(t.Head, "what it means")
	if len(r.Refusals) == 0 {
		return t
	}
	total := []string{"all"}
	for _, f := range r.Refusals {
		total = append(total, thousands(float64(f.OOMs)))
	}
	for _, verdict := range r.Refusals[0].Verdicts {
		row, sum := []string{verdict.Name}, 0
		for _, f := range r.Refusals {
			n, _ := counted(f.Verdicts, verdict.Name)
			row = append(row, share(n, f.OOMs))
			sum += n
		}
		if sum > 0 {
			t.Rows = append(t.Rows, append(row, reports.VerdictMeaning[verdict.Name]))
		}
	}
	if len(t.Rows) > 0 {
		t.Rows = append(t.Rows, append(total, ""))
	}
	return t
}

func share(n, of int) string {
	if of == 0 || n == 0 {
		return thousands(float64(n))
	}
	return fmt.Sprintf("%s (%.0f %%)", thousands(float64(n)), 100*float64(n)/float64(of))
}

// relaxedTable has the sets of rules whose relaxation would have served, most frequent first.
func relaxedTable(r *reports.Run) table {
	t := table{Head: []string{"rules"}}
	counts := map[string][]int{}
	var order []string
	for i, f := range r.Refusals {
		t.Head = append(t.Head, f.Allocator)
		for _, c := range f.Relaxations {
			if counts[c.Name] == nil {
				counts[c.Name] = make([]int, len(r.Refusals))
				order = append(order, c.Name)
			}
			counts[c.Name][i] = c.Count
		}
	}
	for _, name := range order {
		row := []string{name}
		for _, n := range counts[name] {
			row = append(row, thousands(float64(n)))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

// levelTable has a dash where an allocator does not show enough to count at a level.
func levelTable(r *reports.Run) table {
	t := table{Head: []string{"free memory, counted as"}}
	for _, f := range r.Refusals {
		t.Head = append(t.Head, f.Allocator)
	}
	for _, level := range executor.Levels() {
		row, known := []string{level.String()}, false
		for _, f := range r.Refusals {
			cell := "-"
			if n, ok := counted(f.Levels, level.String()); ok {
				cell, known = thousands(float64(n)), true
			}
			row = append(row, cell)
		}
		if known {
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// counted is the count of a name, and whether it was counted at all.
func counted(list []reports.Count, name string) (int, bool) {
	for _, c := range list {
		if c.Name == name {
			return c.Count, true
		}
	}
	return 0, false
}
