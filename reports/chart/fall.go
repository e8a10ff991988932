package chart

import (
	"fmt"
	"math"
	"unicode/utf8"
)

// Part is a summand of a Fall; negative ones lead back.
type Part struct {
	Name  string
	Value float64
	// Total says that the bar starts at zero: what the parts so far come to.
	Total bool
}

// Fall shows what a sum is made of, a bar a part, each beginning where the one before ends (a waterfall).
type Fall struct {
	Title  string
	Parts  []Part
	Format func(float64) string
	// To is the end of the scale, so that several can be compared; 0 takes the largest bar.
	To float64
}

// SVG draws it.
func (f *Fall) SVG() string {
	const row, bar = 24, 14
	c := &canvas{height: float64(8 + row*len(f.Parts))}
	names, words := 0, 0
	for _, p := range f.Parts {
		names = max(names, utf8.RuneCountInString(p.Name))
		words = max(words, utf8.RuneCountInString(f.word(p)))
	}
	x0 := charWidth*float64(names) + 10
	x1 := Width - charWidth*float64(words) - 12
	to, sum := f.To, 0.0
	if to == 0 {
		for _, p := range f.Parts {
			if sum += p.Value; p.Total {
				sum = p.Value
			}
			to = max(to, sum)
		}
	}
	place := func(v float64) float64 { return x0 + min(max(v/max(to, 1), 0), 1)*(x1-x0) }
	sum = 0
	for i, p := range f.Parts {
		y := float64(4 + row*i)
		from := sum
		kind := "up"
		if p.Total {
			from, sum, kind = 0, 0, "total"
		} else if p.Value < 0 {
			kind = "down"
		}
		sum += p.Value
		a, b := place(min(from, sum)), place(max(from, sum))
		c.text(x0-8, y+bar, "end", "label", p.Name)
		c.add(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%d"><title>%s</title></rect>`,
			kind, a, y+2, max(b-a, 1.5), bar, escape(p.Name+" "+f.word(p)))
		if i+1 < len(f.Parts) {
			c.add(`<path class="grid" d="M%.1f %.1fv%d"/>`, place(sum), y+2+bar, row-bar)
		}
		c.text(Width-4, y+bar, "end", "tick", f.word(p))
	}
	return c.open(f.Title, "") + c.String() + "</svg>"
}

func (f *Fall) word(p Part) string {
	w := f.Format(math.Abs(p.Value))
	switch {
	case p.Total:
		return w
	case p.Value < 0:
		return "−" + w
	}
	return fmt.Sprintf("+%s", w)
}
