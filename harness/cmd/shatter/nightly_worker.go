package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	hunting "github.com/shatter-gpu/shatter/harness/hunt"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/shrink"
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

// explore does a task of the exploration.
func (w *nightWorker) explore(ctx context.Context, t nightly.Task) (a nightly.Answer, err error) {
	switch t.Kind {
	case nightly.Sequence:
		err = w.sequence(ctx, &a, t)
	case nightly.Adversary:
		err = w.adversary(&a, t)
	case nightly.Hunt, nightly.Settings:
		err = w.hunt(ctx, &a, t)
	case nightly.Panel:
		return w.decide(t)
	case nightly.Case:
		return w.verify(t)
	default:
		err = fmt.Errorf("%w: unknown task %q", executor.ErrHarness, t.Kind)
	}
	return a, err
}

// sequence runs one sequence of the campaign.
func (w *nightWorker) sequence(ctx context.Context, a *nightly.Answer, t nightly.Task) error {
	cfg := w.sequences
	cfg.Seed, cfg.Shard, cfg.Shards, cfg.Sequences = t.Seed, t.Index, t.Index+1, t.Index+1
	return campaign.Execute(ctx, cfg, func(s *campaign.Sequence) error {
		for i := range s.Runs {
			w.enter(a, s.Runs[i].Result, s.Trace, s.Capacity)
		}
		return nil
	})
}

// spec is the allocator of an adversary or a hunt: of those asked for, or classic or expandable by turns, with settings.
func (w *nightWorker) spec(turn int, conf string) (catalog.Spec, error) {
	if n := len(w.f.specs); n > 0 {
		return w.f.specs[turn%n], nil
	}
	name := []string{"classic", "expandable"}[turn%2]
	if conf != "" {
		name += "@" + conf
	}
	return catalog.Parse(name)
}

// drawn are settings as a generated sequence has them.
func drawn(seed uint64) (string, error) {
	w, err := gen.Find("swarm")
	if err != nil {
		return "", err
	}
	conf, _ := gen.Generate(w, seed, gen.Params{Ops: 1}).Settings()
	return conf, nil
}

// adversary plays an adversary against an allocator with settings that the seed draws, and checks the trace on it.
func (w *nightWorker) adversary(a *nightly.Answer, t nightly.Task) error {
	n := len(adversary.All)
	who := &adversary.All[t.Index%n]
	conf, err := drawn(gen.Seed(t.Seed, who.Name, uint64(t.Index)))
	if err != nil {
		return err
	}
	s, err := w.spec(t.Index/n, conf)
	if err != nil {
		return err
	}
	w.pulse.Stage("adversary %s against %s", who.Name, s.Name)
	var p *adversary.Played
	err = w.survives(a, "adversary "+who.Name, s.Name, func() (err error) {
		p, err = playAdversary(who, s, adversary.Params{Capacity: w.f.bytes})
		return err
	})
	if err != nil || p == nil {
		return err
	}
	if who.Conf != "" && len(w.f.specs) == 0 && t.Index/n%4 < 2 {
		// Half of the time under the settings that it attacks.
		if s, err = headerSpec(p.Trace, s.Base); err != nil {
			return err
		}
	}
	p.Trace.Name = "adversary:" + who.Name + ":" + s.Name
	return w.check(a, p.Trace, s)
}

// survives does something with an allocator where the executor does not look: a panic in it, or an error that is no fault of the
// harness or its environment, is a finding, without a trace.
func (w *nightWorker) survives(a *nightly.Answer, what, target string, do func() error) (err error) {
	find := func(rule, detail string) {
		a.Found = append(a.Found, nightly.Found{
			Finding: executor.Finding{
				Property: executor.Survives, Rule: rule, Target: target, Operation: what, Detail: detail, At: strings.Fields(what)[0],
			},
			Trace: what, Hash: what, Capacity: w.f.bytes,
		})
	}
	defer func() {
		if p := recover(); p != nil {
			if !inAllocator(string(debug.Stack())) {
				panic(p)
			}
			find("crashed", fmt.Sprintf("the allocator panicked: %v", p))
			err = nil
		}
	}()
	err = do()
	if err == nil || errors.Is(err, executor.ErrHarness) || errors.Is(err, allocators.ErrEnvironment) || errors.Is(err, device.ErrEnvironment) {
		return err
	}
	find("threw", err.Error())
	return nil
}

