package properties

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/direct"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestAtMost: where pending blocks are counted, an allocator without a promise may count all of them, none, or some.
func TestAtMost(t *testing.T) {
	for _, c := range []struct {
		promised           bool
		got, live, pending uint64
		ok                 bool
	}{
		{false, 10, 10, 5, true}, {false, 12, 10, 5, true}, {false, 15, 10, 5, true}, {false, 9, 10, 5, false}, {false, 16, 10, 5, false},
		{true, 10, 10, 5, false}, {true, 12, 10, 5, false},
	} {
		s := &executor.State{}
		if c.promised {
			s.Promise.Kind = allocators.PromiseN
		}
		v := atMost(s, "A3", "active", c.got, c.live, c.pending)
		require.Equal(t, c.ok, v == nil, "%+v", c)
		if v != nil {
			require.Equal(t, "A3", v.Rule)
		}
	}
}

// TestGrowsUnflushed: what a first attempt can map, to the byte: what is mapped counts, and classic segments that are in use; the
// limit and the device bound it, and the address space a new segment.
func TestGrowsUnflushed(t *testing.T) {
	view := func(live bool) *executor.View {
		v := &executor.View{}
		state := allocators.Free
		if live {
			state = allocators.Live
		}
		v.Segments = []allocators.SegmentInfo{
			{Addr: 0, Size: 100 * mib, Expandable: true, PageSize: 20 * mib, First: 0, Count: 2},
			{Addr: 1 << 40, Size: 20 * mib, First: 2, Count: 1},
		}
		v.Blocks = []allocators.BlockInfo{
			{Addr: 0, Size: 40 * mib, State: allocators.Live, Expandable: true}, {Addr: 40 * mib, Size: 60 * mib, State: allocators.Unmapped, Expandable: true},
			{Addr: 1 << 40, Size: 20 * mib, State: state},
		}
		return v
	}
	for _, c := range []struct {
		live             bool
		size             uint64
		available, limit uint64 // MiB
		reservation      uint64
		want             bool
	}{
		{false, 30, 80, 0, 120, true}, {false, 30, 79, 0, 120, false}, // 40 mapped, 2 pages more
		{true, 30, 100, 0, 120, true}, {true, 30, 99, 0, 120, false}, // and a classic segment in use
		{false, 30, 200, 70, 120, true}, {false, 30, 200, 69, 120, false}, // a purchase of 30 under the limit
		{false, 61, 120, 0, 120, true}, {false, 61, 119, 0, 120, false}, // a segment of its own
		{false, 61, 900, 0, 61, true}, {false, 61, 900, 0, 60, false},
	} {
		q := request{n: c.size * mib, size: c.size * mib, buy: c.size * mib, page: 20 * mib, available: c.available * mib, reservation: c.reservation * mib}
		q.Kind = allocators.PromiseX
		q.MaxSplitSize = 1 << 62
		q.HasLimit, q.Limit = c.limit > 0, c.limit*mib
		p := &predictor{}
		require.Equal(t, c.want, p.growsUnflushed(view(c.live), &q), "%+v", c)
	}
}

// TestHistoryOf: what relations compare of each operation.
func TestHistoryOf(t *testing.T) {
	tr, err := trace.ParseString("history", "alloc 0 3MiB\nalloc 1 100\nalloc 2 900MiB\nfree 0\nempty_cache\n")
	require.NoError(t, err)
	c := &executor.Case{NewDevice: func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) }}
	h, err := historyOf(c, tr, executor.Target{Name: "classic", New: func(d device.Device) (allocators.Allocator, error) {
		return caching.New(d, caching.DefaultSettings())
	}}, 60*mib)
	require.NoError(t, err)
	require.Len(t, h, 5)
	for i, want := range []event{
		{kind: trace.Alloc, outcome: executor.OK, segment: 1, size: 3 * mib, reserved: 20 * mib, allocated: 3 * mib, live: 1, bought: true},
		{kind: trace.Alloc, outcome: executor.OK, segment: 2, size: 512, reserved: 22 * mib, allocated: 3*mib + 512, live: 2, bought: true},
		{kind: trace.Alloc, outcome: executor.OOM, reserved: 22 * mib, allocated: 3*mib + 512, live: 2, bought: true},
		{kind: trace.Free, outcome: executor.OK, size: 3 * mib, reserved: 22 * mib, allocated: 512, live: 1},
		{kind: trace.EmptyCache, outcome: executor.OK, reserved: 2 * mib, allocated: 512, live: 1, bought: true},
	} {
		got := h[i]
		got.segment = min(got.segment, want.segment)
		require.Equal(t, want, got, "operation %d", i)
	}
	h, err = historyOf(c, tr, executor.Target{Name: "direct", New: func(d device.Device) (allocators.Allocator, error) { return direct.New(d), nil }}, 60*mib)
	require.NoError(t, err)
	require.Len(t, h, 5)
}

