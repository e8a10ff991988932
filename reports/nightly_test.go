package reports_test

import (
	"encoding/xml"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/reports"
)

// aNight has one of everything.
func aNight() *nightly.Night {
	found := nightly.Found{
		Finding: executor.Finding{Property: "tiling", Rule: "set", Target: "classic", Op: 1, Operation: "alloc 1 512", At: "alloc", Detail: "a <block> & ``` more"},
		Trace:   "gen:swarm:1", Capacity: 2 << 20,
	}
	suspect := found
	suspect.Rule = "edge"
	return &nightly.Night{
		Schema: nightly.Schema, Shatter: "test", Seed: 20261130, SeedFrom: "the date", Device: "sim", Allocators: []string{"classic", "expandable"},
		Shard: "1/4", Interrupted: true, Unfinished: 2,
		Panel: nightly.PanelResult{Logs: 226, Ran: 57, Rows: 23456, References: []nightly.Reference{
			{Name: "last night", Exact: true, Same: 54, Missing: 1, Differences: []nightly.Difference{
				{Allocator: "classic or expandable", Log: "kv_small__ms21", Op: 39, Operation: "alloc 29 12246", Column: "block_size",
					Want: "39\talloc\tok\t0\t315904\t12288\t684544\t684544\t2097152\t679291\t0\t37748736\t0\t0\t0\t-",
					Got:  "39\talloc\tok\t0\t315904\t12800\t685056\t685056\t2097152\t679291\t0\t37748736\t0\t0\t0\t-"},
			}},
		}},
		Explored: nightly.Explored{Sequences: 1234, Adversaries: 190, Hunts: 95, Repeats: 2, Shrinks: 1, Runs: 3000, Operations: 12345678},
		Findings: []nightly.Finding{
			{Signature: "tiling.set.classic.alloc", Status: nightly.Red, Why: "seen on 3 traces", Found: found, Source: "sequence 17", First: "gen:swarm:7",
				Traces: 3, Before: 600, After: 2, Minimal: true, File: "pending/x.trace", Replay: "shatter replay --alloc classic pending/x.trace"},
			{Signature: "tiling.edge.classic.alloc", Status: nightly.Suspect, Why: "its own trace shows it each time, none of 24 fresh seeds does",
				Found: suspect, Source: "hunt 3", First: "hunt:classic:5:1", Traces: 1, NotShrunk: "the night's end came first"},
		},
		Known: []nightly.Count{{Name: "pytorch#189504", Count: 12}},
		Lost: []nightly.Loss{{Kind: nightly.Hung, Detail: "nothing moved for 30s; it was killed", Again: "passed",
			At: nightly.Beat{Doing: "gen:edges:3 on classic", Op: 7, Operation: "alloc 5 1048577"}}},
		Faults:   []string{"hunt 4: no device"},
		Compared: []nightly.Compared{{With: "last night", Seed: 20261129, New: []string{"tiling.set.classic.alloc"}, Gone: []string{}}},
		Timing:   nightly.Timing{Budget: 1200, Seconds: 601.25, Workers: 2},
	}
}

func TestNightFormats(t *testing.T) {
	for format, file := range map[string]string{"text": "night.txt", "markdown": "night.md", "junit": "night.xml"} {
		var out strings.Builder
		require.NoError(t, reports.WriteNight(&out, aNight(), format))
		golden(t, file, out.String())
		if format == "junit" {
			require.NoError(t, xml.Unmarshal([]byte(out.String()), new(struct{})), "it is XML")
		}
	}
	require.ErrorContains(t, reports.WriteNight(&strings.Builder{}, aNight(), "pdf"), "json, text, markdown or junit")
}

func TestNightVerdicts(t *testing.T) {
	for _, c := range []struct {
		change func(*nightly.Night)
		want   string
	}{
		{func(*nightly.Night) {}, "green"},
		{func(n *nightly.Night) { n.Known = []nightly.Count{{Name: "a", Count: 3}} }, "green: 1 known issue"},
		{func(n *nightly.Night) { n.Findings = []nightly.Finding{{Status: nightly.Suspect}} }, "green: 1 suspect"},
		{func(n *nightly.Night) { n.Findings = []nightly.Finding{{Status: nightly.Red}, {Status: nightly.Red}} }, "RED: 2 findings"},
		{func(n *nightly.Night) {
			n.Panel.References = []nightly.Reference{{Differences: make([]nightly.Difference, 2)}}
		}, "green"},
		{func(n *nightly.Night) {
			n.Panel.References = []nightly.Reference{{Exact: true, Differences: make([]nightly.Difference, 1)}}
			n.Interrupted = true
		}, "RED: 1 difference in the panel, interrupted"},
		{func(n *nightly.Night) { n.Interrupted = true }, "interrupted"},
		{func(n *nightly.Night) { n.Faults = []string{"x"} }, "NOT DONE: 1 fault of the harness or its environment"},
	} {
		var n nightly.Night
		c.change(&n)
		require.Equal(t, c.want, reports.NightVerdict(&n))
		require.Equal(t, strings.HasPrefix(c.want, "RED"), n.Failed())
	}
}