// inAllocator tells from the text of debug.Stack whether a panic began in an allocator: in the first function above it that is not
// the runtime's.
func inAllocator(stack string) bool {
	_, rest, _ := strings.Cut(stack, "\npanic(")
	for _, line := range strings.Split(rest, "\n")[1:] {
		if line != "" && line[0] != '\t' && !strings.HasPrefix(line, "runtime.") && !strings.HasPrefix(line, "panic(") {
			return strings.Contains(line, "/shatter/allocators/")
		}
	}
	return false
}

// hunt hunts for a while and checks the traces that were kept; if the allocator panics on one, that one.
func (w *nightWorker) hunt(ctx context.Context, a *nightly.Answer, t nightly.Task) error {
	seed := gen.Seed(t.Seed, string(t.Kind), uint64(t.Index))
	name := "settings"
	var s catalog.Spec
	var err error
	if t.Kind == nightly.Hunt {
		if s, err = w.spec(t.Index, ""); err != nil {
			return err
		}
		name = s.Name
	}
	var last *trace.Trace
	var h *hunting.Hunter
	err = w.survives(a, "hunt on "+name, name, func() error {
		cfg, err := w.huntConfig(t.Kind, s, name, seed)
		if err != nil {
			return err
		}
		inner := cfg.Target
		cfg.Target = func(tr *trace.Trace) (executor.Target, error) {
			last = tr
			w.pulse.Move()
			return inner(tr)
		}
		if h, err = hunting.Start(cfg); err != nil {
			return err
		}
		end := h.Evaluations + nightTries
		err = h.Run(ctx, func() bool { return h.Evaluations < end })
		last = nil
		return err
	})
	if err != nil {
		return err
	}
	var kept []*trace.Trace
	if h != nil {
		for _, k := range h.Population() {
			kept = append(kept, k.Trace)
		}
	}
	if last != nil {
		kept = append(kept, last)
	}
	for i, k := range kept {
		tr := &trace.Trace{Name: fmt.Sprintf("hunt:%s:%d:%d", name, seed, i), Header: slices.Clone(k.Header), Ops: k.Ops}
		tr.Set(trace.KeyCapacity, strconv.Itoa(hunting.Capacity))
		on := s
		if t.Kind == nightly.Settings {
			if on, err = headerSpec(tr, ""); err != nil {
				return err
			}
		}
		if err := w.check(a, tr, on); err != nil {
			return err
		}
	}
	return nil
}

