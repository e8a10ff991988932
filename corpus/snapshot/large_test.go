package snapshot_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus/snapshot"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// large is a snapshot with about this many events, with a stack of 30 frames on each.
func large(t testing.TB, events int) *snapshot.Snapshot {
	w, err := gen.Find("lognormal")
	if err != nil {
		w = gen.Workloads[0]
	}
	tr := gen.Generate(w, 1, gen.Params{Ops: events * 2 / 3})
	spec, err := catalog.FromSettings("", nil)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: 8 << 40})
	require.NoError(t, err)
	s, err := snapshot.Record(&trace.Trace{Name: "large", Ops: tr.Ops}, executor.Target{Name: spec.Name, New: spec.New}, dev, spec.Settings)
	require.NoError(t, err)
	r := rand.New(rand.NewPCG(1, 1))
	frames := make([]snapshot.Frame, 4000)
	for i := range frames {
		frames[i] = snapshot.Frame{File: fmt.Sprintf("/srv/train/models/layer%d.py", i%97), Line: i, Name: fmt.Sprintf("forward_%d", i%31)}
	}
	stack := func() uint32 {
		list := make([]snapshot.Frame, 30)
		for i := range list {
			list[i] = frames[r.IntN(len(frames))]
		}
		return s.AddStack(list)
	}
	stacks := make([]uint32, 2000)
	for i := range stacks {
		stacks[i] = stack()
	}
	t.Logf("%d events", s.Events())
	for i := range s.Traces[0] {
		s.Traces[0][i].TimeUS = 1_700_000_000_000_000 + int64(i)*37
		s.Traces[0][i].Stack = stacks[r.IntN(len(stacks))]
		if r.IntN(4) == 0 {
			s.Traces[0][i].Stack = stack()
		}
	}
	return s
}

// python runs a script, or skips where there is none.
func python(t testing.TB, script string, args ...string) string {
	path, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("SHATTER_REQUIRE_TOOLS") == "1" {
			t.Fatal("there is no python3, which SHATTER_REQUIRE_TOOLS=1 demands")
		}
		t.Skip("there is no python3 to compare with")
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, append([]string{"-c", script}, args...)...).CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// TestReadLarge compares the reader with Python's own on a file of some 32 MB: its time, and the memory that it takes at its peak.
// Timing needs a quiet machine, so it runs on demand.
func TestReadLarge(t *testing.T) {
	if os.Getenv("SHATTER_LARGE") == "" {
		t.Skip("SHATTER_LARGE=1 runs it: it compares times, which takes a quiet machine")
	}
	path := os.Getenv("SHATTER_LARGE_FILE")
	if path == "" {
		path = filepath.Join(t.TempDir(), "large.pickle")
	}
	s := large(t, 300_000)
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, snapshot.Write(f, s))
	require.NoError(t, f.Close())
	s = nil
	info, err := os.Stat(path)
	require.NoError(t, err)
	best := 1e9
	for range 3 {
		seconds, err := strconv.ParseFloat(python(t, `
import pickle, sys, time
start = time.perf_counter()
pickle.load(open(sys.argv[1], "rb"))
print(time.perf_counter() - start)`, path), 64)
		require.NoError(t, err)
		best = min(best, seconds)
	}
	ours, peak := time.Hour, uint64(0)
	for range 3 {
		debug.FreeOSMemory()
		stop := make(chan uint64)
		go func() { // the heap at its highest, looked at every millisecond
			var most uint64
			for {
				select {
				case stop <- most:
					return
				case <-time.After(time.Millisecond):
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most = max(most, m.HeapInuse)
				}
			}
		}()
		var before runtime.MemStats
		runtime.ReadMemStats(&before)
		start := time.Now()
		got, err := snapshot.ReadFile(path)
		ours = min(ours, time.Since(start))
		require.NoError(t, err)
		peak = max(peak, <-stop-min(before.HeapInuse, 1<<20))
		require.Greater(t, got.Events(), 250_000)
	}
	t.Logf("%d bytes: %.2f s, Python %.2f s (%.2f times); %.1f MB at the peak, %.2f bytes a byte", info.Size(), ours.Seconds(), best,
		ours.Seconds()/best, float64(peak)/1e6, float64(peak)/float64(info.Size()))
	require.Less(t, ours.Seconds(), 1.5*best)
	require.Less(t, float64(peak), 4*float64(info.Size()))
}

