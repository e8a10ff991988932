package html

import (
	"fmt"
	"math"
	"strings"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/chart"
)

// Diagram is a diagram as a file.
type Diagram struct {
	Name string // without folder, ends in .svg
	SVG  []byte
}

// Diagrams are those of a run as files of their own.
func Diagrams(in *Run) []Diagram {
	var out []Diagram
	for i := range in.Run.Workloads {
		w := &in.Run.Workloads[i]
		if w.Kind != gen.Distribution.String() {
			continue
		}
		for _, f := range workloadFigures(in, w) {
			out = append(out, Diagram{Name: fileName(w.Name) + "-" + f.Name + ".svg", SVG: chart.Standalone(f.Title+" ("+w.Name+")", string(f.SVG))})
		}
	}
	return out
}

// workloadFigures are the diagrams of a workload.
func workloadFigures(in *Run, w *reports.Workload) []figure {
	var out []figure
	for _, m := range []struct {
		measure           int
		title, says, name string
		binary            bool
	}{
		{reports.Kappa, "kappa", "Share of the sequences that pass with so many times their peak of live bytes. Further left is better.", "kappa", false},
		{reports.Lost, "GiB lost", "Share of the sequences that need no more than this beyond their peak of live bytes.", "lost", true},
	} {
		if f := distribution(in, w, m.measure, m.title, m.binary); f != nil {
			f.Says, f.Name = m.says, m.name
			out = append(out, *f)
		}
	}
	out = append(out, parts(in.Run, w)...)
	if c := in.Medians[w.Name]; c != nil {
		if f := curve("Refusal curve of the median trace", c); f != nil {
			f.Says = "At the peak of its live bytes, on its own device: " + lower(f.Says)
			out = append(out, *f)
		}
	}
	return append(out, survivals(w)...)
}

func lower(s string) string { return strings.ToLower(s[:1]) + s[1:] }

// distribution draws the distribution functions of a measure, a curve an allocator.
func distribution(in *Run, w *reports.Workload, measure int, title string, binary bool) *figure {
	l := chart.Lines{
		Title: title + " on " + w.Name, Steps: true,
		X: chart.Axis{Label: title, Binary: binary, From: math.Inf(1), To: math.Inf(-1)}, Y: chart.Axis{Label: "share", To: 1, Format: percent},
	}
	if binary {
		l.X.Format = size
	}
	for i, allocator := range in.Run.Allocators {
		var values []float64
		for _, s := range in.Journal.Sequences {
			if s.Workload != w.Name || i >= len(s.Runs) {
				continue
			}
			if v, ok := reports.Measures[measure].Of(s, &s.Runs[i]); ok {
				values = append(values, v)
				l.X.From, l.X.To = min(l.X.From, v), max(l.X.To, v)
			}
		}
		if len(values) > 0 {
			l.Series = append(l.Series, chart.Series{Name: allocator, Colour: i, Points: chart.ECDF(values)})
		}
	}
	if len(l.Series) == 0 {
		return nil
	}
	room := (l.X.To - l.X.From) / 20
	if room == 0 {
		room = max(math.Abs(l.X.To)/20, 0.01)
	}
	l.X.From, l.X.To = max(l.X.From-room, 0), l.X.To+room
	if measure == reports.Kappa {
		l.X.From = 1
	} else if l.X.From < l.X.To/3 {
		l.X.From = 0
	}
	return &figure{Title: upper(title), SVG: svg(l.SVG())}
}

// parts draws what C_safe is made of, a diagram an allocator, all on one scale.
func parts(r *reports.Run, w *reports.Workload) []figure {
	to := 0.0
	for _, f := range r.Waterfalls {
		if f.Workload == w.Name && f.Waterfall != nil {
			to = max(to, float64(f.Safe), float64(f.PeakLive))
		}
	}
	var out []figure
	for _, f := range r.Waterfalls {
		if f.Workload != w.Name || f.Waterfall == nil { // the file may lack it
			continue
		}
		d := chart.Fall{Title: "What C_safe is made of, " + f.Allocator, Format: size, To: to * 1.02}
		d.Parts = append(d.Parts, chart.Part{Name: "L*, peak of live bytes", Value: float64(f.PeakLive), Total: true})
		for _, s := range f.Steps {
			d.Parts = append(d.Parts, chart.Part{Name: s.Name, Value: float64(s.Bytes)})
		}
		total := chart.Part{Name: "C_safe", Value: float64(f.Safe), Total: true}
		if !f.Exact {
			total.Name = "C_safe, at least"
		}
		d.Parts = append(d.Parts, total)
		out = append(out, figure{
			Title: "What C_safe is made of: " + f.Allocator, SVG: svg(d.SVG()), Name: fmt.Sprintf("waterfall-%s", fileName(f.Allocator)),
			Says: "In the trace with the median kappa; rules are switched off one after the other: streams, pools, purchase size. A part to the left saves memory.",
		})
	}
	return out
}

func fileName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
}

// survivals draw how far sequences come on devices with little to spare. Where no allocator refuses anything there is nothing to see.
func survivals(w *reports.Workload) []figure {
	var out []figure
	if len(w.Targets) == 0 {
		return nil
	}
	for k := range w.Targets[0].Scarce {
		per := float64(w.Targets[0].Scarce[k].PerMille) / 1000
		l := chart.Lines{
			Title: fmt.Sprintf("Operations before the first refusal at %g L* on %s", per, w.Name), Steps: true, Falls: true,
			X: chart.Axis{Label: "operations", Whole: true}, Y: chart.Axis{Label: "share", To: 1, Format: percent},
		}
		l.X.Format = thousands
		ooms := 0
		for i := range w.Targets {
			t := &w.Targets[i]
			if k >= len(t.Scarce) {
				continue
			}
			c := &t.Scarce[k].Curve
			ooms += c.OOMs
			s := chart.Series{Name: fmt.Sprintf("%s: %s of %s refused", t.Allocator, thousands(float64(c.OOMs)), thousands(float64(c.N))), Colour: i}
			for _, p := range c.Points {
				if p.Share != nil {
					s.Points = append(s.Points, chart.Point{X: float64(p.Operations), Y: *p.Share})
					l.X.To = max(l.X.To, float64(p.Operations))
				}
			}
			l.Series = append(l.Series, s)
		}
		if ooms == 0 {
			continue
		}
		l.X.To *= 1.05
		out = append(out, figure{Title: fmt.Sprintf("With %g L* of memory", per), SVG: svg(l.SVG()), Name: fmt.Sprintf("survival-%d", w.Targets[0].Scarce[k].PerMille),
			Says: "Share of the sequences that have had no refusal after so many operations."})
	}
	return out
}
