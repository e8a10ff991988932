package mutants_test

import (
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/mutants"
)

const root = "../.."

func all(t *testing.T) []mutants.Mutant {
	t.Helper()
	list, err := mutants.All()
	require.NoError(t, err)
	return list
}

// The source moves on; a bug that no longer fits must follow, else it silently stops testing anything.
func TestBugsFitTheSource(t *testing.T) {
	for _, m := range all(t) {
		t.Run(m.Name, func(t *testing.T) {
			changed, err := m.Apply(root)
			require.NoError(t, err)
			for name, text := range changed {
				before, err := os.ReadFile(filepath.Join(root, name))
				require.NoError(t, err)
				require.NotEqual(t, string(before), text)
				_, err = parser.ParseFile(token.NewFileSet(), name, text, 0)
				require.NoError(t, err)
			}
		})
	}
}

func TestEnoughBugs(t *testing.T) {
	list := all(t)
	require.GreaterOrEqual(t, len(list), 60)
	require.Equal(t, mutants.Canary, list[0].Name)
	links := map[string]bool{}
	rules := map[string]bool{}
	survivors := 0
	for _, m := range list {
		if m.Survivor != "" {
			survivors++
		}
		if m.Upstream != "" {
			require.True(t, strings.HasPrefix(m.Upstream, "https://github.com/"), m.Name)
			links[m.Upstream] = true
		}
		for _, r := range m.Rules {
			rules[r] = true
		}
		require.Equal(t, m.Minimum <= 4, m.Proved, "%s: a minimum of up to 4 is proved by enumeration, a longer one cannot be", m.Name)
	}
	require.GreaterOrEqual(t, len(links), 20)
	require.GreaterOrEqual(t, survivors, 15, "bugs that came from survivors of the mutation run")
	for _, section := range []string{
		"6", "6.1", "6.2", "7", "8", "9", "10", "11", "12", "13", "14.1", "14.2", "14.3", "14.4", "14.5", "15.1", "15.2", "15.3", "15.4",
		"16", "17.1", "17.2", "17.3", "17.4", "17.5", "17.7", "17.8", "19", "20",
	} {
		require.True(t, rules[section], "no bug breaks section %s", section)
	}
}

func TestParse(t *testing.T) {
	m, err := mutants.Parse("name: a\nsummary: b\nrule: 6, 6.1\nproperty: p/r\nminimum: 2 exhaustive\n\n--- old x.go\n\told\n--- new\n\tnew\n--- old y.go\n1\n\n2\n--- new\n")
	require.NoError(t, err)
	require.Equal(t, mutants.Mutant{
		Name: "a", Summary: "b", Rules: []string{"6", "6.1"}, Property: "p/r", Minimum: 2, Proved: true,
		Patches: []mutants.Patch{{File: "x.go", Old: "\told\n", New: "\tnew\n"}, {File: "y.go", Old: "1\n\n2\n"}},
	}, m)
	const head = "name: a\nsummary: b\nrule: 6\nproperty: p/r\n"
	for text, want := range map[string]string{
		"name a":                       "line 1: `key: value` or `--- old FILE` expected",
		"colour: red":                  `line 1: unknown key "colour"`,
		"minimum: two exhaustive":      "not a number of operations",
		"minimum: 2 or so":             "must end with exhaustive or upper bound",
		head:                           "minimum is missing",
		head + "minimum: 2 exhaustive": "patch is missing",
		head + "minimum: 2 exhaustive\n--- old x.go\n--- new\na\n":    "x.go: nothing to replace",
		head + "minimum: 2 exhaustive\n--- old x.go\na\n--- new\na\n": "x.go: the new lines are the old ones",
	} {
		_, err := mutants.Parse(text)
		require.ErrorContains(t, err, want)
	}
}

func TestApply(t *testing.T) {
	folder := t.TempDir()
	write := func(text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, "x.go"), []byte(text), 0o644))
	}
	m := mutants.Mutant{Name: "m", Patches: []mutants.Patch{{File: "x.go", Old: "b\n", New: "B\n"}, {File: "x.go", Old: "c\n", New: ""}}}
	write("a\nb\nc\n")
	changed, err := m.Apply(folder)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"x.go": "a\nB\n"}, changed)
	write("a\nab\nc\n")
	_, err = m.Apply(folder)
	require.EqualError(t, err, "planted bug m: the lines that it replaces stand 0 times in x.go, must once")
	write("b\na\nb\n")
	_, err = m.Apply(folder)
	require.EqualError(t, err, "planted bug m: the lines that it replaces stand 2 times in x.go, must once")
}

func TestOverlay(t *testing.T) {
	folder := t.TempDir()
	list := all(t)
	name, err := list[0].Overlay("/module", folder)
	require.Error(t, err, "there is no such folder")
	require.Empty(t, name)
	here, err := filepath.Abs(root)
	require.NoError(t, err)
	name, err = list[0].Overlay(here, folder)
	require.NoError(t, err)
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.Contains(t, string(text), filepath.Join(here, list[0].Patches[0].File))
}

func TestSections(t *testing.T) {
	require.Equal(t, []string{"6", "6.1", "6.2", "7", "10", "14.5", "17.1"},
		mutants.Sections(map[string]int{"17.1": 0, "6.2": 0, "10": 0, "6": 0, "7": 0, "14.5": 0, "6.1": 0}))
}
