package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/review"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/reports"
)

func (f *corpusFlags) review() *cobra.Command {
	var git, out string
	c := &cobra.Command{
		Use:   "review",
		Short: "a page of the pending cases, or of those that commits change",
		Long: `Review writes one HTML page, which needs no network and has no script: of each pending case (with --git RANGE of each case that
differs between two commits, as it is in the folder now) the trace, what allocators come to, their memory maps, the nearest
accepted case, and the commands that promote or retire it.`,
		Example: "  shatter corpus review --out review.html\n  shatter corpus review --git origin/main...HEAD --out review.html",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if out == "" {
				return hinted{errors.New("where to? --out is missing"), "for example --out review.html"}
			}
			s, err := f.open(git != "")
			if err != nil {
				return err
			}
			p := &review.Page{Title: "Pending cases", Version: "shatter " + version}
			cases, diffs := []*corpus.Case(nil), map[string]string{}
			if git != "" {
				p.Title = "Cases changed in " + git
				cases, diffs, err = changedCases(c, s, git)
			} else {
				cases, err = s.Cases(corpus.Pending)
			}
			if err != nil {
				return err
			}
			if p.Items, err = f.items(s, cases, diffs); err != nil {
				return err
			}
			if err := writeWhole(out, func(w io.Writer) error { return review.Write(w, p) }); err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d cases\n", out, len(p.Items))
			return nil
		},
	}
	c.Flags().StringVar(&git, "git", "", "cases that differ in this range of commits, as in git diff")
	c.Flags().StringVar(&out, "out", "", "file to write")
	return c
}

// changedCases are the cases that differ in a range of commits, with what differs.
func changedCases(c *cobra.Command, s *corpus.Store, commits string) ([]*corpus.Case, map[string]string, error) {
	run := func(args ...string) (string, error) {
		git := exec.CommandContext(c.Context(), "git", append([]string{"-C", s.Dir()}, args...)...)
		var said bytes.Buffer
		git.Stderr = &said
		text, err := git.Output()
		if err != nil {
			return "", hinted{fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String())), "give a range as in git diff, for example origin/main...HEAD"}
		}
		return string(text), nil
	}
	if strings.HasPrefix(commits, "-") {
		return nil, nil, fmt.Errorf("--git %s: must be a range of commits", commits)
	}
	names, err := run("diff", "--relative", "--name-only", "--diff-filter=d", commits, "--", ".")
	if err != nil {
		return nil, nil, err
	}
	var cases []*corpus.Case
	diffs := map[string]string{}
	for _, name := range strings.Fields(names) {
		state, file := filepath.Split(filepath.FromSlash(name))
		if !strings.HasSuffix(file, ".trace") || !slices.Contains(corpus.States, corpus.State(filepath.Clean(state))) {
			continue
		}
		k, err := s.Find(name)
		if err != nil {
			return nil, nil, err
		}
		if diffs[k.Name], err = run("diff", "--relative", commits, "--", name); err != nil {
			return nil, nil, err
		}
		cases = append(cases, k)
	}
	return cases, diffs, nil
}

// alsoOn are the allocators that a page shows besides those of the header and the `bites` lines.
var alsoOn = []string{"classic", "expandable", "classic@max_split_size_mb:128", "direct", "best-fit"}

// mapped is how many of them are drawn.
const mapped = 3

func (f *corpusFlags) items(s *corpus.Store, cases []*corpus.Case, diffs map[string]string) ([]review.Item, error) {
	checks := f.checks()
	accepted, err := s.Cases(corpus.Accepted)
	if err != nil {
		return nil, err
	}
	var others []*verify.Report
	if len(cases) > 0 {
		for _, k := range accepted {
			r, err := checks.Case(k)
			if err != nil {
				return nil, err
			}
			others = append(others, r)
		}
	}
	var out []review.Item
	for _, k := range cases {
		rep, err := checks.Case(k)
		if err != nil {
			return nil, err
		}
		i := review.Item{Case: k, File: shown(s, k), Diff: diffs[k.Name]}
		if near, similarity := verify.Nearest(rep, others); near != nil {
			i.Nearest, i.NearestClass, i.Similarity = near.Case, near.Case.Class(), similarity
		}
		specs, err := reviewedOn(k)
		if err != nil {
			return nil, err
		}
		op := len(k.Trace.Ops) - 1
		for n := range specs {
			run, err := checks.On(k, &specs[n])
			if err != nil {
				return nil, err
			}
			if n < mapped && len(run.OOMs) > 0 {
				op = min(op, run.OOMs[0])
			}
			i.Outcomes = append(i.Outcomes, outcomeOf(run, rep))
		}
		if op >= 0 {
			if i.Maps, err = mapsOf(k, specs, op); err != nil {
				return nil, err
			}
			i.When = fmt.Sprintf("after operation %d (%s)", op, k.Trace.Ops[op])
		}
		out = append(out, i)
	}
	return out, nil
}

