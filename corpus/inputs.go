package corpus

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// InputDir is where `go test` looks for the inputs of a fuzz target, below the corpus folder.
func InputDir(target string) string { return filepath.Join("testdata", "fuzz", target) }

// Seeds are the cases that the fuzz targets start from: accepted and known ones.
func (s *Store) Seeds() ([]*Case, error) { return s.Cases(Accepted, Known) }

// SyncInputs makes the inputs of the fuzz targets what the cases say: each accepted or known case has one for each target under
// its name, and an input by the name of a case that is neither any more goes. Crashers, which go test names by 16 hexadecimal
// digits, stay: `shatter corpus add --adopt` takes them. It returns what it changed.
func (s *Store) SyncInputs() (changed []string, err error) {
	cases, err := s.Seeds()
	if err != nil {
		return nil, err
	}
	for _, target := range targetNames() {
		dir := filepath.Join(s.dir, InputDir(target))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		have, err := ReadInputs(dir)
		if err != nil {
			return nil, err
		}
		for _, c := range cases {
			want := trace.Encode(c.Trace)
			if in, ok := have[c.Name]; !ok || string(in) != string(want) {
				path := filepath.Join(dir, c.Name)
				if err := writeWhole(path, Marshal(want)); err != nil {
					return nil, err
				}
				changed = append(changed, path)
			}
			delete(have, c.Name)
		}
		for name := range have {
			if IsCrasher(name) {
				continue
			}
			path := filepath.Join(dir, name)
			if err := os.Remove(path); err != nil {
				return nil, err
			}
			changed = append(changed, path)
		}
	}
	slices.Sort(changed)
	return changed, nil
}

// CheckInputs tells in what the inputs of the fuzz targets differ from the cases.
func (s *Store) CheckInputs() error {
	cases, err := s.Seeds()
	if err != nil {
		return err
	}
	const mend = "run: shatter corpus check --update"
	for _, target := range targetNames() {
		dir := filepath.Join(s.dir, InputDir(target))
		have, err := ReadInputs(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, c := range cases {
			in, ok := have[c.Name]
			if !ok {
				return fmt.Errorf("%s lacks %s; %s", dir, c.Name, mend)
			}
			if want := (&trace.Trace{Header: c.Trace.Header, Ops: c.Trace.Ops}).First(trace.MaxDecodedOps); trace.Decode(in).Hash() != want.Hash() {
				return fmt.Errorf("%s/%s is another trace than the case %s; %s", dir, c.Name, c.Path(), mend)
			}
			delete(have, c.Name)
		}
		for _, name := range slices.Sorted(maps.Keys(have)) {
			if IsCrasher(name) {
				return fmt.Errorf("%[1]s/%[2]s is what fuzzing found; run: shatter corpus add --adopt %[1]s/%[2]s", dir, name)
			}
			return fmt.Errorf("%s/%s belongs to no case; %s", dir, name, mend)
		}
	}
	return nil
}

// IsCrasher tells by its name whether fuzzing found an input.
func IsCrasher(name string) bool {
	return len(name) == 16 && strings.Trim(name, "0123456789abcdef") == ""
}

func targetNames() []string {
	var out []string
	for _, t := range FuzzTargets {
		out = append(out, t)
	}
	slices.Sort(out)
	return out
}