// miscounting is the caching allocator with one block too many in its statistics.
type miscounting struct {
	*caching.Allocator
	stats allocators.Stats
}

func (m *miscounting) Stats() *allocators.Stats {
	m.stats = *m.Allocator.Stats()
	m.stats.Allocation.All.Current++
	return &m.stats
}

// TestSameProgramView: other settings under which one block more is live are a finding; the same allocator under all is none.
func TestSameProgramView(t *testing.T) {
	tr, err := trace.ParseString("view", "alloc 0 3MiB\nalloc 1 100\nfree 0\n")
	require.NoError(t, err)
	for _, wrong := range []string{"none", "", "max_split_size_mb:21"} {
		with := func(conf string) (executor.Target, error) {
			return executor.Target{Name: conf, New: func(d device.Device) (allocators.Allocator, error) {
				set, _, err := caching.ParseSettings(conf)
				if err != nil {
					return nil, err
				}
				a, err := caching.New(d, set)
				if conf == wrong {
					return &miscounting{Allocator: a}, err
				}
				return a, err
			}}, nil
		}
		target, err := with("garbage_collection_threshold:0.9")
		require.NoError(t, err)
		v, err := SameProgramView.Check(&executor.Case{
			Trace: tr, Target: target, Capacity: 100 << 20, With: with,
			NewDevice: func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) },
		})
		require.NoError(t, err)
		require.Equal(t, wrong == "none", v == nil, "%q: %v", wrong, v)
	}
}

// TestWitnessText: four blocks are named of many, five of five.
func TestWitnessText(t *testing.T) {
	for _, c := range []struct {
		n    int
		want string
	}{
		{1, "  id 0 (7, operation 0)"}, {5, "  id 0 (7, operation 0), id 1 (7, operation 1), id 2 (7, operation 2), id 3 (7, operation 3), id 4 (7, operation 4)"},
		{6, "  id 0 (7, operation 0), id 1 (7, operation 1), id 2 (7, operation 2), id 3 (7, operation 3), and 2 more"},
	} {
		w := &Witness{Exact: true, Replays: 1, Served: 1}
		for i := range c.n {
			w.Blocks = append(w.Blocks, Pin{ID: uint64(i), Op: i, Bytes: 7})
		}
		text := w.Text(func(n uint64) string { return fmt.Sprint(n) })
		require.Equal(t, c.want, text[1])
		require.Equal(t, "  shown by replay: with them freed first the request is served", text[2])
	}
	two := []Pin{{ID: 3, Op: 4, Bytes: 7}, {ID: 5, Op: 6, Bytes: 8}}
	for _, c := range []struct {
		w    Witness
		want []string
	}{
		{Witness{Blocks: two, Replays: 2, Served: 1}, []string{
			"witness: 2 live blocks freed first suffice (a greedy choice, not the smallest set for certain):",
			"  id 3 (7, operation 4), id 5 (8, operation 6)", "  predicted, but not borne out by replay (1 of 2 served)",
		}},
		{Witness{Blocks: two[:1], Any: two[1:], Exact: true, Replays: 1}, []string{
			"witness: 1 live block freed first suffice (a smallest set):",
			"  id 3 (7, operation 4)", "  predicted, but not borne out by replay (0 of 1 served)",
			"  (of all live blocks fewer would do: 1 live block, the first id 5 of 8)",
		}},
		{Witness{Blocks: two, Any: two, Exact: true, Alternatives: 3, Each: 7, Replays: 3, Served: 3}, []string{
			"witness: 3 live blocks of 7 each keep a segment or pages alone; any 2 of them freed first suffice",
			"  for example id 3 (7, operation 4), id 5 (8, operation 6)", "  shown by replay: the request is served in 3 of 3 sets of 2",
			"  (of all live blocks fewer would do: 2 live blocks, the first id 3 of 7)",
		}},
		{Witness{Blocks: two, Alternatives: 3, Replays: 3, Served: 1}, []string{
			"witness: 3 live blocks each keep a segment or pages alone; any 2 of them freed first suffice",
			"  for example id 3 (7, operation 4), id 5 (8, operation 6)", "  predicted, but not borne out by replay (1 of 3 served)",
		}},
	} {
		require.Equal(t, c.want, c.w.Text(func(n uint64) string { return fmt.Sprint(n) }))
	}
}

