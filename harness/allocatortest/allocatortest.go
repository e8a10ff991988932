// Package allocatortest tests anyone's GPU memory allocator in `go test`: one call generates adversarial sequences, executes
// them on a simulated device, checks every property that can be checked, judges every refusal, and shrinks what it finds to
// a trace that a person can read.
//
//	func TestMine(t *testing.T) { allocatortest.Test(t, newMine) }
//	func FuzzMine(f *testing.F) { allocatortest.Fuzz(f, newMine) }
//
// An allocator needs Alloc and Free (allocators.Allocator). What else it can do is discovered: streams
// (allocators.StreamRecorder), a cache (CacheEmptier), settings (Configurer), statistics (StatsReader), a list of its blocks
// (Snapshotter), a promise (Promiser). What could not be checked for want of an ability is said in the log.
package allocatortest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// Factory makes the allocator under test on an empty device.
type Factory func(device.Device) (allocators.Allocator, error)

// Option changes what Test and Fuzz do.
type Option func(*config)

type config struct {
	seed      uint64
	sequences int
	ops       int
	capacity  uint64
	shrink    time.Duration
}

func configure(opts []Option) config {
	c := config{seed: 1, sequences: 20, ops: 600, shrink: 3 * time.Second}
	for _, o := range opts {
		o(&c)
	}
	return c
}

// Seed sets the seed of the sequences; without it, 1.
func Seed(n uint64) Option { return func(c *config) { c.seed = n } }

// Sequences sets how many sequences each workload runs; without it, 20.
func Sequences(n int) Option { return func(c *config) { c.sequences = n } }

// Ops sets how many operations a sequence has; without it, 600.
func Ops(n int) Option { return func(c *config) { c.ops = n } }

// Capacity sets the device's bytes; without it, each workload chooses: 80 GiB for those that imitate programs, a small
// device that is full soon for those that look for findings.
func Capacity(bytes uint64) Option { return func(c *config) { c.capacity = bytes } }

// ShrinkTime bounds how long a finding is shrunk; without it, 3 seconds.
func ShrinkTime(d time.Duration) Option { return func(c *config) { c.shrink = d } }

// Test runs every workload on the allocator, a subtest each, and fails with the first finding of each, shrunk. Then it replays
// the cases of the regression corpus: what broke other allocators.
func Test(t *testing.T, factory Factory, opts ...Option) {
	t.Helper()
	c := configure(opts)
	s := suite{config: c, factory: factory, relations: properties.Relations()}
	s.sayUnchecked(t)
	for _, w := range gen.Workloads {
		t.Run(w.Name, func(t *testing.T) {
			for i := range c.sequences {
				seed := gen.Seed(c.seed, w.Name, uint64(i))
				tr := gen.Generate(w, seed, gen.Params{Ops: c.ops, Capacity: c.capacity})
				tr.Name = fmt.Sprintf("%s-%d", w.Name, i)
				s.check(t, tr)
				if t.Failed() {
					return
				}
			}
		})
	}
	t.Run("corpus", s.replayCorpus)
}

// replayCorpus runs the traces of the accepted and the known cases, each on the device that it says unless one is set.
func (s *suite) replayCorpus(t *testing.T) {
	cases, err := corpus.Embedded().Cases()
	if err != nil {
		t.Fatal(err)
	}
	once := suite{config: s.config, factory: s.factory} // relations take dozens of runs each
	for _, c := range cases {
		tr := *c.Trace
		if s.capacity > 0 {
			tr.Set(trace.KeyCapacity, fmt.Sprint(s.capacity))
		}
		tr.Name = c.Name
		once.check(t, &tr)
	}
}

// maxInput bounds a fuzz input, in bytes; fuzzCapacity is the device where the input names none: small beside the sizes that
// inputs decode to, so that it is full soon.
const (
	maxInput     = 16 << 10
	fuzzCapacity = 256 << 20
	maxCapacity  = 64 << 30
)

// Fuzz makes a native fuzz target of the allocator. Any bytes are a trace; seeds come from the workloads.
func Fuzz(f *testing.F, factory Factory, opts ...Option) {
	f.Helper()
	c := configure(opts)
	s := suite{config: c, factory: factory}
	for _, w := range gen.Workloads {
		f.Add(trace.Encode(gen.Generate(w, gen.Seed(c.seed, w.Name, 0), gen.Params{Ops: 60, Capacity: fuzzCapacity})))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > maxInput {
			t.Skip("over 16 KiB")
		}
		tr := trace.Decode(in)
		capacity, ok, _ := tr.Capacity()
		switch {
		case c.capacity > 0:
			capacity = c.capacity
		case !ok:
			capacity = fuzzCapacity
		}
		capacity = min(max(capacity, simdev.MinCapacity), maxCapacity) / simdev.Granule * simdev.Granule
		tr.Set(trace.KeyCapacity, fmt.Sprint(capacity)) // whole granules, so that an arena may take all of it
		s.check(t, tr)
	})
}

// suite checks traces on one allocator.
type suite struct {
	config
	factory Factory
	// relations are asked by Test; a fuzz target has no time for their dozens of runs.
	relations []executor.Relation
}

