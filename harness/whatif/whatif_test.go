package whatif_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/whatif"
	"github.com/shatter-gpu/shatter/properties"
)

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func random(seed uint64) measure.NewDevice {
	return func(capacity uint64) (device.Device, error) {
		return simdev.New(simdev.Options{Capacity: capacity, Order: simdev.Random, Seed: seed})
	}
}

func target(t testing.TB, conf string, fraction *float64) executor.Target {
	spec, err := catalog.FromSettings(conf, fraction)
	require.NoError(t, err)
	return executor.Target{Name: spec.Name, New: spec.New}
}

func parse(t testing.TB, text string) *trace.Trace {
	tr, err := trace.ParseString("t", text)
	require.NoError(t, err)
	return tr
}

func caseOf(t testing.TB, tr *trace.Trace, conf string, capacity uint64) *whatif.Case {
	return &whatif.Case{Trace: tr, Target: target(t, conf, nil), NewDevice: simulated, Capacity: capacity, NewJudge: properties.NewJudge}
}

// checkerboard: five of ten blocks stay and pin the other halves of five segments.
const checkerboard = `alloc 0 20MiB
free 0
alloc 1 9MiB
alloc 2 9MiB
alloc 3 9MiB
alloc 4 9MiB
alloc 5 9MiB
alloc 6 9MiB
free 1
free 3
free 5
alloc 7 40MiB
`

func TestWhoPins(t *testing.T) {
	x, err := whatif.Explain(context.Background(), caseOf(t, parse(t, checkerboard), "", 80<<20))
	require.NoError(t, err)
	require.Equal(t, 1, x.Refusals)
	m := x.Moments[0]
	require.Equal(t, executor.Fragmentation, m.Refusal.Verdict)
	require.EqualValues(t, 60<<20, m.Bar.Reserved)
	require.EqualValues(t, 27<<20, m.Bar.Live)
	require.EqualValues(t, 33<<20, m.Bar.Pinned)
	require.EqualValues(t, 20<<20, m.Bar.DeviceFree)
	require.False(t, m.Bar.OutsideKnown, "unknown is never 0")
	require.Len(t, m.Pins, 1)
	require.EqualValues(t, 33<<20, m.Pins[0].Bytes)
	require.Equal(t, 3, m.Pins[0].Alone)
	require.Equal(t, []int{3, 5, 7}, m.Pins[0].Ops)
}

// TestGroupsSumToPinned: what is charged to blocks is what a release would not return, for every state of every workload; each
// byte once.
func TestGroupsSumToPinned(t *testing.T) {
	compared := 0
	for i, w := range gen.Workloads {
		for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:64"} {
			tr := gen.Generate(w, uint64(i), gen.Params{Ops: 400})
			dev, err := simulated(8 << 40)
			require.NoError(t, err)
			run, err := executor.Start(executor.Compile(tr), target(t, conf, nil), executor.Options{Device: dev, OnRow: func(*executor.Row) {}})
			require.NoError(t, err)
			for run.More() {
				require.NoError(t, run.Step())
				if run.Position()%37 != 0 {
					continue
				}
				held, err := measure.HeldBy(run.Allocator(), 0)
				require.NoError(t, err)
				page := func(small bool) uint64 {
					if small {
						return 2 << 20
					}
					return 20 << 20
				}
				var sum uint64
				for _, g := range whatif.Groups(run.View(), page) {
					require.NotZero(t, g.Bytes)
					require.NotEmpty(t, g.Ops)
					sum += g.Bytes
				}
				require.Equal(t, held.Pinned, sum, "%s %s at %d", w.Name, conf, run.Position())
				compared++
			}
		}
	}
	require.Greater(t, compared, 100)
}

// TestNeedIsExact holds the search to the one that visits every capacity.
func TestNeedIsExact(t *testing.T) {
	for i, w := range gen.Workloads {
		for seed := range uint64(4) {
			tr := gen.Generate(w, seed, gen.Params{Ops: 60})
			tr.Ops = slices.DeleteFunc(slices.Clone(tr.Ops), func(op trace.Op) bool { return op.Kind == trace.Foreign || op.Kind == trace.Fraction })
			p := executor.Compile(&trace.Trace{Name: w.Name, Ops: tr.Ops})
			conf := []string{"", "expandable_segments:True"}[(i+int(seed))%2]
			need, err := whatif.FindNeed(context.Background(), p, target(t, conf, nil), simulated, whatif.SureOps)
			if err != nil {
				continue // settings of the trace may refuse at every capacity
			}
			s, err := measure.Capacities(context.Background(), p, target(t, conf, nil), simulated)
			require.NoError(t, err)
			want := (s.Safe() + 2<<20 - 1) / (2 << 20) * (2 << 20)
			if need.Exact {
				require.Equal(t, want, need.Safe, "%s:%d %s", w.Name, seed, conf)
			}
		}
	}
}