// TestKeepers: a block that ends where a page does lies in that page and not in the next one.
func TestKeepers(t *testing.T) {
	const page = 20 << 20
	base := device.Addr(1 << 40)
	view := &executor.View{}
	view.Segments = []allocators.SegmentInfo{{Addr: base, Size: 5 * page, Expandable: true, Count: 5}}
	at := base
	for _, b := range []allocators.BlockInfo{
		{Size: page}, {Size: page - 512}, {Size: 512}, {Size: page + 512}, {Size: page - 512, State: allocators.Free},
	} {
		b.Addr = at
		if b.State != allocators.Free {
			b.State = allocators.Live
		}
		at = b.End()
		view.Blocks = append(view.Blocks, b)
	}
	f := &finder{view: view, eligible: []bool{true, true, false, true, true}}
	f.request.PageSize = func(bool) uint64 { return page }
	require.Equal(t, []keeper{
		{block: 0, unit: page, newSegment: true},
		{block: 1, unit: page, first: 1, last: 1},
		{block: 2, unit: page, first: 1, last: 1, fixed: true},
		{block: 3, unit: page, first: 2, last: 3},
	}, f.keepers())
	require.Equal(t, []uint64{page, 0, 0, page * 2}, []uint64{f.releases(0), f.releases(1), f.releases(2), f.releases(3)})
}

// TestCheckStat: each rule is broken alone.
func TestCheckStat(t *testing.T) {
	old := allocators.Stat{Current: 5, Peak: 7, Allocated: 15, Freed: 10}
	for rule, now := range map[string]allocators.Stat{
		"":                          {Current: 6, Peak: 7, Allocated: 17, Freed: 11},
		"A12 below the present":     {Current: 8, Peak: 7, Allocated: 18, Freed: 10},
		"A12 below the earlier one": {Current: 5, Peak: 6, Allocated: 15, Freed: 10},
		"A13 increases":             {Current: 4, Peak: 7, Allocated: 14, Freed: 10},
		"A13 decreases":             {Current: 6, Peak: 7, Allocated: 15, Freed: 9},
		"A10":                       {Current: 6, Peak: 7, Allocated: 15, Freed: 10},
	} {
		v := checkStat("active", &now, &old)
		if rule == "" {
			require.Nil(t, v)
			continue
		}
		require.NotNil(t, v, rule)
		require.Equal(t, rule[:3], v.Rule, v.Detail)
	}
}

// TestFewest: as all sets of keepers say, of random blocks in two segments of four pages.
func TestFewest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 3000 {
		var keepers []keeper
		for range 2 {
			unit, at, fresh := 1+rng.Uint64N(3), uint64(0), true
			for at < 16 && len(keepers) < 9 {
				at += rng.Uint64N(3)
				size := 1 + rng.Uint64N(9)
				p := keeper{block: len(keepers), first: at / 4, last: (at + size - 1) / 4, unit: unit, newSegment: fresh, fixed: rng.IntN(5) == 0}
				keepers, at, fresh = append(keepers, p), at+size, false
			}
		}
		emptied := func(set uint) (bytes uint64, ok bool) {
			type unit struct{ segment, page uint64 }
			kept, touched, segment := map[unit]bool{}, map[unit]uint64{}, uint64(0)
			for i, p := range keepers {
				if p.newSegment {
					segment++
				}
				freed := set>>i&1 == 1
				if freed && p.fixed {
					return 0, false
				}
				for page := p.first; page <= p.last; page++ {
					touched[unit{segment, page}] = p.unit
					kept[unit{segment, page}] = kept[unit{segment, page}] || !freed
				}
			}
			for u, size := range touched {
				if !kept[u] {
					bytes += size
				}
			}
			return bytes, true
		}
		want := 1 + rng.Uint64N(8)
		best := -1
		for set := range uint(1) << len(keepers) {
			if bytes, ok := emptied(set); ok && bytes >= want && (best < 0 || bits.OnesCount(set) < best) {
				best = bits.OnesCount(set)
			}
		}
		found := fewest(keepers, len(keepers), want)
		if best < 0 {
			require.Nil(t, found)
			continue
		}
		require.Len(t, found, best, "%+v, %d", keepers, want)
		var set uint
		for _, i := range found {
			set |= 1 << i
		}
		bytes, ok := emptied(set)
		require.True(t, ok && bytes >= want, "%+v: %v for %d", keepers, found, want)
	}
}
