// Package campaign runs many generated sequences on several targets: in parallel, within a number of sequences or a
// deadline, with the same result whatever the number of workers.
//
// In go workloads, targets, properties and a seed; out come Sequences, in order of their index. The package knows neither
// properties nor reports: they are handed in as values, and what it finds is handed out.
package campaign

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Target makes the allocator for a trace: the settings may stand in the trace's header.
type Target struct {
	Name string
	For  func(*trace.Trace) (executor.Target, error)
	// Remote says that the allocator is in another process, where a run takes some ten times as long: C_safe is looked for with a
	// bounded number of runs.
	Remote bool
	// Settings tells, for relations, the settings string for a trace and how to make the allocator under another one. Without it no
	// relations are asked.
	Settings func(*trace.Trace) (conf string, with func(conf string) (executor.Target, error), err error)
}

// remoteRuns bounds the search for C_safe beyond its halving, on a remote target.
const remoteRuns = 64

// Config is what to run.
type Config struct {
	Workloads []gen.Workload
	Params    gen.Params
	Targets   []Target
	// Sequences is how many to run; 0 means until the context ends.
	Sequences int
	// Seed of the campaign. Each sequence has a seed of its own, which follows from this one, its workload and its index, so
	// that it can be run alone.
	Seed uint64
	// Workers run sequences at once; 0 means one a core.
	Workers int
	// Shard and Shards split the sequences over machines: this one runs those with index % Shards == Shard.
	Shard, Shards int
	// Capacity overrides that of the traces, in bytes; 0 leaves them.
	Capacity  uint64
	NewDevice measure.NewDevice
	// MeasureDevice makes the devices on which measures are taken; nil means NewDevice.
	MeasureDevice measure.NewDevice
	// RelationDevice makes the devices on which relations are asked, simulated ones; nil means MeasureDevice.
	RelationDevice measure.NewDevice
	// Verify says how much of the blocks' bytes is checked; Faults are the device calls that fail.
	Verify executor.Verify
	Faults faultdev.Plan
	// Properties are checked on every target; NewJudge makes a judge for a run.
	Properties []executor.Property
	NewJudge   func() executor.Judge
	// Relations are asked about every RelateEvery-th sequence of each workload that has no finding; 0 means none.
	Relations   []executor.Relation
	RelateEvery int
	// Measures says whether capacities and profiles are taken, on distribution workloads.
	Measures bool
	// Decisions says whether digests of all decisions are taken.
	Decisions bool
	// Done says which sequences were run before and are not run again; nil means none.
	Done func(index int) bool
	// Simulated says that nothing is left to chance: a finding must come back each time it is run again (Deflake).
	Simulated bool

	confirmed *sync.Map // signatures that came back
}

// Sequence is one generated trace and what became of it.
type Sequence struct {
	Index    int // in the campaign
	Workload string
	Seed     uint64
	Trace    *trace.Trace
	Capacity uint64 // bytes
	PeakLive uint64 // L*, bytes
	Runs     []Run  // a target each, in order of Config.Targets
}

// Run is a sequence on a target.
type Run struct {
	Target string
	// Allocator is the target with the settings that the trace brought.
	Allocator string
	Result    *executor.Result
	// Spectrum and Profile are there if measures were taken. Of a Remote target the spectrum has the last interval only.
	Spectrum *measure.Spectrum
	// LowerBound says that the spectrum's C_safe is not exact: larger capacities may fail.
	LowerBound bool
	Profile    *measure.Profile
	// Lives are there with Spectrum and Profile.
	Lives []measure.Life
	// Decisions are there if they were asked (Digests).
	Decisions []string
	// Drift is there if relations were asked.
	Drift *drift.Drift
}

