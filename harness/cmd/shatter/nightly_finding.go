package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

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

// shrink makes a finding's trace small. Other failures that it meets are findings of their own.
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
	for _, o := range r.Others {
		capacity, _, err := o.Trace.Capacity()
		if err != nil {
			return a, err
		}
		if res, _, err := j.runs.Execute(o.Trace); err == nil { // as for the shrinker, a run that breaks is none
			w.enter(&a, res, o.Trace, capacity)
		}
	}
	return a, nil
}