// reviewedOn are the allocators of a case's page.
func reviewedOn(k *corpus.Case) ([]catalog.Spec, error) {
	header, err := verify.HeaderSpec(k)
	if err != nil {
		return nil, err
	}
	specs := []catalog.Spec{header}
	names := slices.Clone(alsoOn)
	for _, b := range k.Bites() {
		if _, planted := verify.Planted(b); !planted {
			names = append(names, b)
		}
	}
	for _, n := range names {
		spec, err := catalog.Parse(n)
		if err != nil {
			return nil, fmt.Errorf("%s: bites: %w", k.Path(), err)
		}
		if !slices.ContainsFunc(specs, func(s catalog.Spec) bool { return s.Name == spec.Name }) {
			specs = append(specs, spec)
		}
	}
	return specs, nil
}

func outcomeOf(run *verify.Run, rep *verify.Report) review.Outcome {
	o := review.Outcome{Allocator: run.Allocator, Refused: "none", Verdict: "-", Peak: reports.Size(run.Tables["peak"]["reserved"]), Retries: run.Tables["final"]["alloc_retries"]}
	for _, n := range run.Tables["driver"] {
		o.Calls += n
	}
	if len(run.OOMs) > 0 {
		o.Refused = strings.Trim(fmt.Sprint(run.OOMs), "[]")
		if len(run.OOMs) > 12 {
			o.Refused = fmt.Sprintf("%s ... (%d)", strings.Trim(fmt.Sprint(run.OOMs[:12]), "[]"), len(run.OOMs))
		}
	}
	if len(run.Judgements) > 0 {
		j := &run.Judgements[0]
		o.Verdict = j.Verdict.String()
		for i, r := range j.Relaxed {
			o.Verdict += []string{" without ", " or "}[min(i, 1)] + r.String()
		}
		if j.Known != "" {
			o.Verdict += ", known: " + j.Known
		}
	}
	if v := run.Broken(); v != nil {
		o.Finding = v.String()
	}
	for i := range rep.Runs {
		if rep.Runs[i].Allocator != run.Allocator || len(rep.Case.Expect()) == 0 {
			continue
		}
		o.Recorded = "as recorded"
		for d := range rep.Differences {
			if rep.Differences[d].Allocator == run.Allocator {
				o.Recorded = "differs: " + rep.Differences[d].Figure
			}
		}
	}
	return o
}

// mapsOf draws the first allocators after an operation.
func mapsOf(k *corpus.Case, specs []catalog.Spec, op int) ([]string, error) {
	capacity, given, err := k.Trace.Capacity()
	if err != nil {
		return nil, err
	}
	if !given {
		capacity = defaultCapacity
	}
	sim, err := catalog.ParseDevice("sim", nil)
	if err != nil {
		return nil, err
	}
	f := replayFlags{targetFlags: targetFlags{dev: sim}}
	var out []string
	p := executor.Compile(k.Trace)
	for i := range specs {
		if len(out) == mapped {
			break
		}
		m, err := f.mapAfter(p, targetOf(specs[i]), capacity, op)
		if err != nil {
			continue // it does not list its blocks
		}
		o, err := conform.Observe(p, &specs[i], executor.Options{})
		if err != nil {
			return nil, err
		}
		m.Note = "served"
		if k.Trace.Ops[op].Kind.String() != "alloc" {
			m.Note = "done"
		}
		if slices.Contains(o.OOMs, op) {
			m.Note = "refused"
		}
		var svg bytes.Buffer
		when := fmt.Sprintf("a device of %s, after operation %d (%s)", reports.Size(capacity), op, k.Trace.Ops[op])
		if err := reports.WriteMemoryMaps(&svg, specs[i].Name, when, []reports.MemoryMap{m}); err != nil {
			return nil, err
		}
		out = append(out, svg.String())
	}
	return out, nil
}
