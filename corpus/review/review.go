// Package review writes the page on which a reviewer decides about cases: one file of HTML that needs nothing else, to be read
// beside a pull request.
//
// In go cases with what a roof made of them (outcomes, memory maps as SVG, the nearest accepted case); out comes the page. It
// has no script and asks for nothing; all that comes from a case is escaped.
package review

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/corpus"
)

// Page is a review.
type Page struct {
	// Title says what is reviewed, Version which program ran the cases.
	Title, Version string
	Items          []Item
}

// Item is a case under review.
type Item struct {
	Case *corpus.Case
	// File is the case's path as commands take it.
	File     string
	Outcomes []Outcome
	// Maps are the memory maps of the allocators after one operation, each an SVG picture whose text is escaped already.
	Maps []string
	// When says after which operation the maps were drawn.
	When string
	// Nearest is the accepted case with the most decisions in common, Similarity how many of all, 0 to 1.
	Nearest      *corpus.Case
	NearestClass string
	Similarity   float64
	// Diff is what changed in the file, in a review of a range of commits.
	Diff string
}

// Outcome is what an allocator came to.
type Outcome struct {
	Allocator string
	// Refused are the refused operations, Verdict what the first of them was.
	Refused, Verdict string
	// Finding is the broken property, empty if there is none.
	Finding string
	// Peak is the bytes held at most, in words; Retries and Calls count.
	Peak           string
	Retries, Calls uint64
	// Recorded says whether the case's header has an expectation for it, and whether this is what it says.
	Recorded string
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"svg":      func(s string) template.HTML { return template.HTML(s) }, // #nosec: made by reports, which escapes
	"text":     func(c *corpus.Case) string { return string(c.Text()) },
	"commands": commands,
	"percent":  func(f float64) string { return fmt.Sprintf("%.0f %%", 100*f) },
}).Parse(pageText))

// Write writes the page.
func Write(w io.Writer, p *Page) error { return page.Execute(w, p) }

// commands are what a reviewer runs: to keep the case, or not to.
func commands(i Item) []string {
	c := i.Case
	retire := "shatter corpus retire " + c.Name + " --because '...'"
	if c.State != corpus.Pending && c.State != corpus.Flaky {
		return []string{"shatter corpus check " + c.Name, retire}
	}
	promote := []string{"shatter corpus promote", c.Name, "--name a-name-that-says-what-it-is-about"}
	for _, f := range []struct{ flag, value, instead string }{
		{"class", c.Class(), i.NearestClass}, {"about", c.About(), ""}, {"note", c.Note(), ""}, {"bites", strings.Join(c.Bites(), " "), "planted:BUG"},
	} {
		if f.value != "" {
			continue
		}
		if f.instead == "" {
			f.instead = "'...'"
		}
		promote = append(promote, "--"+f.flag+" "+f.instead)
	}
	return []string{strings.Join(promote, " "), retire}
}
