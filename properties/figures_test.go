package properties

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestFigureRules: after each operation the sums are those of the program, each figure wrong alone.
func TestFigureRules(t *testing.T) {
	counted := func(kind allocators.PromiseKind, edit func(st *allocators.Stats)) *executor.State {
		s := &executor.State{Capacity: 1000, Foreign: 100, DeviceFree: 700, Stats: &allocators.Stats{}}
		s.Promise.Kind = kind
		s.Heap = &shadow.Heap{Live: shadow.Totals{Count: 3, Bytes: 120, Requested: 100}, Pending: shadow.Totals{Count: 2, Bytes: 60, Requested: 50}}
		st := s.Stats
		st.AllocatedBytes.All.Current, st.Allocation.All.Current = 120, 3
		st.ActiveBytes.All.Current, st.Active.All.Current, st.RequestedBytes.All.Current = 180, 5, 150
		st.ReservedBytes.All.Current = 200
		edit(st)
		return s
	}
	n := func(edit func(st *allocators.Stats)) *executor.State { return counted(allocators.PromiseN, edit) }
	none := func(edit func(st *allocators.Stats)) *executor.State { return counted(allocators.PromiseNone, edit) }
	checkRules(t, Accounting.Op, []ruled{
		{"right", n(func(*allocators.Stats) {}), ""},
		{"no statistics", &executor.State{}, ""},
		{"allocated bytes", n(func(st *allocators.Stats) { st.AllocatedBytes.All.Current = 121 }), "A2: allocated_bytes is 121, must be 120"},
		{"allocations", n(func(st *allocators.Stats) { st.Allocation.All.Current = 2 }), "A2: allocation is 2, must be 3"},
		{"active bytes", n(func(st *allocators.Stats) { st.ActiveBytes.All.Current = 120 }), "A3: active_bytes is 120, must be 180"},
		{"active", n(func(st *allocators.Stats) { st.Active.All.Current = 3 }), "A3: active is 3, must be 5"},
		{"requested bytes", n(func(st *allocators.Stats) { st.RequestedBytes.All.Current = 100 }), "A4: requested_bytes is 100, must be 150"},
		{"reserved bytes", n(func(st *allocators.Stats) { st.ReservedBytes.All.Current = 199 }), "A5: reserved_bytes is 199, must be 200"},
		{"not kept, but promised", n(func(st *allocators.Stats) { st.AllocatedBytes = allocators.Pooled{} }), "A2: allocated_bytes is 0, must be 120"},
		{"not kept, nothing promised", none(func(st *allocators.Stats) { *st = allocators.Stats{} }), ""},
		{"allocated bytes, nothing promised", none(func(st *allocators.Stats) { st.AllocatedBytes.All.Current = 121 }), "A2: allocated_bytes is 121, must be 120"},
		{"allocations, nothing promised", none(func(st *allocators.Stats) { st.Allocation.All.Current = 2 }), "A2: allocation is 2, must be 3"},
		{"active bytes, nothing promised", none(func(st *allocators.Stats) { st.ActiveBytes.All.Current = 119 }), "A3: active_bytes is 119, must be 180"},
		{"active, nothing promised", none(func(st *allocators.Stats) { st.Active.All.Current = 6 }), "A3: active is 6, must be 5"},
		{"requested bytes, nothing promised", none(func(st *allocators.Stats) { st.RequestedBytes.All.Current = 99 }), "A4: requested_bytes is 99, must be 150"},
		{"reserved bytes, nothing promised", none(func(st *allocators.Stats) { st.ReservedBytes.All.Current = 201 }), "A5: reserved_bytes is 201, must be 200"},
		{"pending ones are over, nothing promised", none(func(st *allocators.Stats) {
			st.ActiveBytes.All.Current, st.Active.All.Current, st.RequestedBytes.All.Current = 120, 3, 100
		}), ""},
	})
}