// TestPythonReads: Python's own pickle loads what is exported, and it has the schema that the viewer and _memory_viz.py walk.
func TestPythonReads(t *testing.T) {
	s, err := snapshot.ReadFile("testdata/46-article-12gib-free-2gib-refused__default.pickle")
	require.NoError(t, err)
	w, err := gen.Find(gen.Workloads[0].Name)
	require.NoError(t, err)
	exp := recorded(t, gen.Generate(w, 3, gen.Params{Ops: 400}), "expandable_segments:True", 8<<40)
	for name, s := range map[string]*snapshot.Snapshot{"classic": s, "expandable": exp} {
		path := filepath.Join(t.TempDir(), name+".pickle")
		f, err := os.Create(path)
		require.NoError(t, err)
		require.NoError(t, snapshot.Write(f, s))
		require.NoError(t, f.Close())
		require.Equal(t, "ok", python(t, schemaScript, path), name)
	}
}

// schemaScript checks what the specification of snapshots says in its sections 3 and 8: keys, types, tiling, sums, protocol, opcodes,
// integers below 2^53, and the state history run backwards as the viewer does.
const schemaScript = `
import pickle, pickletools, sys
data = open(sys.argv[1], "rb").read()
allowed = set("PROTO FRAME STOP EMPTY_DICT EMPTY_LIST MARK SETITEMS SETITEM APPENDS APPEND MEMOIZE BINGET LONG_BINGET SHORT_BINUNICODE "
              "BINUNICODE BININT BININT1 BININT2 LONG1 BINFLOAT NEWTRUE NEWFALSE NONE TUPLE2".split())
for op, arg, pos in pickletools.genops(data):
    assert op.name in allowed, (op.name, pos)
    if op.name == "PROTO": assert arg == 4
    if op.name in ("LONG1", "BININT", "BININT1", "BININT2"): assert arg < 2**53, (arg, pos)
s = pickle.loads(data)
assert set(s) >= {"segments", "device_traces", "allocator_settings", "external_annotations"}
last = -1
live = {}
for g in s["segments"]:
    for k in ("device", "address", "total_size", "allocated_size", "active_size", "requested_size", "stream"): assert type(g[k]) is int, k
    assert g["segment_type"] in ("small", "large") and type(g["is_expandable"]) is bool and len(g["segment_pool_id"]) == 2
    assert g["address"] > last
    at = g["address"]
    sums = dict(allocated_size=0, active_size=0, requested_size=0)
    for b in g["blocks"]:
        assert b["address"] == at and b["size"] > 0 and type(b["frames"]) is list
        assert b["state"] in ("active_allocated", "active_pending_free", "inactive")
        if b["state"] != "inactive":
            assert b["size"] >= b["requested_size"]
            sums["active_size"] += b["size"]; sums["requested_size"] += b["requested_size"]
            live[b["address"]] = b["state"]
        if b["state"] == "active_allocated": sums["allocated_size"] += b["size"]
        at += b["size"]
    assert at == g["address"] + g["total_size"]
    for k, v in sums.items(): assert g[k] == v, (k, v, g[k])
    last = g["address"]
for trace in s["device_traces"]:
    for e in trace:
        assert e["action"] in ("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap", "oom", "snapshot")
        assert ("device_free" if e["action"] == "oom" else "addr") in e
        for k in ("size", "stream", "time_us"): assert type(e[k]) is int
    for e in reversed(trace):
        if e["action"] == "alloc": assert live.pop(e["addr"]) == "active_allocated"
        elif e["action"] == "free_completed":
            assert e["addr"] not in live
            live[e["addr"]] = "active_pending_free"
        elif e["action"] == "free_requested":
            assert live[e["addr"]] == "active_pending_free"
            live[e["addr"]] = "active_allocated"
assert set(s["allocator_settings"]["roundup_power2_divisions"]) == {str(2**i) for i in range(16)}
print("ok")
`
