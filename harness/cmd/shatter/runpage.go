package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/html"
	"github.com/shatter-gpu/shatter/reports/recording"
)

// What a page of a run may cost. Shrinking is bounded by runs, so that the page does not depend on the machine; the time is for
// traces that take very long.
const (
	pageFindings  = 8
	pageShrinking = 400 // runs a finding
	pageTime      = 20 * time.Second
	pageNumbers   = 600_000 // of each map: some 3 MB
	pageAll       = 5_000_000
	pageLeast     = 20_000 // with less a map shows too little
)

// runPage makes the page of a results folder: its traces are made and replayed again.
type runPage struct {
	replayFlags
	cfg  campaign.Config
	in   html.Run
	used int // numbers of all maps so far
}

// pageFile is the page of a results folder.
const pageFile = "report.html"

// writePage writes the page of a folder into it. When the context has ended nothing is replayed for it.
func writePage(ctx context.Context, folder *reports.Folder) error {
	return results.WriteWith(filepath.Join(folder.Dir, pageFile), func(w io.Writer) error { return writeRunPage(ctx, w, folder) })
}

func writeRunPage(ctx context.Context, w io.Writer, folder *reports.Folder) error {
	p, err := newRunPage(ctx, folder)
	if err != nil {
		return err
	}
	return html.WriteRun(w, &p.in)
}

// writeDiagrams writes the diagrams of a folder as files.
func writeDiagrams(ctx context.Context, dir string, folder *reports.Folder) error {
	p, err := newRunPage(ctx, folder)
	if err != nil {
		return err
	}
	for _, d := range html.Diagrams(&p.in) {
		if err := results.WriteFile(filepath.Join(dir, d.Name), d.SVG); err != nil {
			return err
		}
	}
	return nil
}

// newRunPage replays what a page shows. What cannot be replayed is left out, with a note.
func newRunPage(ctx context.Context, folder *reports.Folder) (*runPage, error) {
	p := &runPage{in: html.Run{Folder: folder, Medians: map[string]*html.Case{}}}
	h := &folder.Journal.Header
	if err := sameProgram(folder.Dir, h); err != nil {
		p.in.Notes = append(p.in.Notes, fmt.Sprintf("Nothing was replayed for memory maps: %v.", err))
		return p, nil
	}
	// The flags of the run are those of its journal.
	run := runFlags{}
	as := &cobra.Command{Use: "run"}
	as.SetErr(io.Discard)
	run.registerRun(as)
	if err := restore(as, folder.Dir, h); err != nil {
		return nil, err
	}
	run.seqs, run.seed = max(h.Sequences, 1), h.Seed
	var err error
	if p.cfg, err = run.resolve(as); err != nil {
		p.in.Notes = append(p.in.Notes, fmt.Sprintf("Nothing was replayed for memory maps: %v.", err))
		return p, nil
	}
	p.targetFlags = run.targetFlags
	if p.dev.Kind != "sim" {
		p.in.Notes = append(p.in.Notes, "The memory maps are of replays on a simulated device.")
	}
	if p.faults != nil {
		p.in.Notes = append(p.in.Notes, "The memory maps are of replays without the planned faults.")
	}
	for i := range folder.Run.Findings {
		if i == pageFindings || ctx.Err() != nil {
			break
		}
		p.in.Findings = append(p.in.Findings, p.finding(ctx, &folder.Run.Findings[i]))
	}
	if err := p.medians(ctx); err != nil {
		return nil, err
	}
	if err := p.examples(ctx); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		p.in.Notes = append(p.in.Notes, fmt.Sprintf("The time was over before all traces were replayed: shatter report render %s --format html "+
			"draws the memory maps that are missing.", folder.Dir))
	}
	return p, nil
}

// made is the trace of a name, of the run if it has it.
func (p *runPage) made(name string) (*trace.Trace, error) {
	i := slices.IndexFunc(p.in.Journal.Sequences, func(s *results.Sequence) bool { return s.Trace == name })
	if i < 0 {
		return nil, fmt.Errorf("the run has no trace %s", name)
	}
	return p.in.Journal.Sequences[i].Made()
}