// TestSummedRules: in walks each figure is what the listed blocks add up to, by pool.
func TestSummedRules(t *testing.T) {
	listed := func(edit func(s *executor.State)) *executor.State {
		const live, pending, free, unmapped = allocators.Live, allocators.Pending, allocators.Free, allocators.Unmapped
		snap := &allocators.Snapshot{
			Segments: []allocators.SegmentInfo{
				{Size: 1000, Small: true, First: 0, Count: 3}, {Size: 5000, First: 3, Count: 1}, {Size: 6000, First: 4, Count: 1},
				{Size: 700, First: 5, Count: 3}, {Size: 90000, Expandable: true, First: 8, Count: 4},
				{Size: 80000, Expandable: true, Small: true, First: 12, Count: 3},
			},
			Blocks: []allocators.BlockInfo{
				{Size: 300, Requested: 290, State: live}, {Size: 200, Requested: 180, State: pending}, {Size: 500, State: free},
				{Size: 5000, State: free}, {Size: 6000, State: free},
				{Size: 40, State: free}, {Size: 560, Requested: 555, State: live}, {Size: 100, State: free},
				{Size: 500, State: free}, {Size: 19500, Requested: 19000, State: live}, {Size: 7000, State: free}, {Size: 63000, State: unmapped},
				{Size: 2000, Requested: 1500, State: pending}, {Size: 300, State: free}, {Size: 77700, State: unmapped},
			},
		}
		st := &allocators.Stats{}
		for _, c := range []struct {
			p            *allocators.Pooled
			small, large uint64
		}{
			{&st.Allocation, 1, 2}, {&st.AllocatedBytes, 300, 20060}, {&st.Active, 3, 2}, {&st.ActiveBytes, 2500, 20060},
			{&st.RequestedBytes, 1970, 19555}, {&st.Segment, 1, 3}, {&st.ReservedBytes, 3300, 38700}, {&st.InactiveSplit, 1, 2},
			{&st.InactiveSplitBytes, 500, 140},
		} {
			c.p.Small.Add(c.small)
			c.p.Large.Add(c.large)
			c.p.All.Add(c.small + c.large)
		}
		s := &executor.State{Stats: st, Previous: &allocators.Stats{}, Snapshot: snap, Promise: handN}
		if edit != nil {
			edit(s)
		}
		return s
	}
	cases := []ruled{
		{"right", listed(nil), ""},
		{"no statistics", listed(func(s *executor.State) { s.Stats = nil }), ""},
		{"no list", listed(func(s *executor.State) { s.Snapshot = nil; s.Stats.Segment.Small.Add(1); s.Stats.Segment.All.Add(1) }), ""},
		{"nothing promised", listed(func(s *executor.State) {
			s.Promise.Kind = allocators.PromiseNone
			s.Stats.Segment.Small.Add(1)
			s.Stats.Segment.All.Add(1)
		}), ""},
		// Where all parts agree the sum can differ only if blocks do not fill their segment.
		{"blocks do not fill a segment", listed(func(s *executor.State) { s.Snapshot.Blocks[3].Size-- }), "A8: reserved_bytes is 42000, must be 41999"},
	}
	for i, want := range []struct{ small, large string }{
		{"A2: allocation.small_pool.current is 2, must be 1", "A2: allocation.large_pool.current is 3, must be 2"},
		{"A2: allocated_bytes.small_pool.current is 301, must be 300", "A2: allocated_bytes.large_pool.current is 20061, must be 20060"},
		{"A3: active.small_pool.current is 4, must be 3", "A3: active.large_pool.current is 3, must be 2"},
		{"A3: active_bytes.small_pool.current is 2501, must be 2500", "A3: active_bytes.large_pool.current is 20061, must be 20060"},
		{"A4: requested_bytes.small_pool.current is 1971, must be 1970", "A4: requested_bytes.large_pool.current is 19556, must be 19555"},
		{"A6: segment.small_pool.current is 2, must be 1", "A6: segment.large_pool.current is 4, must be 3"},
		{"A5: reserved_bytes.small_pool.current is 3301, must be 3300", "A5: reserved_bytes.large_pool.current is 38701, must be 38700"},
		{"A7: inactive_split.small_pool.current is 2, must be 1", "A7: inactive_split.large_pool.current is 3, must be 2"},
		{"A7: inactive_split_bytes.small_pool.current is 501, must be 500", "A7: inactive_split_bytes.large_pool.current is 141, must be 140"},
	} {
		cases = append(cases,
			ruled{"small", listed(func(s *executor.State) { pooled(s.Stats)[i].stat.Add(true, 1) }), want.small},
			ruled{"large", listed(func(s *executor.State) { pooled(s.Stats)[i].stat.Add(false, 1) }), want.large},
			ruled{"all", listed(func(s *executor.State) { pooled(s.Stats)[i].stat.All.Current++ }),
				"A1: " + pooled(&allocators.Stats{})[i].name + ": all is not the sum of small_pool and large_pool"})
	}
	checkRules(t, Accounting.Walk, cases)
}

