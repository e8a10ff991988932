package whatif

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Option is a setting to try.
type Option struct {
	// Conf is the settings string, without x_ settings; empty for PyTorch's defaults.
	Conf string
	// Fraction is a memory fraction that must be set besides, nil for none.
	Fraction *float64
	// EmptyCache calls empty_cache at the ends of phases.
	EmptyCache bool
}

// Name is what tables call the option.
func (o *Option) Name() string {
	s := o.Conf
	if s == "" {
		s = "(defaults)"
	}
	if o.Fraction != nil {
		s += fmt.Sprintf(" + memory fraction %g", *o.Fraction)
	}
	if o.EmptyCache {
		s += " + empty_cache() at the end of phases"
	}
	return s
}

// Options are the settings worth trying, and their useful pairs.
func Options() []Option {
	full := 1.0
	most := 0.95
	out := []Option{{}, {Conf: "expandable_segments:True"}}
	for _, mb := range []int{32, 64, 128, 256, 512, 1024} {
		out = append(out, Option{Conf: fmt.Sprintf("max_split_size_mb:%d", mb)})
	}
	for _, t := range []string{"0.6", "0.8"} {
		out = append(out, Option{Conf: "garbage_collection_threshold:" + t, Fraction: &full})
	}
	for _, d := range []string{"2", "4", "8"} {
		out = append(out, Option{Conf: "roundup_power2_divisions:" + d})
	}
	return append(out,
		Option{Conf: "max_split_size_mb:128,max_non_split_rounding_mb:64"},
		Option{Conf: "max_split_size_mb:256,garbage_collection_threshold:0.8", Fraction: &full},
		Option{Conf: "max_split_size_mb:128,roundup_power2_divisions:4"},
		Option{Conf: "garbage_collection_threshold:0.6", Fraction: &most},
		Option{Conf: "expandable_segments:True,roundup_power2_divisions:8"},
		Option{EmptyCache: true},
		Option{Conf: "expandable_segments:True", EmptyCache: true},
	)
}

// Outcome is what an option came to.
type Outcome struct {
	Option Option `json:"-"`
	Name   string `json:"setting"`
	Conf   string `json:"conf"`
	// Current says that it is what the program ran under.
	Current bool `json:"current"`
	// Passes says that everything is served at the capacity; else FirstOOM is the first operation refused and OOMs how many were.
	Passes   bool `json:"passes"`
	FirstOOM int  `json:"first_oom"`
	OOMs     int  `json:"ooms"`
	// Leaves says that what must be left free (Advising.Needed) is free at all times.
	Leaves       bool   `json:"leaves_needed"`
	PeakReserved uint64 `json:"peak_reserved"`
	Retries      uint64 `json:"retries"`
	DeviceCalls  uint64 `json:"device_calls"`
	// Cost is what the device calls take, estimated (see Cost), in seconds.
	Cost float64 `json:"estimated_seconds"`
	// Need is C_safe, found for the best options and for those named by the caller; nil if it was not looked for.
	Need *Need `json:"need,omitempty"`
	// Orders is how many of OrdersTried orders of segment addresses pass.
	Orders      int `json:"address_orders_passed"`
	OrdersTried int `json:"address_orders"`
	// Jitter is the share of jittered replays that pass; nil if none was made.
	Jitter *stats.Proportion `json:"jitter,omitempty"`
	// Changed says that the state at the start was allocated anew, since under this setting it would have been another.
	Changed bool `json:"start_allocated_anew"`
	// Error is why the option could not be evaluated, empty if it was.
	Error string `json:"error,omitempty"`
}

// Borderline says that it passes only for some address orders.
func (o *Outcome) Borderline() bool { return o.Passes && o.Orders < o.OrdersTried }

// Advising is a case for advice.
type Advising struct {
	Case *Case
	// Current is the settings string that the program ran under, without x_ settings.
	Current string
	// Target makes the allocator for an option.
	Target func(Option) (executor.Target, error)
	// RandomDevice makes a device whose segments have addresses in the random order of a seed.
	RandomDevice func(seed uint64) measure.NewDevice
	// Needed in bytes must be free at all times besides (for NCCL, for example); 0 for nothing.
	Needed uint64
	// Workers at a time; at least 1.
	Workers int
	// Best is for how many options C_safe is found: 0 means 5, or all on traces of at most smallTrace operations.
	Best int
	// Sure bounds the operations of the replays that make sure of a C_safe; 0 means SureOps.
	Sure int
	// Quick leaves out address orders and jitter.
	Quick bool
}

