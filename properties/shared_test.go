package properties_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// TestRecordedTracesAreClean runs every recorded (trace, settings) pair under all properties: PyTorch's decisions break none,
// and one of the 2,428 refusals is a known upstream issue.
func TestRecordedTracesAreClean(t *testing.T) {
	dir := "../../shared/decisions"
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the recorded decisions are not here: %v", err)
	}
	logs, err := conform.ReadIndex(dir)
	require.NoError(t, err)
	verdicts := map[executor.Verdict]int{}
	known, ooms := 0, 0
	for _, l := range logs {
		tr, err := trace.ReadFile(l.TracePath)
		require.NoError(t, err)
		spec, err := catalog.FromSettings(l.Conf, l.Fraction)
		require.NoError(t, err)
		dev, err := simdev.New(simdev.Options{Capacity: l.Capacity})
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: spec.Name, New: spec.New},
			executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
		require.NoError(t, err)
		require.Empty(t, res.Findings, l.Name())
		known += len(res.Known)
		ooms += len(res.OOMs)
		for _, j := range res.Judgements {
			verdicts[j.Verdict]++
		}
	}
	t.Log(verdicts)
	require.Equal(t, 2428, ooms)
	require.Equal(t, 1, known)
}
