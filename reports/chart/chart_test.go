package chart

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// TestECDF holds the curve against counting.
func TestECDF(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		var values []float64
		for range 1 + rng.IntN(40) {
			values = append(values, float64(rng.IntN(12)))
		}
		points := ECDF(values)
		for x := -1.0; x < 13; x += 0.5 {
			count := 0
			for _, v := range values {
				if v <= x {
					count++
				}
			}
			share := 0.0
			for _, p := range points {
				if p.X <= x {
					share = p.Y
				}
			}
			require.InDelta(t, float64(count)/float64(len(values)), share, 1e-12)
		}
	}
	require.Empty(t, ECDF(nil))
}

// TestTicks: round numbers, in the range, neither none nor many.
func TestTicks(t *testing.T) {
	for _, c := range []struct {
		axis Axis
		want string
	}{
		{Axis{From: 0, To: 1}, "0 0.5 1"},
		{Axis{From: 1, To: 1.35}, "1 1.1 1.2 1.3"},
		{Axis{From: -1, To: 83}, "0 50"},
		{Axis{From: 0, To: 80 << 30, Binary: true}, "0 21474836480 42949672960 64424509440 85899345920"},
		{Axis{From: 3, To: 3}, "3"},
		{Axis{From: -1, To: 0, Whole: true}, "-1 0"},
		{Axis{From: 0, To: 3000, Whole: true}, "0 1000 2000 3000"},
		{Axis{From: 0, To: 7, Ticks: []float64{1, 5}}, "1 5"},
	} {
		var words []string
		for _, v := range c.axis.ticks(4) {
			words = append(words, c.axis.write(v))
		}
		require.Equal(t, c.want, strings.Join(words, " "), "%+v", c.axis)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		a := Axis{From: rng.Float64() * 10, Binary: rng.IntN(2) == 0}
		a.To = a.From + math.Exp(rng.Float64()*60-20)
		ticks := a.ticks(4)
		require.NotEmpty(t, ticks)
		require.LessOrEqual(t, len(ticks), 6, "%+v", a)
		require.True(t, slices.IsSorted(ticks))
	}
}

func TestShorten(t *testing.T) {
	require.Equal(t, "classic", Shorten("classic", 7))
	require.Equal(t, "clas…le", Shorten("classic and expandable", 7))
	require.Equal(t, 46, utf8.RuneCountInString(Shorten(strings.Repeat("ü", 100), 46)))
}

// texts are the places and letters of a diagram's texts, by a real parser.
func texts(t *testing.T, svg string) (out []struct {
	x, y   float64
	anchor string
	text   string
}, width, height float64) {
	dec := xml.NewDecoder(strings.NewReader(svg))
	attr := func(e xml.StartElement, name string) string {
		for _, a := range e.Attr {
			if a.Name.Local == name {
				return a.Value
			}
		}
		return ""
	}
	number := func(s string) float64 { v, err := strconv.ParseFloat(s, 64); require.NoError(t, err, s); return v }
	in := false
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return out, width, height
		}
		require.NoError(t, err)
		switch e := token.(type) {
		case xml.StartElement:
			switch e.Name.Local {
			case "svg":
				width, height = number(attr(e, "width")), number(attr(e, "height"))
			case "text":
				in = true
				out = append(out, struct {
					x, y   float64
					anchor string
					text   string
				}{number(attr(e, "x")), number(attr(e, "y")), attr(e, "text-anchor"), ""})
			}
			for _, a := range e.Attr {
				if a.Name.Local == "d" || a.Name.Local == "points" || a.Name.Local == "x" || a.Name.Local == "width" {
					require.NotContains(t, a.Value, "NaN")
					require.NotContains(t, a.Value, "Inf")
				}
			}
		case xml.CharData:
			if in {
				out[len(out)-1].text += string(e)
			}
		case xml.EndElement:
			in = false
		}
	}
}

// TestTextFits: whatever the figures and names are, text lies within the drawing, and on no other text, in a font of the
// width that room is left for.
func TestTextFits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	bytes := func(v float64) string { return fmt.Sprintf("%.2f GiB", v/(1<<30)) }
	for range 300 {
		scale := math.Exp(rng.Float64() * 40)
		l := Lines{Title: "t", Steps: rng.IntN(2) == 0, Falls: rng.IntN(2) == 0, X: Axis{Label: "x", From: scale * rng.Float64(), To: scale * (1 + rng.Float64()), Format: bytes}, Y: Axis{Label: "share", To: 1}}
		f := Fall{Title: "t", Format: bytes}
		s := Stack{Title: "t", X: Axis{Label: "operation", From: -1, To: 10}, Y: Axis{To: scale, Format: bytes}, Legend: true, Marks: []float64{3}}
		for i := range 1 + rng.IntN(8) {
			name := strings.Repeat("expandable@max_split_size_mb:128,", 1+rng.IntN(3))
			l.Series = append(l.Series, Series{Name: name, Colour: i, Points: ECDF([]float64{scale * rng.Float64(), scale * rng.Float64()})})
			f.Parts = append(f.Parts, Part{Name: "a part", Value: scale * (rng.Float64() - 0.3), Total: i == 0})
		}
		for i := range 12 {
			s.At = append(s.At, float64(i-1))
		}
		for _, class := range []string{"live", "pinned", "idle"} {
			layer := Layer{Name: class, Class: class}
			for range s.At {
				layer.Values = append(layer.Values, scale*rng.Float64()/3)
			}
			s.Layers = append(s.Layers, layer)
		}
		for _, svg := range []string{l.SVG(), f.SVG(), s.SVG(), (&Lines{}).SVG(), (&Fall{Format: bytes}).SVG(), (&Stack{}).SVG()} {
			list, width, height := texts(t, svg)
			type box struct{ left, right, top, bottom float64 }
			var boxes []box
			for _, x := range list {
				w := float64(utf8.RuneCountInString(x.text)) * 7
				b := box{x.x, x.x + w, x.y - 10, x.y + 2}
				switch x.anchor {
				case "middle":
					b.left, b.right = x.x-w/2, x.x+w/2
				case "end":
					b.left, b.right = x.x-w, x.x
				}
				require.True(t, b.left >= -0.5 && b.right <= width+0.5 && b.top >= 0 && b.bottom <= height, "%q at %+v in %v x %v\n%s", x.text, b, width, height, svg)
				for i, o := range boxes {
					require.False(t, b.left < o.right && o.left < b.right && b.top < o.bottom && o.top < b.bottom, "%q on %q", x.text, list[i].text)
				}
				boxes = append(boxes, b)
			}
		}
	}
}

// TestStandalone is a file of its own.
func TestStandalone(t *testing.T) {
	f := Fall{Title: `a "b" <c>`, Format: func(v float64) string { return fmt.Sprint(v) }, Parts: []Part{{Name: "<x>", Value: 1, Total: true}}}
	file := string(Standalone("above & all", f.SVG()))
	require.True(t, strings.HasPrefix(file, `<svg class="chart"`))
	require.Contains(t, file, `xmlns="http://www.w3.org/2000/svg">`)
	list, _, height := texts(t, file)
	require.Equal(t, "above & all", list[0].text)
	require.Equal(t, "<x>", list[1].text)
	_, _, inner := texts(t, f.SVG())
	require.Equal(t, inner+titleRow, height)
}
