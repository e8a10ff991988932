package snapshot_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus/snapshot"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// recorded exports a run of a trace and reads it back.
func recorded(t testing.TB, tr *trace.Trace, conf string, capacity uint64) *snapshot.Snapshot {
	spec, err := catalog.FromSettings(conf, nil)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	s, err := snapshot.Record(tr, executor.Target{Name: spec.Name, New: spec.New}, dev, spec.Settings)
	require.NoError(t, err, tr.Name)
	var b bytes.Buffer
	require.NoError(t, snapshot.Write(&b, s))
	read, err := snapshot.Read(tr.Name, &b)
	require.NoError(t, err, tr.Name)
	return read
}

// plain is what of a trace a recording has: allocations that take memory, their frees, and caches emptied, with ids in order. Uses
// on other streams leave no entry; they come back as streams of their own.
func plain(ops []trace.Op) []trace.Op {
	ids := map[uint64]uint64{}
	zero := map[uint64]bool{}
	var out []trace.Op
	for _, op := range ops {
		switch op.Kind {
		case trace.Alloc:
			if zero[op.ID] = op.Bytes == 0; zero[op.ID] {
				continue
			}
			ids[op.ID] = uint64(len(ids) + len(out)<<32) // any number that was not used
			out = append(out, trace.Op{Kind: trace.Alloc, ID: ids[op.ID], Bytes: op.Bytes, Stream: op.Stream})
		case trace.Free:
			if !zero[op.ID] {
				out = append(out, trace.Op{Kind: trace.Free, ID: ids[op.ID]})
			}
		}
	}
	order := map[uint64]uint64{}
	for i := range out {
		if out[i].Kind == trace.Alloc {
			order[out[i].ID] = uint64(len(order))
		}
		out[i].ID = order[out[i].ID]
	}
	return out
}

// TestRoundTrip: what an export says comes back on import: the same allocations and frees, every decision, and, exported and
// imported again, the same trace to the last operation.
func TestRoundTrip(t *testing.T) {
	rounds := 1000
	if testing.Short() {
		rounds = 100
	}
	confs := []string{"", "expandable_segments:True", "max_split_size_mb:64", "expandable_segments:True,roundup_power2_divisions:8"}
	decisions, same := 0, 0
	// A recording does not say when private pools are open, nor whose the segments were that are gone: see TestPrivatePoolsRoundTrip.
	workloads := slices.DeleteFunc(slices.Clone(gen.Workloads), func(w gen.Workload) bool { return w.Name == "graphs" })
	for i := range rounds {
		w := workloads[i%len(workloads)]
		tr := gen.Generate(w, uint64(i), gen.Params{Ops: 60})
		tr.Ops = slices.DeleteFunc(slices.Clone(tr.Ops), func(op trace.Op) bool { // settings that change are not recorded
			return op.Kind == trace.Conf || op.Kind == trace.Fraction || op.Kind == trace.Foreign
		})
		name := fmt.Sprintf("gen:%s:%d", w.Name, i)
		tr = &trace.Trace{Name: name, Ops: tr.Ops}
		conf := confs[i/len(workloads)%len(confs)]
		const capacity = 8 << 40
		s := recorded(t, tr, conf, capacity)
		m, err := snapshot.Import(s, 0, snapshot.Options{Capacity: capacity})
		require.NoError(t, err, name)
		require.Empty(t, m.Verified.First, name)
		require.Empty(t, m.Verified.EndDifference, name)
		decisions += m.Verified.Decisions
		streams := map[int32]bool{}
		for _, op := range tr.Ops {
			if op.Kind == trace.Alloc && op.Bytes > 0 {
				streams[int32(op.Stream)] = true
			}
		}
		want, got := plain(tr.Ops), plain(m.Trace.Ops)
		require.Len(t, got, len(want), name)
		for k := range want {
			w := want[k]
			w.Stream = got[k].Stream // streams are numbered anew, in their order
			require.Equal(t, w, got[k], "%s, operation %d", name, k)
		}
		again, err := snapshot.Import(recorded(t, m.Trace, conf, capacity), 0, snapshot.Options{Capacity: capacity})
		require.NoError(t, err, name)
		require.Equal(t, m.Trace.Ops, again.Trace.Ops, name)
		same++
	}
	t.Logf("%d traces, %d decisions", same, decisions)
}

