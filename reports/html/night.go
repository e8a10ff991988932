package html

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// Night is the input of WriteNight: what a night came to, and the traces of its findings to be looked at.
type Night struct {
	*nightly.Night
	// Traces has an entry for each finding, nil where none was kept; Cases their memory maps, where they were recorded.
	Traces []*trace.Trace
	Cases  []*Case
}

type nightView struct {
	head
	Night      *nightly.Night
	Findings   []nightFinding
	References []nightReference
	Lost       [][2]string
	Did        []string
}

type nightFinding struct {
	findingView
	Red       bool
	Why, Note string
	Source    string
	Trace     *textView
	Map       mapView
}

type nightReference struct {
	Name        string
	Differences table
	More        int
}

// nightDifferences is how many differences from a reference a page shows.
const nightDifferences = 50

// WriteNight writes the page of a night.
func WriteNight(w io.Writer, in *Night) error {
	n := in.Night
	v := &nightView{Night: n, Did: reports.NightDid(n)}
	v.Title = fmt.Sprintf("shatter nightly, seed %d", n.Seed)
	v.Verdict = upper(reports.NightVerdict(n))
	switch {
	case n.Failed() || len(n.Faults) > 0:
		v.Tone = "bad"
	case n.Interrupted || len(n.Findings) > 0 || len(n.Lost) > 0:
		v.Tone = "warn"
	default:
		v.Tone = "good"
	}
	v.Facts = []fact{{"seed", fmt.Sprintf("%d, from %s", n.Seed, n.SeedFrom)}, {"device", n.Device}, {"allocators", list(n.Allocators)}, {"shatter", n.Shatter}}
	for i := range n.Findings {
		f := &n.Findings[i]
		s := nightFinding{
			findingView: findingView{Signature: f.Signature, Text: f.String(), Replay: f.Replay, Shrink: f.ShrinkLine},
			Red:         f.Status == nightly.Red, Why: upper(f.Why), Note: upper(reports.NightShrunk(f)), Source: fmt.Sprintf("%s, %s", f.Source, f.First),
			Map: mapView{Missing: "There is no memory map of it."},
		}
		if i < len(in.Traces) && in.Traces[i] != nil {
			t := newText(in.Traces[i])
			s.Trace = &t
		}
		if i < len(in.Cases) && in.Cases[i] != nil {
			s.Map = newMap(fmt.Sprintf("map-%d", i+1), in.Cases[i])
		}
		v.Findings = append(v.Findings, s)
	}
	for i := range n.Panel.References {
		r := &n.Panel.References[i]
		if len(r.Differences) == 0 {
			continue
		}
		t := table{Head: []string{"trace and settings", "allocator", "first difference: before, and now"}}
		for k := range r.Differences[:min(len(r.Differences), nightDifferences)] {
			d := &r.Differences[k]
			what := strings.Join(d.Changes(), ", ")
			if d.Op >= 0 {
				what = fmt.Sprintf("operation %d (%s): %s", d.Op, d.Operation, what)
			}
			t.Rows = append(t.Rows, []string{d.Log, d.Allocator, what})
		}
		v.References = append(v.References, nightReference{r.Name, t, len(r.Differences) - len(t.Rows)})
	}
	for i := range n.Lost {
		v.Lost = append(v.Lost, [2]string{upper(n.Lost[i].String()), n.Lost[i].Again})
	}
	return execute(w, "night", v)
}