// Advice is what the options came to, the best first.
type Advice struct {
	Capacity uint64    `json:"capacity"` // 0 if not known: then nothing passes or fails, and options are ranked by what they need
	PeakLive uint64    `json:"peak_live"`
	Outcomes []Outcome `json:"outcomes"`
	// Phases is how many ends of phases were found.
	Phases int `json:"phases"`
	// Missing in bytes is how much more memory the least demanding option needs; 0 if one passes.
	Missing uint64 `json:"missing"`
	// NotEvaluated names what was not tried.
	NotEvaluated []string `json:"not_evaluated"`
}

// orders and jitters are how many replays of each kind are made.
const (
	orders  = 20
	jitters = 20
)

// smallTrace is up to how many operations all options are measured.
const smallTrace = 10_000

// jittered is how many of the best options are replayed with jitter; on small traces all that pass are.
const jittered = 3

// Recommended are the options that pass for every address order and are not what the program runs under, the best first.
func (a *Advice) Recommended() []*Outcome {
	var out []*Outcome
	for i := range a.Outcomes {
		if o := &a.Outcomes[i]; o.Passes && o.Leaves && !o.Current && !o.Borderline() && o.Error == "" {
			out = append(out, o)
		}
	}
	return out
}

// CurrentOutcome is what became of the settings that the program ran under, nil if they were not tried.
func (a *Advice) CurrentOutcome() *Outcome {
	for i := range a.Outcomes {
		if a.Outcomes[i].Current {
			return &a.Outcomes[i]
		}
	}
	return nil
}

// Advise replays a case under every option.
func Advise(ctx context.Context, a *Advising, options []Option) (*Advice, error) {
	c := a.Case
	out := &Advice{Capacity: c.Capacity}
	out.PeakLive, _ = measure.PeakLive(c.Trace)
	phases := Phases(c.Trace)
	out.Phases = len(phases)
	fresh := Fresh(c.Trace)
	traces := func(o *Option) (*trace.Trace, bool) {
		t, changed := c.Trace, false
		if HasStart(t) && (o.Conf != a.Current || o.EmptyCache) {
			t, changed = fresh, true
		}
		if o.EmptyCache {
			shift := len(t.Ops) - len(c.Trace.Ops)
			at := make([]int, len(phases))
			for i, p := range phases {
				at[i] = max(p+shift, 0)
			}
			t = emptiedAt(t, at)
		}
		return t, changed
	}
	if !slices.ContainsFunc(options, func(o Option) bool { return o.Conf == a.Current && o.Fraction == nil && !o.EmptyCache }) {
		options = append([]Option{{Conf: a.Current}}, options...)
	}
	if len(phases) == 0 {
		options = slices.DeleteFunc(slices.Clone(options), func(o Option) bool { return o.EmptyCache })
		out.NotEvaluated = append(out.NotEvaluated, "empty_cache() between phases: no phases were found in the history")
	}
	out.Outcomes = make([]Outcome, len(options))
	programs := make([]*executor.Program, len(options))
	compiled := map[*trace.Trace]*executor.Program{}
	for i := range options {
		t, changed := traces(&options[i])
		if compiled[t] == nil {
			compiled[t] = executor.Compile(t)
		}
		programs[i] = compiled[t]
		o := &options[i]
		out.Outcomes[i] = Outcome{
			Option: *o, Name: o.Name(), Conf: o.Conf, Changed: changed,
			Current: o.Conf == a.Current && o.Fraction == nil && !o.EmptyCache,
		}
	}
	program := map[string]*executor.Program{}
	for i := range out.Outcomes {
		program[out.Outcomes[i].Name] = programs[i]
	}
	err := a.each(ctx, len(options), func(i int) error { return a.first(&out.Outcomes[i], programs[i]) })
	if err != nil {
		return nil, err
	}
	rank(out.Outcomes)
	best := a.Best
	if best == 0 {
		best = 5
		if len(c.Trace.Ops) <= smallTrace {
			best = len(out.Outcomes)
		}
	}
	best = min(best, len(out.Outcomes))
	// Current is measured besides: what it lacks is the first thing that people ask.
	measured := indices(best)
	for i := best; i < len(out.Outcomes); i++ {
		if out.Outcomes[i].Current {
			measured = append(measured, i)
		}
	}
	if err := a.each(ctx, len(measured), func(k int) error {
		o := &out.Outcomes[measured[k]]
		return a.need(ctx, o, program[o.Name])
	}); err != nil {
		return nil, err
	}
	rank(out.Outcomes)
	if c.Capacity > 0 && !a.Quick {
		if err := a.sturdy(ctx, out, program); err != nil {
			return nil, err
		}
	}
	if c.Capacity > 0 && !slices.ContainsFunc(out.Outcomes, func(o Outcome) bool { return o.Passes && o.Leaves }) {
		out.Missing = ^uint64(0)
		for i := range out.Outcomes {
			if n := out.Outcomes[i].Need; n != nil {
				out.Missing = min(out.Missing, n.Safe+a.Needed-min(n.Safe+a.Needed, c.Capacity))
			}
		}
	}
	return out, ctx.Err()
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// each calls do for 0 to n-1 on the workers.
func (a *Advising) each(ctx context.Context, n int, do func(int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failure error
	next := 0
	for range max(a.Workers, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := next
				next++
				stop := failure != nil
				mu.Unlock()
				if i >= n || stop || ctx.Err() != nil {
					return
				}
				if err := do(i); err != nil {
					mu.Lock()
					failure = err
					mu.Unlock()
				}
			}
		}()
	}
	wg.Wait()
	return failure
}

