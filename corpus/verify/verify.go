// Package verify runs cases of the corpus: does each come out as recorded, is it about the fault that it names, does it bite.
//
// In go a case and the checks that a roof hands in (properties, a judge, relations); out come what it came to under each of its
// expectations, each difference, and the features by which cases are told apart: a case's signature, which has the kinds of
// refusals and findings, and its coverage, the set of decisions that allocators took in it.
//
// A case bites if somebody comes out otherwise than right: an allocator of the catalog, which Bite runs, or a planted bug, for
// which a program with that bug must find the case not as recorded.
//
// Files: verify (runs), explain (differences in words), features (what tells cases apart), duplicates, fuzzcase (what a fuzz target
// runs).
package verify

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// Checks are what every run is held against.
type Checks struct {
	Properties []executor.Property
	NewJudge   func() executor.Judge
	// Relations are asked of known cases, whose issue may show in several runs only.
	Relations []executor.Relation
}

// Difference is something that does not come out as the case says.
type Difference struct {
	// Allocator is NAME[@CONF], Line the text of the claim, Figure what differs, as conform names it.
	Allocator, Figure, Want, Got string
	// Explanation says in words what that means.
	Explanation string
}

func (d *Difference) String() string {
	s := fmt.Sprintf("%s: %s: recorded %s, now %s", d.Allocator, d.Figure, d.Want, d.Got)
	if d.Explanation != "" {
		s += " (" + d.Explanation + ")"
	}
	return s
}

// Report is what a case came to.
type Report struct {
	Case        *corpus.Case
	Runs        []Run
	Differences []Difference
	// Signature has the kinds of refusals and findings, Features are for fault classes, Coverage has the decisions. All are sorted.
	Signature, Features, Coverage []string
}

// Run is a case on one allocator.
type Run struct {
	*conform.Observation
	Features, Coverage []string
	// Fraction and Conf are the settings, as an expectation writes them.
	Conf     string
	Fraction *float64
}

// Case runs a case under each of its expectations; without any, under what its header says.
func (c *Checks) Case(cs *corpus.Case) (*Report, error) {
	r := &Report{Case: cs}
	p := executor.Compile(cs.Trace)
	wrong := func(err error) error { return fmt.Errorf("%s: %w", cs.Path(), err) }
	expect := cs.Expect()
	if len(expect) == 0 {
		if err := c.header(cs, r); err != nil {
			return nil, wrong(err)
		}
	}
	for _, text := range expect {
		e, err := conform.ParseExpectation(text)
		if err != nil {
			return nil, wrong(fmt.Errorf("expect: %w", err))
		}
		spec, err := catalog.FromSettings(*e.Conf, e.Fraction)
		if err != nil {
			return nil, wrong(fmt.Errorf("expect: %w", err))
		}
		run, err := c.run(p, &spec)
		if err != nil {
			return nil, wrong(err)
		}
		run.Conf, run.Fraction = *e.Conf, e.Fraction
		r.Runs = append(r.Runs, *run)
		failures, err := e.Compare(run.Observation)
		if err != nil {
			return nil, wrong(err)
		}
		for i := range failures {
			r.differ(&failures[i], run, p)
		}
		if f := run.broken(); f != nil && e.Breaks == nil {
			r.Differences = append(r.Differences, Difference{
				Allocator: spec.Name, Figure: "finding", Want: "none", Got: f.Signature(), Explanation: f.String(),
			})
		}
	}
	if err := c.known(cs, r); err != nil {
		return nil, wrong(err)
	}
	r.collect()
	return r, nil
}

// header runs a case without expectations as its header says, and on classic and expandable without any settings.
func (c *Checks) header(cs *corpus.Case, r *Report) error {
	conf, _ := cs.Trace.Settings()
	fraction, given, err := cs.Trace.HeaderFraction()
	if err != nil {
		return err
	}
	settings := []struct {
		conf     string
		fraction *float64
	}{{conf, &fraction}, {"", nil}, {"expandable_segments:True", nil}}
	if !given {
		settings[0].fraction = nil
	}
	seen := map[string]bool{}
	for _, s := range settings {
		spec, err := catalog.FromSettings(s.conf, s.fraction)
		if err != nil {
			return err
		}
		if seen[spec.Name] {
			continue
		}
		seen[spec.Name] = true
		run, err := c.On(cs, &spec)
		if err != nil {
			return err
		}
		run.Conf, run.Fraction = s.conf, s.fraction
		r.Runs = append(r.Runs, *run)
	}
	return nil
}

// HeaderSpec is the allocator that a case's header asks for.
func HeaderSpec(cs *corpus.Case) (catalog.Spec, error) {
	conf, _ := cs.Trace.Settings()
	fraction, given, err := cs.Trace.HeaderFraction()
	if err != nil {
		return catalog.Spec{}, err
	}
	if !given {
		return catalog.FromSettings(conf, nil)
	}
	return catalog.FromSettings(conf, &fraction)
}