// TestPrivatePoolsRoundTrip: requests come back in the private pools that they were in, decision for decision, as long as the pools are in
// use to the end, so that their segments are there.
func TestPrivatePoolsRoundTrip(t *testing.T) {
	w, err := gen.Find("graphs")
	require.NoError(t, err)
	openings, inPools := 0, 0
	for i := range 60 {
		tr := gen.Generate(w, uint64(i), gen.Params{Ops: 250})
		var ops []trace.Op
		for _, op := range tr.Ops {
			switch op.Kind {
			case trace.Alloc, trace.Free, trace.PoolBegin, trace.PoolEnd:
				ops = append(ops, op)
			}
		}
		tr = &trace.Trace{Name: fmt.Sprintf("gen:graphs:%d", i), Ops: ops}
		conf := []string{"", "expandable_segments:True"}[i%2]
		const capacity = 8 << 40
		m, err := snapshot.Import(recorded(t, tr, conf, capacity), 0, snapshot.Options{Capacity: capacity})
		require.NoError(t, err, tr.Name)
		require.Empty(t, m.Verified.First, tr.Name)
		require.Empty(t, m.Verified.EndDifference, tr.Name)
		require.NotContains(t, fmt.Sprint(m.Loss), "not modelled")
		want, got := plain(tr.Ops), plain(m.Trace.Ops)
		require.Len(t, got, len(want), tr.Name)
		for k := range want {
			w := want[k]
			w.Stream = got[k].Stream
			require.Equal(t, w, got[k], "%s, operation %d", tr.Name, k)
		}
		here := 0
		for _, op := range m.Trace.Ops {
			if op.Kind == trace.PoolBegin {
				here++
			}
		}
		if openings += here; here > 0 {
			require.Contains(t, fmt.Sprint(m.Loss), fmt.Sprintf("%d openings of private pools", here))
		}
		if m.Private > 0 {
			inPools++
			require.Positive(t, m.PrivateShare())
			require.LessOrEqual(t, m.PrivateShare(), 1.0)
		}
	}
	t.Logf("%d openings; %d traces end with memory in private pools", openings, inPools)
	require.Greater(t, openings, 100)
	require.Greater(t, inPools, 20)
}

// TestPoolGivenBack: where the file names the pool of each entry, as it does from 2.12 on, a pool whose memory goes back is released.
func TestPoolGivenBack(t *testing.T) {
	named := func(e snapshot.Event) snapshot.Event {
		e.Pool = 1
		return e
	}
	const base = 0x7f0000000000
	s := &snapshot.Snapshot{
		Name: "pools", Shape: "2.12", Pools: []snapshot.Pool{{}, {Graph: 3}},
		Traces: [][]snapshot.Event{{
			named(snapshot.Event{Action: snapshot.SegmentAlloc, Addr: base, Size: 20 << 20}),
			named(snapshot.Event{Action: snapshot.Alloc, Addr: base, Size: 5 << 20}),
			named(snapshot.Event{Action: snapshot.FreeRequested, Addr: base, Size: 5 << 20}),
			named(snapshot.Event{Action: snapshot.FreeCompleted, Addr: base, Size: 5 << 20}),
			named(snapshot.Event{Action: snapshot.SegmentFree, Addr: base, Size: 20 << 20}),
			{Action: snapshot.FreeRequested, Addr: base + 64<<20, Size: 1000},
			{Action: snapshot.FreeCompleted, Addr: base + 64<<20, Size: 1000},
		}},
		Segments: []snapshot.Segment{{Addr: base + 64<<20, Size: 2 << 20, Small: true, Blocks: []snapshot.Block{{Addr: base + 64<<20, Size: 2 << 20}}}},
	}
	m, err := snapshot.Import(s, 0, snapshot.Options{Capacity: 1 << 30})
	require.NoError(t, err)
	require.Empty(t, m.Verified.First)
	var kinds []string
	for i := range m.Trace.Ops {
		kinds = append(kinds, m.Trace.Ops[i].String())
	}
	require.Equal(t, []string{
		"segment 0 2097152 stream=0 pool=small", "block 0 1024 requested=1000 at=0+0", "pool begin 1 capture", "alloc 1 5242880", "free 1",
		"pool end 1", "pool release 1", "empty_cache", "free 0",
	}, kinds)
}