// first replays an option once, at the capacity.
func (a *Advising) first(o *Outcome, p *executor.Program) error {
	o.FirstOOM = -1
	t, err := a.Target(o.Option)
	if err != nil {
		o.Error = err.Error()
		return nil
	}
	capacity := a.Case.Capacity
	if capacity == 0 {
		capacity = measure.Unbounded
	}
	r, err := replay(p, t, a.Case.NewDevice, capacity, false)
	if err != nil {
		return err
	}
	o.Passes, o.FirstOOM, o.OOMs, o.PeakReserved = r.Passes, r.FirstOOM, r.OOMs, r.PeakReserved
	o.Leaves = a.Needed == 0 || r.PeakReserved+a.Needed <= capacity
	s := &r.Result.Stats
	o.Retries = s.NumAllocRetries
	o.DeviceCalls = s.NumDeviceAlloc + s.NumDeviceFree
	o.Cost = Cost(s.NumDeviceAlloc, s.NumDeviceFree, s.ReservedBytes.All.Allocated+s.ReservedBytes.All.Freed,
		s.NumSyncAllStreams, strings.Contains(o.Conf, "expandable_segments:True")).Seconds()
	return nil
}

// What device calls take, as to the order of magnitude, on current data-centre GPUs: cudaMalloc and cudaFree wait for the device; pages
// are created, mapped and opened one by one. They rank settings; they are no forecast.
const (
	segmentCall = 300 * time.Microsecond
	pageCall    = 60 * time.Microsecond
	flushWait   = time.Millisecond
)

// Cost estimates what the device calls of a run take: calls that buy and that return, the bytes of both, and flushes.
func Cost(buys, returns, bytes, flushes uint64, expandable bool) time.Duration {
	d := time.Duration(flushes) * flushWait
	if expandable {
		return d + time.Duration(bytes/(20<<20)+buys+returns)*pageCall
	}
	return d + time.Duration(buys+returns)*segmentCall
}

func (a *Advising) need(ctx context.Context, o *Outcome, p *executor.Program) error {
	if o.Error != "" {
		return nil
	}
	t, err := a.Target(o.Option)
	if err != nil {
		return err
	}
	n, err := FindNeed(ctx, p, t, a.Case.NewDevice, cmp.Or(a.Sure, SureOps))
	if err != nil {
		o.Error = err.Error()
		return nil
	}
	o.Need = &n
	return nil
}

// rank puts the best first: what passes, then what needs least, then fewer things to set, fewer retries, device calls and time.
func rank(list []Outcome) {
	slices.SortStableFunc(list, func(a, b Outcome) int {
		return cmp.Or(
			order(a.Error != "", b.Error != ""), order(!a.Passes, !b.Passes), order(!a.Leaves, !b.Leaves),
			order(a.Borderline(), b.Borderline()), order(a.fragile(), b.fragile()),
			order(a.Need == nil, b.Need == nil), cmp.Compare(a.needed(), b.needed()),
			cmp.Compare(b.FirstOOM, a.FirstOOM), cmp.Compare(a.parts(), b.parts()), cmp.Compare(a.Retries, b.Retries), cmp.Compare(a.DeviceCalls, b.DeviceCalls),
			cmp.Compare(a.Cost, b.Cost), cmp.Compare(len(a.Conf), len(b.Conf)),
		)
	})
}

// fragile says that most replays with frees a little later fail.
func (o *Outcome) fragile() bool {
	return o.Jitter != nil && o.Jitter.Share != nil && *o.Jitter.Share < 0.5
}

// parts is how many things must be set.
func (o *Outcome) parts() int {
	n := 0
	if o.Conf != "" {
		n = 1 + strings.Count(o.Conf, ",")
	}
	if o.Option.Fraction != nil {
		n++
	}
	if o.Option.EmptyCache {
		n++
	}
	return n
}

func (o *Outcome) needed() uint64 {
	if o.Need != nil {
		return o.Need.Safe
	}
	return o.PeakReserved
}

func order(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