func newDevice(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func (s *suite) target() executor.Target {
	return executor.Target{Name: "allocator", New: s.factory}
}

// check runs a trace and fails the test on a finding.
func (s *suite) check(t *testing.T, tr *trace.Trace) {
	t.Helper()
	tr = s.suitable(tr)
	capacity, _, err := tr.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	found, err := s.run(tr, capacity)
	if err != nil {
		t.Fatalf("%s: %v", tr.Name, err)
	}
	if found != nil {
		t.Error(s.report(tr, found))
	}
}

// suitable drops what the allocator cannot do anything with: settings, a fraction, a state to start from with all that becomes
// of its blocks.
func (s *suite) suitable(tr *trace.Trace) *trace.Trace {
	out := &trace.Trace{Name: tr.Name}
	for _, h := range tr.Header {
		if h.Key != trace.KeyConf && h.Key != trace.KeyFraction {
			out.Header = append(out.Header, h)
		}
	}
	dropped := map[uint64]bool{} // ids of blocks that are not there
	for _, op := range tr.Ops {
		switch op.Kind {
		case trace.Conf, trace.Fraction, trace.Segment:
			continue
		case trace.Block:
			dropped[op.ID] = true
			continue
		case trace.Record, trace.Use:
			if dropped[op.ID] {
				continue
			}
		case trace.Free:
			if dropped[op.ID] {
				delete(dropped, op.ID)
				continue
			}
		}
		out.Ops = append(out.Ops, op)
	}
	return out
}

// run executes a trace under all properties. For an allocator without a promise the first refusal is repeated in a replay:
// it must be refused again.
func (s *suite) run(tr *trace.Trace, capacity uint64) (*executor.Finding, error) {
	dev, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	p := executor.Compile(tr)
	res, err := executor.Execute(p, s.target(), executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
	if err != nil {
		return nil, err
	}
	if len(res.Findings) > 0 {
		return &res.Findings[0], nil
	}
	if f, err := s.retry(p, res, capacity); f != nil || err != nil {
		return f, err
	}
	return executor.Relate(&executor.Case{Trace: tr, Target: s.target(), Capacity: capacity, NewDevice: newDevice}, s.relations)
}

func (s *suite) retry(p *executor.Program, res *executor.Result, capacity uint64) (*executor.Finding, error) {
	if len(res.Judgements) == 0 || res.Judgements[0].Verdict != executor.Unknown {
		return nil, nil
	}
	dev, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	op := res.Judgements[0].Op
	served, err := executor.Retry(p, s.target(), dev, op)
	if err != nil || !served {
		return nil, err
	}
	return &executor.Finding{
		Property: executor.NoFalseOOM, Rule: "retry", Target: "allocator", Op: op, Operation: p.Trace.Ops[op].String(),
		Detail: "the same request, repeated unchanged right after the refusal, is served",
	}, nil
}

// report shrinks the trace of a finding and says it in words.
func (s *suite) report(tr *trace.Trace, f *executor.Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%s\n", f.Signature(), f)
	ctx, cancel := context.WithTimeout(context.Background(), s.shrink)
	defer cancel()
	r, err := shrink.Minimise(ctx, tr, s.predicate(f.Signature()), shrink.Budget{})
	if err != nil {
		fmt.Fprintf(&b, "it could not be shrunk: %v\n%s", err, tr.Format())
		return b.String()
	}
	fmt.Fprintf(&b, "shrunk from %d to %d operations:\n%s", r.Before, r.After, r.Trace.Format())
	return b.String()
}

// predicate tells whether a trace still fails in the same way.
func (s *suite) predicate(signature string) shrink.Predicate {
	return func(tr *trace.Trace) shrink.Answer {
		capacity, _, err := tr.Capacity()
		if err != nil {
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		}
		f, err := s.run(tr, capacity)
		switch {
		case err != nil:
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		case f == nil:
			return shrink.Answer{Kind: shrink.Passes}
		case f.Signature() != signature:
			return shrink.Answer{Kind: shrink.Different, Signature: f.Signature()}
		}
		return shrink.Answer{Kind: shrink.Same, Signature: signature, Op: f.Op}
	}
}

// sayUnchecked logs which abilities the allocator lacks, and what is not checked for want of them.
func (s *suite) sayUnchecked(t *testing.T) {
	t.Helper()
	dev, err := newDevice(1 << 30)
	if err != nil {
		t.Fatal(err)
	}
	a, err := s.factory(dev)
	if err != nil {
		t.Fatalf("the allocator cannot start: %v", err)
	}
	lacks := func(has bool, what string) {
		if !has {
			t.Logf("not checked: %s", what)
		}
	}
	_, ok := a.(allocators.StreamRecorder)
	lacks(ok, "reuse before event, and under queued work (no Record)")
	_, ok = a.(allocators.CacheEmptier)
	lacks(ok, "everything returned (no EmptyCache)")
	_, ok = a.(allocators.StatsReader)
	lacks(ok, "accounting (no Stats)")
	_, ok = a.(allocators.Snapshotter)
	lacks(ok, "tiling and coalescing (no Snapshot)")
	_, ok = a.(allocators.Promiser)
	lacks(ok, "refusals against a promise (no Promise); the same request repeated must be refused again")
}
