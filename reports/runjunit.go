package reports

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/shatter-gpu/shatter/harness/results"
)

// WriteJUnit writes a results folder as test results: a case a property that held, a failure a finding, a skipped case a known issue
// that was met, and a case that all sequences were run, which is in error if the run was interrupted or cut short: that is the
// fault of no allocator.
func WriteJUnit(w io.Writer, f *Folder) error {
	j, doc := f.Journal, &JUnit{Name: "shatter run"}
	ran := JUnitCase{Name: "all sequences were run", Output: oneLine(fmt.Sprintf(
		"shatter %s, generators %d, seed %d, device %s, allocators %s, workloads %s, %d sequences",
		j.Shatter, j.Generators, j.Seed, j.Device, strings.Join(j.Allocators, ", "), strings.Join(j.Workloads, ", "), len(j.Sequences)))}
	switch {
	case f.Run == nil:
		ran.Error = &JUnitText{Type: "cut short", Message: fmt.Sprintf("the run was cut short after %d sequences: it has no %s; shatter run --resume ends it",
			len(j.Sequences), results.SummaryFile)}
	case f.Run.Interrupted:
		ran.Error = &JUnitText{Type: "interrupted", Message: fmt.Sprintf("the run was interrupted after %d sequences", len(j.Sequences))}
	}
	doc.Suite(JUnitSuite{Name: "shatter.run", Cases: []JUnitCase{ran}})
	if r := f.Run; r != nil {
		if r.Timing != nil {
			doc.Seconds = fmt.Sprintf("%.3f", r.Timing.Seconds)
		}
		var cases []JUnitCase
		broken := map[string]bool{}
		for i := range r.Findings {
			g := &r.Findings[i]
			broken[g.Property] = true
			text := fmt.Sprintf("%d times, the smallest trace %s\n%s\n%s", g.Count, g.Trace, g.Replay, g.Shrink)
			cases = append(cases, JUnitCase{Name: g.Signature, Failure: &JUnitText{
				Type: g.Signature, Message: oneLine(g.String()), Text: strings.TrimSpace(printable(text)),
			}})
		}
		for _, id := range r.Properties {
			if !broken[id] {
				cases = append(cases, JUnitCase{Name: id})
			}
		}
		doc.Suite(JUnitSuite{Name: "shatter.property", Cases: cases})
		cases = nil
		for _, k := range r.Known {
			cases = append(cases, JUnitCase{Name: k.ID, Skipped: &JUnitText{
				Type: "known issue", Message: oneLine(k.Summary), Text: oneLine(fmt.Sprintf("%s: %d times in %d runs; %s", k.URL, k.Count, k.Sequences, k.Replay)),
			}})
		}
		if len(cases) > 0 {
			doc.Suite(JUnitSuite{Name: "shatter.known", Cases: cases})
		}
	}
	return doc.Write(w)
}

// oneLine makes an attribute: what would end a line is a blank.
func oneLine(s string) string { return strings.Join(strings.Fields(printable(s)), " ") }

// printable leaves out what XML 1.0 has no place for.
func printable(s string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' || c == '\t' || c >= ' ' && c != 0xFFFE && c != 0xFFFF && c != utf8.RuneError {
			return c
		}
		return -1
	}, s)
}
