package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/properties"
)

// corpusFlags say which corpus.
type corpusFlags struct{ dir string }

func corpusCommand() *cobra.Command {
	var f corpusFlags
	c := &cobra.Command{
		Use:   "corpus",
		Short: "cases with a right outcome: list, check, add, review",
		Long: `Corpus keeps what was found once: small traces, each a text file in the folder of its state (accepted, known, pending, flaky,
retired), with a header that says where it comes from, what is right, what comes out under each setting, and who comes out
otherwise. The folder is --dir, else ./corpus, else that of the clone in which the command runs, else the one built in.`,
		Example: `  shatter corpus check                                          does every case come out as recorded
  shatter corpus add --adopt corpus/testdata/fuzz/FuzzClassic/0123456789abcdef
  shatter corpus review --out review.html                       a page of what is pending
  shatter corpus promote NAME --name a-better-name --class split-pin --about ... --note ... --bites planted:BUG`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().StringVar(&f.dir, "dir", "", "folder of the corpus")
	c.AddCommand(f.list(), f.show(), f.check(), f.add(), f.dedupe(), f.promote(), f.retire(), f.review())
	return c
}

// open opens the corpus; changes says that it must be a folder.
func (f *corpusFlags) open(changes bool) (*corpus.Store, error) {
	if f.dir != "" {
		s, err := corpus.Open(f.dir)
		return s, err
	}
	if s, err := corpus.Open("corpus"); err == nil {
		return s, nil
	}
	here, err := os.Getwd()
	if err != nil {
		return nil, faultError{err}
	}
	for dir, up := here, "."; ; dir, up = filepath.Dir(dir), filepath.Join(up, "..") {
		mod, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(mod), "module github.com/shatter-gpu/shatter\n") {
			return corpus.Open(filepath.Join(up, "corpus"))
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if changes {
		return nil, hinted{errors.New("there is no corpus here that can be changed"), "run this in a clone of shatter, or name a folder with --dir"}
	}
	return corpus.Embedded(), nil
}

// shown is a case's path for people and commands.
func shown(s *corpus.Store, c *corpus.Case) string {
	return filepath.Join(s.Dir(), filepath.FromSlash(c.Path()))
}

// checks are what cases are held against.
func (f *corpusFlags) checks() *verify.Checks {
	return &verify.Checks{Properties: properties.All(), NewJudge: properties.NewJudge, Relations: properties.Relations()}
}

// stateFlag reads a state.
func stateFlag(flag, text string) (corpus.State, error) {
	if !slices.Contains(corpus.States, corpus.State(text)) {
		return "", fmt.Errorf("--%s %s: must be accepted, known, pending, flaky or retired", flag, text)
	}
	return corpus.State(text), nil
}

func (f *corpusFlags) list() *cobra.Command {
	var state, class string
	var classes bool
	c := &cobra.Command{
		Use:   "list",
		Short: "the cases: state, fault class, operations, and what happens in them",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			if classes {
				for _, k := range corpus.Classes() {
					fmt.Fprintf(w, "%s\t%s\n", k.Name, k.Meaning)
				}
				return w.Flush()
			}
			s, err := f.open(false)
			if err != nil {
				return err
			}
			var states []corpus.State
			if state != "" {
				one, err := stateFlag("state", state)
				if err != nil {
					return err
				}
				states = append(states, one)
			}
			if class != "" {
				if _, err := corpus.FindClass(class); err != nil {
					return fmt.Errorf("--class: %w", err)
				}
			}
			cases, err := s.Cases(states...)
			if err != nil {
				return err
			}
			for _, k := range cases {
				if class == "" || k.Class() == class {
					about := k.About()
					if about == "" {
						about = k.Finding()
					}
					fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", k.State, k.Class(), len(k.Trace.Ops), k.Name, about)
				}
			}
			return w.Flush()
		},
	}
	c.Flags().StringVar(&state, "state", "", "only cases in this state")
	c.Flags().StringVar(&class, "class", "", "only cases of this fault class")
	c.Flags().BoolVar(&classes, "classes", false, "list the fault classes instead")
	return c
}

func (f *corpusFlags) show() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME...",
		Short: "the text of cases; shatter replay runs it",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.open(false)
			if err != nil {
				return err
			}
			for _, name := range args {
				k, err := s.Find(name)
				if err != nil {
					return err
				}
				if _, err := c.OutOrStdout().Write(k.Text()); err != nil {
					return faultError{err}
				}
			}
			return nil
		},
	}
}

func (f *corpusFlags) dedupe() *cobra.Command {
	var apply bool
	c := &cobra.Command{
		Use:   "dedupe",
		Short: "cases that show the same",
		Long: `Dedupe lists cases that show the same: pending findings of one signature, and other cases of which the refusals have the same
signatures and the allocators took the same decisions. The first of a group is the one to keep. --apply removes the pending
ones behind it; others are for a reviewer to retire. Exit 1 if there are any.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := f.open(apply)
			if err != nil {
				return err
			}
			cases, err := s.Cases(corpus.Accepted, corpus.Known, corpus.Pending)
			if err != nil {
				return err
			}
			var reports []*verify.Report
			for _, k := range cases {
				r, err := f.checks().Case(k)
				if err != nil {
					return err
				}
				reports = append(reports, r)
			}
			groups := verify.Duplicates(reports)
			for _, g := range groups {
				fmt.Fprintf(c.OutOrStdout(), "%s\n", shown(s, g[0].Case))
				for _, r := range g[1:] {
					what := "shatter corpus retire " + r.Case.Name + " --because 'shows what " + g[0].Case.Name + " shows'"
					if r.Case.State == corpus.Pending && apply {
						if err := s.Remove(r.Case); err != nil {
							return faultError{err}
						}
						what = "removed"
					} else if r.Case.State == corpus.Pending {
						what = "shatter corpus dedupe --apply removes it"
					}
					fmt.Fprintf(c.OutOrStdout(), "  is also shown by %s: %s\n", shown(s, r.Case), what)
				}
			}
			fmt.Fprintf(c.OutOrStdout(), "%d cases, %d of them show what another one shows\n", len(cases), surplus(groups))
			if len(groups) > 0 && !apply {
				return errFindings
			}
			return nil
		},
	}
	c.Flags().BoolVar(&apply, "apply", false, "remove the pending ones")
	return c
}

func surplus(groups [][]*verify.Report) int {
	n := 0
	for _, g := range groups {
		n += len(g) - 1
	}
	return n
}
