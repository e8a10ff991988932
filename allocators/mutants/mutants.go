// Package mutants holds planted bugs: small patches to the allocator, each with the rule that it breaks, the property that
// must see it and the fewest operations that show it. They measure the harness: a property, a generator or a shrinker that
// lets one of them through is at fault.
//
// A bug is a text file in bugs: lines `key: value`, then for each change the lines that it replaces and those that it puts
// there. Nothing of it is compiled into any program. `shatter selftest` builds a program with the bug by the flag -overlay of
// go build, which replaces source files, so the allocator has no hook for it.
package mutants

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Canary is the bug that any harness must find. If it is not found, the rest of a self-test means nothing.
const Canary = "canary"

// Mutant is a planted bug.
type Mutant struct {
	Name string
	// Summary says what the bug does, in a sentence.
	Summary string
	// Rules are the sections of the allocator's specification that it breaks.
	Rules []string
	// Upstream is where the same fault was reported of a real allocator, if it was.
	Upstream string
	// Property and Rule are what must see it.
	Property string
	// Minimum is the fewest operations that show it. Proved says that all shorter traces were tried (see Exhaustive in
	// `shatter selftest`); else it is an upper bound, the fewest that shrinking came to.
	Minimum int
	Proved  bool
	// Survivor is the change as a mutation tool describes it, if the bug is one that survived the tests.
	Survivor string
	Patches  []Patch
}

// Patch replaces lines that stand exactly once in a file.
type Patch struct {
	// File is relative to the module's root.
	File     string
	Old, New string
}

//go:embed bugs/*.bug
var files embed.FS

// All returns every bug, by name; the canary comes first.
func All() ([]Mutant, error) {
	names, err := fs.Glob(files, "bugs/*.bug")
	if err != nil {
		return nil, err
	}
	var out []Mutant
	for _, n := range names {
		text, err := files.ReadFile(n)
		if err != nil {
			return nil, err
		}
		m, err := Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n, err)
		}
		if m.Name != strings.TrimSuffix(path.Base(n), ".bug") {
			return nil, fmt.Errorf("%s: is named %q inside", n, m.Name)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b Mutant) int {
		if x, y := a.Name == Canary, b.Name == Canary; x != y {
			if x {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out, nil
}

const (
	oldMark = "--- old "
	newMark = "--- new"
)

// Parse reads a bug file.
func Parse(text string) (Mutant, error) {
	var m Mutant
	var into *string
	for i, line := range strings.SplitAfter(text, "\n") {
		bare := strings.TrimSuffix(line, "\n")
		switch {
		case strings.HasPrefix(bare, oldMark):
			m.Patches = append(m.Patches, Patch{File: strings.TrimPrefix(bare, oldMark)})
			into = &m.Patches[len(m.Patches)-1].Old
		case bare == newMark && len(m.Patches) > 0:
			into = &m.Patches[len(m.Patches)-1].New
		case into != nil:
			*into += line
		case strings.TrimSpace(bare) == "":
		default:
			key, value, ok := strings.Cut(bare, ": ")
			if !ok {
				return m, fmt.Errorf("line %d: `key: value` or `%sFILE` expected", i+1, oldMark)
			}
			if err := m.set(key, value); err != nil {
				return m, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
	}
	return m, m.check()
}

func (m *Mutant) set(key, value string) (err error) {
	switch key {
	case "name":
		m.Name = value
	case "summary":
		m.Summary = value
	case "rule":
		m.Rules = strings.Split(value, ", ")
	case "upstream":
		m.Upstream = value
	case "property":
		m.Property = value
	case "survivor":
		m.Survivor = value
	case "minimum":
		n, how, _ := strings.Cut(value, " ")
		if m.Minimum, err = strconv.Atoi(n); err != nil {
			return fmt.Errorf("minimum %q: not a number of operations", value)
		}
		if how != "exhaustive" && how != "upper bound" {
			return fmt.Errorf("minimum %q: must end with exhaustive or upper bound", value)
		}
		m.Proved = how == "exhaustive"
	default:
		return fmt.Errorf("unknown key %q", key)
	}
	return nil
}

func (m *Mutant) check() error {
	for _, c := range []struct {
		what string
		ok   bool
	}{
		{"name", m.Name != ""}, {"summary", m.Summary != ""}, {"rule", len(m.Rules) > 0}, {"property", m.Property != ""},
		{"minimum", m.Minimum > 0}, {"patch", len(m.Patches) > 0},
	} {
		if !c.ok {
			return fmt.Errorf("%s is missing", c.what)
		}
	}
	for _, p := range m.Patches {
		if p.Old == "" {
			return fmt.Errorf("%s: nothing to replace", p.File)
		}
		if p.Old == p.New {
			return fmt.Errorf("%s: the new lines are the old ones", p.File)
		}
	}
	return nil
}

// Sections lists the keys of a map by section, 6.1 before 10.
func Sections[T any](by map[string]T) []string {
	var out []string
	for s := range by {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b string) int {
		x, y := strings.Split(a, "."), strings.Split(b, ".")
		for i := range min(len(x), len(y)) {
			m, _ := strconv.Atoi(x[i])
			n, _ := strconv.Atoi(y[i])
			if m != n {
				return m - n
			}
		}
		return len(x) - len(y)
	})
	return out
}