// TestShapeRules: what holds of the counters over time, whatever the blocks are.
func TestShapeRules(t *testing.T) {
	shaped := func(kind allocators.PromiseKind, edit func(now, before *allocators.Stats)) *executor.State {
		var before allocators.Stats
		for _, p := range pooled(&before) {
			p.stat.Add(true, 30)
			p.stat.Add(false, 50)
			p.stat.Sub(true, 10)
			p.stat.Sub(false, 5)
		}
		before.OversizeAllocations.Add(3)
		before.OversizeSegments.Add(4)
		before.NumAllocRetries, before.NumOOMs, before.NumSyncAllStreams, before.NumDeviceAlloc, before.NumDeviceFree = 1, 2, 3, 4, 5
		now := before
		edit(&now, &before)
		s := &executor.State{Stats: &now, Previous: &before}
		s.Promise.Kind = kind
		return s
	}
	n := func(edit func(now, before *allocators.Stats)) *executor.State {
		return shaped(allocators.PromiseN, edit)
	}
	none := func(edit func(now, before *allocators.Stats)) *executor.State {
		return shaped(allocators.PromiseNone, edit)
	}
	const notSum = "A1: active: all is not the sum of small_pool and large_pool"
	// byPool has a figure that is not kept by pool.
	byPool := func(now, before *allocators.Stats) {
		for _, st := range []*allocators.Stats{now, before} {
			st.Active.Small, st.Active.Large = allocators.Stat{}, allocators.Stat{}
		}
	}
	cases := []ruled{
		{"right", n(func(*allocators.Stats, *allocators.Stats) {}), ""},
		{"right, nothing promised", none(func(*allocators.Stats, *allocators.Stats) {}), ""},
		{"the sums' increases", n(func(now, _ *allocators.Stats) { now.Active.All.Allocated++ }), notSum},
		{"the sums' decreases", n(func(now, _ *allocators.Stats) { now.Active.All.Freed++ }), notSum},
		{"the sums", n(func(now, _ *allocators.Stats) { now.Active.All.Current++ }), notSum},
		{"the sums, nothing promised", none(func(now, _ *allocators.Stats) { now.Active.All.Current++ }), notSum},
		{"not by pool", n(byPool), notSum},
		{"not by pool, nothing promised", none(byPool), ""},
		{"not by pool, and wrong", none(func(now, before *allocators.Stats) { byPool(now, before); now.Active.All.Allocated++ }),
			"A10: active: the change is not increases less decreases"},
		{"by one pool only", none(func(now, before *allocators.Stats) {
			for _, st := range []*allocators.Stats{now, before} {
				st.Active.Small = allocators.Stat{}
			}
		}), notSum},
		{"by the other pool only", none(func(now, before *allocators.Stats) {
			for _, st := range []*allocators.Stats{now, before} {
				st.Active.Large = allocators.Stat{}
			}
		}), notSum},
		{"not by pool, and the next one wrong", none(func(now, before *allocators.Stats) { byPool(now, before); now.ActiveBytes.All.Current++ }),
			"A1: active_bytes: all is not the sum of small_pool and large_pool"},
		{"of the small pool", n(func(now, _ *allocators.Stats) { now.Segment.Small.Peak = 0 }),
			"A12: segment: the peak 0 is below the present 20 or the earlier peak 30"},
		{"of the large pool", n(func(now, _ *allocators.Stats) { now.Segment.Large.Peak = 49 }),
			"A12: segment: the peak 49 is below the present 45 or the earlier peak 50"},
		{"of all", n(func(now, _ *allocators.Stats) { now.Segment.All.Peak = 79 }), "A12: segment: the peak 79 is below the present 65 or the earlier peak 80"},
		{"large blocks", n(func(now, _ *allocators.Stats) { now.OversizeAllocations.Freed++ }),
			"A10: oversize_allocations: the change is not increases less decreases"},
		{"large segments", n(func(now, _ *allocators.Stats) { now.OversizeSegments.Allocated-- }),
			"A13: oversize_segments: a sum of increases or decreases fell"},
		// What counts as large has changed, so that the count fell below 0: PyTorch's figures are signed.
		{"fewer than none", n(func(now, _ *allocators.Stats) { now.OversizeSegments.Sub(6) }), ""},
		{"fewer than none, and a peak below", n(func(now, _ *allocators.Stats) { now.OversizeSegments.Sub(6); now.OversizeSegments.Peak = 3 }),
			"A12: oversize_segments: the peak 3 is below the present -2 or the earlier peak 4"},
	}
	for _, c := range []struct {
		of   func(st *allocators.Stats) *uint64
		want string
	}{
		{func(st *allocators.Stats) *uint64 { return &st.NumAllocRetries }, "A13: num_alloc_retries fell from 1 to 0"},
		{func(st *allocators.Stats) *uint64 { return &st.NumOOMs }, "A13: num_ooms fell from 2 to 1"},
		{func(st *allocators.Stats) *uint64 { return &st.NumSyncAllStreams }, "A13: num_sync_all_streams fell from 3 to 2"},
		{func(st *allocators.Stats) *uint64 { return &st.NumDeviceAlloc }, "A13: num_device_alloc fell from 4 to 3"},
		{func(st *allocators.Stats) *uint64 { return &st.NumDeviceFree }, "A13: num_device_free fell from 5 to 4"},
	} {
		cases = append(cases,
			ruled{"fell", n(func(now, _ *allocators.Stats) { *c.of(now)-- }), c.want},
			ruled{"rose", n(func(now, _ *allocators.Stats) { *c.of(now)++ }), ""})
	}
	checkRules(t, Accounting.Walk, cases)
}