// On runs a case on an allocator.
func (c *Checks) On(cs *corpus.Case, spec *catalog.Spec) (*Run, error) {
	return c.run(executor.Compile(cs.Trace), spec)
}

func (c *Checks) run(p *executor.Program, spec *catalog.Spec) (*Run, error) {
	t := newTracker(p, spec.Base)
	o, err := conform.Observe(p, spec, executor.Options{Properties: c.Properties, Judge: c.NewJudge(), OnRow: t.row})
	if err != nil {
		return nil, err
	}
	run := &Run{Observation: o}
	run.Features, run.Coverage = t.sum(o)
	return run, nil
}

// broken is the run's finding: a broken property, or a refusal that breaks a promise and that no known issue explains.
func (r *Run) broken() *executor.Finding {
	if len(r.Findings) > 0 {
		return &r.Findings[0]
	}
	for i := range r.Judgements {
		j := &r.Judgements[i]
		if j.Verdict == executor.False && j.Known == "" {
			return &executor.Finding{
				Property: executor.NoFalseOOM, Rule: j.Rule, Target: r.Allocator, Op: j.Op, Operation: "alloc", At: "alloc", Detail: j.Reason,
			}
		}
	}
	return nil
}

// Broken is the finding of the run, nil without one.
func (r *Run) Broken() *executor.Finding { return r.broken() }

// known holds a known case to its issue.
func (c *Checks) known(cs *corpus.Case, r *Report) error {
	id := cs.Known()
	if id == "" {
		return nil
	}
	for i := range r.Runs {
		for _, j := range r.Runs[i].Judgements {
			if j.Known == id {
				return nil
			}
		}
		for k := range r.Runs[i].Known {
			if r.Runs[i].Known[k].Known == id {
				return nil
			}
		}
	}
	if v, err := c.related(cs); err != nil || v != nil && v.Known == id {
		return err
	}
	r.Differences = append(r.Differences, Difference{
		Allocator: "any", Figure: "known issue", Want: id, Got: "it does not show any more",
		Explanation: "if that is so on purpose: shatter corpus retire " + cs.Name + " --because ...",
	})
	return nil
}

// related asks the relations of the allocator that the header names.
func (c *Checks) related(cs *corpus.Case) (*executor.Finding, error) {
	spec, err := HeaderSpec(cs)
	if err != nil {
		return nil, err
	}
	conf, _ := cs.Trace.Settings()
	capacity, _, err := cs.Trace.Capacity()
	if err != nil {
		return nil, err
	}
	return executor.Relate(&executor.Case{
		Trace: cs.Trace, Target: executor.Target{Name: spec.Name, New: spec.New}, Capacity: capacity, NewDevice: newDevice, Conf: conf,
		With: func(conf string) (executor.Target, error) {
			s, err := catalog.FromSettings(conf, nil)
			return executor.Target{Name: s.Name, New: s.New}, err
		},
	}, c.Relations)
}

func newDevice(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// Bite runs a case on an allocator, NAME[@CONF], and says in what it comes out otherwise than right; empty if it does not.
func (c *Checks) Bite(cs *corpus.Case, alloc string) (string, error) {
	right, err := conform.ParseOutcome(cs.Right())
	if err != nil {
		return "", fmt.Errorf("%s: right: %w", cs.Path(), err)
	}
	spec, err := catalog.Parse(alloc)
	if err != nil {
		return "", fmt.Errorf("%s: bites: %w", cs.Path(), err)
	}
	run, err := c.On(cs, &spec)
	if err != nil {
		return "", err
	}
	failures, err := right.Compare(run.Observation)
	if err != nil {
		return "", fmt.Errorf("%s: right: %w", cs.Path(), err)
	}
	if f := run.broken(); f != nil {
		return f.String(), nil
	}
	var out []string
	for _, f := range failures {
		out = append(out, fmt.Sprintf("%s: right %s, here %s", f.Figure, f.Want, f.Got))
	}
	return strings.Join(out, "; "), nil
}

// Planted is the bug that a `bites` line names; ok is false if it names an allocator.
func Planted(bite string) (name string, ok bool) { return strings.CutPrefix(bite, corpus.Planted) }

// Renew makes the case's expectations what came out: those that differ are recorded anew, the others stay as they are. A case
// without any gets them for the settings of its header, for classic and for expandable.
func (r *Report) Renew() error {
	different := map[string]bool{}
	for i := range r.Differences {
		different[r.Differences[i].Allocator] = true
	}
	old := r.Case.Expect()
	var lines []string
	for i := range r.Runs {
		run := &r.Runs[i]
		if i < len(old) && !different[run.Allocator] {
			lines = append(lines, old[i])
			continue
		}
		text, err := json.Marshal(run.Record(run.Conf, run.Fraction))
		if err != nil {
			return err
		}
		lines = append(lines, string(text))
	}
	r.Case.Set("expect", lines...)
	return nil
}