func TestFresh(t *testing.T) {
	tr := parse(t, "segment 3 20MiB stream=2 pool=large\nblock 0 2MiB requested=1.5MiB at=3+2MiB\nalloc 1 5MiB\nfree 0\n")
	require.Equal(t, "alloc 0 1572864 stream=2\nalloc 1 5242880\nfree 0\n", string(whatif.Fresh(tr).Format()))
	plain := parse(t, checkerboard)
	require.Same(t, plain, whatif.Fresh(plain))
}

func TestJitterOnlyDelaysFrees(t *testing.T) {
	for seed := range uint64(50) {
		tr := gen.Generate(gen.Workloads[int(seed)%len(gen.Workloads)], seed, gen.Params{Ops: 300})
		j := whatif.Jitter(tr, seed)
		require.NoError(t, j.Validate())
		require.Len(t, j.Ops, len(tr.Ops))
		others := func(ops []trace.Op) []trace.Op {
			return slices.DeleteFunc(slices.Clone(ops), func(op trace.Op) bool { return op.Kind == trace.Free })
		}
		require.Equal(t, others(tr.Ops), others(j.Ops))
	}
}

func TestPhases(t *testing.T) {
	step := ""
	for i := range 3 {
		step += fmt.Sprintf("alloc %d 100MiB\nalloc %d 200MiB\nfree %d\nfree %d\n", 2*i+1, 2*i+2, 2*i+1, 2*i+2)
	}
	require.Equal(t, []int{5, 9}, whatif.Phases(parse(t, "alloc 0 20MiB\n"+step)))
	require.Empty(t, whatif.Phases(parse(t, "alloc 0 20MiB\n")))
}

// TestAdviceIsDeterministic: the same, whatever the number of workers; and never what is on already.
func TestAdviceIsDeterministic(t *testing.T) {
	advise := func(workers int, conf string) *whatif.Advice {
		a, err := whatif.Advise(context.Background(), &whatif.Advising{
			Case: caseOf(t, parse(t, checkerboard), conf, 80<<20), Current: conf, Workers: workers, RandomDevice: random,
			Target: func(o whatif.Option) (executor.Target, error) { return target(t, o.Conf, o.Fraction), nil },
		}, whatif.Options())
		require.NoError(t, err)
		return a
	}
	one := advise(1, "")
	require.Equal(t, one, advise(4, ""))
	require.False(t, one.CurrentOutcome().Passes)
	require.NotEmpty(t, one.Recommended())
	for _, conf := range []string{"", "expandable_segments:True"} {
		for _, o := range advise(2, conf).Recommended() {
			require.NotEqual(t, conf+"/", o.Conf+"/"+map[bool]string{true: "x"}[o.Option.EmptyCache || o.Option.Fraction != nil])
		}
	}
}

func TestChanges(t *testing.T) {
	c := caseOf(t, parse(t, checkerboard), "", 80<<20)
	c.Site = func(op int) string { return map[bool]string{true: "keeps", false: "goes"}[op%2 == 1] }
	x, err := whatif.Explain(context.Background(), c)
	require.NoError(t, err)
	changes, left, err := whatif.FindChanges(context.Background(), c, &x.Moments[0])
	require.NoError(t, err)
	require.Zero(t, left)
	require.NotEmpty(t, changes)
	require.Equal(t, "keeps", changes[0].Site)
	require.NotZero(t, changes[0].Saved)
}

// TestNeedSeesGaps: more memory can hurt (contracts 3.3): 50 MiB pass, 54 to 68 do not.
func TestNeedSeesGaps(t *testing.T) {
	tr := parse(t, "alloc 0 24MiB\nfree 0\nalloc 1 30MiB\nfree 1\nalloc 2 14MiB\nalloc 3 20MiB\nalloc 4 14MiB\n")
	need, err := whatif.FindNeed(context.Background(), executor.Compile(tr), target(t, "", nil), simulated, whatif.SureOps)
	require.NoError(t, err)
	require.EqualValues(t, 68<<20, need.Safe)
	require.True(t, need.Exact)
}