// look replays a trace on targets at a capacity. at is the operation to see; -1 for the first refusal.
func (p *runPage) look(t *trace.Trace, targets []executor.Target, capacity uint64, at int) (*html.Case, error) {
	program := executor.Compile(t)
	var answers []*reports.ReplayReport
	for _, target := range targets {
		a, err := p.answer(program, target, capacity)
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
	if at < 0 {
		at = firstRefusal(program, answers)
	}
	numbers := min(pageNumbers, pageAll-p.used) / max(len(targets), 1)
	if numbers < pageLeast {
		return &html.Case{Trace: t, Capacity: capacity, At: at, Answers: answers,
			Missing: "There is no memory map of it: with those before it the page would be too large. shatter replay --html FILE draws it."}, nil
	}
	c, err := newCase(program, targets, p.newDevice(), p.newDevice(), capacity, at, answers, recording.Limits{Numbers: numbers})
	if err == nil && c.Group != nil {
		for _, r := range c.Group.Recordings {
			p.used += len(r.Steps)
		}
	}
	return c, err
}

// answer is a replay without what only one trace at a time is worth: relations and witnesses.
func (p *runPage) answer(program *executor.Program, t executor.Target, capacity uint64) (*reports.ReplayReport, error) {
	dev, err := p.newDevice()(capacity)
	if err != nil {
		return nil, err
	}
	res, err := executor.Execute(program, t, executor.Options{Device: dev, Properties: p.cfg.Properties, Judge: p.judge()()})
	if err != nil {
		return nil, err
	}
	r := &reports.ReplayReport{
		Schema: reports.ReplaySchema, Trace: program.Trace.Name, Operations: program.Len(), Capacity: capacity, Allocator: t.Name,
		Executed: res.Ops, End: reports.NewEnd(res),
	}
	r.PeakLive, _ = measure.PeakLive(program.Trace)
	for i := range res.Judgements {
		r.Refusals = append(r.Refusals, reports.NewRefusal(program, &res.Judgements[i]))
	}
	for _, v := range res.Findings {
		r.Findings = append(r.Findings, reports.Finding{Finding: v, Signature: v.Signature()})
	}
	return r, nil
}

// targets are those of the run, for a trace.
func (p *runPage) targets(t *trace.Trace) ([]executor.Target, error) {
	var out []executor.Target
	for _, c := range p.cfg.Targets {
		target, err := c.For(t)
		if err != nil {
			return nil, err
		}
		out = append(out, target)
	}
	return out, nil
}

// medians shows, of each distribution workload, the trace of the first waterfall: the one with the median kappa.
func (p *runPage) medians(ctx context.Context) error {
	for _, w := range p.in.Run.Workloads {
		if w.Kind != gen.Distribution.String() || ctx.Err() != nil {
			continue
		}
		i := slices.IndexFunc(p.in.Run.Waterfalls, func(f reports.Waterfall) bool { return f.Workload == w.Name })
		if i < 0 {
			continue
		}
		t, err := p.made(p.in.Run.Waterfalls[i].Trace)
		if err != nil {
			return err
		}
		k := slices.IndexFunc(p.in.Journal.Sequences, func(s *results.Sequence) bool { return s.Trace == t.Name })
		targets, err := p.targets(t)
		if err != nil {
			return err
		}
		_, peak := measure.PeakLive(t)
		c, err := p.look(t, targets, p.in.Journal.Sequences[k].Capacity, peak)
		if err != nil {
			return err
		}
		p.in.Medians[w.Name] = c
	}
	return nil
}

// examples shows each trace of the report's examples once, on all allocators.
func (p *runPage) examples(ctx context.Context) error {
	for _, e := range p.in.Run.Examples {
		if ctx.Err() != nil {
			break
		}
		if slices.ContainsFunc(p.in.Examples, func(c *html.Case) bool { return c.Trace.Name == e.Trace && c.Capacity == e.Capacity }) {
			continue
		}
		t, err := p.made(e.Trace)
		if err != nil {
			return err
		}
		targets, err := p.targets(t)
		if err != nil {
			return err
		}
		c, err := p.look(t, targets, e.Capacity, e.Op)
		if err != nil {
			return err
		}
		p.in.Examples = append(p.in.Examples, c)
	}
	return nil
}

// finding shrinks the trace of a finding and looks at it on its allocator.
func (p *runPage) finding(ctx context.Context, f *reports.Finding) html.FindingCase {
	t, err := trace.ReadFile(filepath.Join(p.in.Dir, results.FindingsDir, f.Signature+".trace"))
	if os.IsNotExist(err) {
		t, err = p.made(f.Trace)
	}
	if err != nil {
		return html.FindingCase{Note: fmt.Sprintf("Its trace is not there: %v.", err)}
	}
	t.Name = f.Trace
	var out html.FindingCase
	target, capacity := f.Target, f.Capacity
	if f.At == executor.AtRuns {
		out.Note = "It shows in a comparison of several runs, which is not shrunk here."
	} else if small, a, err := p.shrunk(ctx, t, f); err != nil {
		out.Note = fmt.Sprintf("It was not shrunk: %v.", err)
	} else {
		out.Shrunk = small
		out.Note = fmt.Sprintf("Shrunk from %d to %d operations in %d runs", a.Before, a.After, a.Runs)
		if !a.Minimal {
			out.Note += "; shatter shrink may find a smaller one"
		}
		out.Note += "."
		target, capacity, t = a.Allocator, a.Capacity, small
	}
	out.Case, err = p.findingCase(t, target, capacity, f)
	if err != nil {
		out.Note += fmt.Sprintf(" It could not be replayed: %v.", err)
	}
	return out
}

func (p *runPage) findingCase(t *trace.Trace, allocator string, capacity uint64, f *reports.Finding) (*html.Case, error) {
	spec, err := catalog.Parse(allocator)
	if err != nil {
		return nil, err
	}
	target := targetOf(spec)
	at := min(f.Op, len(t.Ops)-1)
	if c, err := p.answer(executor.Compile(t), target, capacity); err == nil && len(c.Findings) > 0 {
		at = min(c.Findings[0].Op, len(t.Ops)-1)
	}
	return p.look(t, []executor.Target{target}, capacity, max(at, 0))
}

// shrunk is the smallest trace of a finding, within the page's bounds.
func (p *runPage) shrunk(ctx context.Context, t *trace.Trace, f *reports.Finding) (*trace.Trace, *shrinkAnswer, error) {
	spec, err := catalog.Parse(f.Target)
	if err != nil {
		return nil, nil, err
	}
	s := shrinkFlags{targetFlags: p.targetFlags}
	s.specs, s.bytes = []catalog.Spec{spec}, f.Capacity
	jobs, err := s.jobsOf(t)
	if err != nil {
		return nil, nil, err
	}
	if err := s.choose(&jobs[0]); err != nil {
		return nil, nil, err
	}
	c := &cobra.Command{}
	c.SetContext(ctx)
	a, err := s.one(c, jobs[0], shrink.Budget{Runs: pageShrinking, Time: pageTime})
	if err != nil {
		return nil, nil, err
	}
	if a.Signature != f.Signature {
		return nil, nil, fmt.Errorf("its trace shows %s first", a.Signature)
	}
	small, err := trace.ParseString(t.Name, a.Text)
	return small, a, err
}
