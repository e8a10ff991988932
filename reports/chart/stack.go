package chart

import (
	"fmt"
	"strings"
)

// Layer is a part of a Stack, its height at each place of Stack.At.
type Layer struct {
	Name, Class string
	Values      []float64
}

// Stack shows layers on one another over an axis, as steps: a value holds until the next place.
type Stack struct {
	Title string
	X, Y  Axis
	At    []float64
	// Layers from the bottom up.
	Layers []Layer
	// Marks are places to see, such as refusals.
	Marks []float64
	// Legend says whether the layers' names stand above.
	Legend bool
}

// SVG draws it. The element carries data-x0, data-x1, data-from and data-to, so that a script can move its path of class cursor.
func (s *Stack) SVG() string {
	c := &canvas{}
	y0 := 10.0
	if s.Legend {
		var names, classes []string
		for i := len(s.Layers) - 1; i >= 0; i-- {
			names, classes = append(names, s.Layers[i].Name), append(classes, "fill "+s.Layers[i].Class)
		}
		y0 += c.legend(0, "box", names, classes)
	}
	y1 := y0 + 110
	c.height = y1 + bottom
	x0, x1 := s.Y.room(), float64(Width-right)
	low := make([]float64, len(s.At))
	for _, l := range s.Layers {
		var up, down strings.Builder
		top := make([]float64, len(s.At))
		for i := range s.At {
			top[i] = low[i] + l.Values[i]
		}
		empty := true
		for i, x := range s.At {
			px := x0 + s.X.place(x)*(x1-x0)
			next := x1
			if i+1 < len(s.At) {
				next = x0 + s.X.place(s.At[i+1])*(x1-x0)
			}
			empty = empty && top[i] == low[i]
			fmt.Fprintf(&up, "%.1f,%.1f %.1f,%.1f ", px, y1-s.Y.place(top[i])*(y1-y0), next, y1-s.Y.place(top[i])*(y1-y0))
		}
		for i := len(s.At) - 1; i >= 0; i-- {
			px := x0 + s.X.place(s.At[i])*(x1-x0)
			next := x1
			if i+1 < len(s.At) {
				next = x0 + s.X.place(s.At[i+1])*(x1-x0)
			}
			fmt.Fprintf(&down, "%.1f,%.1f %.1f,%.1f ", next, y1-s.Y.place(low[i])*(y1-y0), px, y1-s.Y.place(low[i])*(y1-y0))
		}
		if !empty {
			c.add(`<polygon class="fill %s" points="%s%s"><title>%s</title></polygon>`, l.Class, up.String(), strings.TrimSpace(down.String()), escape(l.Name))
		}
		low = top
	}
	c.frame(&s.X, &s.Y, x0, x1, y0, y1)
	for _, m := range s.Marks {
		c.add(`<path class="mark" d="M%.1f %.1fl4 -7h-8z"/>`, x0+s.X.place(m)*(x1-x0), y0)
	}
	c.add(`<path class="cursor" d="M0 %.1fV%.1f" visibility="hidden"/>`, y0-6, y1+4)
	return c.open(s.Title, fmt.Sprintf(` data-x0="%.1f" data-x1="%.1f" data-from="%g" data-to="%g"`, x0, x1, s.X.From, s.X.To)) +
		c.String() + "</svg>"
}
