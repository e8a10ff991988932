package conform

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
)

// A short log with a split, a flush and a refusal, as PyTorch 2.6.0 decides it.
const (
	smallTrace = "alloc 0 12MiB\nalloc 1 4MiB\nfree 0\nalloc 2 18MiB\nfree 1\n"
	smallIndex = "trace\tconfig_name\tconfig\tcapacity\tfraction\nsmall\tdefault\t-\t33554432\t-\n"
	smallLog   = `0	alloc	ok	0	0	12582912	12582912	12582912	12582912	12582912	0	20971520	1	0	0	malloc:12582912=s0
1	alloc	ok	1	0	4194304	16777216	16777216	33554432	16777216	16777216	0	2	0	0	malloc:20971520=s1
2	free	ok	0	0	12582912	4194304	4194304	33554432	4194304	16777216	0	2	0	0	-
3	alloc	oom	-	-	-	4194304	4194304	20971520	4194304	16777216	12582912	1	1	1	mallocfail:18874368;free:s0;mallocfail:18874368
4	free	ok	1	0	4194304	0	0	20971520	0	0	12582912	1	1	1	-
`
)

func smallFolder(t *testing.T, index, log string) string {
	t.Helper()
	dir := t.TempDir()
	zip := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, err := z.Write([]byte(text))
		require.NoError(t, err)
		require.NoError(t, z.Close())
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644))
	}
	zip("traces/small.trace.gz", smallTrace)
	zip("logs/small__default.tsv.gz", log)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.tsv"), []byte(index), 0o644))
	return dir
}

func header() string { return strings.Join(executor.Columns, "\t") + "\n" }

// TestEveryColumnIsCompared changes one figure of one row at a time.
func TestEveryColumnIsCompared(t *testing.T) {
	lines := strings.SplitAfter(smallLog, "\n")
	for row, line := range lines[:5] {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		for i, column := range executor.Columns {
			old := fields[i]
			fields[i] += "7"
			changed := strings.Join(lines[:row], "") + strings.Join(fields, "\t") + "\n" + strings.Join(lines[row+1:], "")
			fields[i] = old
			rep, err := CompareLogs(smallFolder(t, smallIndex, header()+changed), nil)
			require.NoError(t, err)
			require.Equal(t, 1, rep.Divergent)
			d := rep.Differences[0]
			require.Equal(t, []any{"small__default", row + 2, column}, []any{d.Log, d.Line, d.Column})
			require.Equal(t, strings.TrimSuffix(line, "\n"), d.Got)
		}
	}
}

func TestLogs(t *testing.T) {
	progressed := 0
	rep, err := CompareLogs(smallFolder(t, smallIndex, header()+smallLog), func(done, total int) {
		progressed++
		require.Equal(t, []int{1, 1}, []int{done, total})
	})
	require.NoError(t, err)
	require.Equal(t, &LogReport{Logs: 1, Rows: 5}, rep)
	require.Equal(t, 1, progressed)

	// `?` in a recorded log is what its allocator did not tell.
	masked := strings.ReplaceAll(smallLog, "\t12582912\t", "\t?\t")
	rep, err = CompareLogs(smallFolder(t, smallIndex, header()+masked), nil)
	require.NoError(t, err)
	require.Zero(t, rep.Divergent)

	// A log that goes on after the trace differs; one that ends before it is broken.
	rep, err = CompareLogs(smallFolder(t, smallIndex, header()+smallLog+"5\tsync\n"), nil)
	require.NoError(t, err)
	require.Equal(t, "small__default: line 7: column op differs\n  recorded 5\tsync\n  decided  (the trace has ended)",
		rep.Differences[0].String())
	dir := smallFolder(t, smallIndex, header()+strings.Join(strings.SplitAfter(smallLog, "\n")[:3], ""))
	_, err = CompareLogs(dir, nil)
	require.EqualError(t, err, dir+"/logs/small__default.tsv.gz: the log ends after 3 rows, the trace goes on: EOF")
	require.ErrorIs(t, err, io.EOF)
}

func TestBrokenLogFolders(t *testing.T) {
	for _, c := range []struct{ index, log, want string }{
		{"trace\nsmall\tdefault\n", "", "index.tsv:2: 2 columns, at least 5 expected (trace, config_name, config, capacity, fraction)"},
		{strings.Replace(smallIndex, "33554432", "32MiB", 1), "", `index.tsv:2: capacity "32MiB" is not a number of bytes`},
		{strings.Replace(smallIndex, "33554432\t-", "33554432\thalf", 1), "", `index.tsv:2: fraction "half" is not a number`},
		{strings.Replace(smallIndex, "small\t", "large\t", 1), "", "large.trace.gz: no such file"},
		{strings.Replace(smallIndex, "default\t-", "default\tnonsense:1", 1), header() + smallLog,
			`small__default: settings "nonsense:1": unknown setting "nonsense"`},
		{strings.Replace(smallIndex, "33554432", "1", 1), header() + smallLog,
			"small__default: a simulated device has 2 MiB to 16 TiB, not 1 bytes"},
		{smallIndex, "op\tkind\n", "small__default.tsv.gz:1: the columns are not those of a decision log"},
		{smallIndex, "", "small__default.tsv.gz: EOF"},
	} {
		_, err := CompareLogs(smallFolder(t, c.index, c.log), nil)
		require.ErrorContains(t, err, c.want)
	}
	_, err := CompareLogs(t.TempDir(), nil)
	require.ErrorContains(t, err, "index.tsv: no such file")
	require.False(t, IsLogFolder(t.TempDir()))
	require.True(t, IsLogFolder("testdata/decisions"))

	dir := smallFolder(t, smallIndex, header()+smallLog)
	path := filepath.Join(dir, "logs/small__default.tsv.gz")
	require.NoError(t, os.WriteFile(path, []byte("plain"), 0o644))
	_, err = CompareLogs(dir, nil)
	require.EqualError(t, err, path+": unexpected EOF; fetch it again")
}
