package conform

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// TestCommittedDecisions runs everywhere, on the choice of recorded logs that testdata/README.md explains.
func TestCommittedDecisions(t *testing.T) {
	t.Parallel()
	rep, err := CompareLogs("testdata/decisions", nil)
	require.NoError(t, err)
	showDifferences(t, rep)
	require.Equal(t, []int{113, 93036, 0}, []int{rep.Logs, rep.Rows, rep.Divergent})
}

// TestCommittedChoice holds the choice to what it must cover.
func TestCommittedChoice(t *testing.T) {
	logs, err := ReadIndex("testdata/decisions")
	require.NoError(t, err)
	traces, configs := map[string]bool{}, map[string]bool{}
	for _, l := range logs {
		traces[l.Trace], configs[l.Config] = true, true
	}
	require.Len(t, traces, 49)
	require.Len(t, configs, 15)
	for dir, want := range map[string]int{"traces": 49, "logs": 113} {
		files, err := os.ReadDir("testdata/decisions/" + dir)
		require.NoError(t, err)
		require.Len(t, files, want, "files in %s that the index does not know would never be compared", dir)
	}
}

func TestCommittedCases(t *testing.T) {
	rep, err := CompareExpectations([]string{"testdata/cases"}, nil)
	require.NoError(t, err)
	showFailures(t, rep)
	require.Equal(t, []int{8, 24, 0}, []int{rep.Traces, rep.Expectations, rep.Failed})
}

func TestCommittedStatistics(t *testing.T) {
	rep, err := CompareRecorded("testdata/recorded", []string{"testdata/cases", "testdata/decisions/traces"})
	require.NoError(t, err)
	showRecorded(t, rep)
	require.Empty(t, rep.Differences)
	require.Empty(t, rep.Skipped)
	require.Equal(t, []int{13, 17, 13 * 122}, []int{rep.Files, rep.Messages, rep.Values})
}

// TestJudge: a judge's verdict takes the place of the coarse one, is asked at each refusal, and cannot end the run.
func TestJudge(t *testing.T) {
	path := []string{"testdata/cases/31-map-fails-in-the-middle.trace"} // two refusals under either setting, both genuine
	for _, c := range []struct {
		verdict executor.Verdict
		got     string // shown for the figure that fails; empty if the recorded genuine-oom is met
	}{
		{executor.Genuine, ""}, {executor.Rounding, "rounding"}, {executor.Policy, "policy"},
		{executor.Fragmentation, "fragmentation"}, {executor.False, "false"}, {executor.Unknown, "unknown"},
		{executor.DeviceRefused, "device-refused"},
	} {
		asked := 0
		rep, err := CompareExpectations(path, func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
			asked++
			require.EqualValues(t, 60<<20, oom.Request)
			return executor.Judgement{Verdict: c.verdict}
		})
		require.NoError(t, err)
		require.Equal(t, 4, asked)
		if c.got == "" {
			require.Empty(t, rep.Failures, c.verdict.String())
			continue
		}
		require.Len(t, rep.Failures, 2, "nothing but the verdict differs, so the run went on after the refusal")
		for _, f := range rep.Failures {
			require.Equal(t, []string{"verdict", "genuine-oom", c.got}, []string{f.Figure, f.Want, f.Got})
		}
	}
	for _, v := range []executor.Verdict{executor.Policy, executor.Fragmentation, executor.False} {
		rep, err := CompareExpectations([]string{"testdata/cases/46-article-12gib-free-2gib-refused.trace"},
			func(*executor.State, *allocators.OOMError) executor.Judgement { return executor.Judgement{Verdict: v} })
		require.NoError(t, err)
		require.Empty(t, rep.Failures, "%s meets the recorded false-oom", v)
	}
}

// TestPerturbedRecordings: every value and every message of a recording is looked at.
func TestPerturbedRecordings(t *testing.T) {
	const name = "31-map-fails-in-the-middle__default.json"
	data, err := os.ReadFile("testdata/recorded/" + name)
	require.NoError(t, err)
	lines := strings.Split(string(data), "\n")
	inStats, changed := false, 0
	for i, line := range lines {
		switch {
		case strings.Contains(line, `"memory_stats"`):
			inStats = true
		case strings.HasPrefix(line, "}"):
			inStats = false
		}
		var other string
		switch {
		case strings.Contains(line, "CUDA out of memory"):
			other = strings.Replace(line, "60.00 MiB", "60.01 MiB", 1)
		case inStats && strings.Contains(line, ".") || inStats && strings.Contains(line, "num_"):
			key, value, _ := strings.Cut(line, ": ")
			other = key + ": 1" + value
		default:
			continue
		}
		changed++
		dir := t.TempDir()
		text := strings.Join(lines[:i], "\n") + "\n" + other + "\n" + strings.Join(lines[i+1:], "\n")
		require.NoError(t, os.WriteFile(dir+"/x.json", []byte(text), 0o644))
		rep, err := CompareRecorded(dir, []string{"testdata/cases"})
		require.NoError(t, err)
		require.Len(t, rep.Differences, 1, other)
	}
	require.Equal(t, 121+2, changed)
}

// TestKeysBothWays: what only one side has differs too.
func TestKeysBothWays(t *testing.T) {
	data, err := os.ReadFile("testdata/recorded/31-map-fails-in-the-middle__default.json")
	require.NoError(t, err)
	text := string(data)
	for _, c := range []struct{ old, new, figure, want, got string }{
		{"\"num_ooms\": 2,\n", "", "num_ooms", "(none)", "2"},
		{"\"num_ooms\": 2,\n", "\"num_ooms\": 2,\n\"num_oom_rejections\": 0,\n", "num_oom_rejections", "0", "(none)"},
		{"[\n4,\n", "[\n5,\n", "message of operation 4", "(none)", "CUDA out of memory. Tried to allocate 60.00 MiB."},
	} {
		require.Equal(t, 1, strings.Count(text, c.old), c.old)
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/x.json", []byte(strings.Replace(text, c.old, c.new, 1)), 0o644))
		rep, err := CompareRecorded(dir, []string{"testdata/cases"})
		require.NoError(t, err)
		require.NotEmpty(t, rep.Differences)
		d := rep.Differences[0]
		require.Equal(t, []string{c.figure, c.want}, []string{d.Figure, d.Want})
		require.True(t, strings.HasPrefix(d.Got, c.got), d.Got)
	}
}

func TestBrokenRecordings(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{`, "unexpected end of JSON input"},
		{`{"trace":"31-map-fails-in-the-middle.trace","capacity":1}`, "a simulated device has 2 MiB to 16 TiB"},
		{`{"trace":"31-map-fails-in-the-middle.trace","fraction":"half"}`, `fraction "half" is not a number`},
		{`{"trace":"31-map-fails-in-the-middle.trace","conf":"bad:1"}`, `unknown setting "bad"`},
		{`{"trace":"31-map-fails-in-the-middle.trace","oom_messages":[["x"]]}`, "oom_messages: json: cannot unmarshal"},
	} {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(dir+"/x.json", []byte(c.text), 0o644))
		_, err := CompareRecorded(dir, []string{"testdata/cases"})
		require.ErrorContains(t, err, c.want)
		require.ErrorContains(t, err, "x.json: ")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/x.json", []byte(`{"trace":"gone.trace"}`), 0o644))
	rep, err := CompareRecorded(dir, nil)
	require.NoError(t, err)
	require.Equal(t, []string{"x.json: there is no gone.trace"}, rep.Skipped)
}
