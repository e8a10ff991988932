package executor_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var update = flag.Bool("update", false, "write golden files anew")

const mib = 1 << 20

// testSeed returns the seed of random tests, SHATTER_SEED or 1, and prints it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SHATTER_SEED")
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

func target(t testing.TB, name string) executor.Target {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return executor.Target{Name: name, New: spec.New}
}

func sim(t testing.TB, capacity uint64) *simdev.Device {
	d, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	return d
}

func parse(t testing.TB, text string) *executor.Program {
	tr, err := trace.ParseString("test", text)
	require.NoError(t, err)
	return executor.Compile(tr)
}

// generated returns traces of all findings workloads with the capacities of their devices.
func generated(t testing.TB, n uint64, ops int) (traces []*trace.Trace, capacities []uint64) {
	seed := testSeed(t)
	for _, name := range []string{"waves", "edges", "streams", "pins", "swarm"} {
		w, err := gen.Find(name)
		require.NoError(t, err)
		for i := range n {
			tr := gen.Generate(w, gen.Seed(seed, name, i), gen.Params{Ops: ops})
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			traces, capacities = append(traces, tr), append(capacities, capacity)
		}
	}
	return traces, capacities
}

// rows executes a program and returns its decision log.
func rows(t testing.TB, p *executor.Program, name string, capacity uint64, props []executor.Property) (string, *executor.Result) {
	var log []byte
	log = append(log, strings.Join(executor.Columns, "\t")+"\n"...)
	o := executor.Options{Device: sim(t, capacity), Properties: props, OnRow: func(r *executor.Row) {
		log = append(r.Append(log), '\n')
	}}
	res, err := executor.Execute(p, target(t, name), o)
	require.NoError(t, err)
	return string(log), res
}

// TestRows compares the rows of a small trace, device calls included, in the format of the recorded decision logs.
func TestRows(t *testing.T) {
	tr, err := trace.ReadFile("testdata/rows/small.trace")
	require.NoError(t, err)
	p := executor.Compile(tr)
	for _, name := range []string{"classic", "expandable", "direct"} {
		got, res := rows(t, p, name, 64*mib, properties.All())
		require.Empty(t, res.Findings, name)
		path := "testdata/rows/" + name + ".tsv"
		if *update {
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(want), got, name)
	}
}

// TestCheckedRunsDecideAlike: watching changes nothing, neither rows nor properties nor a judge.
func TestCheckedRunsDecideAlike(t *testing.T) {
	t.Parallel()
	traces, capacities := generated(t, 2, 300)
	for i, tr := range traces {
		p := executor.Compile(tr)
		for _, name := range []string{"classic", "expandable"} {
			plain, err := executor.Execute(p, target(t, name), executor.Options{Device: sim(t, capacities[i])})
			require.NoError(t, err)
			checked, err := executor.Execute(p, target(t, name),
				executor.Options{Device: sim(t, capacities[i]), Properties: properties.All(), Judge: properties.NewJudge()})
			require.NoError(t, err)
			require.Empty(t, checked.Findings, tr.Name)
			require.Equal(t, plain.OOMs, checked.OOMs, tr.Name)
			require.Equal(t, plain.Stats, checked.Stats, tr.Name)
			require.Equal(t, []any{plain.PeakAllocated, plain.PeakReserved, plain.SumReserved, plain.DeviceFree, plain.Ops},
				[]any{checked.PeakAllocated, checked.PeakReserved, checked.SumReserved, checked.DeviceFree, checked.Ops})
			require.Len(t, checked.Judgements, len(checked.OOMs))
			_, logged := rows(t, p, name, capacities[i], nil)
			require.Equal(t, plain.Stats, logged.Stats, tr.Name)
		}
	}
}

