package shrink

import (
	"fmt"

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
	// Properties and NewJudge are what the trace is checked by.
	Properties []executor.Property
	NewJudge   func() executor.Judge
}

// Finding is the predicate for a finding: the first one of a run has this signature.
func (r Runs) Finding(signature string) Predicate {
	return r.predicate(signature, func(run *executor.Run, _ string) (string, int, error) {
		res, err := run.Rest()
		if err != nil || len(res.Findings) == 0 {
			return "", 0, err
		}
		f := &res.Findings[0]
		return f.Signature(), f.Op, nil
	}, r.Properties)
}

// Refusal is the predicate for a refused allocation: the run has a refusal of this signature (executor.Judgement.Signature).
// Nothing else is checked, and the run ends there, so it is fast.
func (r Runs) Refusal(signature string) Predicate {
	return r.predicate(signature, func(run *executor.Run, target string) (string, int, error) {
		first, op := "", 0
		seen := 0
		for run.More() {
			if err := run.Step(); err != nil {
				return "", 0, err
			}
			list := run.Result().Judgements
			if len(list) == seen {
				continue
			}
			seen = len(list)
			j := &list[seen-1]
			if s := j.Signature(target); s == signature {
				return s, j.Op, nil
			} else if first == "" {
				first, op = s, j.Op
			}
		}
		return first, op, nil
	}, nil)
}

// predicate starts a run and compares the signature of what it came to, empty if it passed, with the one that is wanted.
func (r Runs) predicate(
	want string, end func(*executor.Run, string) (signature string, op int, err error), properties []executor.Property,
) Predicate {
	return func(t *trace.Trace) (a Answer) {
		run, target, err := r.start(t, properties)
		if err != nil {
			return Answer{Kind: Broken, Err: err}
		}
		defer func() {
			// Where nobody looks for findings, a panic of the allocator is nobody's finding.
			if p := recover(); p != nil {
				a = Answer{Kind: Broken, Err: fmt.Errorf("%w: %s on %s: panic: %v", executor.ErrHarness, t.Name, target, p)}
			}
		}()
		signature, op, err := end(run, target)
		if err != nil {
			return Answer{Kind: Broken, Err: err}
		}
		a = Answer{Kind: Different, Signature: signature, Op: op, Used: used(t, run.Result())}
		switch signature {
		case "":
			a.Kind = Passes
		case want:
			a.Kind = Same
		}
		return a
	}
}

func (r Runs) start(t *trace.Trace, properties []executor.Property) (*executor.Run, string, error) {
	target, err := r.Target(t)
	if err != nil {
		return nil, "", err
	}
	capacity, ok, err := t.Capacity()
	if err != nil {
		return nil, "", err
	}
	if !ok {
		return nil, "", fmt.Errorf("%w: %s has no capacity in its header", executor.ErrHarness, t.Name)
	}
	dev, err := r.NewDevice(capacity)
	if err != nil {
		return nil, "", err
	}
	o := executor.Options{Device: dev, Properties: properties}
	if r.NewJudge != nil {
		o.Judge = r.NewJudge()
	}
	run, err := executor.Start(executor.Compile(t), target, o)
	return run, target.Name, err
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
