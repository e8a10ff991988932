package external_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

func sim(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// target makes a target that is closed at the end of the test.
func target(t *testing.T, c external.Command) *external.Target {
	t.Helper()
	x := external.NewTarget(c)
	t.Cleanup(func() { require.NoError(t, x.Close()) })
	return x
}

// promising gives a target the model's promise, as an installed PyTorch has it.
func promising(t *testing.T, x *external.Target, conf string) *external.Target {
	t.Helper()
	set, _, err := caching.ParseSettings(conf)
	require.NoError(t, err)
	x.Model = &set
	return x
}

// history runs a trace with everything checked and returns its rows as a decision log, and the result.
func history(t *testing.T, p *executor.Program, make func(device.Device) (allocators.Allocator, error), capacity uint64) (string, *executor.Result) {
	t.Helper()
	dev, err := sim(capacity)
	require.NoError(t, err)
	var rows bytes.Buffer
	res, err := executor.Execute(p, executor.Target{Name: "target", New: make}, executor.Options{
		Device: dev, Properties: properties.All(), Judge: properties.NewJudge(),
		OnRow: func(w *executor.Row) { rows.Write(append(w.Append(nil), '\n')) },
	})
	require.NoError(t, err)
	return rows.String(), res
}

// generated makes a trace of a workload.
func generated(t *testing.T, workload string, seed uint64, ops int) (*trace.Trace, uint64) {
	t.Helper()
	w, err := gen.Find(workload)
	require.NoError(t, err)
	tr := gen.Generate(w, seed, gen.Params{Ops: ops})
	capacity, ok, err := tr.Capacity()
	require.NoError(t, err)
	require.True(t, ok)
	return tr, capacity
}

// TestSameAsInProcess: an allocator behind the pipe decides, counts and breaks properties as it does in this process; with
// addresses of its own, too, and with a child for each session.
func TestSameAsInProcess(t *testing.T) {
	t.Parallel()
	for _, conf := range []string{"", "expandable_segments:True"} {
		for _, mode := range []string{"good", "pools", "elsewhere", "once", "noisy"} {
			c := childCommand(mode)
			c.Settings = conf
			x := promising(t, target(t, c), conf)
			workloads := gen.Workloads
			ops := 1500
			if mode != "good" && mode != "pools" {
				workloads, ops = workloads[:2], 300
			}
			for i, w := range workloads {
				if (w.Name == "graphs") != (mode == "pools") {
					continue // the others have no private pools; see TestPoolsAreNotAsked
				}
				tr, capacity := generated(t, w.Name, uint64(i+1), ops)
				p := executor.Compile(tr)
				spec, err := catalog.FromSettings(conf, nil)
				require.NoError(t, err)
				want, wantResult := history(t, p, spec.New, capacity)
				got, gotResult := history(t, p, x.New, capacity)
				if mode == "elsewhere" {
					// Only the addresses differ.
					require.Equal(t, len(wantResult.OOMs), len(gotResult.OOMs))
				}
				require.Equal(t, want, got, "%s %s %s", mode, conf, w.Name)
				require.Empty(t, gotResult.Findings, "%s %s %s", mode, conf, w.Name)
				require.Equal(t, wantResult.Stats, gotResult.Stats)
				require.Equal(t, wantResult.OOMs, gotResult.OOMs)
				require.Equal(t, wantResult.DeviceCalls, gotResult.DeviceCalls)
				for k := range wantResult.Judgements {
					require.Equal(t, wantResult.Judgements[k].Verdict, gotResult.Judgements[k].Verdict)
				}
			}
		}
	}
}

// TestPoolsAreNotAsked: a child without private pools is not asked for them, and the rest of the trace runs.
func TestPoolsAreNotAsked(t *testing.T) {
	t.Parallel()
	x := promising(t, target(t, childCommand("good")), "")
	for seed := range uint64(5) {
		tr, capacity := generated(t, "graphs", seed, 1500)
		_, res := history(t, executor.Compile(tr), x.New, capacity)
		require.Empty(t, res.Findings)
		require.Equal(t, len(tr.Ops), res.Ops)
		require.NotZero(t, res.Stats.AllocatedBytes.All.Allocated)
	}
}

// TestStatisticsBehindARefusal: statistics were asked for ahead, so their reply comes also behind what the allocator says that it
// cannot do, and the replies after it belong to the calls that they answer.
func TestStatisticsBehindARefusal(t *testing.T) {
	t.Parallel()
	x := promising(t, target(t, childCommand("pools")), "")
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	for name, refused := range map[string]string{"the cache": "empty_cache", "a pool": "empty_cache pool=1"} {
		tr, err := trace.ParseString(name, "pool begin 1\nalloc 0 3000000\nfree 0\npool end 1\npool release 1\npool begin 2 capture\n"+
			refused+"\nalloc 1 1000\nalloc 2 30000000\n"+refused+"\nfree 2\npool end 2\n"+refused+"\nalloc 3 5000000\n")
		require.NoError(t, err)
		p := executor.Compile(tr)
		want, wantResult := history(t, p, spec.New, 1<<30)
		got, gotResult := history(t, p, x.New, 1<<30)
		require.Equal(t, want, got, name)
		require.Equal(t, 2, strings.Count(got, "\tunsupported\t"), "%s: it is refused while a graph is captured\n%s", name, got)
		require.Empty(t, gotResult.Findings, name)
		require.Equal(t, wantResult.Stats, gotResult.Stats, name)
	}
}

// TestOffTheScript: calls that were not foreseen are served from the state that the caller sees, though the child is ahead;
// and a parked allocator comes back as it was.
func TestOffTheScript(t *testing.T) {
	t.Parallel()
	x := promising(t, target(t, childCommand("good")), "")
	tr, capacity := generated(t, "mixed", 5, 1500)
	p := executor.Compile(tr)
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	for _, op := range []int{0, 10, 700, 1499} {
		want, err := measure.RefusalCurve(p, executor.Target{Name: "classic", New: spec.New}, sim, capacity, op, []uint64{1<<20 + 1, 20 << 20})
		require.NoError(t, err)
		got, err := measure.RefusalCurve(p, executor.Target{Name: "child", New: x.New}, sim, capacity, op, []uint64{1<<20 + 1, 20 << 20})
		require.NoError(t, err)
		require.Equal(t, want, got)
	}

	dev, err := sim(1 << 30)
	require.NoError(t, err)
	a, err := x.New(dev)
	require.NoError(t, err)
	var live []device.Addr
	for i := range 20 {
		b, err := a.Alloc(uint64(i+1)<<20, 0)
		require.NoError(t, err)
		require.GreaterOrEqual(t, b.Size, uint64(i+1)<<20)
		live = append(live, b.Addr)
		if i%7 == 3 {
			require.NoError(t, a.(interface{ Close() error }).Close())
		}
	}
	require.EqualValues(t, 210<<20, a.(allocators.StatsReader).Stats().RequestedBytes.All.Current)
	for _, addr := range live {
		require.NoError(t, a.Free(addr))
	}
	require.ErrorIs(t, a.Free(live[0]), allocators.ErrInvalidPointer)
	require.NoError(t, a.(allocators.CacheEmptier).EmptyCache())
	free, total := dev.Info()
	require.Equal(t, total, free)
	require.NoError(t, a.(interface{ Close() error }).Close())
}

// TestManySessions: more allocators at once than sessions are kept open.
func TestManySessions(t *testing.T) {
	t.Parallel()
	x := promising(t, target(t, childCommand("good")), "")
	var all []allocators.Allocator
	for range 40 {
		dev, err := sim(1 << 30)
		require.NoError(t, err)
		a, err := x.New(dev)
		require.NoError(t, err)
		all = append(all, a)
	}
	for round := range 2 {
		for i, a := range all {
			_, err := a.Alloc(uint64(i+1)*512, 0)
			require.NoError(t, err)
			require.EqualValues(t, (round+1)*(i+1)*512, a.(allocators.StatsReader).Stats().AllocatedBytes.All.Current)
		}
	}
	for _, a := range all {
		require.NoError(t, a.(interface{ Close() error }).Close())
	}
}

// TestDeaths: whatever becomes of the child is an outcome, at the operation at which it happened, and nothing is left of it.
func TestDeaths(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, rule, detail string }{
		{"exit", "exited", `the allocator exited: exit code 4 (its last output: "cannot go on")`},
		{"killed", "crashed", "the allocator crashed: SIGKILL"},
		{"stopped", "hung", "the allocator hung: no answer for 300ms"},
		{"garbage", "garbled", `the allocator garbled: it answered "what?"`},
		{"raise", "raised", "the allocator raised an error: assertion failed"},
		{"endless", "garbled", "the allocator garbled: a line of more than 1048576 bytes"},
	} {
		command := childCommand(c.mode)
		command.Timeout = 300 * time.Millisecond
		if c.mode != "stopped" {
			command.Timeout = 20 * time.Second
		}
		x := promising(t, target(t, command), "")
		for _, ops := range []int{20, 10} { // statistics are asked for behind the last operation
			_, res := history(t, executor.Compile(allocs(ops)), x.New, 1<<30)
			require.Len(t, res.Findings, 1, c.mode)
			f := res.Findings[0]
			require.Equal(t, []any{executor.Survives, c.rule, c.detail, 9}, []any{f.Property, f.Rule, f.Detail, f.Op}, c.mode)
			require.Equal(t, 10, res.Ops)
		}
	}
}