// TestDeviceRefusedRules: a refusal is the device's own if it had the bytes of the last call that failed in the attempt.
func TestDeviceRefusedRules(t *testing.T) {
	malloc := func(n uint64) device.Call { return device.Call{Kind: device.CallMalloc, Size: n} }
	noMalloc := func(n uint64) device.Call { return device.Call{Kind: device.CallMallocFail, Size: n} }
	create := func(n uint64) device.Call { return device.Call{Kind: device.CallCreate, Size: n} }
	noCreate := func(n uint64) device.Call { return device.Call{Kind: device.CallCreateFail, Size: n} }
	release := func(n uint64) device.Call { return device.Call{Kind: device.CallRelease, Size: n} }
	for _, c := range []struct {
		name  string
		free  uint64
		calls []device.Call
		want  string
	}{
		{"nothing was asked", 100, nil, ""},
		{"more than it has", 100, []device.Call{noMalloc(101)}, ""},
		{"what it has", 100, []device.Call{noMalloc(100)}, "the device refused 100 bytes with 100 free"},
		{"the last one counts", 100, []device.Call{noMalloc(50), noMalloc(101)}, ""},
		{"given back after it", 100, []device.Call{noMalloc(50), {Kind: device.CallFree}}, ""},
		{"bought after it", 100, []device.Call{noMalloc(50), malloc(20)}, ""},
		{"a chunk that it has", 100, []device.Call{noCreate(100)}, "the device refused a chunk of 100 bytes with 100 free"},
		{"a chunk that it has not", 100, []device.Call{noCreate(101)}, ""},
		{"beside others that were undone", 100, []device.Call{create(40), create(40), noCreate(20), release(40), release(40)},
			"the device refused a chunk of 20 bytes with 20 free"},
		{"beside others, too much", 100, []device.Call{create(40), create(40), noCreate(21), release(40), release(40)}, ""},
		{"beside others, all of it", 80, []device.Call{create(40), create(40), noCreate(1), release(40), release(40)}, ""},
		{"beside others, more than is free now", 50, []device.Call{create(40), create(40), noCreate(1)}, ""},
		{"of an earlier attempt are others", 100, []device.Call{create(90), noMalloc(900), create(40), noCreate(60)},
			"the device refused a chunk of 60 bytes with 60 free"},
	} {
		require.Equal(t, c.want, deviceRefused(&executor.State{DeviceFree: c.free, Calls: c.calls}), c.name)
	}
}

