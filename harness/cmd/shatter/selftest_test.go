package main

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/mutants"
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
	require.Equal(t, 2*5*4*(10+2+4), r.Enumerated, "settings, devices and operations of the first step")
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
		return b
	}
	r := selfTested{Rules: map[string][]string{}, Bugs: []testedBug{
		bug("good", true, 2, 2, true), bug("missed", false, 0, 2, true), bug("long", true, 5, 4, false), bug("shorter", true, 1, 2, true),
		bug("better", true, 3, 4, false),
	}}
	r.sum()
	require.Equal(t, 4, r.Found)
	require.Equal(t, 2.5, r.Median)
	require.Equal(t, []string{
		"missed: not found in 0 sequences and 0 enumerated traces", "long: shrunk to 5 operations, 4 are enough",
		"shorter: shrunk to 1 operations, fewer than the proved minimum of 2",
	}, r.Failed)
	require.Len(t, r.Rules["6"], 5)
}
