package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// sought is what a search comes to, printed as JSON by the program that has the bug (schema shatter.sought/1).
type sought struct {
	Schema string `json:"schema"`
	Found  bool   `json:"found"`
	// Sequences is how many ran until the finding; Enumerated of them were small traces enumerated in full.
	Sequences  int `json:"sequences"`
	Enumerated int `json:"enumerated"`
	// Mix is the sequences by kind, Operations is how many those had together.
	Mix        map[string]int `json:"mix"`
	Operations int            `json:"operations"`
	// Property, Rule, Detail are those of the finding that shrank to the fewest operations; First is the signature of the first.
	Property string `json:"property,omitempty"`
	Rule     string `json:"rule,omitempty"`
	Detail   string `json:"detail,omitempty"`
	First    string `json:"first,omitempty"`
	Before   int    `json:"before,omitempty"` // operations of the trace in which it was found
	After    int    `json:"after,omitempty"`  // operations when shrunk
	Tries    int    `json:"tries,omitempty"`  // findings that were shrunk
	Text     string `json:"trace,omitempty"`
	// Shortest is the length of the shortest enumerated trace with a finding, 0 if none has one; Exhausted is the length up to
	// which all were tried.
	Shortest  int `json:"shortest,omitempty"`
	Exhausted int `json:"exhausted"`
	// Generic is the number of sequences after which a check that knows no promise found something, 0 if it did not.
	Generic int `json:"generic,omitempty"`
	// Named is the number of sequences after which the property that must see the bug saw it, asked alone: 0 if it did not, or if
	// the finding above is its own.
	Named int `json:"named,omitempty"`
	// Broken counts sequences in which the harness failed, BrokenBy is how the first did.
	Broken   int    `json:"broken,omitempty"`
	BrokenBy string `json:"broken_by,omitempty"`
	Timing   struct {
		FoundAfter float64 `json:"found_after"` // seconds of processor time
		Seconds    float64 `json:"seconds"`
	} `json:"timing"`
}

// relatedOps is the longest sequence that all relations are asked of, in operations.
const relatedOps = 40

var onlyReference = []executor.Relation{properties.AgreesWithReference}

// keyFault is the header line for the faults that the device of a sequence has.
const keyFault = "fault"

// bare hides what an allocator says of its rules: only what holds of any allocator can then be asked of it.
type bare struct{ a *caching.Allocator }

func (b bare) Alloc(n uint64, s device.Stream) (allocators.Block, error) { return b.a.Alloc(n, s) }
func (b bare) Free(addr device.Addr) error                               { return b.a.Free(addr) }
func (b bare) Record(addr device.Addr, s device.Stream) error            { return b.a.Record(addr, s) }
func (b bare) EmptyCache() error                                         { return b.a.EmptyCache() }
func (b bare) Configure(conf string) error                               { return b.a.Configure(conf) }
func (b bare) SetFraction(f float64) error                               { return b.a.SetFraction(f) }
func (b bare) Stats() *allocators.Stats                                  { return b.a.Stats() }

// seeker looks for a finding in sequences of its own.
type seeker struct {
	seed       uint64
	properties []executor.Property
	relations  []executor.Relation
}

// target is the allocator that a trace's header asks for.
func (h *seeker) target(t *trace.Trace, generic bool) (executor.Target, error) {
	s, err := headerSpec(t, "")
	if err != nil || !generic {
		return targetOf(s), err
	}
	return executor.Target{Name: s.Name, New: func(d device.Device) (allocators.Allocator, error) {
		a, err := caching.New(d, *s.Settings)
		return bare{a}, err
	}}, nil
}

// run executes a sequence under all checks, or under those that know no promise.
func (h *seeker) run(t *trace.Trace, generic bool) (res *executor.Result, err error) {
	defer func() {
		// A panic that the executor made no finding of began in the harness.
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: panic: %v", executor.ErrHarness, p)
		}
	}()
	if generic {
		if t = unlimited(t); rounding(t) {
			return &executor.Result{}, nil
		}
	}
	target, err := h.target(t, generic)
	if err != nil {
		return nil, err
	}
	capacity, _, err := t.Capacity()
	if err != nil {
		return nil, err
	}
	o := executor.Options{Properties: h.properties, Judge: properties.NewJudge()}
	if o.Device, err = seekDevice(capacity); err != nil {
		return nil, err
	}
	if plan, ok := header(t, keyFault); ok {
		if o.Faults, err = faultdev.Parse(plan, trace.ParseSize); err != nil {
			return nil, err
		}
		// Where a call failed the operation is made twice, so what it did cannot be foretold from the state before it.
		o.Judge = nil
		o.Properties = slices.DeleteFunc(slices.Clone(h.properties), func(p executor.Property) bool { return p.ID == properties.ServedAsPromised.ID })
	}
	return executor.Execute(executor.Compile(t), target, o)
}

