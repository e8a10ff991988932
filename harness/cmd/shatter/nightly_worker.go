package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// nightTries is how many traces a hunt of the night tries.
const nightTries = 300

// nightWorker serves the tasks of a night.
type nightWorker struct {
	f     *nightFlags
	pulse *nightly.Pulse
	// sequences is the campaign of which each task is one sequence.
	sequences campaign.Config
	panel     fs.FS
	logs      []conform.Log
	cases     []*corpus.Case
	// sent has the smallest trace of each signature that was told; larger ones go without text.
	sent campaign.Findings
	// seeds are the adversaries' traces that hunts start from, by allocator.
	seeds map[string][]*trace.Trace
}

// newNightWorker makes a worker ready. c is the command, whose flags are read.
func newNightWorker(c *cobra.Command, f *nightFlags) (*nightWorker, error) {
	w := &nightWorker{f: f, seeds: map[string][]*trace.Trace{}}
	r := runFlags{targetFlags: f.targetFlags, seed: f.seed}
	var err error
	if w.sequences, err = r.resolve(c); err != nil {
		return nil, err
	}
	f.targetFlags = r.targetFlags // resolved
	w.sequences.Measures, w.sequences.Workers, w.sequences.Workloads = false, 1, gen.All()
	if w.panel, w.logs, err = f.openPanel(); err != nil {
		return nil, err
	}
	w.cases, err = f.panelCases()
	return w, err
}

// do serves a task.
func (w *nightWorker) do(ctx context.Context, t nightly.Task, p *nightly.Pulse) (nightly.Answer, error) {
	if w.pulse == nil {
		w.pulse = p
		w.watch()
	}
	switch t.Kind {
	case nightly.Panel:
		return w.decide(t)
	case nightly.Case:
		return w.verify(t)
	case nightly.Repeat:
		return w.repeat(ctx, t)
	case nightly.Shrink:
		return w.shrink(ctx, t)
	}
	return w.explore(ctx, t)
}

// watch has the pulse told of all that sequences run.
func (w *nightWorker) watch() {
	w.sequences.Properties = append([]executor.Property{w.pulse.Property()}, w.sequences.Properties...)
	for i := range w.sequences.Targets {
		t := &w.sequences.Targets[i]
		make, settings := t.For, t.Settings
		t.For = func(tr *trace.Trace) (executor.Target, error) {
			target, err := make(tr)
			w.pulse.Begin(tr, target.Name, w.sequences.Capacity)
			return w.moving(target), err
		}
		if settings == nil {
			continue
		}
		t.Settings = func(tr *trace.Trace) (string, func(string) (executor.Target, error), error) {
			w.pulse.Stage("relations of %s on %s", tr.Name, t.Name)
			conf, with, err := settings(tr)
			return conf, func(conf string) (executor.Target, error) {
				target, err := with(conf)
				return w.moving(target), err
			}, err
		}
	}
}

// moving is a target that tells the pulse of each allocator that is made.
func (w *nightWorker) moving(t executor.Target) executor.Target {
	return executor.Target{Name: t.Name, New: func(d device.Device) (allocators.Allocator, error) {
		w.pulse.Move()
		return t.New(d)
	}}
}

// found makes findings of what a run broke.
func (w *nightWorker) found(a *nightly.Answer, list []executor.Finding, t *trace.Trace, capacity uint64) {
	for _, v := range list {
		f := nightly.Found{Finding: v, Trace: t.Name, Hash: t.ID(), Capacity: capacity}
		if _, smallest := w.sent.Add(v, t, v.Target, capacity); smallest {
			c := &trace.Trace{Header: slices.Clone(t.Header), Ops: t.Ops}
			c.Set(trace.KeyCapacity, strconv.FormatUint(capacity, 10))
			f.Text = string(c.Format())
		}
		a.Found = append(a.Found, f)
	}
}

// enter adds what a run came to.
func (w *nightWorker) enter(a *nightly.Answer, res *executor.Result, t *trace.Trace, capacity uint64) {
	a.Runs++
	a.Operations += res.Ops
	w.found(a, res.Findings, t, capacity)
	for _, k := range res.Known {
		if a.Known == nil {
			a.Known = map[string]int{}
		}
		a.Known[k.Known]++
	}
}

