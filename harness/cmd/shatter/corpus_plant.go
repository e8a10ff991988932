package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/mutants"
	"github.com/shatter-gpu/shatter/corpus"
)

// plant builds this program with each bug that cases name, and lets it check those cases: it must find each of them different.
func (f *corpusFlags) plant(c *cobra.Command, s *corpus.Store, cases []*corpus.Case) error {
	if s.Dir() == "" {
		return hinted{errors.New("planting bugs needs the source"), "run this in a clone of shatter"}
	}
	root, err := moduleRoot(c.Context())
	if err != nil {
		return err
	}
	bugs, err := mutants.All()
	if err != nil {
		return faultError{err}
	}
	folder, err := os.MkdirTemp("", "shatter-corpus-")
	if err != nil {
		return faultError{err}
	}
	defer os.RemoveAll(folder)
	names, by := plantedNames(cases)
	dir, err := filepath.Abs(s.Dir())
	if err != nil {
		return faultError{err}
	}
	failed, checked := 0, 0
	for _, name := range names {
		i := slices.IndexFunc(bugs, func(m mutants.Mutant) bool { return m.Name == name })
		if i < 0 {
			return fmt.Errorf("%s: there is no planted bug %q; they are the files in allocators/mutants/bugs", by[name][0].Path(), name)
		}
		found, err := checkWith(c.Context(), root, filepath.Join(folder, name), dir, &bugs[i], by[name])
		if c.Context().Err() != nil {
			return errInterrupted
		}
		if err != nil {
			return faultError{fmt.Errorf("planted bug %s: %w", name, err)}
		}
		missed := 0
		for _, k := range by[name] {
			checked++
			if !found[k.Name] {
				missed++
				fmt.Fprintf(c.OutOrStdout(), "%s does not bite: it comes out as recorded with the planted bug %s\n", shown(s, k), name)
			}
		}
		failed += missed
		fmt.Fprintf(c.OutOrStdout(), "%s: %d of %d cases differ\n", name, len(by[name])-missed, len(by[name]))
	}
	fmt.Fprintf(c.OutOrStdout(), "%d planted bugs, %d bites, %d missing\n", len(names), checked, failed)
	if failed > 0 {
		return errFindings
	}
	return nil
}

// checkWith names the cases that a program with the bug finds different. A program that crashes or never ends bites too, so the
// cases are then tried one at a time.
func checkWith(ctx context.Context, root, folder, dir string, m *mutants.Mutant, cases []*corpus.Case) (map[string]bool, error) {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	overlay, err := m.Overlay(root, folder)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(folder, "shatter")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./harness/cmd/shatter")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	found := map[string]bool{}
	if r := checkBy(ctx, program, dir, cases); r != nil {
		for _, d := range r.Different {
			found[strings.TrimSuffix(filepath.Base(d.Case), ".trace")] = true
		}
		return found, nil
	}
	for _, k := range cases {
		r := checkBy(ctx, program, dir, []*corpus.Case{k})
		found[k.Name] = r == nil || len(r.Different) > 0
	}
	return found, nil
}

// checkBy lets a program check cases; nil if it breaks on them.
func checkBy(ctx context.Context, program, dir string, cases []*corpus.Case) *corpusChecked {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	args := []string{"corpus", "check", "--json", "--dir", dir}
	for _, k := range cases {
		args = append(args, k.Path())
	}
	out, err := exec.CommandContext(ctx, program, args...).Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || exit.ExitCode() != exitFindings) {
		return nil
	}
	var r corpusChecked
	if json.Unmarshal(out, &r) != nil {
		return nil
	}
	return &r
}
