package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
)

// corpusChecked is the answer of `shatter corpus check --json`, schema shatter.corpus/1.
type corpusChecked struct {
	Schema       string          `json:"schema"`
	Cases        int             `json:"cases"`
	Expectations int             `json:"expectations"`
	Bites        int             `json:"bites"`
	Different    []differentCase `json:"different"`
}

type differentCase struct {
	Case        string              `json:"case"`
	Differences []verify.Difference `json:"differences"`
}

func (f *corpusFlags) check() *cobra.Command {
	var update, planted, asJSON bool
	c := &cobra.Command{
		Use:   "check [NAME...]",
		Short: "does every case come out as recorded, and bite",
		Long: `Check runs the accepted and the known cases again, all or those named, and holds each against its header: what comes out under
each setting, that it is about its fault class, that known issues still show, that the allocators in its 'bites' lines come out
otherwise than right, and that the inputs of the fuzz targets are the cases'. Exit 1 if anything differs. --bites plants the bugs
in the 'bites' lines as well, one after the other: a program with the bug must find the case different. --update writes what comes
out now into the cases, to be looked at in git diff.`,
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.open(update)
			if err != nil {
				return err
			}
			if update {
				return f.update(c, s, args)
			}
			cases, err := chosenCases(s, args)
			if err != nil {
				return err
			}
			if planted {
				return f.plant(c, s, cases)
			}
			r, err := f.checkCases(c, s, cases)
			if err != nil {
				return err
			}
			if s.Dir() != "" && len(args) == 0 {
				if err := s.CheckInputs(); err != nil {
					r.Different = append(r.Different, differentCase{"testdata/fuzz", []verify.Difference{{Figure: "fuzz inputs", Want: "those of the cases", Got: err.Error()}}})
				}
			}
			return r.write(c, asJSON)
		},
	}
	fl := c.Flags()
	fl.BoolVar(&update, "update", false, "write what comes out now into the cases and the fuzz targets' inputs")
	fl.BoolVar(&planted, "bites", false, "build a program with each planted bug that a case names (needs Go and the source)")
	fl.BoolVar(&asJSON, "json", false, "print one JSON document (schema shatter.corpus/1)")
	return c
}

// chosenCases are the cases named, else all that are replayed.
func chosenCases(s *corpus.Store, names []string) ([]*corpus.Case, error) {
	if len(names) == 0 {
		return s.Cases(corpus.Accepted, corpus.Known)
	}
	var out []*corpus.Case
	for _, n := range names {
		c, err := s.Find(n)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

func (f *corpusFlags) checkCases(c *cobra.Command, s *corpus.Store, cases []*corpus.Case) (*corpusChecked, error) {
	r := &corpusChecked{Schema: "shatter.corpus/1", Different: []differentCase{}}
	checks := f.checks()
	bar := newProgress(c.ErrOrStderr(), "cases")
	defer bar.done()
	for i, k := range cases {
		if c.Context().Err() != nil {
			return nil, errInterrupted
		}
		rep, err := checks.Case(k)
		if err != nil {
			return nil, err
		}
		r.Cases++
		r.Expectations += len(k.Expect())
		differences := rep.Differences
		if class, err := corpus.FindClass(k.Class()); err == nil && !class.Reached(rep.Features) {
			differences = append(differences, verify.Difference{
				Figure: "class", Want: class.Name, Got: "it does not reach " + fmt.Sprint(class.Reach), Explanation: "correct its class, or corpus/classes.tsv",
			})
		}
		for _, b := range k.Bites() {
			if _, ok := verify.Planted(b); ok {
				continue
			}
			how, err := checks.Bite(k, b)
			if err != nil {
				return nil, err
			}
			r.Bites++
			if how == "" {
				differences = append(differences, verify.Difference{Allocator: b, Figure: "bites", Want: "another outcome than right", Got: "right"})
			}
		}
		if len(differences) > 0 {
			r.Different = append(r.Different, differentCase{shown(s, k), differences})
		}
		bar.set(i+1, len(cases))
	}
	return r, nil
}

func (r *corpusChecked) write(c *cobra.Command, asJSON bool) error {
	out := c.OutOrStdout()
	if asJSON {
		if err := json.NewEncoder(out).Encode(r); err != nil {
			return faultError{err}
		}
	} else {
		for _, d := range r.Different {
			fmt.Fprintln(out, d.Case)
			for i := range d.Differences {
				fmt.Fprintf(out, "  %s\n", strings.TrimPrefix(d.Differences[i].String(), ": "))
			}
		}
		fmt.Fprintf(out, "%d cases, %d expectations, %d bites\n", r.Cases, r.Expectations, r.Bites)
		if len(r.Different) == 0 {
			fmt.Fprintln(out, "all as recorded")
		} else {
			fmt.Fprintf(out, "%d differ. If that is meant: shatter corpus check --update, and look at git diff; else shatter replay FILE shows the run\n",
				len(r.Different))
		}
	}
	if len(r.Different) > 0 {
		return errFindings
	}
	return nil
}

// update writes what comes out now. Cases whose hash does not fit are sealed anew.
func (f *corpusFlags) update(c *cobra.Command, s *corpus.Store, names []string) error {
	if len(names) == 0 {
		for _, state := range []corpus.State{corpus.Accepted, corpus.Known} {
			files, err := filepath.Glob(filepath.Join(s.Dir(), string(state), "*.trace"))
			if err != nil {
				return err
			}
			names = append(names, files...)
		}
	}
	changed := 0
	for _, n := range names {
		k, err := s.Unsealed(n)
		if err != nil {
			return err
		}
		before := string(k.Text())
		rep, err := f.checks().Case(k)
		if err != nil {
			return err
		}
		for i := range rep.Differences {
			fmt.Fprintf(c.OutOrStdout(), "%s\n  %s\n", shown(s, k), &rep.Differences[i])
		}
		if err := rep.Renew(); err != nil {
			return err
		}
		if err := s.Put(k); err != nil {
			return err
		}
		if now, err := os.ReadFile(shown(s, k)); err == nil && string(now) != before {
			changed++
		}
	}
	inputs, err := s.SyncInputs()
	if err != nil {
		return faultError{err}
	}
	fmt.Fprintf(c.OutOrStdout(), "%d cases and %d fuzz inputs written\n", changed, len(inputs))
	return nil
}

// plantedNames are the planted bugs that cases name, with the cases.
func plantedNames(cases []*corpus.Case) (names []string, by map[string][]*corpus.Case) {
	by = map[string][]*corpus.Case{}
	for _, k := range cases {
		for _, b := range k.Bites() {
			if name, ok := verify.Planted(b); ok {
				if by[name] == nil {
					names = append(names, name)
				}
				by[name] = append(by[name], k)
			}
		}
	}
	slices.Sort(names)
	return names, by
}
