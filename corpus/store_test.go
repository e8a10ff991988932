package corpus_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(b)
}

func comments(t *testing.T, path string) int {
	return strings.Count("\n"+readFile(t, path), "\n#")
}

// newStore makes an empty corpus.
func newStore(t *testing.T) *corpus.Store {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "pending"), 0o755))
	s, err := corpus.Open(dir)
	require.NoError(t, err)
	return s
}

func parse(t *testing.T, text string) *trace.Trace {
	t.Helper()
	tr, err := trace.ParseString("t", text)
	require.NoError(t, err)
	return tr
}

// TestPend: the same signature is the same cause; the smaller trace stands for it, and an accepted case ends the matter.
func TestPend(t *testing.T) {
	s := newStore(t)
	long, short := parse(t, "# capacity: 4MiB\nalloc 0 1\nfree 0\nalloc 1 5\n"), parse(t, "# capacity: 4MiB\nalloc 0 1\n")
	first, fresh, err := s.Pend(long, "tiling.gap.classic.free", "fuzzing")
	require.NoError(t, err)
	require.True(t, fresh)
	require.Equal(t, corpus.Pending, first.State)
	_, fresh, err = s.Pend(parse(t, "alloc 0 1\n"), "tiling.gap.classic.alloc", "fuzzing")
	require.NoError(t, err)
	require.True(t, fresh, "another signature is another cause")

	second, fresh, err := s.Pend(short, "tiling.gap.classic.free", "nightly")
	require.NoError(t, err)
	require.False(t, fresh)
	require.Equal(t, "nightly", second.Source())
	all, err := s.Cases()
	require.NoError(t, err)
	require.Len(t, all, 2, "the smaller trace took the place of the longer one")
	again, fresh, err := s.Pend(long, "tiling.gap.classic.free", "fuzzing")
	require.NoError(t, err)
	require.False(t, fresh)
	require.Equal(t, second.Name, again.Name)

	c, err := s.Find(second.Name)
	require.NoError(t, err)
	c.Set("retired", "for the test")
	require.NoError(t, s.Move(c, corpus.Retired))
	_, err = os.Stat(filepath.Join(s.Dir(), "pending", second.Name+".trace"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, fresh, err = s.Pend(parse(t, "alloc 0 3\n"), "tiling.gap.classic.free", "fuzzing")
	require.NoError(t, err)
	require.True(t, fresh, "what is retired comes up anew")
}

// TestHash: operations and claims cannot change unnoticed, prose can.
func TestHash(t *testing.T) {
	s := newStore(t)
	c, _, err := s.Pend(parse(t, "# capacity: 4MiB\n# note: a\nalloc 0 1MiB   # weights\n"), "tiling.gap.classic.free", "fuzzing")
	require.NoError(t, err)
	path := filepath.Join(s.Dir(), "pending", c.Name+".trace")
	text := readFile(t, path)
	require.Contains(t, text, "# capacity: 4MiB\n")
	require.Contains(t, text, "alloc 0 1MiB   # weights\n", "units and comments stay")
	for _, e := range []struct {
		old, new string
		wrong    bool
	}{
		{"alloc 0 1MiB", "alloc 0 2MiB", true}, {"# capacity: 4MiB", "# capacity: 6MiB", true}, {"# source: fuzzing", "# source: else", true},
		{"# finding: tiling", "# finding: tilling", true}, {"# note: a", "# note: b", false}, {"# weights", "# gradients", false},
	} {
		require.Contains(t, text, e.old)
		require.NoError(t, os.WriteFile(path, []byte(strings.Replace(text, e.old, e.new, 1)), 0o644))
		_, err := s.Cases()
		if !e.wrong {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, "were changed by hand")
		require.ErrorContains(t, err, "shatter corpus check --update "+c.Name)
	}
}

// TestStoreErrors: each says what to do.
func TestStoreErrors(t *testing.T) {
	_, err := corpus.Open(t.TempDir())
	require.ErrorContains(t, err, "mkdir -p")
	s := newStore(t)
	c, _, err := s.Pend(parse(t, "alloc 0 1\n"), "a.b.classic.free", "x")
	require.NoError(t, err)
	require.ErrorContains(t, s.Move(c, corpus.Accepted), "a line `# class: ...` is missing, which accepted cases need")
	c.Set("class", "nonsense")
	require.ErrorContains(t, s.Put(c), "take one of split-pin")
	_, err = s.Find("zzz")
	require.ErrorContains(t, err, "`shatter corpus list` names them")
	_, _, err = s.Pend(parse(t, "alloc 0 2\n"), "a.b.expandable.free", "x")
	require.NoError(t, err)
	_, err = s.Find("a.b")
	require.ErrorContains(t, err, "say more of the name")
	found, err := s.Find("pending/a.b.cl")
	require.NoError(t, err)
	require.Equal(t, c.Name, found.Name)
	require.ErrorContains(t, corpus.Embedded().Put(c), "cannot be changed")
	require.NoError(t, os.WriteFile(filepath.Join(s.Dir(), "pending", "README"), nil, 0o644))
	_, err = s.Cases()
	require.ErrorContains(t, err, "only files NAME.trace may lie there")
}

// TestInputsFollow: a case that is accepted gets its inputs, one that is retired loses them, a crasher stays and is named.
func TestInputsFollow(t *testing.T) {
	s := newStore(t)
	built, err := corpus.Embedded().Cases(corpus.Accepted)
	require.NoError(t, err)
	c := built[0]
	require.NoError(t, s.Put(c))
	require.ErrorContains(t, s.CheckInputs(), "lacks "+c.Name)
	changed, err := s.SyncInputs()
	require.NoError(t, err)
	require.Len(t, changed, len(corpus.FuzzTargets))
	require.NoError(t, s.CheckInputs())
	changed, err = s.SyncInputs()
	require.NoError(t, err)
	require.Empty(t, changed)

	dir := filepath.Join(s.Dir(), corpus.InputDir("FuzzClassic"))
	require.NoError(t, os.WriteFile(filepath.Join(dir, c.Name), corpus.Marshal([]byte{0x80}), 0o644))
	require.ErrorContains(t, s.CheckInputs(), "is another trace than the case")
	c.Set("retired", "for the test")
	require.NoError(t, s.Move(c, corpus.Retired))
	require.ErrorContains(t, s.CheckInputs(), "belongs to no case")
	crasher := filepath.Join(dir, "0123456789abcdef")
	require.NoError(t, os.WriteFile(crasher, corpus.Marshal([]byte{0x80}), 0o644))
	_, err = s.SyncInputs()
	require.NoError(t, err)
	require.ErrorContains(t, s.CheckInputs(), "add --adopt "+crasher)
}