// unlimited is a trace without memory fractions. Who knows nothing of an allocator's rules must take what a limit refuses for
// false.
func unlimited(t *trace.Trace) *trace.Trace {
	out := &trace.Trace{Name: t.Name}
	for _, f := range t.Header {
		if f.Key != trace.KeyFraction {
			out.Header = append(out.Header, f)
		}
	}
	for _, op := range t.Ops {
		if op.Kind != trace.Fraction {
			out.Ops = append(out.Ops, op)
		}
	}
	return out
}

// rounding tells whether settings round requests up by more than the generic rules allow for.
func rounding(t *trace.Trace) bool {
	conf, _ := t.Settings()
	for _, op := range t.Ops {
		conf += op.Conf
	}
	return strings.Contains(conf, "roundup_power2_divisions")
}

// check runs a sequence under all checks; if it passes and relations are given, it asks those.
func (h *seeker) check(t *trace.Trace, relations []executor.Relation) (f *executor.Finding, used uint64, err error) {
	res, err := h.run(t, false)
	switch {
	case err != nil:
		return nil, 0, err
	case len(res.Findings) > 0:
		return &res.Findings[0], res.PeakReserved, nil
	case len(relations) == 0:
		return nil, res.PeakReserved, nil
	}
	f, err = h.relate(t, relations)
	return f, res.PeakReserved, err
}

// relate asks what must hold of several runs side by side. Known issues are no findings.
func (h *seeker) relate(t *trace.Trace, relations []executor.Relation) (f *executor.Finding, err error) {
	defer func() {
		// The allocator alone can be at fault: the same runs passed one by one, or the harness is clean without the bug.
		if p := recover(); p != nil {
			f = &executor.Finding{Property: "no-crash", Rule: "panic", At: executor.AtRuns, Op: len(t.Ops), Detail: fmt.Sprint(p)}
		}
	}()
	spec, err := headerSpec(t, "")
	if err != nil {
		return nil, err
	}
	capacity, _, err := t.Capacity()
	if err != nil {
		return nil, err
	}
	f, err = executor.Relate(&executor.Case{
		Trace: t, Target: targetOf(spec), Capacity: capacity, NewDevice: seekDevice, Conf: confOf(spec), With: settingsFor(spec),
	}, relations)
	if f != nil && f.Known != "" {
		f = nil
	}
	return f, err
}

