package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func (f *corpusFlags) add() *cobra.Command {
	var source string
	var adopt bool
	var limit time.Duration
	c := &cobra.Command{
		Use:   "add FILE...",
		Short: "put traces among the pending cases",
		Long: `Add puts traces among the pending cases: files, generated ones and adversaries, as in replay. With --adopt the files are what
'go test -fuzz' found in testdata/fuzz/TARGET: each is run again, named by the signature of its finding, shrunk, and entered
unless a pending, known or accepted case shows the same; then the input goes, since the case has all of it that matters.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := f.open(true)
			if err != nil {
				return err
			}
			for _, file := range args {
				if adopt {
					err = f.adopt(c, s, file, limit)
				} else {
					err = f.enter(c, s, file, source)
				}
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	c.Flags().StringVar(&source, "source", "", "where the trace comes from: an issue's link, or generator, seed and version (default: its header's, else the file)")
	c.Flags().BoolVar(&adopt, "adopt", false, "the files are inputs that go test -fuzz wrote to testdata/fuzz/TARGET")
	c.Flags().DurationVar(&limit, "time", time.Minute, "with --adopt: how long a trace is shrunk at most")
	return c
}

// enter puts traces among the pending cases as they are.
func (f *corpusFlags) enter(c *cobra.Command, s *corpus.Store, file, source string) error {
	traces, err := readTraces([]string{file})
	if err != nil {
		return err
	}
	for _, t := range traces {
		if _, ok, err := t.Capacity(); err != nil {
			return err
		} else if !ok {
			t.Set(trace.KeyCapacity, fmt.Sprint(uint64(defaultCapacity)))
		}
		from := source
		if from == "" {
			from, _ = t.Get("source")
		}
		if from == "" {
			from = t.Name
		}
		rep, err := f.checks().Case(&corpus.Case{Name: "new", State: corpus.Pending, Trace: withoutClaims(t)})
		if err != nil {
			return err
		}
		for i := range rep.Runs {
			if v := rep.Runs[i].Broken(); v != nil {
				return f.pend(c, s, t, v.Signature(), from)
			}
		}
		signature := "served"
		if len(rep.Signature) > 0 {
			signature = rep.Signature[0]
		}
		k := &corpus.Case{Name: strings.ToLower(signature) + "-" + t.ID()[:8], State: corpus.Pending, Trace: t}
		k.Set("source", from)
		if _, err := conform.ParseOutcome(k.Right()); k.Right() != "" && err != nil { // a sentence, as elsewhere
			k.Set("note", k.Right())
			k.Set("right")
		}
		if twin, err := f.shownBy(s, rep); err != nil {
			return err
		} else if twin != nil {
			fmt.Fprintf(c.OutOrStdout(), "%s shows what %s shows: not added\n", t.Name, shown(s, twin))
			continue
		}
		if err := s.Put(k); err != nil {
			return err
		}
		fmt.Fprintf(c.OutOrStdout(), "%s\n", shown(s, k))
	}
	return nil
}

// withoutClaims is a trace without what others expected of it.
func withoutClaims(t *trace.Trace) *trace.Trace {
	k := corpus.Case{Trace: t}
	for _, key := range []string{"expect", "right", "bites"} {
		k.Set(key)
	}
	return k.Trace
}

// shownBy is a case of the corpus that shows the same, nil if there is none.
func (f *corpusFlags) shownBy(s *corpus.Store, rep *verify.Report) (*corpus.Case, error) {
	cases, err := s.Cases(corpus.Accepted, corpus.Known, corpus.Pending)
	if err != nil {
		return nil, err
	}
	for _, k := range cases {
		other, err := f.checks().Case(k)
		if err != nil {
			return nil, err
		}
		if len(verify.Duplicates([]*verify.Report{other, rep})) > 0 {
			return k, nil
		}
	}
	return nil, nil
}

// adopt makes a pending case of an input that fuzzing found.
func (f *corpusFlags) adopt(c *cobra.Command, s *corpus.Store, file string, limit time.Duration) error {
	target := filepath.Base(filepath.Dir(file))
	base := ""
	for b, t := range corpus.FuzzTargets {
		if t == target {
			base = b
		}
	}
	if base == "" {
		return hinted{fmt.Errorf("%s: %s is no fuzz target of the corpus", file, target),
			"name a file in testdata/fuzz/FuzzClassic or testdata/fuzz/FuzzExpandable"}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return hinted{err, "name the file that go test -fuzz printed behind 'Failing input written to'"}
	}
	in, err := corpus.Unmarshal(data)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	found := verify.NewFuzzCase(base, trace.Decode(in))
	found.Trace.Name = file
	r, err := minimised(c, found.Trace, limit)
	if err != nil {
		return err
	}
	from := fmt.Sprintf("go test -fuzz %s, input %s, shrunk from %d to %d operations", target, filepath.Base(file), r.Before, r.After)
	if err := f.pend(c, s, r.Trace, r.Signature, from); err != nil {
		return err
	}
	for _, o := range r.Others {
		if err := f.pend(c, s, o.Trace, o.Signature, "met while "+r.Signature+" was shrunk"); err != nil {
			return err
		}
	}
	if err := os.Remove(file); err != nil {
		return faultError{err}
	}
	return nil
}

// minimised shrinks a trace that has a finding under its own header.
func minimised(c *cobra.Command, t *trace.Trace, limit time.Duration) (*shrink.Result, error) {
	f := shrinkFlags{targetFlags: targetFlags{device: "sim", known: "on"}}
	if err := f.resolve(c); err != nil {
		return nil, err
	}
	jobs, err := f.jobsOf(t)
	if err != nil {
		return nil, err
	}
	j := &jobs[0]
	res, _, err := j.runs.Execute(j.trace)
	if err != nil {
		return nil, err
	}
	if len(res.Findings) == 0 {
		return nil, hinted{fmt.Errorf("%s: there is no finding in it here", t.Name),
			"if what it found is mended, remove the file; if the program that found it had a planted bug, adopt it with that program"}
	}
	if err := f.choose(j); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(c.Context(), limit)
	defer cancel()
	r, err := shrink.Minimise(ctx, j.trace, j.keep, shrink.Budget{})
	if errors.Is(c.Context().Err(), context.Canceled) {
		return nil, errInterrupted
	}
	return r, err
}

// pend enters a finding and says what became of it.
func (f *corpusFlags) pend(c *cobra.Command, s *corpus.Store, t *trace.Trace, signature, source string) error {
	k, fresh, err := s.Pend(t, signature, source)
	if err != nil {
		return err
	}
	if fresh {
		fmt.Fprintf(c.OutOrStdout(), "%s: %d operations\n", shown(s, k), len(t.Ops))
	} else {
		fmt.Fprintf(c.OutOrStdout(), "%s shows %s already: %d operations\n", shown(s, k), signature, len(k.Trace.Ops))
	}
	return nil
}
