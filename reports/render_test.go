package reports_test

import (
	"bytes"
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

// folder is a results folder of a run written by hand.
func folder(t *testing.T, findings bool) *reports.Folder {
	return &reports.Folder{Dir: "results", Run: run(t, findings), Journal: &results.Journal{Header: results.Header{
		Shatter: "devel", Generators: 1, Seed: 7, Device: "sim", Allocators: both, Workloads: []string{"mixed", "swarm"}, Shards: 1,
	}}}
}

func TestMarkdown(t *testing.T) {
	for name, findings := range map[string]bool{"run.md": false, "run-findings.md": true} {
		var out bytes.Buffer
		require.NoError(t, run(t, findings).WriteMarkdown(&out))
		golden(t, name, out.String())
	}
}

func TestJUnit(t *testing.T) {
	for name, findings := range map[string]bool{"run.xml": false, "run-findings.xml": true} {
		var out bytes.Buffer
		require.NoError(t, reports.WriteJUnit(&out, folder(t, findings)))
		golden(t, name, out.String())
	}
}

// junitAllows are the attributes of each element, and the elements in it, by the schema junit-10.xsd of Jenkins' xUnit plugin; ! marks what
// must be there.
var junitAllows = map[string][2]string{
	"testsuites": {"name time tests failures errors", "testsuite"},
	"testsuite": {"name! tests! failures! errors! group time skipped timestamp hostname id package file log url",
		"testsuite properties testcase system-out system-err"},
	"properties": {"", "property"},
	"property":   {"name! value!", ""},
	"testcase":   {"name! time classname group", "skipped error failure rerunFailure rerunError flakyFailure flakyError system-out system-err"},
	"skipped":    {"type message", ""},
	"error":      {"type message", ""},
	"failure":    {"type message", ""},
	"system-out": {"", ""},
}

// TestJUnitIsJUnit holds documents against the schema, and counts what they say they count: with findings, interrupted, cut short,
// and with hostile texts.
func TestJUnitIsJUnit(t *testing.T) {
	hostile := folder(t, true)
	hostile.Run.Findings[0].Finding = executor.Finding{
		Property: "tiling", Rule: "gap", Target: "]]><script>\x00\x1b\"&\n\ufffe", Operation: "x", At: "free", Detail: strings.Repeat("é\r\n", 9),
	}
	hostile.Run.Known[0].Summary = "<b>&"
	short := folder(t, true)
	short.Run = nil
	for name, of := range map[string]struct {
		f                         *reports.Folder
		failures, errors, skipped int
	}{
		"clean": {folder(t, false), 0, 0, 1}, "findings": {folder(t, true), 1, 1, 1}, "hostile": {hostile, 1, 1, 1}, "cut short": {short, 0, 1, 0},
	} {
		var out bytes.Buffer
		require.NoError(t, reports.WriteJUnit(&out, of.f), name)
		require.NotContains(t, out.String(), "<script", name)
		count := map[string]int{}
		var open []string
		for d := xml.NewDecoder(&out); ; {
			tok, err := d.Token()
			if tok == nil {
				require.ErrorContains(t, err, "EOF", name)
				break
			}
			switch e := tok.(type) {
			case xml.StartElement:
				count[e.Name.Local]++
				allows, known := junitAllows[e.Name.Local]
				require.True(t, known, e.Name.Local)
				if len(open) > 0 {
					require.Contains(t, strings.Fields(junitAllows[open[len(open)-1]][1]), e.Name.Local)
				}
				names := map[string]bool{}
				for _, a := range e.Attr {
					names[a.Name.Local] = true
					require.Contains(t, strings.Fields(strings.ReplaceAll(allows[0], "!", "")), a.Name.Local, e.Name.Local)
				}
				for _, a := range strings.Fields(allows[0]) {
					if must, ok := strings.CutSuffix(a, "!"); ok {
						require.True(t, names[must], "%s without %s", e.Name.Local, must)
					}
				}
				open = append(open, e.Name.Local)
			case xml.EndElement:
				open = open[:len(open)-1]
			}
		}
		require.Equal(t, []int{of.failures, of.errors, of.skipped}, []int{count["failure"], count["error"], count["skipped"]}, name)
	}
}

// TestTerminal: nothing is wider than the terminal but words that cannot be broken, and nothing is lost; colour only where asked.
func TestTerminal(t *testing.T) {
	r := run(t, true)
	var plain bytes.Buffer
	require.NoError(t, r.WriteText(&plain))
	words := func(s string) map[string]bool {
		out := map[string]bool{}
		for _, w := range strings.Fields(s) {
			out[w] = true
		}
		return out
	}
	for _, width := range []int{40, 60, 80, 120, 200} {
		var out bytes.Buffer
		require.NoError(t, r.WriteTerminal(&out, reports.Terminal{Width: width}))
		for w := range words(plain.String()) {
			require.Contains(t, words(out.String()), w, width)
		}
		for _, line := range strings.Split(out.String(), "\n") {
			if n := len([]rune(line)); n > width {
				require.LessOrEqual(t, len(strings.Fields(line)), 2, "%d: %s", width, line)
			}
		}
	}
	c := compareThem(t, invented("x", "a", spread(60, 1.2, 0.0005)...), invented("y", "a", spread(60, 1.3, 0.0005)...), reports.Options{Margin: 0.01})
	for colour, want := range map[bool]bool{false: false, true: true} {
		var out bytes.Buffer
		require.NoError(t, c.WriteText(&out, reports.Terminal{Width: 100, Colour: colour}))
		require.Equal(t, want, strings.Contains(out.String(), "\x1b["))
		for _, line := range strings.Split(out.String(), "\n") {
			require.LessOrEqual(t, visible(line), 100, line)
		}
	}
}

// visible counts the columns of a line without its colours.
func visible(line string) int {
	for _, code := range []string{"\x1b[31;1m", "\x1b[32;1m", "\x1b[32m", "\x1b[33m", "\x1b[0m"} {
		line = strings.ReplaceAll(line, code, "")
	}
	return len([]rune(line))
}
