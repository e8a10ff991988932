package trace

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sharedFolder holds the recorded decisions and the reduced cases; it lies beside the module and may be missing.
const sharedFolder = "../../../shared"

// sharedText reads every file of a pattern below the shared folder, decompressed.
func sharedText(t *testing.T, pattern string, atLeast int) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(sharedFolder, pattern))
	require.NoError(t, err)
	if len(files) == 0 {
		t.Skipf("no %s: the folder of recorded traces is not here", filepath.Join(sharedFolder, pattern))
	}
	require.GreaterOrEqual(t, len(files), atLeast)
	texts := map[string]string{}
	for _, file := range files {
		f, err := os.Open(file)
		require.NoError(t, err)
		text, err := readText(file, f)
		f.Close()
		require.NoError(t, err)
		texts[file] = string(text)
	}
	return texts
}

func TestSharedCasesAreCanonical(t *testing.T) {
	for file, text := range sharedText(t, "cases/*.trace", 30) {
		tr, err := ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, tr.Validate())
		require.Equal(t, text, string(tr.Format()), file)
		for _, key := range []string{"shatter", "case", "source", "fault-class", "capacity", "conf", "pattern", "right", "expect"} {
			_, ok := tr.Get(key)
			require.True(t, ok, "%s has no %s", file, key)
		}
		require.NotEmpty(t, tr.Ops)
		checkBytes(t, tr)
	}
}

// TestSharedDecisionTraces: these files spell the default stream out now and then, which canonical text does not.
func TestSharedDecisionTraces(t *testing.T) {
	spelt := 0
	for file, text := range sharedText(t, "decisions/traces/*.gz", 49) {
		tr, err := ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, tr.Validate())
		require.Empty(t, tr.Header, file)
		lines := strings.SplitAfter(text, "\n")
		for i, line := range lines {
			if rest, ok := strings.CutSuffix(line, " stream=0\n"); ok && strings.HasPrefix(line, "alloc ") {
				lines[i] = rest + "\n"
			}
		}
		want := strings.Join(lines, "")
		require.Equal(t, want, string(tr.Format()), file)
		if want != text {
			spelt++
		}
		tr.Ops = tr.Ops[:min(len(tr.Ops), MaxDecodedOps)]
		checkBytes(t, tr)
	}
	t.Logf("%d files spell out stream=0", spelt)
}

func checkBytes(t *testing.T, tr *Trace) {
	t.Helper()
	b := Encode(tr)
	got := Decode(b)
	requireSame(t, tr, got)
	require.Equal(t, b, Encode(got))
}
