package shrink_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// refusal shrinks to the first refusal of a verdict.
func refusal(t *testing.T, in *trace.Trace, conf string, verdict executor.Verdict, known string) (*shrink.Result, bool) {
	if conf != "" {
		in.Set(trace.KeyConf, conf)
	}
	r := runs(nil)
	res, target, err := r.Execute(in)
	require.NoError(t, err)
	require.Empty(t, res.Findings)
	for _, j := range res.Judgements {
		if j.Verdict != verdict || j.Known != known {
			continue
		}
		start := time.Now()
		got, err := shrink.Minimise(context.Background(), in, r.Refusal(j.Signature(target)), shrink.Budget{})
		require.NoError(t, err)
		t.Logf("%s on %s: %d to %d operations, %d runs, %s", in.Name, target, got.Before, got.After, got.Runs, time.Since(start).Round(time.Millisecond))
		require.True(t, got.Minimal)
		require.Equal(t, j.Signature(target), got.Signature)
		after, _, err := r.Execute(got.Trace)
		require.NoError(t, err)
		require.Equal(t, j.Signature(target), after.Judgements[len(after.Judgements)-1].Signature(target))
		return got, true
	}
	return nil, false
}

// TestFragmentation: a fragmentation refusal comes down to what it is: one byte pins a segment, and what would fit the device
// without it is refused. It is so for a hundred thousand operations too.
func TestFragmentation(t *testing.T) {
	seed := testSeed(t)
	n := 0
	for k := range uint64(4) {
		for _, ops := range []int{2000, 100_000} {
			if ops > 2000 && (k > 0 || testing.Short()) {
				continue
			}
			if got, ok := refusal(t, generated(t, seed, "pins", k, ops), "", executor.Fragmentation, ""); ok {
				n++
				require.LessOrEqual(t, got.After, 3, "%s", got.Trace.Format())
			}
			if got, ok := refusal(t, generated(t, seed, "pins", k, ops), "expandable_segments:True", executor.Fragmentation, ""); ok {
				n++
				require.LessOrEqual(t, got.After, 4, "%s", got.Trace.Format())
			}
		}
	}
	require.Positive(t, n)
}

// TestKnown: pytorch#189504 in generated traces is five operations: a neighbour keeps the segment, a block in it is freed with a
// use outstanding, and what fits there is refused.
func TestKnown(t *testing.T) {
	seed := testSeed(t)
	n := 0
	for k := range uint64(8) {
		for _, conf := range []string{"", "expandable_segments:True"} {
			if got, ok := refusal(t, generated(t, seed, "streams", k, 5000), conf, executor.False, properties.Known189504); ok {
				n++
				require.Equal(t, 5, got.After, "%s", got.Trace.Format())
			}
		}
	}
	require.Positive(t, n)
}
