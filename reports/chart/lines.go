package chart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Point is a place in a diagram.
type Point struct{ X, Y float64 }

// Series is a named curve. Colour counts from 0.
type Series struct {
	Name   string
	Colour int
	Points []Point
}

// Colours is how many colours there are; a diagram with more series uses them again, with another dash.
const Colours = 6

// Lines is a diagram of curves over one axis.
type Lines struct {
	Title string
	X, Y  Axis
	// Steps draws steps, up or down at each point; else straight lines with a mark at each point.
	Steps bool
	// Falls says that steps begin at 1, with all, and lead down; else they begin at 0.
	Falls  bool
	Series []Series
}

// ECDF makes the curve of a sample: the share of the values at or below x. It is drawn over the whole axis.
func ECDF(values []float64) []Point {
	sorted := slices.Clone(values)
	slices.SortFunc(sorted, cmp.Compare[float64])
	out := []Point{}
	for i, v := range sorted {
		if i+1 < len(sorted) && sorted[i+1] == v {
			continue
		}
		out = append(out, Point{v, float64(i+1) / float64(len(sorted))})
	}
	return out
}

// SVG draws it.
func (l *Lines) SVG() string {
	c := &canvas{}
	var names, classes []string
	for _, s := range l.Series {
		names, classes = append(names, s.Name), append(classes, class(s.Colour))
	}
	c.text(left-6, 14, "end", "label", l.Y.Label)
	y0 := c.legend(0, "line", names, classes) + 10
	y1 := y0 + 170
	c.height = y1 + bottom
	x0, x1 := l.Y.room(), float64(Width-right)
	c.frame(&l.X, &l.Y, x0, x1, y0, y1)
	for _, s := range l.Series {
		var d strings.Builder
		at := func(p Point) (float64, float64) { return x0 + l.X.place(p.X)*(x1-x0), y1 - l.Y.place(p.Y)*(y1-y0) }
		if l.Steps {
			start := 0.0
			if l.Falls {
				start = 1
			}
			_, y := at(Point{0, start})
			fmt.Fprintf(&d, "M%.1f %.1f", x0, y)
			for _, p := range s.Points {
				x, y := at(p)
				fmt.Fprintf(&d, "H%.1fV%.1f", x, y)
			}
			fmt.Fprintf(&d, "H%.1f", x1)
		} else {
			for i, p := range s.Points {
				x, y := at(p)
				fmt.Fprintf(&d, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
			}
		}
		c.add(`<path class="line %s" d="%s"><title>%s</title></path>`, class(s.Colour), d.String(), escape(s.Name))
		if !l.Steps {
			for _, p := range s.Points {
				x, y := at(p)
				c.add(`<circle class="dot %s" cx="%.1f" cy="%.1f" r="3"><title>%s</title></circle>`, class(s.Colour), x, y,
					escape(fmt.Sprintf("%s: %s, %s", s.Name, l.X.write(p.X), l.Y.write(p.Y))))
			}
		}
	}
	return c.open(l.Title, "") + c.String() + "</svg>"
}

func class(colour int) string {
	name := fmt.Sprintf("c%d", colour%Colours)
	if colour >= Colours {
		name += " again"
	}
	return name
}
