package main

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/mutants"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Without a planted bug nothing is found: neither in generated sequences, against the reference too, nor in all traces of one
// operation.
func TestSeekWithoutABug(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, seek(context.Background(), seekOptions{seed: 1, time: time.Hour, seqs: 90, short: true, exhaust: 1}, &out))
	var r sought
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.False(t, r.Found, r.Detail)
	require.Zero(t, r.Broken, r.BrokenBy)
	require.Equal(t, 90, r.Sequences)
	require.Equal(t, 1, r.Exhausted)
	require.Equal(t, 2*5*4*(10+2+4)+2*2*(2+2+1+2), r.Enumerated, "settings, devices and operations of the first step; with pools, too")
}

// TestEnumeration: all traces of two operations are legal, there are as many as can be counted by hand, and none comes twice.
func TestEnumeration(t *testing.T) {
	for pooled, want := range map[bool]int{
		// After an alloc also the free and the record of it (and two uses); after a begin also the end, and empty_cache of the pool.
		false: 12*(16+2) + 4*16,
		true:  4*(7+4) + 1*(6+2) + 2*7,
	} {
		seen := map[string]bool{}
		e := enumerator{length: 2, pooled: pooled, look: func(tr *trace.Trace) bool {
			require.NoError(t, tr.Validate())
			text := string(tr.Format())
			require.False(t, seen[text], text)
			seen[text] = true
			return true
		}}
		require.True(t, e.extend(nil))
		require.Len(t, seen, want)
	}
}

func TestSelftestChoice(t *testing.T) {
	all, err := mutants.All()
	require.NoError(t, err)
	got, err := (&selftestFlags{}).choose()
	require.NoError(t, err)
	require.Len(t, got, len(all))
	got, err = (&selftestFlags{sample: 12, seed: 3}).choose()
	require.NoError(t, err)
	require.Len(t, got, 13)
	require.Equal(t, mutants.Canary, got[0].Name)
	again, err := (&selftestFlags{sample: 12, seed: 3}).choose()
	require.NoError(t, err)
	require.Equal(t, got, again)
	_, err = (&selftestFlags{names: []string{"nobody"}}).choose()
	require.ErrorContains(t, err, `there is no planted bug "nobody"`)
	_, err = (&selftestFlags{sample: -1}).choose()
	require.ErrorContains(t, err, "--sample -1")
}

func TestSelftestJudges(t *testing.T) {
	bug := func(name string, found bool, after, minimum int, proved bool) testedBug {
		b := testedBug{Name: name, Rules: []string{"6"}, Minimum: minimum, Proved: proved}
		b.Found, b.After = found, after
		b.Expected, b.Property, b.Rule = "tiling/gap", "tiling", "gap"
		return b
	}
	r := selfTested{Rules: map[string][]string{}, Bugs: []testedBug{
		bug("good", true, 2, 2, true), bug("missed", false, 0, 2, true), bug("long", true, 5, 4, false), bug("shorter", true, 1, 2, true),
		bug("better", true, 3, 4, false), bug("seen by another", true, 2, 2, true), bug("seen by both", true, 2, 2, true), bug("odd", true, 2, 2, true),
	}}
	r.Bugs[7].Broken, r.Bugs[7].BrokenBy = 2, "walk-7: oh"
	r.Bugs[5].Rule, r.Bugs[6].Rule, r.Bugs[6].Named = "set", "set", 9
	r.sum()
	require.Equal(t, 7, r.Found)
	require.Equal(t, 2.0, r.Median)
	require.Equal(t, 6, r.AsNamed)
	require.Equal(t, []string{
		"missed: not found in 0 sequences and 0 enumerated traces", "long: shrunk to 5 operations, 4 are enough",
		"shorter: shrunk to 1 operations, fewer than the proved minimum of 2",
		"seen by another: tiling/set sees it, but tiling/gap does not, which must",
		"odd: the harness failed 2 times, first in walk-7: oh",
	}, r.Failed)
	require.Len(t, r.Rules["6"], 8)

	deep := bug("deep", true, 7, 7, false)
	deep.Rule, deep.Named = "set", 9
	r = selfTested{Rules: map[string][]string{}, Bugs: slices.Repeat([]testedBug{deep}, 12)}
	r.sum()
	require.Equal(t, []string{"the shrunk traces have 7 operations in the median, at most 6 are enough"}, r.Failed)
	r = selfTested{Rules: map[string][]string{}, Bugs: []testedBug{deep}}
	r.sum()
	require.Empty(t, r.Failed, "of one bug the median says nothing")
	require.Equal(t, 1, r.AsNamed)
	r.Bugs = append(r.Bugs, bug("unseen", true, 2, 2, true))
	r.Bugs[1].Rule = "blocks"
	var table bytes.Buffer
	require.NoError(t, (&selftestFlags{}).write(&table, &r))
	require.Contains(t, table.String(), "tiling/set; tiling/gap after 9 ")
	require.Contains(t, table.String(), "tiling/blocks; not tiling/gap ")
	require.Contains(t, table.String(), "planted 0, found 1, by the generic checks alone 0, by the property named for it 1; shrunk to 7")
}
