package html_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports/html"
)

// TestNight: red comes with its trace, why and commands; what comes from elsewhere stays text; a night of nothing has no such headings.
func TestNight(t *testing.T) {
	tr, err := trace.ParseString("pending/<script>.trace", "alloc 0 1\nfree 0\n")
	require.NoError(t, err)
	n := &nightly.Night{
		Schema: nightly.Schema, Shatter: "test", Seed: 7, SeedFrom: "--seed", Device: "sim", Allocators: []string{"classic"},
		Findings: []nightly.Finding{
			{Signature: "tiling.set.classic.alloc", Status: nightly.Red, Why: "seen on 3 traces", Source: "sequence 17", First: "gen:<script>:7",
				Found:  nightly.Found{Finding: executor.Finding{Property: "tiling", Rule: "set", Target: "classic", Detail: "</pre><script>alert(1)</script>"}},
				Before: 600, After: 2, Minimal: true, Replay: "shatter replay x.trace"},
			{Signature: "rare", Status: nightly.Suspect, NotShrunk: "it was not tried"},
		},
		Lost:   []nightly.Loss{{Kind: nightly.Hung, Detail: "<b>", Again: "passed"}},
		Faults: []string{"<script>"},
	}
	n.Panel.Reference("last night", true).Differences = make([]nightly.Difference, 60)
	var out strings.Builder
	require.NoError(t, html.WriteNight(&out, &html.Night{Night: n, Traces: []*trace.Trace{tr, nil}}))
	page := out.String()
	require.Equal(t, 1, strings.Count(page, "<script"), "the page's own")
	for _, want := range []string{
		"<h1>RED: 60 differences in the panel, 1 finding", "Red: tiling.set.classic.alloc", "Suspect: rare", "Seen on 3 traces. Shrunk from 600 to 2 operations.",
		"shatter replay x.trace", "alloc 0 1\nfree 0", "And 10 more, in nightly.json.", "Its task was done again: passed", `class="verdict bad"`,
	} {
		require.Contains(t, page, want)
	}

	out.Reset()
	require.NoError(t, html.WriteNight(&out, &html.Night{Night: &nightly.Night{Device: "sim"}}))
	require.Contains(t, out.String(), `class="verdict good"`)
	for _, heading := range []string{"Findings", "Differences", "Workers lost", "Faults", "Known"} {
		require.NotContains(t, out.String(), "<h2 id=\""+strings.ToLower(heading), heading)
	}
}
