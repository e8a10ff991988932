package corpus_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/mutants"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var update = flag.Bool("update", false, "write the inputs of the fuzz targets anew from the cases")

var checks = verify.Checks{Properties: properties.All(), NewJudge: properties.NewJudge, Relations: properties.Relations()}

func cases(t *testing.T, states ...corpus.State) []*corpus.Case {
	t.Helper()
	store, err := corpus.Open(".")
	require.NoError(t, err)
	all, err := store.Cases(states...)
	require.NoError(t, err)
	return all
}

// TestCases replays every accepted and known case: it comes out as recorded, it is about the fault that it names, and a known
// issue still shows (if not, the case is to be retired, not forgotten).
func TestCases(t *testing.T) {
	all := cases(t, corpus.Accepted, corpus.Known)
	require.GreaterOrEqual(t, len(all), 90)
	for _, c := range all {
		r, err := checks.Case(c)
		require.NoError(t, err)
		for i := range r.Differences {
			t.Errorf("%s: %s", c.Path(), &r.Differences[i])
		}
		class, err := corpus.FindClass(c.Class())
		require.NoError(t, err, c.Path())
		if !class.Reached(r.Features) {
			t.Errorf("%s: it is no case of %s, which must reach %v; it has %v", c.Path(), class.Name, class.Reach, r.Features)
		}
	}
}

// TestClasses: the table of fault classes can be read, and none is without a case.
func TestClasses(t *testing.T) {
	used := map[string]bool{}
	for _, c := range cases(t, corpus.Accepted, corpus.Known) {
		used[c.Class()] = true
	}
	classes := corpus.Classes()
	require.Len(t, classes, strings.Count(strings.TrimSpace(readFile(t, "classes.tsv")), "\n")-comments(t, "classes.tsv"),
		"every line of classes.tsv but the heading and comments must have three columns")
	for _, c := range classes {
		require.True(t, used[c.Name], "class %s has no case", c.Name)
	}
}

// TestBites runs the allocators that come out otherwise than right, and holds names of planted bugs to those that there are;
// `shatter corpus check --bites` plants them.
func TestBites(t *testing.T) {
	bugs, err := mutants.All()
	require.NoError(t, err)
	onlyPlanted := 0
	all := cases(t, corpus.Accepted, corpus.Known)
	for _, c := range all {
		allocators := 0
		for _, b := range c.Bites() {
			if name, ok := verify.Planted(b); ok {
				require.True(t, slices.ContainsFunc(bugs, func(m mutants.Mutant) bool { return m.Name == name }),
					"%s: there is no planted bug %q", c.Path(), name)
				continue
			}
			how, err := checks.Bite(c, b)
			require.NoError(t, err)
			require.NotEmpty(t, how, "%s: %s comes out right, so the case does not bite", c.Path(), b)
			allocators++
		}
		if allocators == 0 {
			onlyPlanted++
		}
	}
	require.Less(t, onlyPlanted, len(all)/10, "a bite that go test can run is better than one that needs a planted bug")
}

// TestNothingTwice: no two cases show the same.
func TestNothingTwice(t *testing.T) {
	var reports []*verify.Report
	for _, c := range cases(t, corpus.Accepted, corpus.Known, corpus.Pending) {
		r, err := checks.Case(c)
		require.NoError(t, err)
		reports = append(reports, r)
	}
	for _, g := range verify.Duplicates(reports) {
		t.Errorf("%s shows what %s shows; keep one: shatter corpus dedupe", g[1].Case.Path(), g[0].Case.Path())
	}
}

// TestInputs holds the inputs of the fuzz targets to the cases.
func TestInputs(t *testing.T) {
	store, err := corpus.Open(".")
	require.NoError(t, err)
	if *update {
		_, err := store.SyncInputs()
		require.NoError(t, err)
	}
	require.NoError(t, store.CheckInputs())
}

// TestEmbedded: the program has the accepted and the known cases in it.
func TestEmbedded(t *testing.T) {
	built, err := corpus.Embedded().Cases()
	require.NoError(t, err)
	var names, want []string
	for _, c := range built {
		names = append(names, c.Path())
	}
	for _, c := range cases(t, corpus.Accepted, corpus.Known) {
		want = append(want, c.Path())
	}
	require.Equal(t, want, names)
}

// TestCaseRunsWhatItsTextSays: the text that a finding prints repeats the run by itself.
func TestCaseRunsWhatItsTextSays(t *testing.T) {
	for _, c := range []struct{ base, in, allocator, text string }{
		{corpus.Classic, "alloc 0 1\n", "classic", "# shatter: 1\n# capacity: 268435456\nalloc 0 1\n"},
		{corpus.Expandable, "alloc 0 1\n", "expandable", "# shatter: 1\n# capacity: 268435456\n# conf: expandable_segments:True\nalloc 0 1\n"},
		{corpus.Classic, "# capacity: 1\n# conf: expandable_segments:True,max_split_size_mb:21\n# fraction: 0.5\n",
			"classic@max_split_size_mb:21,x_memory_fraction:0.5",
			"# shatter: 1\n# capacity: 2097152\n# conf: expandable_segments:True,max_split_size_mb:21,expandable_segments:False\n# fraction: 0.5\n"},
		{corpus.Classic, "# capacity: 9GiB\n# conf: max_split_size_mb:1\nconf a:b\n", "classic", "# shatter: 1\n# capacity: 8589934592\n"},
	} {
		in, err := trace.ParseString("", c.in)
		require.NoError(t, err)
		got := verify.NewFuzzCase(c.base, in)
		require.Equal(t, c.allocator, got.Spec.Name)
		require.Equal(t, c.text, string(got.Trace.Format()))
		again := verify.NewFuzzCase(c.base, got.Trace)
		require.Equal(t, got.Spec.Settings.Expandable, again.Spec.Settings.Expandable)
		require.Equal(t, got.Capacity, again.Capacity)
	}
}

// TestUnreadableSettingsAreDropped: only those, and the rest keeps its order.
func TestUnreadableSettingsAreDropped(t *testing.T) {
	in, err := trace.ParseString("", "alloc 0 1\nconf max_split_size_mb:1\nfree 0\nconf max_split_size_mb:21\nconf x_memory_fraction:0.5\nsync\n")
	require.NoError(t, err)
	got := verify.NewFuzzCase(corpus.Classic, in)
	require.Equal(t, "alloc 0 1\nfree 0\nconf max_split_size_mb:21\nsync\n",
		strings.TrimPrefix(string(got.Trace.Format()), "# shatter: 1\n# capacity: 268435456\n"))
	require.Len(t, in.Ops, 6, "the input is left as it was")
}
