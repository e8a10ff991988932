package shrink

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Runs makes predicates that execute a trace on an allocator. The capacity is the one in the trace's header, which must be
// there.
type Runs struct {
	// Target makes the allocator for a trace, whose settings may stand in its header.
	Target    func(*trace.Trace) (executor.Target, error)
	NewDevice measure.NewDevice
	// Options are how a trace is checked: all but the device. It is called for every run, since a judge serves one run at a time.
	Options func() executor.Options
	// Relations are asked if the run itself has no finding. Settings tells them the allocator's settings string for a trace and how
	// to make it under another one; without it none are asked.
	Relations []executor.Relation
	Settings  func(*trace.Trace) (conf string, with func(conf string) (executor.Target, error), err error)
	// RelationDevice makes the devices of the relations' runs, simulated ones; nil means NewDevice.
	RelationDevice measure.NewDevice
}

// Execute runs a trace under all checks, and names the target.
func (r Runs) Execute(t *trace.Trace) (res *executor.Result, target string, err error) {
	err = r.on(t, func(p *executor.Program, on executor.Target, o executor.Options) error {
		target = on.Name
		if res, err = executor.Execute(p, on, o); err != nil {
			return err
		}
		return r.relate(p.Trace, on, res, "")
	})
	return res, target, err
}

// relate asks the relations about a trace that has no finding; if only is not empty, the one whose signature it is.
func (r Runs) relate(t *trace.Trace, target executor.Target, res *executor.Result, only string) error {
	if len(res.Findings) > 0 || r.Settings == nil {
		return nil
	}
	var asked []executor.Relation
	for _, l := range r.Relations {
		if only == "" || strings.HasPrefix(only, l.ID+".") {
			asked = append(asked, l)
		}
	}
	if len(asked) == 0 {
		return nil
	}
	c := executor.Case{Trace: t, Target: target, NewDevice: r.RelationDevice}
	if c.NewDevice == nil {
		c.NewDevice = r.NewDevice
	}
	var err error
	if c.Capacity, _, err = t.Capacity(); err != nil {
		return err
	}
	if c.Conf, c.With, err = r.Settings(t); err != nil {
		return err
	}
	f, err := executor.Relate(&c, asked)
	switch {
	case f == nil:
	case f.Known != "":
		res.Known = append(res.Known, *f)
	default:
		res.Findings = append(res.Findings, *f)
	}
	return err
}

// Finding is the predicate for a finding: the first one of a run has this signature.
func (r Runs) Finding(signature string) Predicate {
	return r.predicate(signature, func(p *executor.Program, t executor.Target, o executor.Options) (*executor.Result, string, int, error) {
		res, err := executor.Execute(p, t, o)
		if err == nil {
			err = r.relate(p.Trace, t, res, signature)
		}
		if err != nil || len(res.Findings) == 0 {
			return res, "", 0, err
		}
		f := &res.Findings[0]
		return res, f.Signature(), f.Op, nil
	})
}

// Refusal is the predicate for a refused allocation: the run has a refusal of this signature (executor.Judgement.Signature).
// Nothing else is checked, and the run ends there, so it is fast. A run with other refusals only is Different, by the first of
// them, or by the finding if it broke a promise.
func (r Runs) Refusal(signature string) Predicate {
	return r.predicate(signature, func(p *executor.Program, t executor.Target, o executor.Options) (*executor.Result, string, int, error) {
		o.Properties = nil
		run, err := executor.Start(p, t, o)
		if err != nil {
			return nil, "", 0, err
		}
		res := run.Result()
		for seen := 0; run.More(); {
			if err := run.Step(); err != nil {
				return nil, "", 0, err
			}
			if len(res.Judgements) == seen {
				continue
			}
			j := &res.Judgements[seen]
			if s := j.Signature(t.Name); s == signature {
				return res, s, j.Op, nil
			}
			seen++
		}
		switch {
		case len(res.Findings) > 0:
			f := &res.Findings[0]
			return res, f.Signature(), f.Op, nil
		case len(res.Judgements) > 0:
			j := &res.Judgements[0]
			return res, j.Signature(t.Name), j.Op, nil
		}
		return res, "", 0, nil
	})
}

// ending runs a program and says how it failed; an empty signature means that it passed.
type ending func(*executor.Program, executor.Target, executor.Options) (res *executor.Result, signature string, op int, err error)

// predicate compares the signature of what a run comes to with the one that is wanted.
func (r Runs) predicate(want string, run ending) Predicate {
	return func(t *trace.Trace) (a Answer) {
		defer func() {
			// A panic that the executor made no finding of is nobody's finding.
			if p := recover(); p != nil {
				a = Answer{Kind: Broken, Err: fmt.Errorf("%w: %s: panic: %v", executor.ErrHarness, t.Name, p)}
			}
		}()
		err := r.on(t, func(p *executor.Program, target executor.Target, o executor.Options) error {
			res, signature, op, err := run(p, target, o)
			if err != nil {
				return err
			}
			a = Answer{Kind: Different, Signature: signature, Op: op, Used: used(t, res)}
			switch signature {
			case "":
				a.Kind = Passes
			case want:
				a.Kind = Same
			}
			return nil
		})
		if err != nil {
			return Answer{Kind: Broken, Err: err}
		}
		return a
	}
}

// on prepares a run of the trace, and gives the device back after it.
func (r Runs) on(t *trace.Trace, run func(*executor.Program, executor.Target, executor.Options) error) error {
	target, err := r.Target(t)
	if err != nil {
		return err
	}
	capacity, ok, err := t.Capacity()
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%w: %s has no capacity in its header", executor.ErrHarness, t.Name)
	}
	o := r.Options()
	if o.Device, err = r.NewDevice(capacity); err != nil {
		return err
	}
	if closer, ok := o.Device.(io.Closer); ok {
		defer closer.Close()
	}
	return run(executor.Compile(t), target, o)
}

// used is the capacity below which the run would have gone otherwise, as far as the peaks tell: what the allocator and others
// held, or the device of which the memory fraction is what the allocator held. 0 if the allocator keeps no statistics.
func used(t *trace.Trace, res *executor.Result) uint64 {
	if res.PeakReserved == 0 {
		return 0
	}
	var foreign uint64
	fraction, _, _ := t.HeaderFraction()
	for i := range t.Ops {
		switch op := &t.Ops[i]; op.Kind {
		case trace.Foreign:
			foreign = max(foreign, op.Bytes)
		case trace.Fraction:
			fraction = op.Fraction
		}
	}
	n := res.PeakReserved + foreign
	if fraction > 0 {
		n = max(n, uint64(float64(res.PeakReserved)/fraction))
	}
	return n
}
