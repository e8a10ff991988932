// Package allocatortest tests anyone's GPU memory allocator in `go test`: one call generates adversarial sequences, executes
// them on a simulated device, checks every property that can be checked, judges every refusal, and shrinks what it finds to
// a trace that a person can read.
//
//	func TestMine(t *testing.T) { allocatortest.Test(t, newMine) }
//	func FuzzMine(f *testing.F) { allocatortest.Fuzz(f, newMine) }
//
// An allocator needs Alloc and Free (allocators.Allocator). What else it can do is discovered: uses on streams
// (allocators.StreamRecorder), a cache to empty (CacheEmptier), statistics (StatsReader), a list of its blocks (Snapshotter), a
// promise when it refuses (Promiser), private pools (PrivatePooler). What could not be checked for want of an ability is said in the
// log, which go test shows with -v.
//
// Always checked: blocks lie on memory of the device, are aligned, large enough and apart; a double free and other wrong calls give an
// error that wraps allocators.ErrInvalidPointer; a refused request is refused again; with nothing live anything is served that a fresh
// allocator serves; no memory leaks; the same calls come to the same; nothing panics. How an allocator rounds, where it places, what it
// buys and keeps is its own affair unless it declares a promise. Options say what else it does on purpose.
//
// The device is simulated: it hands out memory in units of 2 MiB, and holds no bytes.
package allocatortest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
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
	seed         uint64
	sequences    int
	ops          int
	capacity     uint64
	shrink       time.Duration
	alignment    uint64
	ownLimit     bool
	keepsClasses bool
	goroutines   int
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

// Alignment sets what the address of every block must be a multiple of, in bytes (cudaMalloc keeps to 256, PyTorch to 512); without it,
// 16, which the largest type that a GPU loads at once needs. Less than 16 changes nothing.
func Alignment(bytes uint64) Option { return func(c *config) { c.alignment = bytes } }

// OwnLimit says that the allocator has a limit of its own, or buys in large pieces, and may refuse although the device has the memory.
// Without it that is a finding (20 MiB more than was asked for are free there, and the allocator did not ask, or asked for more than twice
// the request and 20 MiB), unless it lives on an address range or on a pool that it was made with.
func OwnLimit() Option { return func(c *config) { c.ownLimit = true } }

// KeepsClasses says that memory which once served a size or a stream stays with it. Without it a request must be served once everything is
// freed, if a fresh allocator serves it (and this one can empty its cache, or has bought all its memory at its start).
func KeepsClasses() Option { return func(c *config) { c.keepsClasses = true } }

// Goroutines says that the allocator may be called from several goroutines at once, and lets n of them do so, best under the race detector
// (go test -race). Without it every call comes from one.
func Goroutines(n int) Option { return func(c *config) { c.goroutines = n } }