// huntConfig is a hunt of the night. The adversaries that it starts from are played once.
func (w *nightWorker) huntConfig(kind nightly.Kind, s catalog.Spec, name string, seed uint64) (hunting.Config, error) {
	w.pulse.Stage("what a hunt on %s starts from", name)
	f := huntFlags{targetFlags: w.f.targetFlags}
	if w.seeds[name] != nil {
		f.without = []string{"all"}
	}
	var cfg hunting.Config
	var err error
	if kind == nightly.Hunt {
		cfg, err = f.config(s, w.seeds[name], seed)
	} else {
		cfg, err = f.settingsConfig(w.seeds[name], seed)
	}
	if err == nil {
		w.seeds[name] = cfg.Seeds
		w.pulse.Stage("a hunt on %s", name)
	}
	return cfg, err
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

// repeat looks for a finding again: in its own trace, and on fresh seeds of what found it.
func (w *nightWorker) repeat(ctx context.Context, t nightly.Task) (nightly.Answer, error) {
	a := nightly.Answer{Repeated: &nightly.Repeated{}}
	until := time.Now().Add(time.Duration(t.Millis) * time.Millisecond)
	signature := t.Found.Signature()
	shows := func(b *nightly.Answer) bool {
		a.Runs += b.Runs
		a.Operations += b.Operations
		return slices.ContainsFunc(b.Found, func(f nightly.Found) bool { return f.Signature() == signature })
	}
	own, err := w.again(t.Found)
	if err != nil {
		return a, err
	}
	a.Repeated.Own = shows(&own)
	for i := range t.Tries {
		if a.Repeated.Seen > 0 || time.Now().After(until) {
			break
		}
		fresh := *t.Of
		fresh.Seed = gen.Seed(t.Seed, "repeat "+signature, uint64(i))
		b, err := w.explore(ctx, fresh)
		if err != nil {
			return a, err
		}
		a.Repeated.Tried++
		if shows(&b) {
			a.Repeated.Seen++
			a.Found = append(a.Found, b.Found...)
		}
	}
	return a, nil
}

// again runs a finding's own trace.
func (w *nightWorker) again(f *nightly.Found) (a nightly.Answer, err error) {
	if f.Text == "" {
		return a, nil
	}
	t, err := trace.ParseString(f.Trace, f.Text)
	if err != nil {
		return a, err
	}
	j, err := w.job(f, t)
	if err != nil {
		return a, err
	}
	res, _, err := j.runs.Execute(j.trace)
	if err != nil {
		return a, err
	}
	w.enter(&a, res, t, f.Capacity)
	return a, nil
}

// job is a finding's trace made ready for the shrinker.
func (w *nightWorker) job(f *nightly.Found, t *trace.Trace) (*job, error) {
	s, err := catalog.Parse(f.Target)
	if err != nil {
		return nil, err
	}
	flags := shrinkFlags{targetFlags: w.f.targetFlags}
	flags.specs, flags.bytes = []catalog.Spec{s}, f.Capacity
	jobs, err := flags.jobsOf(t)
	if err != nil {
		return nil, err
	}
	j := &jobs[0]
	options, target := j.runs.Options, j.runs.Target
	j.runs.Options = func() executor.Options {
		o := options()
		o.Properties = append([]executor.Property{w.pulse.Property()}, o.Properties...)
		return o
	}
	j.runs.Target = func(t *trace.Trace) (executor.Target, error) {
		on, err := target(t)
		w.pulse.Begin(t, on.Name, 0)
		return w.moving(on), err
	}
	return j, nil
}

// shrink makes a finding's trace small.
func (w *nightWorker) shrink(ctx context.Context, t nightly.Task) (nightly.Answer, error) {
	var a nightly.Answer
	tr, err := trace.ParseString(t.Found.Trace, t.Found.Text)
	if err != nil {
		return a, err
	}
	j, err := w.job(t.Found, tr)
	if err != nil {
		return a, err
	}
	signature := t.Found.Signature()
	r, err := shrink.Minimise(ctx, j.trace, j.runs.Finding(signature), shrink.Budget{Time: time.Duration(t.Millis) * time.Millisecond})
	if err != nil {
		return a, err
	}
	res, on, err := j.runs.Execute(r.Trace)
	if err != nil {
		return a, err
	}
	i := slices.IndexFunc(res.Findings, func(f executor.Finding) bool { return f.Signature() == signature })
	if i < 0 {
		return a, fmt.Errorf("%w: the shrunk trace of %s does not show %s on %s", executor.ErrHarness, tr.Name, signature, on)
	}
	capacity, _, err := r.Trace.Capacity()
	if err != nil {
		return a, err
	}
	a.Shrunk = &nightly.Shrunk{
		Found: nightly.Found{
			Finding: res.Findings[i], Trace: r.Trace.Name, Hash: r.Trace.ID(), Text: string(r.Trace.Format()), Capacity: capacity,
		},
		Before: r.Before, After: r.After, Minimal: r.Minimal, Stopped: r.Stopped,
	}
	return a, nil
}