// Execute runs the campaign and hands each sequence to sink, in order of the index, from one goroutine at a time. When the
// context ends, no more are begun; what is finished up to the first gap is handed over and ctx.Err() returned.
func Execute(ctx context.Context, c Config, sink func(*Sequence) error) error {
	if len(c.Workloads) == 0 || len(c.Targets) == 0 {
		return fmt.Errorf("%w: a campaign needs a workload and a target", executor.ErrHarness)
	}
	c.confirmed = &sync.Map{}
	c.Shards = max(c.Shards, 1)
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	following := func(i int) int {
		for c.Done != nil && (c.Sequences == 0 || i < c.Sequences) && c.Done(i) {
			i += c.Shards
		}
		return i
	}
	q := &order{ready: map[int]*Sequence{}, sink: sink, next: following(c.Shard), following: func(i int) int { return following(i + c.Shards) }}
	var wg sync.WaitGroup
	var mu sync.Mutex
	index := q.next
	for range c.Workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := index
				index = q.following(i)
				mu.Unlock()
				if c.Sequences > 0 && i >= c.Sequences || ctx.Err() != nil {
					return
				}
				s, err := c.sequence(ctx, i)
				if err == nil {
					err = q.put(s)
				}
				if err != nil {
					cancel(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	return context.Cause(ctx)
}

// order hands sequences over by index, whatever the order in which they were finished.
type order struct {
	mu        sync.Mutex
	ready     map[int]*Sequence
	next      int
	following func(int) int // the index that is run after one
	sink      func(*Sequence) error
	err       error // of the sink, after which it gets no more
}

func (o *order) put(s *Sequence) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ready[s.Index] = s
	for o.err == nil {
		s := o.ready[o.next]
		if s == nil {
			return nil
		}
		delete(o.ready, o.next)
		o.next = o.following(o.next)
		o.err = o.sink(s)
	}
	return o.err
}

// sequence generates and runs sequence i.
func (c *Config) sequence(ctx context.Context, i int) (*Sequence, error) {
	w := c.Workloads[i%len(c.Workloads)]
	seed := gen.Seed(c.Seed, w.Name, uint64(i/len(c.Workloads)))
	t := gen.Generate(w, seed, c.Params)
	t.Name = Name(w.Name, seed, c.Params)
	capacity, ok, err := t.Capacity()
	if err != nil {
		return nil, err
	}
	if c.Capacity > 0 {
		capacity = c.Capacity
	} else if !ok {
		return nil, fmt.Errorf("%w: workload %s gave a trace without capacity", executor.ErrHarness, w.Name)
	}
	s := &Sequence{Index: i, Workload: w.Name, Seed: seed, Trace: t, Capacity: capacity}
	s.PeakLive, _ = measure.PeakLive(t)
	p := executor.Compile(t)
	for _, target := range c.Targets {
		r, err := c.run(ctx, p, target, capacity, w.Kind)
		if err != nil {
			return nil, err
		}
		if c.RelateEvery > 0 && i/len(c.Workloads)%c.RelateEvery == 0 && target.Settings != nil && len(r.Result.Findings) == 0 {
			if err := c.relate(t, target, capacity, &r); err != nil {
				return nil, err
			}
		}
		s.Runs = append(s.Runs, r)
	}
	return s, nil
}

// Name is how a generated trace is called; `shatter replay` makes the trace from it again.
func Name(workload string, seed uint64, p gen.Params) string {
	name := fmt.Sprintf("gen:%s:%d", workload, seed)
	if p.Ops > 0 {
		name += fmt.Sprintf(":ops=%d", p.Ops)
	}
	return name
}

func (c *Config) run(ctx context.Context, p *executor.Program, target Target, capacity uint64, kind gen.Kind) (Run, error) {
	run := Run{Target: target.Name}
	t, err := target.For(p.Trace)
	if err != nil {
		return run, fmt.Errorf("%s on %s: %w", p.Trace.Name, target.Name, err)
	}
	run.Allocator = t.Name
	var digests *digests
	if c.Decisions {
		digests = newDigests(p.Len())
	}
	if run.Result, err = c.execute(p, t, capacity, digests); err != nil {
		return run, err
	}
	if digests != nil {
		run.Decisions = digests.text()
	}
	if list := run.Result.Findings; len(list) > 0 {
		if err := c.deflake(&list[0], p.Trace, func() (*executor.Result, error) { return c.execute(p, t, capacity, nil) }); err != nil {
			return run, err
		}
	}
	if !c.Measures || kind != gen.Distribution || len(run.Result.Findings) > 0 {
		return run, nil
	}
	measured := c.measureDevice()
	profile, err := measure.ProfileOf(p, t, measured)
	if err != nil {
		return run, err
	}
	run.Profile = &profile
	if target.Remote {
		safe, err := measure.Safe(ctx, p, t, measured, remoteRuns)
		if err != nil {
			return run, err
		}
		run.LowerBound = !safe.Exact
		run.Spectrum = &measure.Spectrum{Passes: []measure.Interval{{From: safe.Bytes, To: measure.Infinite}}, Runs: safe.Runs}
		run.Spectrum.PeakLive, _ = measure.PeakLive(p.Trace)
	} else if run.Spectrum, err = measure.Capacities(ctx, p, t, measured); err != nil {
		return run, err
	}
	run.Lives, err = measure.LivesOf(p, t, measured, run.Spectrum)
	return run, err
}

// execute runs a program once, under all checks.
func (c *Config) execute(p *executor.Program, t executor.Target, capacity uint64, digests *digests) (*executor.Result, error) {
	dev, err := c.NewDevice(capacity)
	if err != nil {
		return nil, err
	}
	if closer, ok := dev.(io.Closer); ok {
		defer closer.Close()
	}
	opts := executor.Options{Device: dev, Properties: c.Properties, Verify: c.Verify, Faults: c.Faults}
	if digests != nil {
		opts.OnRow = digests.add
	}
	if c.NewJudge != nil {
		opts.Judge = c.NewJudge()
	}
	return executor.Execute(p, t, opts)
}

// measureDevice makes the devices on which measures are taken.
func (c *Config) measureDevice() measure.NewDevice {
	if c.MeasureDevice != nil {
		return c.MeasureDevice
	}
	return c.NewDevice
}

// relate asks what takes several runs.
func (c *Config) relate(t *trace.Trace, target Target, capacity uint64, run *Run) error {
	on, err := target.For(t)
	if err != nil {
		return err
	}
	q := executor.Case{Trace: t, Target: on, Capacity: capacity, NewDevice: c.RelationDevice, Explore: true}
	if q.NewDevice == nil {
		q.NewDevice = c.measureDevice()
	}
	if q.Conf, q.With, err = target.Settings(t); err != nil {
		return err
	}
	f, err := executor.Relate(&q, c.Relations)
	if err != nil {
		return err
	}
	switch {
	case f == nil:
	case f.Known != "":
		run.Result.Known = append(run.Result.Known, *f)
	default:
		if err := c.deflake(f, t, func() (*executor.Result, error) {
			res := &executor.Result{Elsewhere: run.Result.Elsewhere}
			f, err := executor.Relate(&q, c.Relations)
			if f != nil {
				res.Findings = []executor.Finding{*f}
			}
			return res, err
		}); err != nil {
			return err
		}
		run.Result.Findings = append(run.Result.Findings, *f)
	}
	run.Drift, err = drift.Measure(t.First(drift.Ops), on, c.measureDevice())
	return err
}