func seekDevice(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// predicate keeps the signature of a finding while a trace is shrunk.
func (h *seeker) predicate(want *executor.Finding) shrink.Predicate {
	signature := want.Signature()
	var relations []executor.Relation
	for _, r := range h.relations {
		if r.ID == want.Property {
			relations = append(relations, r)
		}
	}
	return func(t *trace.Trace) shrink.Answer {
		f, used, err := h.check(t, relations)
		switch {
		case err != nil:
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		case f == nil:
			return shrink.Answer{Kind: shrink.Passes, Used: used}
		}
		a := shrink.Answer{Kind: shrink.Different, Signature: f.Signature(), Op: f.Op, Used: used}
		if a.Signature == signature {
			a.Kind = shrink.Same
		}
		return a
	}
}

// seekOptions bound a search.
type seekOptions struct {
	seed    uint64
	time    time.Duration
	seqs    int // end after this many, 0 for none
	minimum int // go on until a trace is as short as this, or the time is over
	generic time.Duration
	named   string // the property that must see the bug, and its rule
	exhaust int    // enumerate all traces up to this length that are shorter than what was found
	short   bool
}

// seek looks for a finding and shrinks it.
func seek(ctx context.Context, o seekOptions, w io.Writer) error {
	// Time is that of the processor, so that it says as much on a busy machine; the clock only ends what waits for ever.
	start := processorTime()
	since := func() time.Duration { return processorTime() - start }
	ctx, cancel := context.WithTimeout(ctx, 10*o.time)
	defer cancel()
	over := func() bool { return ctx.Err() != nil || since() >= o.time }
	h := &seeker{seed: o.seed, properties: properties.All(), relations: properties.Relations()}
	r := sought{Schema: "shatter.sought/1", Mix: map[string]int{}}
	seen := map[string]int{} // tries by signature
	related := func(t *trace.Trace) []executor.Relation {
		if _, faulty := header(t, keyFault); faulty {
			return nil
		}
		// The others take as long as dozens of runs.
		if len(t.Ops) > relatedOps || r.Sequences%2 == 0 || isWalk(t) && r.Sequences%16 != 1 {
			return onlyReference
		}
		return h.relations
	}
	look := func(t *trace.Trace) bool {
		if over() || o.seqs > 0 && r.Sequences >= o.seqs {
			return false
		}
		if !r.Found {
			r.Sequences++
			r.Operations += len(t.Ops)
			r.Mix[kindOf(t)]++
		}
		f, _, err := h.check(t, related(t))
		if err != nil {
			r.broke(t, err)
			return true
		}
		if f == nil {
			return true
		}
		if !r.Found {
			r.Found, r.First, r.Before = true, f.Signature(), len(t.Ops)
			r.Timing.FoundAfter = since().Seconds()
		}
		shorter := len(t.Ops) < r.After
		if seen[f.Signature()]++; !shorter && (seen[f.Signature()] > 4 || r.After > 0 && len(t.Ops) > 8*r.Before) {
			return true
		}
		r.shrink(ctx, over, h, t, f)
		return o.seqs == 0 && r.After > o.minimum // with a number of sequences, one finding says it
	}
	next, more := h.rounds(firstRounds, 0, look)
	rounds := lastRounds
	if o.short {
		rounds = firstRounds
	}
	if o.exhaust > 0 {
		// Two operations take a second, three take ten times as long: longer sequences have a try before them.
		r.enumerate(over, h, 1, min(o.exhaust, 2), look)
		if more = !r.Found || r.After > o.minimum; more {
			next, more = h.rounds(rounds, next, look)
		}
		r.enumerate(over, h, 3, o.exhaust, look)
		more = more && (!r.Found || r.After > o.minimum)
	}
	for more && !over() {
		next, more = h.rounds(rounds, next, look)
	}
	if r.Found && o.generic > 0 {
		r.findGeneric(h, o.generic)
	}
	if r.Found && o.named != "" && r.Property+"/"+r.Rule != o.named {
		r.findNamed(h, o.named, o.time)
	}
	r.Timing.Seconds = since().Seconds()
	return json.NewEncoder(w).Encode(r)
}

// broke counts a failure of the harness.
func (r *sought) broke(t *trace.Trace, err error) {
	if r.Broken++; r.Broken == 1 {
		r.BrokenBy = t.Name + ": " + err.Error()
	}
}

// seekShrinkRuns bounds a shrink: what is left after so many runs is about as short as it gets.
const seekShrinkRuns = 10_000

// shrink shrinks a finding and keeps it if it is the shortest so far.
func (r *sought) shrink(ctx context.Context, over func() bool, h *seeker, t *trace.Trace, f *executor.Finding) {
	r.Tries++
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fails := h.predicate(f)
	m, err := shrink.Minimise(ctx, t, func(t *trace.Trace) shrink.Answer {
		if over() {
			cancel()
		}
		return fails(t)
	}, shrink.Budget{Runs: seekShrinkRuns})
	if err != nil {
		m = &shrink.Result{Trace: t, After: len(t.Ops)}
	}
	if r.After > 0 && m.After >= r.After {
		return
	}
	for i := range campaign.Repeats {
		g, _, err := h.check(m.Trace, h.relations)
		switch {
		case err != nil:
			r.broke(m.Trace, err)
		case i == 0 && g != nil:
			f = g
		case g == nil || *g != *f:
			r.broke(m.Trace, fmt.Errorf("%w: %s did not come back in repeat %d of %d", executor.ErrHarness, f, i, campaign.Repeats-1))
		}
	}
	r.Property, r.Rule, r.Detail, r.After, r.Text = f.Property, f.Rule, f.Detail, m.After, string(m.Trace.Format())
}

// findGeneric makes the same sequences again under the checks that know no promise.
func (r *sought) findGeneric(h *seeker, limit time.Duration) {
	end := processorTime() + limit
	n := 0
	look := func(t *trace.Trace) bool {
		if processorTime() > end {
			return false
		}
		n++
		if res, err := h.run(t, true); err == nil && len(res.Findings) > 0 {
			r.Generic = n
			return false
		}
		return true
	}
	next, more := h.rounds(firstRounds, 0, look)
	for more {
		next, more = h.rounds(lastRounds, next, look)
	}
}