// TestTail: the end of what a child says is kept, in whole lines.
func TestTail(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", external.TailSize)
	for _, c := range []struct {
		writes []string
		want   string
	}{
		{nil, ""},
		{[]string{"a\n", "b"}, "a\nb"},
		{[]string{"cut\n", long[1:]}, long[1:]},
		{[]string{"cut\n", long, "\nb"}, "b"},
		{[]string{"cut", long + "\n"}, long[1:] + "\n"}, // one line, of which the end is better than nothing
		{[]string{long + "x\na\nb\n"}, "a\nb\n"},
	} {
		require.Equal(t, c.want, external.TailOf(c.writes...))
	}
}

// TestAssertionInAnOpenPool: that memory cannot be released during a capture is what PyTorch says by an assertion; any other one that
// fails is a finding, whatever is open.
func TestAssertionInAnOpenPool(t *testing.T) {
	t.Parallel()
	tr, err := trace.ParseString("t", "pool begin 1 capture\nalloc 0 1\nempty_cache\n")
	require.NoError(t, err)
	for mode, want := range map[string]string{
		"held": "",
		"assertion": "survives/raised: the allocator raised an error: " +
			`pool->cudaMalloc_count > 0 INTERNAL ASSERT FAILED at "/c10/captured.cpp":3031`,
	} {
		x := promising(t, target(t, childCommand(mode)), "")
		dev, err := sim(1 << 30)
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: "child", New: x.New}, executor.Options{
			Device: dev, Properties: properties.All(),
		})
		require.NoError(t, err)
		got := ""
		for _, f := range res.Findings {
			got = f.Property + "/" + f.Rule + ": " + f.Detail
		}
		require.Equal(t, want, got, mode)
	}
}