// TestDeviceRoomRules: where nothing is promised, a refusal is false if the device has 20 MiB more than the request and was not asked,
// or asked for far more.
func TestDeviceRoomRules(t *testing.T) {
	const n, slack = 100 * mib, 20 * mib
	noMalloc := func(n uint64) device.Call { return device.Call{Kind: device.CallMallocFail, Size: n} }
	create := func(n uint64) device.Call { return device.Call{Kind: device.CallCreate, Size: n} }
	noCreate := func(n uint64) device.Call { return device.Call{Kind: device.CallCreateFail, Size: n} }
	for _, c := range []struct {
		name               string
		free               uint64
		calls              []device.Call
		reserves           bool
		atStart            uint64
		bought, bought0    uint64
		wantRule, wantText string
	}{
		{name: "too little", free: n + slack - 1, bought: 1},
		{name: "not asked", free: n + slack, bought: 1, wantRule: "device-has-room",
			wantText: "the device has 125829120 bytes free, 20 MiB more than was asked for, and was not asked"},
		{name: "cuts up address space", free: n + slack, bought: 1, reserves: true},
		{name: "lives on what it took at its start", free: n + slack, atStart: 1, bought: 1, bought0: 1},
		{name: "has bought since", free: n + slack, atStart: 1, bought: 2, bought0: 1, wantRule: "device-has-room",
			wantText: "the device has 125829120 bytes free, 20 MiB more than was asked for, and was not asked"},
		{name: "took nothing at its start", free: n + slack, bought: 1, bought0: 1, wantRule: "device-has-room",
			wantText: "the device has 125829120 bytes free, 20 MiB more than was asked for, and was not asked"},
		{name: "got memory back, not asked again", free: n + slack, calls: []device.Call{noMalloc(n + slack)}, wantRule: "device-not-asked-again",
			wantText: "the device refused 125829120 bytes, then got memory back and has 125829120 free, and was not asked again"},
		{name: "asked for a little more", free: n + slack, calls: []device.Call{noMalloc(n + slack + 1)}},
		{name: "asked for twice as much", free: n + slack, calls: []device.Call{noMalloc(2*n + slack)}},
		{name: "asked for more than that", free: n + slack, calls: []device.Call{noMalloc(2*n + slack + 1)}, wantRule: "device-has-room",
			wantText: "the device has 125829120 bytes free, 20 MiB more than was asked for, and was asked for 230686721 at least"},
		{name: "the least counts", free: n + slack, calls: []device.Call{noMalloc(9 * n), noMalloc(2 * n), noMalloc(8 * n)}},
		{name: "chunks add up", free: n + slack, calls: []device.Call{create(n), create(mib), noCreate(20 * mib)}},
	} {
		s := &executor.State{DeviceFree: c.free, Calls: c.calls, Reserves: c.reserves, AtStart: c.atStart, Bought: c.bought, BoughtAtStart: c.bought0}
		rule, text := deviceHasRoom(s, &request{n: n})
		require.Equal(t, [2]string{c.wantRule, c.wantText}, [2]string{rule, text}, c.name)
	}
	least, refused := leastRefused(nil)
	require.Equal(t, uint64(math.MaxUint64), least)
	require.False(t, refused)
}

// TestRequestRules: what the judge asks about.
func TestRequestRules(t *testing.T) {
	s := &executor.State{
		Operation: &trace.Op{Kind: trace.Alloc, Bytes: mib - 100, Stream: 3}, Capacity: 801 * mib, Foreign: mib, Promise: handX, Pool: 2, Held: true,
	}
	q := newRequest(s)
	require.Equal(t, []uint64{mib - 100, mib, 2 * mib, 2 * mib, 800 * mib, 902 * mib},
		[]uint64{q.n, q.size, q.buy, q.page, q.available, q.reservation})
	require.True(t, q.small && q.held)
	require.Equal(t, device.Stream(3), q.stream)
	s.Operation.Bytes = mib + 1
	require.False(t, newRequest(s).small)
	s.Promise = allocators.Promise{}
	q = newRequest(s)
	require.Equal(t, []uint64{mib + 1, mib + 1, 0, 0, 800 * mib, 0}, []uint64{q.n, q.size, q.buy, q.page, q.available, q.reservation})
}