// Test runs every workload on the allocator, a subtest each, and fails with the first finding of each. Then it replays the cases
// of the regression corpus: what broke other allocators. Each kind of finding is shrunk where it is met first.
//
// With the defaults this takes a few seconds. What could not be checked is said in the log (go test -v).
func Test(t *testing.T, factory Factory, opts ...Option) {
	t.Helper()
	s := newSuite(factory, opts)
	s.relations = s.related()
	s.seen = map[string]string{}
	s.sayUnchecked(t)
	for _, w := range gen.Workloads {
		t.Run(w.Name, func(t *testing.T) {
			t.Helper()
			for i := range s.sequences {
				tr := gen.Generate(w, gen.Seed(s.seed, w.Name, uint64(i)), gen.Params{Ops: s.ops, Capacity: s.capacity})
				tr.Name = fmt.Sprintf("%s-%d", w.Name, i)
				if again := s.check(t, tr); again != "" {
					t.Errorf("%s: %s", tr.Name, again)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
	t.Run("corpus", func(t *testing.T) {
		t.Helper()
		s.replayCorpus(t)
	})
	if s.goroutines > 1 {
		t.Run("goroutines", func(t *testing.T) {
			t.Helper()
			if err := s.crowd(); err != nil {
				t.Errorf("%d goroutines at once (not repeatable; try -race): %v", s.goroutines, err)
			}
		})
	}
}

// Replay runs one trace, text as a finding's report has it, and fails with what it finds, not shrunk: to look at a finding, or to keep
// it as a test. The trace's own capacity goes before that of the options; without either the device has 80 GiB.
func Replay(t *testing.T, factory Factory, text string, opts ...Option) {
	t.Helper()
	s := newSuite(factory, opts)
	s.relations = s.related()
	s.shrink = 0
	tr, err := trace.ParseString("the trace", text)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := tr.Capacity(); err != nil {
		t.Fatal(err)
	} else if !ok {
		tr.Set(trace.KeyCapacity, fmt.Sprint(cmp.Or(s.capacity, defaultCapacity)))
	}
	s.check(t, tr)
}

// defaultCapacity is the device of a trace that names none.
const defaultCapacity = 80 << 30

// replayCorpus runs the traces of the accepted and the known cases, each on the device that it says unless one is set.
func (s *suite) replayCorpus(t *testing.T) {
	t.Helper()
	cases, err := corpus.Embedded().Cases()
	if err != nil {
		t.Fatal(err)
	}
	once := *s
	once.relations = nil // they take dozens of runs each
	repeated := map[string][]string{}
	for _, c := range cases {
		tr := *c.Trace
		if s.capacity > 0 {
			tr.Set(trace.KeyCapacity, fmt.Sprint(s.capacity))
		}
		tr.Name = c.Name
		if again := once.check(t, &tr); again != "" {
			repeated[again] = append(repeated[again], c.Name)
		}
	}
	for _, again := range slices.Sorted(maps.Keys(repeated)) {
		t.Errorf("%s: in %d cases, the first being %s", again, len(repeated[again]), repeated[again][0])
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
	s := newSuite(factory, opts)
	for _, w := range gen.Workloads {
		f.Add(trace.Encode(gen.Generate(w, gen.Seed(s.seed, w.Name, 0), gen.Params{Ops: 60, Capacity: fuzzCapacity})))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		t.Helper()
		if len(in) > maxInput {
			t.Skip("over 16 KiB")
		}
		tr := trace.Decode(in)
		tr.Name = "the input"
		capacity, ok, _ := tr.Capacity()
		switch {
		case s.capacity > 0:
			capacity = s.capacity
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
	factory    Factory
	properties []executor.Property
	// relations are asked by Test; a fuzz target has no time for their dozens of runs.
	relations []executor.Relation
	// seen has the trace where each kind of finding was met first; nil if each is to be shrunk.
	seen map[string]string
}

func newSuite(factory Factory, opts []Option) *suite {
	s := &suite{config: configure(opts), factory: factory, properties: properties.All()}
	if s.alignment > 0 {
		s.properties = append(s.properties, properties.Aligned(s.alignment))
	}
	return s
}

// related are the relations that the allocator is asked about.
func (s *suite) related() []executor.Relation {
	return slices.DeleteFunc(properties.Relations(), func(r executor.Relation) bool {
		return s.keepsClasses && r.ID == properties.ServesWhenEmpty.ID
	})
}

// judge leaves undecided what an allocator with a limit of its own may do.
func (s *suite) judge() executor.Judge {
	judge := properties.NewJudge()
	return func(state *executor.State, oom *allocators.OOMError) executor.Judgement {
		j := judge(state, oom)
		if s.ownLimit && j.Rule == ruleHasRoom {
			j.Verdict, j.Rule, j.Reason = executor.Unknown, "", ""
		}
		return j
	}
}

// ruleHasRoom is the rule of the judge that OwnLimit switches off.
const ruleHasRoom = "device-has-room"

func newDevice(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func (s *suite) target() executor.Target {
	return executor.Target{Name: "allocator", New: s.factory}
}

// check runs a trace and fails the test on a finding. It returns the kind of one that came up before, whose report is not repeated.
func (s *suite) check(t *testing.T, tr *trace.Trace) (again string) {
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
	if found == nil {
		return ""
	}
	if first, ok := s.seen[found.Signature()]; ok {
		return fmt.Sprintf("%s/%s, as in %s", found.Property, found.Rule, first)
	}
	text, done := s.report(tr, found)
	if done && s.seen != nil {
		s.seen[found.Signature()] = tr.Name
	}
	t.Error(text)
	return ""
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
	res, err := executor.Execute(p, s.target(), executor.Options{Device: dev, Properties: s.properties, Judge: s.judge()})
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

// report says a finding in words, and shrinks its trace; done says that no more can be removed from it.
func (s *suite) report(tr *trace.Trace, f *executor.Finding) (text string, done bool) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", tr.Name, f)
	if c := s.claim(f); c != "" {
		fmt.Fprintf(&b, "must hold: %s\n", c)
	}
	switch f.Rule {
	case ruleHasRoom:
		b.WriteString("if the allocator has a limit of its own, or buys in large pieces, say so: allocatortest.OwnLimit()\n")
	case "refused":
		b.WriteString("if memory stays with a size or stream that it served, say so: allocatortest.KeepsClasses()\n")
	}
	if s.shrink <= 0 {
		return b.String(), true
	}
	r, err := shrink.Minimise(context.Background(), tr, s.predicate(f), shrink.Budget{Time: s.shrink})
	if err != nil {
		fmt.Fprintf(&b, "it could not be shrunk: %v\n%s", err, tr.Format())
		return b.String(), false
	}
	if !r.Minimal {
		fmt.Fprintf(&b, "%s when it was shrunk (ShrinkTime sets more); ", r.Stopped)
	}
	fmt.Fprintf(&b, "shrunk from %d to %d operations (again with allocatortest.Replay):\n%s", r.Before, r.After, bareText(r.Trace))
	for _, o := range r.Others {
		fmt.Fprintf(&b, "while it was shrunk, another failure was met: %s\n%s", o.Signature, bareText(o.Trace))
	}
	return b.String(), r.Minimal
}

// bareText is a trace with nothing in its header but the device's bytes: the rest tells where it came from.
func bareText(tr *trace.Trace) []byte {
	out := &trace.Trace{Ops: tr.Ops}
	if v, ok := tr.Get(trace.KeyCapacity); ok {
		out.Set(trace.KeyCapacity, v)
	}
	return out.Format()
}

// claim is what the property of a finding claims.
func (s *suite) claim(f *executor.Finding) string {
	for i := range s.properties {
		if s.properties[i].ID == f.Property {
			return s.properties[i].Claim
		}
	}
	for i := range s.relations {
		if s.relations[i].ID == f.Property {
			return s.relations[i].Claim
		}
	}
	return ""
}

// predicate tells whether a trace still fails in the same way. Only the relation that found it is asked, if one did: those that hold
// would take most of the time.
func (s *suite) predicate(f *executor.Finding) shrink.Predicate {
	signature := f.Signature()
	asked := *s
	asked.relations = nil
	if f.At == executor.AtRuns {
		asked.relations = slices.DeleteFunc(slices.Clone(s.relations), func(r executor.Relation) bool {
			return r.ID != f.Property && f.Property != executor.NoCrash
		})
	}
	return func(tr *trace.Trace) shrink.Answer {
		capacity, _, err := tr.Capacity()
		if err != nil {
			return shrink.Answer{Kind: shrink.Broken, Err: err}
		}
		f, err := asked.run(tr, capacity)
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
		t.Fatalf("the allocator cannot start on a device of 1 GiB: %v", err)
	}
	for _, what := range unchecked(a) {
		t.Logf("not checked: %s", what)
	}
	if s.goroutines <= 1 {
		t.Log("not checked: calls from several goroutines at once (no option Goroutines)")
	}
}

// unchecked asks a fresh allocator what it can do, and says what is not checked since it cannot.
func unchecked(a allocators.Allocator) []string {
	var out []string
	lacks := func(has bool, what string) {
		if !has {
			out = append(out, what)
		}
	}
	_, records := a.(allocators.StreamRecorder)
	lacks(records, "reuse of memory that other streams still use (no Record)")
	_, empties := a.(allocators.CacheEmptier)
	lacks(empties, "that all memory comes back to the device (no EmptyCache), only that what is kept does not grow for ever")
	_, lists := a.(allocators.Snapshotter)
	lacks(lists, "the allocator's own list of its blocks (no Snapshot)")
	_, promises := a.(allocators.Promiser)
	lacks(promises, "which block serves a request, and which refusals are allowed (no Promise): a refusal is a finding only if the same request "+
		"is served when it is repeated, if the device has memory that it was not asked for, or if nothing is live")
	counts, ok := a.(allocators.StatsReader)
	lacks(ok, "statistics (no Stats)")
	sized, zero := probe(a, counts)
	lacks(sized, "overlap in what is set aside beyond the request (Alloc tells no sizes)")
	lacks(len(zero) == 0 || promises, "statistics that stay 0: "+strings.Join(zero, ", "))
	return append(out, "what a device call that fails for no lack of memory leaves behind, and the bytes in the blocks")
}

// probe makes one allocation: does it come with its size, and which statistics are still 0?
func probe(a allocators.Allocator, counts allocators.StatsReader) (sized bool, zero []string) {
	defer func() { _ = recover() }() // a crash is for the sequences to find
	b, err := a.Alloc(1<<20, 0)
	if err != nil {
		return true, nil
	}
	sized = b.Size > 0
	if counts != nil {
		st := counts.Stats()
		for _, f := range []struct {
			name string
			stat *allocators.Pooled
		}{
			{"Allocation", &st.Allocation}, {"AllocatedBytes", &st.AllocatedBytes}, {"Active", &st.Active}, {"ActiveBytes", &st.ActiveBytes},
			{"RequestedBytes", &st.RequestedBytes}, {"ReservedBytes", &st.ReservedBytes},
		} {
			if *f.stat == (allocators.Pooled{}) {
				zero = append(zero, f.name)
			}
		}
	}
	_ = a.Free(b.Addr) // nobody uses this allocator any more
	return sized, zero
}