// allocs is a trace of n allocations.
func allocs(n int) *trace.Trace {
	t := &trace.Trace{Name: "allocs"}
	for i := range n {
		t.Ops = append(t.Ops, trace.Op{Kind: trace.Alloc, ID: uint64(i), Bytes: 1 << 20})
	}
	return t
}

// TestFaults: what is not the allocator's doing is a fault of the environment, never a finding, and says what is wrong.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ mode, want string }{
		{"no-greeting", "the child must begin with `shatter-child 1`, it wrote \"hello\""},
		{"old", "the child speaks protocol version 0, this program version 1"},
		{"unable", "no licence\nask for one"},
		{"silent-exit", "does not start: the reason"},
	} {
		err := target(t, childCommand(c.mode)).Check()
		require.ErrorIs(t, err, allocators.ErrEnvironment)
		require.ErrorContains(t, err, c.want)
	}
	err := target(t, external.Command{Path: "/nowhere/child"}).Check()
	require.ErrorIs(t, err, allocators.ErrEnvironment)
	require.ErrorContains(t, err, "start /nowhere/child: fork/exec /nowhere/child: no such file or directory")
	c := childCommand("good")
	c.Settings = "nonsense:1"
	require.ErrorContains(t, target(t, c).Check(), `the allocator rejects its settings: settings "nonsense:1": unknown setting "nonsense"`)
	for _, c := range []struct{ mode, want string }{
		{"fatal", "the library calls cudaSecret, which the simulated GPU does not have"},
		{"greedy", "the child's device does not follow the rules of the simulated one: malloc of 70368744177664 bytes succeeded there"},
	} {
		x := promising(t, target(t, childCommand(c.mode)), "")
		dev, err := sim(1 << 30)
		require.NoError(t, err)
		_, err = executor.Execute(executor.Compile(allocs(20)), executor.Target{Name: "child", New: x.New}, executor.Options{Device: dev, Properties: properties.All()})
		require.ErrorIs(t, err, executor.ErrHarness)
		require.ErrorContains(t, err, c.want)
	}
}

// TestNothingIsLeft: thousands of traces through the pool, with deaths among them, leave no process, no file descriptor and no
// memory behind. It runs alone, since it counts what the whole process has.
func TestNothingIsLeft(t *testing.T) {
	traces := 10_000
	if testing.Short() {
		traces = 1_000
	}
	x := promising(t, target(t, childCommand("good")), "")
	p := executor.Compile(allocs(20))
	run := func(x *external.Target) *executor.Result {
		dev, err := sim(1 << 30)
		require.NoError(t, err)
		res, err := executor.Execute(p, executor.Target{Name: "child", New: x.New}, executor.Options{Device: dev, Properties: properties.All()})
		require.NoError(t, err)
		return res
	}
	for range 100 {
		require.Empty(t, run(x).Findings)
	}
	files, heap := openFiles(t), liveHeap()
	start := time.Now()
	for range traces {
		require.Empty(t, run(x).Findings)
	}
	took := time.Since(start)
	require.InDelta(t, files, openFiles(t), 3)
	require.Less(t, liveHeap(), heap+4<<20)
	t.Logf("%d traces in %s; %d open files before, %d after; %d KiB of heap before, %d after", traces, took, files, openFiles(t), heap>>10, liveHeap()>>10)

	bad := external.NewTarget(childCommand("killed"))
	for range 20 {
		require.Len(t, run(bad).Findings, 1)
	}
	require.NoError(t, bad.Close())
	require.NoError(t, x.Close())
	require.Empty(t, children(t))
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("what the process has open is counted in /proc: %v", err)
	}
	return len(list)
}

// children lists the processes that this one has, zombies too.
func children(t *testing.T) []string {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var out []string
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		_, rest, _ := strings.Cut(string(data), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			out = append(out, string(data))
		}
	}
	return out
}