// TestJudgeRules: each verdict and each rule of a false one, on states of one segment of 20 MiB on a device of 100, with a live block
// of 3 MiB in it.
func TestJudgeRules(t *testing.T) {
	const live, pending, free = allocators.Live, allocators.Pending, allocators.Free
	// held is the segment with blocks of some MiB in it, in turn; the first one is live.
	type held = []allocators.BlockInfo
	view := func(blocks held) *executor.View {
		v := &executor.View{Reserved: 20 * mib}
		v.Segments = []allocators.SegmentInfo{{Addr: 1 << 30, Size: 20 * mib, Count: len(blocks)}}
		at := device.Addr(1 << 30)
		for _, b := range blocks {
			b.Addr, b.Size = at, b.Size*mib
			v.Blocks = append(v.Blocks, b)
			at = b.End()
		}
		return v
	}
	some := held{{Size: 3, State: live}, {Size: 5, State: pending}, {Size: 12, State: free}}
	rest := held{{Size: 3, State: live}, {Size: 17, State: free}}
	waiting := held{{Size: 3, State: live}, {Size: 17, State: pending}}
	split := held{{Size: 3, State: live}, {Size: 9, State: free}, {Size: 8, State: live}}
	full, empty := held{{Size: 20, State: live}}, held{{Size: 20, State: free}}
	refused := func(n, deviceFree uint64, entered, after held, edit func(s *executor.State)) *executor.State {
		s := &executor.State{
			Operation: &trace.Op{Kind: trace.Alloc, Bytes: n}, Promise: handN, Capacity: deviceFree + 20*mib, DeviceFree: deviceFree, View: view(after),
			Heap: &shadow.Heap{Live: shadow.Totals{Count: 1, Bytes: 3 * mib, Requested: 3*mib - 100}, Pending: shadow.Totals{Count: 1, Bytes: 5 * mib}},
		}
		if s.Entered = s.View; &entered[0] != &after[0] {
			s.Entered = view(entered)
		}
		if edit != nil {
			edit(s)
		}
		return s
	}
	void := func(s *executor.State) { s.Promise.Void = "planted" }
	// released has the segment given back although a pool holds releases back: oversize blocks go all the same.
	released := func(s *executor.State) { s.Held, s.View, s.DeviceFree = true, &executor.View{}, 100*mib }
	split10 := func(s *executor.State) { s.Promise.MaxSplitSize = 10 * mib }
	looks := func(s *executor.State) { s.Promise.LookupAfterFlush = true }
	limit := func(n uint64) func(s *executor.State) {
		return func(s *executor.State) { s.Promise.HasLimit, s.Promise.Limit = true, n }
	}
	none := func(edit func(s *executor.State)) func(s *executor.State) {
		return func(s *executor.State) {
			s.Promise, s.Bought = allocators.Promise{}, 1
			if edit != nil {
				edit(s)
			}
		}
	}
	expandable := func(s *executor.State) {
		s.Promise = handX
		s.View.Segments[0].Expandable, s.View.Segments[0].Size = true, 120*mib
		s.View.Blocks = append(s.View.Blocks, allocators.BlockInfo{Addr: 1<<30 + 20*mib, Size: 100 * mib})
		s.View.Segments[0].Count++
	}
	const again = ": the same request, repeated unchanged, is served"
	judge := NewJudge()
	for _, c := range []struct {
		name string
		s    *executor.State
		want string
	}{
		{"no way to serve it", refused(81*mib, 80*mib, some, some, nil), "fragmentation"},
		{"the device's own", refused(81*mib, 80*mib, some, some, func(s *executor.State) {
			s.Calls = []device.Call{{Kind: device.CallMallocFail, Size: 80 * mib}}
		}), "device-refused: the device refused 83886080 bytes with 83886080 free"},
		{"more than is not live", refused(97*mib+101, 80*mib, some, some, nil), "genuine"},
		{"all that is not live", refused(97*mib+100, 80*mib, some, some, nil), "rounding"},
		{"the least that rounds to too much", refused(97*mib+1, 80*mib, some, some, nil), "rounding"},
		{"does not round to too much", refused(97*mib, 80*mib, some, some, nil), "fragmentation"},
		{"more than the limit", refused(50*mib, 80*mib, some, some, limit(53*mib-101)), "genuine"},
		{"as much as the limit", refused(50*mib, 80*mib, some, some, limit(53*mib-100)), "rounding"},
		{"too large a block", refused(5*mib, 0, some, some, split10), "policy"},
		{"a block at entry", refused(5*mib, 0, some, some, nil), "false block-at-entry: a free block of 12582912 bytes was acceptable at entry"},
		{"a block at entry only", refused(15*mib, 0, rest, waiting, nil), "false block-at-entry: a free block of 17825792 bytes was acceptable at entry"},
		{"bought after a flush", refused(80*mib, 80*mib, some, some, nil),
			"false flush-suffices: a full flush leaves 83886080 bytes at the device, the segment needs 83886080"},
		{"mapped after a flush", refused(61*mib, 80*mib, empty, empty, expandable),
			"false flush-suffices: a full flush leaves 104857600 bytes at the device, the pages need at most 83886080"},
		{"mapped beside what is live", refused(80*mib, 80*mib, some, some, expandable),
			"false flush-suffices: a full flush leaves 83886080 bytes at the device, the pages need at most 83886080"},
		{"a promise that is void", refused(5*mib, 0, some, some, void), "false repeat-served" + again + " by a free block of 12582912 bytes"},
		{"a promise that is void, and memory to buy", refused(80*mib, 80*mib, some, some, void), "false repeat-bought" + again + " by a purchase"},
		{"released but not asked again", refused(90*mib, 80*mib, full, empty, released), "false repeat-bought-held pytorch#159674" + again + " by a purchase"},
		{"a block that was pending", refused(15*mib, 0, waiting, rest, nil),
			"false repeat-served-by-pending pytorch#189504" + again + " by a free block of 17825792 bytes"},
		{"a block that was too large", refused(5*mib, 0, rest, split, split10),
			"false repeat-served-by-remainder pytorch#189504" + again + " by a free block of 9437184 bytes"},
		{"a block that was not there", refused(5*mib, 0, full, split, nil), "false repeat-served" + again + " by a free block of 9437184 bytes"},
		{"a block that was not there, in a pool that holds back", refused(5*mib, 0, full, split, func(s *executor.State) { s.Held = true }),
			"false repeat-served" + again + " by a free block of 9437184 bytes"},
		{"it looks again, and there is a block", refused(5*mib, 0, full, split, looks),
			"false block-after-flush: a free block of 9437184 bytes was acceptable after the flush"},
		{"it looks again, and there is none", refused(90*mib, 80*mib, full, empty, looks), "false repeat-bought" + again + " by a purchase"},
		{"nothing promised", refused(70*mib, 80*mib, some, some, none(nil)), "unknown"},
		{"nothing promised, more than is not live", refused(97*mib+101, 80*mib, some, some, none(nil)), "genuine"},
		{"nothing promised, all that is not live", refused(97*mib+100, 80*mib, some, some, none(nil)), "rounding"},
		{"nothing promised, by sizes all that is not live", refused(97*mib, 80*mib, some, some, none(nil)), "unknown"},
		{"nothing promised, the device has room", refused(60*mib, 80*mib, some, some, none(nil)),
			"false device-has-room: the device has 83886080 bytes free, 20 MiB more than was asked for, and was not asked"},
		{"nothing promised, served again", refused(70*mib, 80*mib, some, some, none(func(s *executor.State) { s.Repetition = executor.RepetitionServed })),
			"false repeat-served" + again},
		{"nothing promised, refused again", refused(70*mib, 80*mib, some, some, none(func(s *executor.State) { s.Repetition = executor.RepetitionRefused })),
			"unknown"},
	} {
		j := judge(c.s, nil)
		got := j.Verdict.String()
		for _, word := range []string{j.Rule, j.Known} {
			if word != "" {
				got += " " + word
			}
		}
		if j.Reason != "" {
			got += ": " + j.Reason
		}
		require.Equal(t, c.want, got, c.name)
	}
	j := judge(refused(81*mib, 80*mib, some, some, nil), nil)
	j.Demands = executor.Demands{}
	require.Equal(t, executor.Judgement{
		Verdict: executor.Fragmentation, Request: 81 * mib, Rounded: 81 * mib, Capacity: 100 * mib, LiveRequested: 3*mib - 100, Live: 3 * mib,
		Active: 8 * mib, Reserved: 20 * mib, DeviceFree: 80 * mib, LargestFree: 12 * mib, Pinned: 17 * mib, PinnedBy: 1,
	}, j)

	p, q := &predictor{}, newRequest(refused(5*mib, 0, full, split, looks))
	p.load(view(full), &q)
	held5 := q
	held5.held = true
	there := &repeat{served: true, block: candidate{size: 9 * mib}}
	rule, _ := p.promised(&q, there)
	require.Equal(t, "block-after-flush", rule)
	rule, _ = p.promised(&held5, there)
	require.Empty(t, rule, "in a pool that holds releases back nothing is flushed, and it does not look again")

	require.False(t, below(5, 5, 0), "nothing fits where nothing is left")
	require.True(t, below(5, 6, 0), "more is live than the limit, which was lowered")
}

