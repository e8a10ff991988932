package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	hunting "github.com/shatter-gpu/shatter/harness/hunt"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/trace"
)

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
