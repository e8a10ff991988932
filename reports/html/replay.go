package html

import (
	"fmt"
	"html/template"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/chart"
)

// Replay is the input of WriteReplay.
type Replay struct {
	Case
	Version string // of the program
	// Commands reproduce the answers, one an allocator.
	Commands []string
}

type replayView struct {
	head
	Map      mapView
	At       string
	AtText   string
	Capacity string
	Falls    []figure
	Curve    *figure
	Answers  []answerView
	Text     textView
	Version  string
}

// figure is a diagram with its words.
type figure struct {
	Title, Says string
	SVG         template.HTML
	// Name is that of its file.
	Name string
}

type answerView struct {
	Allocator, Text, Command string
	Findings                 []findingView
}

type findingView struct{ Signature, Text, Replay, Shrink string }

// WriteReplay writes the page of a trace on some allocators.
func WriteReplay(w io.Writer, in *Replay) error {
	v := &replayView{Map: newMap("map-0", &in.Case), Text: newText(in.Trace), Version: in.Version,
		At: thousands(float64(in.At)), Capacity: reports.Size(in.Capacity)}
	if in.At < len(in.Trace.Ops) {
		v.AtText = upper(in.Trace.Ops[in.At].String())
	}
	v.Title = filepath.Base(in.Trace.Name)
	v.Verdict, v.Tone = replayVerdict(in.Answers)
	first := in.Answers[0]
	v.Facts = []fact{{"trace", v.Title}, {"operations", thousands(float64(first.Operations))}, {"device", reports.Size(in.Capacity)},
		{"peak of live bytes", reports.Size(first.PeakLive)}}
	if source, ok := in.Trace.Get("source"); ok {
		v.Facts = append(v.Facts, fact{"source", source})
	}
	for _, key := range []string{"about", "note"} {
		if s, ok := in.Trace.Get(key); ok {
			v.Lead = append(v.Lead, upper(s)+".")
		}
	}
	v.Falls = falls(&in.Case)
	v.Curve = curve("How much of the free memory each size cannot get", &in.Case)
	for i, a := range in.Answers {
		view := answerView{Allocator: a.Allocator}
		if i < len(in.Commands) {
			view.Command = in.Commands[i]
		}
		var text strings.Builder
		if err := a.WriteText(&text, false); err != nil {
			return err
		}
		view.Text = text.String()
		for k := range a.Findings {
			view.Findings = append(view.Findings, newFinding(&a.Findings[k]))
		}
		v.Answers = append(v.Answers, view)
	}
	return execute(w, "replay", v)
}

func newFinding(f *reports.Finding) findingView {
	return findingView{Signature: f.Signature, Text: f.String(), Replay: f.Replay, Shrink: f.Shrink}
}

// replayVerdict says in a sentence what became of a trace.
func replayVerdict(answers []*reports.ReplayReport) (words, tone string) {
	var broken, refused, serve []string
	var first *reports.Refusal
	for _, a := range answers {
		switch {
		case len(a.Findings) > 0:
			broken = append(broken, a.Allocator)
		case len(a.Refusals) > 0:
			refused = append(refused, a.Allocator)
			if first == nil {
				first = &a.Refusals[0]
			}
		case a.End.OOMs > 0:
			refused = append(refused, a.Allocator)
		default:
			serve = append(serve, a.Allocator)
		}
	}
	var parts []string
	if len(broken) > 0 {
		tone = "bad"
		parts = append(parts, "a property does not hold on "+list(broken))
	}
	if first != nil {
		if tone == "" {
			tone = "warn"
		}
		parts = append(parts, fmt.Sprintf("%s asked with %s free, and refused by %s: %s", reports.Size(first.Request),
			reports.Size(first.Capacity-min(first.Capacity, first.Live)), list(refused), reports.VerdictMeaning[first.Verdict]))
	} else if len(refused) > 0 {
		tone = "warn"
		parts = append(parts, "requests are refused by "+list(refused))
	}
	if len(serve) > 0 {
		if tone == "" {
			tone = "good"
		}
		verb := " serves"
		if len(serve) > 1 {
			verb = " serve"
		}
		parts = append(parts, list(serve)+verb+" every request")
	}
	return upper(strings.Join(parts, "; ") + "."), tone
}

// list joins names with commas and an and.
func list(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// falls show, for each allocator, what the device's capacity goes to at the operation of interest.
func falls(c *Case) []figure {
	if c.Group == nil {
		return nil
	}
	var out []figure
	for i, r := range c.Group.Recordings {
		at := c.At - c.Group.From + 1
		if at < 0 || at >= len(r.Samples) {
			continue
		}
		m := r.Samples[at]
		f := chart.Fall{Title: "what the capacity goes to: " + r.Allocator, Format: size, To: float64(c.Capacity)}
		for _, p := range []struct {
			name  string
			value uint64
		}{{"live, as requested", m.Live}, {"rounding", m.Rounding}, {"pinned", m.Pinned}, {"idle cache", m.Idle}, {"held by others", m.Others}, {"free at the device", m.Free}} {
			if p.name == "held by others" && p.value == 0 {
				continue
			}
			f.Parts = append(f.Parts, chart.Part{Name: p.name, Value: float64(p.value), Total: len(f.Parts) == 0})
		}
		f.Parts = append(f.Parts, chart.Part{Name: "capacity", Value: float64(c.Capacity), Total: true})
		out = append(out, figure{Title: r.Allocator, SVG: svg(f.SVG()), Name: fmt.Sprintf("waterfall-%d", i)})
	}
	return out
}

// curve draws refusal curves, nil if there are none.
func curve(title string, c *Case) *figure {
	l := chart.Lines{
		Title: title, X: chart.Axis{Label: "size of a request", Log: true, Format: curveSize},
		Y: chart.Axis{Label: "refused", From: 0, To: 1, Format: percent},
	}
	for i, points := range c.Curves {
		if len(points) == 0 || i >= len(c.Answers) {
			continue
		}
		s := chart.Series{Name: c.Answers[i].Allocator, Colour: i}
		for _, p := range points {
			if p.Refused == nil {
				continue // the allocator does not tell how much is free
			}
			if p.Served == 0 && *p.Refused == 0 {
				continue // nothing is free, of which a share could be refused
			}
			s.Points = append(s.Points, chart.Point{X: float64(p.Bytes), Y: *p.Refused})
			if !slices.Contains(l.X.Ticks, float64(p.Bytes)) {
				l.X.Ticks = append(l.X.Ticks, float64(p.Bytes))
			}
		}
		if len(s.Points) > 0 {
			l.Series = append(l.Series, s)
		}
	}
	if len(l.Series) == 0 {
		return nil
	}
	slices.Sort(l.X.Ticks)
	l.X.From, l.X.To = l.X.Ticks[0], l.X.Ticks[len(l.X.Ticks)-1]
	return &figure{Title: title, SVG: svg(l.SVG()), Name: "refusal-curve",
		Says: "Requests of one size in a row, until one is refused: 0 % means that all free memory can be had in this size, 100 % that none of it can."}
}

func curveSize(v float64) string {
	if v == 1<<20+1 {
		return "1 MiB+1"
	}
	return size(v)
}

func percent(v float64) string { return fmt.Sprintf("%.0f %%", 100*max(v, 0)) }