// TestViewIsTheSnapshot: what the harness knows of segments and blocks without asking is what the allocator has, after every
// operation.
func TestViewIsTheSnapshot(t *testing.T) {
	t.Parallel()
	traces, capacities := generated(t, 2, 200)
	pending := 0
	for i, tr := range traces {
		for _, name := range []string{"classic", "expandable"} {
			r, err := executor.Start(executor.Compile(tr), target(t, name), executor.Options{Device: sim(t, capacities[i]), OnRow: func(*executor.Row) {}})
			require.NoError(t, err)
			for r.More() {
				require.NoError(t, r.Step())
				var snap allocators.Snapshot
				r.Allocator().(allocators.Snapshotter).Snapshot(&snap)
				v := r.View()
				require.Nil(t, v.Stray)
				require.Len(t, v.Blocks, len(snap.Blocks), "%s, %s, operation %d", name, tr.Name, r.Position()-1)
				require.Len(t, v.Segments, len(snap.Segments))
				require.Len(t, v.Entries, len(v.Blocks))
				for k := range snap.Segments {
					want := snap.Segments[k]
					want.PageSize = 0 // not to be known from outside
					require.Equal(t, want, v.Segments[k])
				}
				for k := range snap.Blocks {
					want, got := snap.Blocks[k], v.Blocks[k]
					if want.State == allocators.Free || want.State == allocators.Unmapped {
						want.Requested = 0
					} else {
						require.Equal(t, got.Addr, v.Entries[k].Addr)
					}
					if want.State == allocators.Pending {
						pending++
					}
					require.Equal(t, want, got)
				}
				require.Equal(t, r.Allocator().(allocators.StatsReader).Stats().ReservedBytes.All.Current, v.Reserved)
			}
		}
	}
	require.Greater(t, pending, 50)
}

// TestRewind: the warm allocator decides as the fresh one did, checked or not, and what the run had come to is forgotten.
func TestRewind(t *testing.T) {
	t.Parallel()
	for _, checked := range []bool{false, true} {
		for _, name := range []string{"classic", "expandable"} {
			p := parse(t, "alloc 0 1000\nalloc 1 30MiB\nalloc 2 40MiB\nrecord 1 stream=3\nfree 1\nalloc 3 64MiB\nalloc 4 5MiB\nfree 0\n")
			o := executor.Options{Device: sim(t, 64*mib)}
			if checked {
				o.Properties, o.Judge = properties.All(), properties.NewJudge()
			}
			r, err := executor.Start(p, target(t, name), o)
			require.NoError(t, err)
			var first executor.Result
			for round := range 3 {
				for r.More() {
					require.NoError(t, r.Step())
				}
				got := *r.Result()
				got.OOMs = append([]int{}, got.OOMs...)
				got.DeviceCalls = [16]uint64{}
				got.Judgements = nil
				if round == 0 {
					first = got
					require.NotEmpty(t, first.OOMs)
				}
				require.Equal(t, first, got, "%s, round %d", name, round)
				require.NoError(t, r.Rewind())
				require.Zero(t, r.Position())
				free, total := o.Device.Info()
				require.Equal(t, total, free, "something was kept")
			}
			res, err := r.Finish()
			require.NoError(t, err)
			require.Empty(t, res.Findings)
		}
	}
}

// TestNoGarbage: in steady state an operation allocates nothing on the Go heap, and neither does checking it. The simulated
// device alone does so, for each reservation of address space, with or without checks.
func TestNoGarbage(t *testing.T) {
	if racing {
		t.Skip("the race detector is on, under which less is kept off the heap")
	}
	traces, capacities := generated(t, 1, 1200)
	for i, tr := range traces {
		// Settings that change in mid-run are parsed, which may allocate.
		kept := &trace.Trace{Name: tr.Name}
		for _, op := range tr.Ops {
			if op.Kind != trace.Conf && op.Kind != trace.Fraction && op.Kind != trace.Foreign {
				kept.Ops = append(kept.Ops, op)
			}
		}
		p := executor.Compile(kept)
		garbage := func(name string, props []executor.Property) float64 {
			r, err := executor.Start(p, target(t, name), executor.Options{Device: sim(t, 4*capacities[i]), Properties: props})
			require.NoError(t, err)
			loop := func() {
				for r.More() {
					if err := r.Step(); err != nil {
						t.Fatal(err)
					}
				}
				if err := r.Rewind(); err != nil {
					t.Fatal(err)
				}
			}
			for range 10 {
				loop() // slices grow to their sizes
			}
			return testing.AllocsPerRun(3, loop)
		}
		// Blocks keep their own lists of uses, of which a few still grow after ten rounds.
		few := float64(len(kept.Ops)) / 100
		require.Less(t, garbage("classic", properties.All()), few)
		require.Less(t, garbage("expandable", properties.All())-garbage("expandable", nil), few)
	}
}

