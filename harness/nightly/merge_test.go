package nightly

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func shard(name string, findings ...Finding) *Night {
	return &Night{
		Schema: Schema, Seed: 7, Device: "sim", Allocators: []string{"classic"}, Shard: name, Findings: findings, Known: []Count{{"issue", 2}},
		Panel:    PanelResult{Logs: 9, Ran: 3, Rows: 30, References: []Reference{{Name: "last night", Exact: true, Same: 2, Differences: []Difference{{Log: "log " + name}}}}},
		Explored: Explored{Sequences: 5, Runs: 10, Operations: 100},
		Compared: []Compared{{With: "last night", New: []string{"new " + name}, Gone: []string{"both", "of " + name}}},
		Timing:   Timing{Seconds: 3, Workers: 2},
	}
}

func finding(signature string, status Status, first string, after int) Finding {
	return Finding{Signature: signature, Status: status, Why: "why " + first, First: first, Traces: 1, After: after}
}

func TestMerge(t *testing.T) {
	a := shard("0/3", finding("rare", Suspect, "x", 5), finding("alone", Suspect, "x", 5), finding("same", Suspect, "x", 5))
	b := shard("1/3", finding("rare", Suspect, "y", 3), finding("red", Red, "y", 0), finding("same", Suspect, "x", 5))
	c := shard("2/3", finding("red", Suspect, "z", 4))
	c.Interrupted = true
	n, err := Merge([]string{"a", "b", "c"}, []*Night{a, b, c})
	require.NoError(t, err)
	got := map[string][]any{}
	for _, f := range n.Findings {
		got[f.Signature] = []any{f.Status, f.Why, f.First, f.After, f.Traces}
	}
	require.Equal(t, map[string][]any{
		"rare":  {Red, "seen in two shards, on different traces", "y", 3, 2},
		"alone": {Suspect, "why x", "x", 5, 1},
		"same":  {Suspect, "why x", "x", 5, 2}, // the same trace is no other seed
		"red":   {Red, "why y", "z", 4, 2},
	}, got)
	require.Equal(t, Red, n.Findings[0].Status, "red comes first")
	require.True(t, n.Interrupted)
	require.Equal(t, []int{9, 9, 90, 3, 6}, []int{n.Panel.Logs, n.Panel.Ran, n.Panel.Rows, n.Panel.Red(), n.Panel.References[0].Same})
	require.Equal(t, Explored{Sequences: 15, Runs: 30, Operations: 300}, n.Explored)
	require.Equal(t, []Count{{"issue", 6}}, n.Known)
	require.Equal(t, []Compared{{With: "last night", New: []string{"new 0/3", "new 1/3", "new 2/3"}, Gone: []string{"both"}}}, n.Compared)
	require.Equal(t, []int{3, 6}, []int{n.Merged, n.Timing.Workers})

	other := shard("1/3")
	other.Seed = 8
	_, err = Merge([]string{"a", "b"}, []*Night{a, other})
	require.ErrorContains(t, err, "a and b are no shards of one night: the seed differs, 7 and 8")
	_, err = Merge([]string{"a", "b"}, []*Night{a, shard("0/3")})
	require.ErrorContains(t, err, `a and b are the same shard "0/3"`)
}

// TestCompare: a suspect that another night saw on another trace has repeated.
func TestCompare(t *testing.T) {
	n := shard("", finding("new", Suspect, "x", 5), finding("again", Suspect, "x", 5), finding("same", Suspect, "x", 5), finding("red", Red, "x", 5))
	n.Compared = nil
	n.Compare("last night", shard("", finding("again", Suspect, "y", 5), finding("same", Suspect, "x", 5), finding("red", Red, "y", 5), finding("gone", Red, "y", 5)))
	var status []string
	for _, f := range n.Findings {
		status = append(status, string(f.Status)+": "+f.Why)
	}
	require.Equal(t, []string{"suspect: why x", "red: seen on another trace in last night", "suspect: why x", "red: why x"}, status)
	require.Equal(t, []Compared{{With: "last night", Seed: 7, New: []string{"new"}, Gone: []string{"gone"}}}, n.Compared)
}

// TestHold: the first row that differs, and what there is to say when there is none to compare.
func TestHold(t *testing.T) {
	rows := []string{"0\talloc\tok", "1\tfree\tok"}
	op := func(i int) string { return []string{"alloc 0 1", "free 0"}[i] }
	for name, c := range map[string]struct {
		want                     []string
		got                      Log
		same, missing, different int
		text                     string
	}{
		"same":     {rows, Log{Rows: rows}, 1, 0, 0, ""},
		"missing":  {nil, Log{Rows: rows}, 0, 1, 0, ""},
		"rejected": {rows, Log{Rejected: "unknown setting"}, 0, 0, 1, "l on a: settings: before taken, now unknown setting"},
		"other":    {rows, Log{Rows: []string{rows[0], "1\tfree\toom"}}, 0, 0, 1, "l on a: operation 1 (free 0): outcome: before 1\tfree\tok, now 1\tfree\toom"},
		"broken":   {rows, Log{Rows: rows[:1], Broken: true}, 0, 0, 0, ""},
		"both":     {rows, Log{Rows: []string{"0\talloc\toom"}, Broken: true}, 0, 0, 1, "l on a: operation 0 (alloc 0 1): outcome: before 0\talloc\tok, now 0\talloc\toom"},
		"shorter":  {rows, Log{Rows: rows[:1]}, 0, 0, 1, "l on a: operation 1 (free 0): op: before 1\tfree\tok, now (the run has ended)"},
	} {
		var r Reference
		r.Hold("a", "l", c.want, &c.got, op)
		require.Equal(t, []int{c.same, c.missing, c.different}, []int{r.Same, r.Missing, len(r.Differences)}, name)
		if c.text != "" {
			require.Equal(t, c.text, r.Differences[0].String(), name)
		}
	}
}