// TestWasPendingRules: a block held memory that was pending if it shares a byte with it.
func TestWasPendingRules(t *testing.T) {
	entered := &executor.View{}
	entered.Blocks = []allocators.BlockInfo{{Addr: 0x1000, Size: 0x100, State: allocators.Pending}, {Addr: 0x2000, Size: 0x100, State: allocators.Live}}
	for _, c := range []struct {
		at   device.Addr
		want bool
	}{{0xf00, false}, {0xf01, true}, {0x1000, true}, {0x10ff, true}, {0x1100, false}, {0x2000, false}} {
		require.Equal(t, c.want, wasPending(entered, &candidate{addr: c.at, size: 0x100}), "%#x", uint64(c.at))
	}
}

// TestPinnedRules: bytes and live blocks of a classic segment, and of pages of 1,000 bytes.
func TestPinnedRules(t *testing.T) {
	const live, pending, free, unmapped = allocators.Live, allocators.Pending, allocators.Free, allocators.Unmapped
	type part struct {
		state allocators.State
		size  uint64
	}
	promise := handPromise(allocators.PromiseX, func(p *allocators.Promise) { p.PageSize = func(bool) uint64 { return 1000 } })
	all, sumBytes, sumBlocks := &executor.View{}, uint64(0), 0
	for i, c := range []struct {
		name       string
		expandable bool
		parts      []part
		bytes      uint64
		blocks     int
	}{
		{"free", false, []part{{free, 900}}, 0, 0},
		{"full", false, []part{{live, 500}, {live, 400}}, 0, 0},
		{"live and free", false, []part{{live, 500}, {free, 300}, {live, 100}}, 300, 2},
		{"live and pending", false, []part{{live, 500}, {pending, 300}}, 300, 1},
		{"full page", true, []part{{live, 1000}, {unmapped, 1000}}, 0, 0},
		{"free behind", true, []part{{live, 400}, {free, 600}, {unmapped, 1000}}, 600, 1},
		{"free before", true, []part{{free, 600}, {live, 400}}, 600, 1},
		{"pending before", true, []part{{pending, 600}, {live, 400}}, 600, 1},
		{"two, and free behind", true, []part{{live, 200}, {live, 200}, {free, 600}}, 600, 2},
		{"two, and free between", true, []part{{live, 200}, {free, 600}, {live, 200}}, 600, 2},
		{"a free page between", true, []part{{live, 1000}, {free, 1000}, {live, 1000}}, 0, 0},
		{"free over a border", true, []part{{live, 900}, {free, 200}, {live, 900}}, 200, 2},
		{"live over a border, free before", true, []part{{free, 900}, {live, 1100}}, 900, 1},
		{"live over a border, free behind", true, []part{{live, 1100}, {free, 900}}, 900, 1},
		{"live over two pages and into a third", true, []part{{free, 100}, {live, 2000}, {free, 900}}, 1000, 1},
		{"two over a border", true, []part{{live, 600}, {live, 600}, {live, 600}, {free, 200}}, 200, 2},
		{"behind a full page", true, []part{{live, 1000}, {live, 400}, {free, 600}}, 600, 1},
		{"behind a page without memory", true, []part{{unmapped, 1000}, {live, 400}, {free, 600}, {unmapped, 1000}}, 600, 1},
	} {
		v := &executor.View{}
		for _, v := range []*executor.View{v, all} {
			g := allocators.SegmentInfo{Addr: device.Addr(1+i) << 30, Expandable: c.expandable, First: len(v.Blocks), Count: len(c.parts)}
			for _, p := range c.parts {
				v.Blocks = append(v.Blocks, allocators.BlockInfo{Addr: g.Addr + addr(g.Size), Size: p.size, State: p.state})
				g.Size += p.size
			}
			v.Segments = append(v.Segments, g)
		}
		bytes, blocks := pins(v, &promise)
		require.Equal(t, [2]uint64{c.bytes, uint64(c.blocks)}, [2]uint64{bytes, uint64(blocks)}, c.name)
		sumBytes, sumBlocks = sumBytes+c.bytes, sumBlocks+c.blocks
	}
	bytes, blocks := pins(all, &promise)
	require.Equal(t, [2]uint64{sumBytes, uint64(sumBlocks)}, [2]uint64{bytes, uint64(blocks)}, "all segments together")
}