// check runs a trace on an allocator under all checks.
func (w *nightWorker) check(a *nightly.Answer, t *trace.Trace, s catalog.Spec) error {
	capacity, err := w.f.capacityOf(t)
	if err != nil {
		return err
	}
	if err := checkSettings(t, s); err != nil {
		return err
	}
	target, p := w.moving(targetOf(s)), executor.Compile(t)
	run := func() (*executor.Result, error) {
		w.pulse.Begin(t, target.Name, capacity)
		dev, err := w.f.dev.New(capacity)
		if err != nil {
			return nil, err
		}
		defer closeDevice(dev)
		return executor.Execute(p, target, executor.Options{
			Device: dev, Properties: w.sequences.Properties, Judge: w.sequences.NewJudge(), Verify: w.f.bytesVerified, Faults: w.f.faults,
		})
	}
	res, err := run()
	if err != nil {
		return err
	}
	if len(res.Findings) > 0 && w.f.dev.Kind == "sim" {
		if err := campaign.Deflake(&res.Findings[0], t, run); err != nil {
			return err
		}
	}
	w.enter(a, res, t, capacity)
	return nil
}

// decide takes down the decisions on a trace of the panel.
func (w *nightWorker) decide(t nightly.Task) (nightly.Answer, error) {
	var a nightly.Answer
	alloc, l := w.f.panelTask(t.Index, w.logs)
	var spec catalog.Spec
	var err error
	if alloc == nil {
		spec, err = catalog.FromSettings(l.Conf, l.Fraction)
	} else {
		spec, err = alloc.With(l.Conf, l.Fraction)
	}
	if err != nil {
		if errors.Is(err, allocators.ErrEnvironment) {
			return a, err
		}
		a.Log = &nightly.Log{Rejected: err.Error()}
		return a, nil
	}
	if w.f.dev.Kind != "sim" && l.Capacity > w.f.bytes {
		a.Skipped = fmt.Sprintf("it needs a device of %d bytes", l.Capacity)
		return a, nil
	}
	tr, err := l.ReadTrace(w.panel)
	if err != nil {
		return a, err
	}
	tr.Name = l.Name()
	w.pulse.Begin(tr, spec.Name, l.Capacity)
	dev, err := w.f.dev.New(l.Capacity)
	if err != nil {
		return a, err
	}
	defer closeDevice(dev)
	log := &nightly.Log{Rows: []string{}}
	res, err := executor.Execute(executor.Compile(tr), w.moving(targetOf(spec)), executor.Options{
		Device: dev, Properties: w.sequences.Properties, Judge: w.sequences.NewJudge(), Verify: w.f.bytesVerified,
		OnRow: func(r *executor.Row) { log.Rows = append(log.Rows, string(r.Append(nil))) },
	})
	if err != nil {
		return a, err
	}
	w.enter(&a, res, tr, l.Capacity)
	log.Broken = len(res.Findings) > 0
	a.Log = log
	return a, nil
}

// verify holds a case of the corpus against its header; on real devices it is run there, under all checks.
func (w *nightWorker) verify(t nightly.Task) (a nightly.Answer, err error) {
	k := w.cases[t.Index]
	if w.f.dev.Kind != "sim" {
		if capacity, ok, _ := k.Trace.Capacity(); ok && capacity > w.f.bytes {
			a.Skipped = fmt.Sprintf("it needs a device of %d bytes", capacity)
			return a, nil
		}
		for turn := range max(len(w.f.specs), 2) {
			s, err := w.spec(turn, "")
			if err == nil {
				err = w.check(&a, k.Trace, s)
			}
			if err != nil {
				return a, err
			}
		}
		return a, nil
	}
	w.pulse.Begin(k.Trace, "", 0)
	defer func() {
		// Without the allocator's fault no case panics: each was replayed before it was accepted.
		if p := recover(); p != nil {
			a.Differences = []nightly.Difference{{
				Allocator: "an allocator", Log: k.Name, Op: -1, Column: "panic", Want: "none", Got: fmt.Sprint(p),
			}}
		}
	}()
	f := corpusFlags{}
	checks := f.checks()
	checks.Properties = append([]executor.Property{w.pulse.Property()}, checks.Properties...)
	r, err := checks.Case(k)
	if err != nil {
		return a, err
	}
	a.Runs, a.Operations = len(r.Runs), len(r.Runs)*len(k.Trace.Ops)
	// The first figure that differs on each allocator stands for the others, which follow from it.
	more := map[string]int{}
	for i := range r.Differences {
		d := &r.Differences[i]
		if more[d.Allocator]++; more[d.Allocator] == 1 {
			a.Differences = append(a.Differences, nightly.Difference{
				Allocator: d.Allocator, Log: k.Name, Op: -1, Column: d.Figure, Want: d.Want, Got: d.Got + explained(d.Explanation),
			})
		}
	}
	for i := range a.Differences {
		if n := more[a.Differences[i].Allocator] - 1; n > 0 {
			a.Differences[i].Got += fmt.Sprintf("; and %d more figures", n)
		}
	}
	return a, nil
}

func explained(text string) string {
	if text == "" {
		return ""
	}
	return " (" + text + ")"
}
