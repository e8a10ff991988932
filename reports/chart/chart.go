// Package chart draws the diagrams of reports as SVG: steps and curves (Lines), what a sum is made of (Fall), and where the
// bytes of a device are over a run (Stack).
//
// In go figures with their names; out comes one svg element. Colours come from classes, so that a page has them light and dark;
// a Standalone file brings the style along. Text never depends on a font's exact widths: room is left for the widest usual one.
package chart

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Style is the CSS that the classes need.
//
//go:embed chart.css
var Style string

// Width is that of every diagram, in pixels.
const Width = 440

const (
	fontSize  = 12
	charWidth = 7.6 // of the widest usual sans-serif at that size, on average
	left      = 62
	right     = 18
	bottom    = 42
	legendRow = 18
	// legendLetters is how long a name in a legend can be.
	legendLetters = 46
)

// titleRow is the room for the title of a Standalone file.
const titleRow = 26

var size = regexp.MustCompile(`viewBox="0 0 (\d+) (\d+)" width="\d+" height="\d+"`)

// Standalone makes a file of a diagram, with its title over it.
func Standalone(title, svg string) []byte {
	head, rest, _ := strings.Cut(svg, ">")
	m := size.FindStringSubmatch(head)
	height, _ := strconv.Atoi(m[2])
	head = strings.Replace(head, m[0], fmt.Sprintf(`viewBox="0 %d %d %d" width="%d" height="%d"`,
		-titleRow, Width, height+titleRow, Width, height+titleRow), 1)
	c := &canvas{}
	c.add(`<rect class="paper" y="%d" width="100%%" height="100%%"/>`, -titleRow)
	c.text(4, 14-titleRow, "start", "title", Shorten(title, Width/9))
	return []byte(head + ` xmlns="http://www.w3.org/2000/svg">` + "\n<style>\n" + Style + "</style>\n" + c.String() + rest + "\n")
}

// canvas collects elements.
type canvas struct {
	strings.Builder
	height float64
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

func escape(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return b.String()
}

// text writes at a place; anchor is start, middle or end.
func (c *canvas) text(x, y float64, anchor, class, s string) {
	c.add(`<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`, x, y, anchor, class, escape(s))
}

// open starts the element; the title is what a screen reader says.
func (c *canvas) open(title, attributes string) string {
	return fmt.Sprintf(`<svg class="chart" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="%s"%s>`,
		Width, c.height, Width, c.height, escape(title), attributes) + "\n<title>" + escape(title) + "</title>\n"
}

// legend writes names with their colour in rows from y on and returns where the last row ends.
func (c *canvas) legend(y float64, shape string, names, classes []string) float64 {
	x := float64(left)
	for i, full := range names {
		name := Shorten(full, legendLetters)
		width := 24 + charWidth*float64(utf8.RuneCountInString(name)) + 10
		if x+width > Width && x > left {
			x, y = left, y+legendRow
		}
		if shape == "line" {
			c.add(`<path class="line %s" d="M%.1f %.1fh18"/>`, classes[i], x, y+9)
		} else {
			c.add(`<rect class="%s" x="%.1f" y="%.1f" width="12" height="12"/>`, classes[i], x+3, y+3)
		}
		c.text(x+24, y+13, "start", "label", name)
		x += width
	}
	return y + legendRow
}

// Shorten takes out the middle of what is longer than n letters.
func Shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n || n < 5 {
		return s
	}
	head := (n - 1) * 2 / 3
	return string(r[:head]) + "…" + string(r[len(r)-(n-1-head):])
}

// Axis is a scale with its words.
type Axis struct {
	Label string
	// From and To are the range; equal ones are widened.
	From, To float64
	// Format writes a tick; nil writes the number.
	Format func(float64) string
	// Binary makes round ticks in units of 1024, Whole leaves out those between whole numbers.
	Binary, Whole bool
	// Ticks are the ticks instead of round ones; with Log their distance on paper is that of their logarithms.
	Ticks []float64
	Log   bool
}

func (a *Axis) place(v float64) float64 {
	from, to := a.From, a.To
	if a.Log {
		v, from, to = math.Log(max(v, 1)), math.Log(max(from, 1)), math.Log(max(to, 1))
	}
	if to == from {
		return 0.5
	}
	return min(max((v-from)/(to-from), 0), 1)
}

func (a *Axis) write(v float64) string {
	if a.Format != nil {
		return a.Format(v)
	}
	return strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.4f", v), "0"), ".")
}

// ticks are round numbers in the range, at most n+1.
func (a *Axis) ticks(n int) []float64 {
	if a.Ticks != nil {
		return a.Ticks
	}
	unit := 1.0
	if a.Binary {
		for unit*1024 <= a.To-a.From {
			unit *= 1024
		}
	}
	step := nice((a.To-a.From)/unit/float64(n)) * unit
	if a.Whole {
		step = max(step, 1)
	}
	if step <= 0 || math.IsNaN(step) || math.IsInf(step, 0) {
		return []float64{a.From}
	}
	var out []float64
	for v := math.Ceil(a.From/step-1e-9) * step; v <= a.To+step*1e-6 && len(out) <= 2*n; v += step {
		if v == 0 {
			v = 0 // no minus
		}
		out = append(out, v)
	}
	return out
}

// nice is the smallest of 1, 2, 5 times a power of ten that is not below v.
func nice(v float64) float64 {
	if v <= 0 {
		return 0
	}
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if f*p >= v*(1-1e-9) {
			return f * p
		}
	}
	return 10 * p
}

// room is how far from the left edge a diagram begins, so that the words of its vertical axis fit.
func (a *Axis) room() float64 {
	x := float64(left)
	for _, v := range a.ticks(4) {
		x = max(x, charWidth*float64(utf8.RuneCountInString(a.write(v)))+10)
	}
	return x
}

// frame draws axes around x0..x1, y0..y1 (y0 above).
func (c *canvas) frame(x, y *Axis, x0, x1, y0, y1 float64) {
	for _, v := range y.ticks(4) {
		at := y1 - y.place(v)*(y1-y0)
		c.add(`<path class="grid" d="M%.1f %.1fH%.1f"/>`, x0, at, x1)
		c.text(x0-6, at+4, "end", "tick", y.write(v))
	}
	last := math.Inf(-1)
	for _, v := range x.ticks(5) {
		at := x0 + x.place(v)*(x1-x0)
		word := x.write(v)
		half := charWidth * float64(utf8.RuneCountInString(word)) / 2
		middle := min(max(at, half), Width-half)
		c.add(`<path class="axis" d="M%.1f %.1fv4"/>`, at, y1)
		if middle-half < last+6 { // no room between its neighbours
			continue
		}
		c.text(middle, y1+17, "middle", "tick", word)
		last = middle + half
	}
	c.add(`<path class="axis" d="M%.1f %.1fH%.1f"/>`, x0, y1, x1)
	c.text((x0+x1)/2, y1+35, "middle", "label", x.Label)
}