func TestNextCapacity(t *testing.T) {
	p := parse(t, "alloc 0 30MiB\nalloc 1 40MiB\nforeign 64MiB\n")
	run := func(name string, dev device.Device) *executor.Run {
		r, err := executor.Start(p, target(t, name), executor.Options{Device: dev})
		require.NoError(t, err)
		for r.More() {
			require.NoError(t, r.Step())
		}
		return r
	}
	for _, name := range []string{"classic", "direct"} {
		next, exact := run(name, sim(t, 64*mib)).NextCapacity()
		require.True(t, exact, name)
		require.EqualValues(t, 70*mib, next, name) // others want 94 MiB in all, which comes later
		next, exact = run(name, sim(t, 92*mib)).NextCapacity()
		require.True(t, exact, name)
		require.EqualValues(t, (30+40+64)*mib, next, name)
	}
	// Where nobody tells, there is no exact answer.
	_, exact := run("direct", struct{ device.Device }{sim(t, 64*mib)}).NextCapacity()
	require.False(t, exact)
}

var errSick = errors.New("sick")

// sick is a device on which one call fails.
type sick struct {
	*simdev.Device
	sync, syncAll, mark bool
	malloc              bool
}

func (d *sick) Malloc(n uint64) (device.Addr, error) {
	if d.malloc {
		return 0, errSick
	}
	return d.Device.Malloc(n)
}

func (d *sick) Sync(s device.Stream) error {
	if d.sync {
		return errSick
	}
	return d.Device.Sync(s)
}

func (d *sick) SyncAll() error {
	if d.syncAll {
		return errSick
	}
	return d.Device.SyncAll()
}

func (d *sick) Record(s device.Stream) (device.Event, error) {
	if d.mark {
		return 0, errSick
	}
	return d.Device.Record(s)
}

// TestHarnessFaults: what is the environment's fault, or ours, is an error that names the place, and never a finding.
func TestHarnessFaults(t *testing.T) {
	checked := properties.All()
	for _, c := range []struct {
		name, trace, at string
		dev             sick
		props           []executor.Property
	}{
		{"sync of a stream", "alloc 0 1000\nsync stream=1\n", "operation 1 (sync stream=1)", sick{sync: true}, nil},
		{"sync of all", "sync\n", "operation 0 (sync)", sick{syncAll: true}, checked},
		{"mark", "alloc 0 1000\nrecord 0 stream=1\nfree 0\n", "operation 2 (free 0)", sick{mark: true}, checked},
		{"the end", "alloc 0 1000\n", "freeing everything", sick{syncAll: true}, checked},
		{"unchecked failure", "alloc 0 1000\n", "operation 0 (alloc 0 1000)", sick{malloc: true}, nil},
	} {
		dev := c.dev
		dev.Device = sim(t, 64*mib)
		res, err := executor.Execute(parse(t, c.trace), target(t, "classic"), executor.Options{Device: &dev, Properties: c.props})
		require.ErrorIs(t, err, executor.ErrHarness, c.name)
		require.ErrorIs(t, err, errSick, c.name)
		require.ErrorContains(t, err, c.at, c.name)
		require.Nil(t, res, c.name)
	}
	// In a checked run an allocator that fails is a finding, whatever it says: nothing tells that the device is to blame.
	res, err := executor.Execute(parse(t, "alloc 0 1000\n"), target(t, "classic"),
		executor.Options{Device: &sick{Device: sim(t, 64*mib), malloc: true}, Properties: checked})
	require.NoError(t, err)
	require.Len(t, res.Findings, 1)
	require.Equal(t, "device-conservation/refused-call", res.Findings[0].Property+"/"+res.Findings[0].Rule)
}

func TestStartFails(t *testing.T) {
	_, err := executor.Execute(parse(t, ""), executor.Target{Name: "broken", New: func(device.Device) (allocators.Allocator, error) {
		return nil, errSick
	}}, executor.Options{Device: sim(t, 64*mib)})
	require.ErrorIs(t, err, errSick)
	require.ErrorContains(t, err, "broken cannot start")
}

// jumpy is an allocator that panics in one of its calls.
type jumpy struct {
	allocators.Allocator
	in string
}

func (j *jumpy) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	j.jump("alloc")
	return j.Allocator.Alloc(n, s)
}

func (j *jumpy) Free(a device.Addr) error {
	j.jump("free")
	return j.Allocator.Free(a)
}

func (j *jumpy) jump(in string) {
	if j.in == in {
		var none []int
		_ = none[len(in)]
	}
}

