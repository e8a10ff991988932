package html

import (
	"fmt"
	"html/template"
	"math"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/chart"
	"github.com/shatter-gpu/shatter/reports/recording"
)

// Case is a trace on some allocators, to be looked at.
type Case struct {
	Trace    *trace.Trace
	Capacity uint64 // bytes
	// At is the operation shown first, such as the first refusal.
	At int
	// Group has a recording for each of Answers; nil if there is none, and Missing says why.
	Group   *recording.Group
	Missing string
	Answers []*reports.ReplayReport
	// Curves are the refusal curves at At, an entry an allocator; nil where there is none.
	Curves [][]measure.Refusal
}

// mapView is what the template draws.
type mapView struct {
	ID, Trace, Missing, Cut string
	Data                    mapData
	Refused                 bool
	Panels                  []panelView
	Kinds                   []legendEntry
}

type panelView struct {
	Title    string
	Timeline template.HTML
}

// mapData is what the script reads.
type mapData struct {
	Group *recording.Group `json:"group"`
	// Refusals has, for each allocator, what is said of each refused operation.
	Refusals []map[int][]string `json:"refusals"`
	Start    int                `json:"start"`
}

func newMap(id string, c *Case) mapView {
	v := mapView{ID: id, Missing: c.Missing, Kinds: legend}
	if c.Trace != nil {
		v.Trace = c.Trace.Name
	}
	if c.Group == nil {
		if v.Missing == "" {
			v.Missing = "There is no memory map of it."
		}
		return v
	}
	v.Data = mapData{Group: c.Group, Start: c.At}
	v.Cut = upper(c.Group.Cut)
	top := timelineTop(c)
	for i, r := range c.Group.Recordings {
		said := map[int][]string{}
		if i < len(c.Answers) {
			for k := range c.Answers[i].Refusals {
				f := &c.Answers[i].Refusals[k]
				if f.Op < c.Group.From || f.Op >= c.Group.From+c.Group.Ops {
					continue
				}
				said[f.Op] = refusalLines(f)
			}
		}
		v.Data.Refusals = append(v.Data.Refusals, said)
		v.Refused = v.Refused || len(said) > 0
		v.Panels = append(v.Panels, panelView{Title: r.Allocator, Timeline: svg(timeline(c.Group, r, said, top))})
	}
	return v
}

// refusalLines says what a refusal was.
func refusalLines(f *reports.Refusal) []string {
	verdict := f.Verdict + ": " + reports.VerdictMeaning[f.Verdict]
	if f.Known != "" {
		verdict += " (known issue " + f.Known + ")"
	}
	lines := []string{verdict}
	if len(f.Relaxations) > 0 {
		lines = append(lines, "served without one of these rules: "+strings.Join(f.Relaxations, ", "))
	}
	if f.Pinned > 0 {
		lines = append(lines, fmt.Sprintf("%d live blocks pin %s; the largest free block has %s", f.PinnedBy, reports.Size(f.Pinned), reports.Size(f.LargestFree)))
	}
	return lines
}

func upper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// places is how many states of a run a timeline shows at most.
const places = 360

// timelineTop is the scale of all timelines of a case: the capacity, or if less than a fifth of it is ever used, the most that is.
func timelineTop(c *Case) float64 {
	var most uint64
	for _, r := range c.Group.Recordings {
		for _, s := range r.Samples {
			most = max(most, s.Live+s.Rounding+s.Pinned+s.Idle+s.Others)
		}
	}
	if most > 0 && most < c.Capacity/5 {
		return float64(most) * 1.1
	}
	return float64(c.Capacity)
}

// timeline draws where the bytes are over the window. Of a long run it shows, for each of the places, the state with the most
// pinned bytes: what is there only for some operations is not lost between two places.
func timeline(g *recording.Group, r *recording.Recording, refusals map[int][]string, top float64) string {
	layers := []chart.Layer{{Name: "live", Class: "live"}, {Name: "rounding", Class: "rounding"}, {Name: "pinned", Class: "pinned"},
		{Name: "idle cache", Class: "idle"}, {Name: "held by others", Class: "others"}}
	s := chart.Stack{
		Title: "where the bytes are over the run: " + r.Allocator,
		X:     chart.Axis{Label: "operation", From: float64(g.From - 1), To: float64(g.From + g.Ops - 1), Format: thousands, Whole: true},
		Y:     chart.Axis{From: 0, To: top, Binary: true, Format: size}, Legend: true,
	}
	n := len(r.Samples)
	for k := range min(n, places) {
		from, to := k*n/min(n, places), (k+1)*n/min(n, places)
		most := from
		for i := from; i < to; i++ {
			if r.Samples[i].Pinned > r.Samples[most].Pinned {
				most = i
			}
		}
		m := &r.Samples[most]
		s.At = append(s.At, float64(g.From+from-1))
		for i, v := range []uint64{m.Live, m.Rounding, m.Pinned, m.Idle, m.Others} {
			layers[i].Values = append(layers[i].Values, float64(v))
		}
	}
	for _, l := range layers {
		for _, v := range l.Values {
			if v > 0 {
				s.Layers = append(s.Layers, l)
				break
			}
		}
	}
	for op := g.From; op < g.From+g.Ops; op++ {
		if refusals[op] != nil {
			s.Marks = append(s.Marks, float64(op))
		}
	}
	return s.SVG()
}

// size writes bytes as the page's script does: whole units as they are, others with two decimals.
func size(v float64) string {
	for _, u := range []struct {
		name string
		unit float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v < u.unit {
			continue
		}
		if n := v / u.unit; n == math.Trunc(n) {
			return fmt.Sprintf("%.0f %s", n, u.name)
		}
		return fmt.Sprintf("%.2f %s", v/u.unit, u.name)
	}
	return fmt.Sprintf("%.0f B", max(v, 0))
}

func thousands(v float64) string {
	s := strconv.FormatFloat(v, 'f', -1, 64)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// textView is a trace to read.
type textView struct{ Name, Count, Text, Cut string }

// textLimit is how many bytes of a trace a page shows.
const textLimit = 64 << 10

func newText(t *trace.Trace) textView {
	v := textView{Name: t.Name, Count: thousands(float64(len(t.Ops))), Text: string(t.Format())}
	if len(v.Text) > textLimit {
		cut := strings.LastIndexByte(v.Text[:textLimit], '\n') + 1
		v.Cut = fmt.Sprintf("The first %s of %s are shown.", reports.Size(uint64(cut)), reports.Size(uint64(len(v.Text))))
		v.Text = v.Text[:cut]
	}
	return v
}
