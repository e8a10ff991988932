package conform

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared returns a folder of the recorded data that lies beside the project, or skips.
func shared(t *testing.T, name string) string {
	t.Helper()
	dir := "../../../shared/" + name
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("the recorded data is not here: %v", err)
	}
	return dir
}

func TestAllRecordedDecisions(t *testing.T) {
	t.Parallel()
	rep, err := CompareLogs(shared(t, "decisions"), nil)
	require.NoError(t, err)
	showDifferences(t, rep)
	require.Equal(t, 592, rep.Logs)
	require.Zero(t, rep.Divergent)
	require.Equal(t, 513481, rep.Rows)
}

func TestAllCases(t *testing.T) {
	t.Parallel()
	rep, err := CompareExpectations([]string{shared(t, "cases")}, nil)
	require.NoError(t, err)
	showFailures(t, rep)
	require.Equal(t, []int{30, 70, 0}, []int{rep.Traces, rep.Expectations, rep.Failed})
	require.Empty(t, rep.Silent)
}

// TestAllRecordedStatistics covers what decision logs do not carry: the text of messages and all 122 statistics.
func TestAllRecordedStatistics(t *testing.T) {
	t.Parallel()
	rep, err := CompareRecorded(shared(t, "snapshots/recorded"), []string{shared(t, "cases"), shared(t, "decisions/traces")})
	require.NoError(t, err)
	showRecorded(t, rep)
	require.Empty(t, rep.Differences)
	require.Equal(t, []int{91, 51, 91 * 122}, []int{rep.Files, rep.Messages, rep.Values})
	require.Equal(t, []string{
		"model__default.json: it names no trace", "model__exp.json: it names no trace",
		"model_oom__default.json: it names no trace", "model_oom__exp.json: it names no trace",
	}, rep.Skipped)
}

func showDifferences(t *testing.T, rep *LogReport) {
	t.Helper()
	for i := range min(5, len(rep.Differences)) {
		t.Log(&rep.Differences[i])
	}
}

func showFailures(t *testing.T, rep *ExpectReport) {
	t.Helper()
	for i := range min(20, len(rep.Failures)) {
		t.Log(&rep.Failures[i])
	}
}

func showRecorded(t *testing.T, rep *RecordedReport) {
	t.Helper()
	for i := range min(20, len(rep.Differences)) {
		t.Log(&rep.Differences[i])
	}
	t.Logf("%d files, %d messages, %d values; not compared: %q", rep.Files, rep.Messages, rep.Values, rep.Skipped)
}