// TestPanics: a panic of the allocator is a finding that names where it began, also while everything is freed at the end.
// Without properties nobody looks at findings, so it goes on.
func TestPanics(t *testing.T) {
	p := parse(t, "alloc 0 1000\n")
	jumps := func(in string) executor.Target {
		return executor.Target{Name: "jumpy", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := target(t, "direct").New(d)
			return &jumpy{a, in}, err
		}}
	}
	for in, at := range map[string]string{"alloc": "alloc", "free": executor.AtEnd} {
		res, err := executor.Execute(p, jumps(in), executor.Options{Device: sim(t, 64*mib), Properties: properties.All()})
		require.NoError(t, err)
		require.Len(t, res.Findings, 1)
		f := res.Findings[0]
		require.Equal(t, []string{"no-crash", "panic", at}, []string{f.Property, f.Rule, f.At})
		require.Contains(t, f.Detail, "index out of range")
		require.Contains(t, f.Frame, "jump")
		require.Panics(t, func() {
			r, _ := executor.Start(p, jumps("alloc"), executor.Options{Device: sim(t, 64*mib)})
			_ = r.Step()
		})
		// In a relation it is a finding, whatever the run in which it happens checks.
		f2, err := executor.Relate(&executor.Case{Trace: p.Trace}, []executor.Relation{{ID: "runs", Check: func(*executor.Case) (*executor.Violation, error) {
			_, err := executor.Execute(p, jumps("alloc"), executor.Options{Device: sim(t, 64*mib)})
			return nil, err
		}}})
		require.NoError(t, err)
		require.Equal(t, []string{"no-crash", "panic", executor.AtRuns}, []string{f2.Property, f2.Rule, f2.At})
		require.Contains(t, f2.Frame, "jump")
	}
}

// guest is an allocator that has something to give back, and counts how often it did; its device dies at the second request.
type guest struct {
	allocators.Allocator
	calls, closed int
}

func (g *guest) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if g.calls++; g.calls == 2 {
		return allocators.Block{}, fmt.Errorf("%w: gone", allocators.ErrEnvironment)
	}
	return g.Allocator.Alloc(n, s)
}

func (g *guest) Close() error {
	g.closed++
	return nil
}

// TestFaultsGiveBack: a run that a fault ends gives the allocator's process back, too.
func TestFaultsGiveBack(t *testing.T) {
	g := &guest{}
	_, err := executor.Execute(parse(t, "alloc 0 1000\nalloc 1 1000\n"), executor.Target{Name: "guest", New: func(d device.Device) (allocators.Allocator, error) {
		a, err := target(t, "direct").New(d)
		g.Allocator = a
		return g, err
	}}, executor.Options{Device: sim(t, 64*mib)})
	require.ErrorIs(t, err, executor.ErrHarness)
	require.Equal(t, []int{2, 1}, []int{g.calls, g.closed})
}

// TestPropertyHooks: Op is called after every operation, Walk now and then, and a violation ends the run.
func TestPropertyHooks(t *testing.T) {
	var text strings.Builder
	for i := range 2500 {
		fmt.Fprintf(&text, "alloc %d 512\n", i)
	}
	var ops, walks, ends int
	var fail string
	p := executor.Property{ID: "count"}
	p.Op = func(s *executor.State) *executor.Violation {
		ops++
		if fail == "op" && s.Op == 7 {
			return executor.Broken("seven", "at %d", s.Op)
		}
		return nil
	}
	p.Walk = func(s *executor.State) *executor.Violation {
		walks++
		require.NotNil(t, s.View)
		require.NotNil(t, s.Snapshot)
		if fail == "walk" {
			return executor.Broken("walked", "at %d", s.Op)
		}
		return nil
	}
	p.End = func(s *executor.State) *executor.Violation {
		ends++
		require.Zero(t, s.Heap.Live.Count)
		if fail == "end" {
			return executor.Broken("ended", "at %d", s.Op)
		}
		return nil
	}
	prog := parse(t, text.String())
	run := func(how string) *executor.Result {
		ops, walks, ends, fail = 0, 0, 0, how
		res, err := executor.Execute(prog, target(t, "classic"), executor.Options{Device: sim(t, 64*mib), Properties: []executor.Property{p}})
		require.NoError(t, err)
		return res
	}
	require.Empty(t, run("").Findings)
	// Walks: two in mid-run, one before and one after everything is freed.
	require.Equal(t, []int{2500, 2500/executor.WalkEvery + 2, 1}, []int{ops, walks, ends})
	for how, want := range map[string][]any{
		"op": {"seven", "alloc", 7, 8, 0}, "walk": {"walked", executor.AtWalk, executor.WalkEvery - 1, executor.WalkEvery, 0},
		"end": {"ended", executor.AtEnd, 2500, 2500, 1},
	} {
		res := run(how)
		require.Len(t, res.Findings, 1, how)
		f := res.Findings[0]
		require.Equal(t, want, []any{f.Rule, f.At, f.Op, res.Ops, ends}, how)
	}
}
