package corpus_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var update = flag.Bool("update", false, "write the fuzz inputs in testdata/fuzz anew from testdata/seeds")

const seedDir = "testdata/seeds"

// readSeeds reads the text form of all seeds, by name.
func readSeeds(t *testing.T) map[string]*trace.Trace {
	t.Helper()
	files, err := filepath.Glob(seedDir + "/*.trace")
	require.NoError(t, err)
	seeds := map[string]*trace.Trace{}
	for _, file := range files {
		tr, err := trace.ReadFile(file)
		require.NoError(t, err)
		seeds[strings.TrimSuffix(filepath.Base(file), ".trace")] = tr
	}
	require.GreaterOrEqual(t, len(seeds), minSeeds, "seeds in %s", seedDir)
	return seeds
}

// TestSeeds holds text and bytes of the seeds to the same meaning, for each target.
func TestSeeds(t *testing.T) {
	seeds := readSeeds(t)
	for _, target := range fuzzTargets {
		dir := filepath.Join("testdata/fuzz", target)
		if *update {
			require.NoError(t, os.MkdirAll(dir, 0o755))
			for name, tr := range seeds {
				require.NoError(t, os.WriteFile(filepath.Join(dir, name), corpus.Marshal(trace.Encode(tr)), 0o644))
			}
		}
		inputs, err := corpus.ReadInputs(dir)
		require.NoError(t, err)
		for name, tr := range seeds {
			require.Contains(t, inputs, name, "%s lacks a seed; run go test ./corpus -run TestSeeds -update", dir)
			require.Equal(t, tr.Hash(), trace.Decode(inputs[name]).Hash(),
				"%s/%s differs from its text; run go test ./corpus -run TestSeeds -update", dir, name)
		}
		for name, in := range inputs {
			require.Contains(t, seeds, name, "%s/%s has no text; choose a name that says what it is about and put this into %s/<name>.trace:\n%s",
				dir, name, seedDir, trace.Decode(in).Format())
		}
	}
}

// TestSeedsSayWhy: a seed that nobody can place is not kept for long.
func TestSeedsSayWhy(t *testing.T) {
	for name, tr := range readSeeds(t) {
		about, _ := tr.Get("about")
		require.NotEmpty(t, about, "%s.trace needs a line: # about: ...", name)
		require.LessOrEqual(t, len(tr.Ops), 64, "%s.trace: a seed is small", name)
	}
}

// TestSeedsAreClean runs every seed on both allocators, as the fuzz targets do.
func TestSeedsAreClean(t *testing.T) {
	for name, tr := range readSeeds(t) {
		for base := range fuzzTargets {
			c := newCase(base, tr)
			res, err := c.run(properties.All(), properties.NewJudge())
			require.NoError(t, err, name)
			require.Empty(t, res.Findings, "%s on %s", name, base)
			require.Equal(t, len(c.trace.Ops), res.Ops, "%s on %s ended early", name, base)
		}
	}
}

// TestSeedsShowWhatTheySay holds the seeds to their `# expect:` lines: a counterexample that is none any more teaches nothing.
func TestSeedsShowWhatTheySay(t *testing.T) {
	rep, err := conform.CompareExpectations([]string{seedDir}, properties.NewJudge())
	require.NoError(t, err)
	for i := range rep.Failures {
		t.Error(rep.Failures[i].String())
	}
	require.GreaterOrEqual(t, rep.Expectations, 50)
}

// TestCaseRunsWhatItsTextSays: the text that a finding prints repeats the run by itself.
func TestCaseRunsWhatItsTextSays(t *testing.T) {
	for _, c := range []struct{ base, in, allocator, text string }{
		{classic, "alloc 0 1\n", "classic", "# shatter: 1\n# capacity: 268435456\nalloc 0 1\n"},
		{expandable, "alloc 0 1\n", "expandable", "# shatter: 1\n# capacity: 268435456\n# conf: expandable_segments:True\nalloc 0 1\n"},
		{classic, "# capacity: 1\n# conf: expandable_segments:True,max_split_size_mb:21\n# fraction: 0.5\n",
			"classic@max_split_size_mb:21,x_memory_fraction:0.5",
			"# shatter: 1\n# capacity: 2097152\n# conf: expandable_segments:True,max_split_size_mb:21,expandable_segments:False\n# fraction: 0.5\n"},
		{classic, "# capacity: 9GiB\n# conf: max_split_size_mb:1\nconf a:b\n", "classic", "# shatter: 1\n# capacity: 8589934592\n"},
	} {
		in, err := trace.ParseString("", c.in)
		require.NoError(t, err)
		got := newCase(c.base, in)
		require.Equal(t, c.allocator, got.spec.Name)
		require.Equal(t, c.text, string(got.trace.Format()))
		again := newCase(c.base, got.trace)
		require.Equal(t, got.spec.Settings.Expandable, again.spec.Settings.Expandable)
		require.Equal(t, got.capacity, again.capacity)
	}
}

// TestUnreadableSettingsAreDropped: only those, and the rest keeps its order.
func TestUnreadableSettingsAreDropped(t *testing.T) {
	in, err := trace.ParseString("", "alloc 0 1\nconf max_split_size_mb:1\nfree 0\nconf max_split_size_mb:21\nconf x_memory_fraction:0.5\nsync\n")
	require.NoError(t, err)
	got := newCase(classic, in)
	require.Equal(t, "alloc 0 1\nfree 0\nconf max_split_size_mb:21\nsync\n",
		strings.TrimPrefix(string(got.trace.Format()), "# shatter: 1\n# capacity: 268435456\n"))
	require.Len(t, in.Ops, 6, "the input is left as it was")
}
