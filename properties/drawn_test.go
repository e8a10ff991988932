package properties

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const mib = 1 << 20

// drawn makes a view of a picture: segments are parted by a semicolon, each a kind and its blocks, a letter for the state and MiB:
// "x L20 F10 U70; c L5 F15". Behind the kind, c or x, stand s of the small pool, a stream and a private pool: "cs", "x@1", "c#2".
func drawn(t *testing.T, picture string) *executor.View {
	t.Helper()
	v := &executor.View{}
	for k, text := range strings.Split(picture, ";") {
		words := strings.Fields(text)
		kind, pool, _ := strings.Cut(words[0], "#")
		kind, stream, _ := strings.Cut(kind, "@")
		g := allocators.SegmentInfo{
			Addr: device.Addr(k+1) << 40, Expandable: kind[0] == 'x', Small: strings.HasSuffix(kind, "s"), First: len(v.Blocks), Count: len(words) - 1,
		}
		if stream != "" {
			n, err := strconv.Atoi(stream)
			require.NoError(t, err)
			g.Stream = device.Stream(n)
		}
		if pool != "" {
			n, err := strconv.Atoi(pool)
			require.NoError(t, err)
			g.Pool = allocators.PoolID(n)
		}
		for _, w := range words[1:] {
			n, err := strconv.ParseFloat(w[1:], 64)
			require.NoError(t, err)
			b := allocators.BlockInfo{Addr: g.Addr + device.Addr(g.Size), Size: uint64(n * mib), Expandable: g.Expandable, Small: g.Small, Stream: g.Stream}
			b.State = map[byte]allocators.State{
				'L': allocators.Live, 'F': allocators.Free, 'P': allocators.Pending, 'U': allocators.Unmapped,
			}[w[0]]
			var e *shadow.Entry
			if b.State == allocators.Live || b.State == allocators.Pending {
				b.Requested = b.Size
				e = &shadow.Entry{Size: b.Size, Requested: b.Size, Op: int32(len(v.Blocks))}
			}
			if b.State != allocators.Unmapped {
				v.Reserved += b.Size
			}
			g.Size += b.Size
			v.Blocks, v.Entries = append(v.Blocks, b), append(v.Entries, e)
		}
		v.Segments = append(v.Segments, g)
	}
	return v
}

// asks is a request of a size in MiB on a device of so many, with pages of 20 MiB, 2 MiB in the small pool.
func asks(kind allocators.PromiseKind, size, capacity uint64) request {
	q := request{
		n: size * mib, size: size * mib, buy: size * mib, page: 20 * mib, available: capacity * mib,
		reservation: roundUp(capacity*mib*9/8, 20*mib),
	}
	q.Kind, q.MaxSplitSize = kind, math.MaxUint64
	q.PageSize = func(small bool) uint64 {
		if small {
			return 2 * mib
		}
		return 20 * mib
	}
	return q
}

// seeks is a finder over a picture; the ids of its blocks are their places.
func seeks(t *testing.T, picture string, q request) *finder {
	t.Helper()
	f := &finder{view: drawn(t, picture), request: q}
	f.base.load(f.view, &f.request)
	tr := &trace.Trace{}
	for i := range f.view.Blocks {
		tr.Ops = append(tr.Ops, trace.Op{ID: uint64(i)})
	}
	f.program = &executor.Program{Trace: tr}
	return f
}

// marked are where a list is true.
func marked(list []bool) []int {
	var out []int
	for i, yes := range list {
		if yes {
			out = append(out, i)
		}
	}
	return out
}

// TestPinsOfAWitness: which live blocks a set may hold, those that share a segment or a page with idle memory, and what each gives
// back alone.
func TestPinsOfAWitness(t *testing.T) {
	for _, c := range []struct {
		picture  string
		pinning  []int
		releases []uint64 // MiB, of each live block
	}{
		{"c L20", nil, []uint64{20}},
		{"c L5 L15", nil, []uint64{0, 0}},
		{"c L5 F10 L5", []int{0, 2}, []uint64{0, 0}},
		{"c P5 L5 P10", []int{1}, []uint64{20}},
		{"c L20; c L10 F10", []int{1}, []uint64{20, 20}},
		{"c#2 L10 F10", []int{0}, []uint64{0}}, // the pool is in use
		{"x L20 F20 U20", nil, []uint64{20}},   // in no page of its own is anything idle
		{"x F20 L20 L20", nil, []uint64{20, 20}},
		{"x F2 L3 L5 U10", []int{1, 2}, []uint64{0, 0}},
		{"x L5 L5 P10", []int{0, 1}, []uint64{0, 0}},
		{"x F10 L10 L20", []int{1}, []uint64{20, 20}},
		{"x L30 F10", []int{0}, []uint64{40}},
		{"x F10 L30", []int{1}, []uint64{40}},
		{"x L10 F20 L10", []int{0, 2}, []uint64{20, 20}},
		{"x L5 L10 L5", nil, []uint64{0, 0, 0}},
		{"x L10 L30 L10 F10", []int{2}, []uint64{0, 20, 20}},
		{"x L30 L30", nil, []uint64{20, 20}},
		{"x L45 L5 F10 L20", []int{0, 1}, []uint64{40, 0, 20}},
		{"xs L1 F1 L2", []int{0}, []uint64{2, 2}},
		{"x L20 U20; c L5 F15", []int{2}, []uint64{20, 20}},
	} {
		q := asks(allocators.PromiseX, 20, 100)
		q.uses = map[allocators.PoolID]int{2: 1}
		f := seeks(t, c.picture, q)
		require.Equal(t, c.pinning, marked(f.pinning()), c.picture)
		var releases []uint64
		for _, i := range marked(f.everyLive()) {
			releases = append(releases, f.releases(i)/mib)
		}
		require.Equal(t, c.releases, releases, c.picture)
	}
}

// TestAlternatives: only blocks that keep more than themselves are alternatives, and only if the worst choice of them suffices.
func TestAlternatives(t *testing.T) {
	for _, c := range []struct {
		picture  string
		size     uint64
		n, fixed int
		want     []int
	}{
		{"c L20; c L10 F10; c L10 F10", 15, 1, -1, []int{1, 3}},
		{"c L20; c L10 F10; c L10 F10", 20, 1, -1, []int{1, 3}},
		{"c L20; c L10 F10; c L10 F10", 21, 1, -1, nil},
		{"c L20; c L10 F10; c L10 F10", 40, 2, -1, []int{1, 3}},
		{"c L20; c L10 F10; c L10 F10", 41, 2, -1, nil},
		{"c L20; c L10 F10; c L10 F10", 40, 3, -1, nil},
		{"c L20; c L10 F10; c L10 F10", 20, 1, 1, []int{3}},
		{"c L10 F30; c L10 F10", 30, 1, -1, nil},
		{"c L10 F30; c L10 F10", 20, 1, -1, []int{0, 2}},
	} {
		f := seeks(t, c.picture, asks(allocators.PromiseN, c.size, 0))
		f.eligible = f.everyLive()
		if c.fixed >= 0 {
			f.eligible[c.fixed] = false
		}
		f.alternatives(c.n)
		require.Equal(t, c.want, f.pins, "%+v", c)
	}
}

// TestExhaustive: sets are tried by size as long as there are no more than 8192 of a size.
func TestExhaustive(t *testing.T) {
	for _, c := range []struct {
		picture     string
		size        uint64
		most, tried int
		want        []int
	}{
		{"c F10 L10" + strings.Repeat(" L1", 8191), 20, 1, 0, []int{1}},
		{"c F10 L10" + strings.Repeat(" L1", 8192), 20, 1, 0, nil}, // one too many
		{"c F10 L10 L10" + strings.Repeat(" L1", 68), 30, 2, 1, []int{1, 2}},
		{"c L10; c L10 L10", 20, 2, 1, []int{1, 2}}, // the last pair of all
		{"c L10 L10", 20, 2, 1, []int{0, 1}},        // all there are
		{"c L10; c L10 L10", 20, 1, 1, nil},
		{"c L10; c L10 L10", 90, 3, 3, nil},
		{"c L10; c L10 L10", 90, 5, 5, nil}, // there are no larger sets
	} {
		f := seeks(t, c.picture, asks(allocators.PromiseN, c.size, 0))
		f.request.available = f.view.Reserved
		f.base.load(f.view, &f.request)
		f.eligible = f.everyLive()
		set, tried := f.exhaustive(c.most)
		require.Equal(t, c.want, set, c.picture[:9])
		require.Equal(t, c.tried, tried, c.picture[:9])
	}
}

// TestRow: the fewest blocks in one row of one segment of the request's own whose absence leaves a block of 30 MiB.
func TestRow(t *testing.T) {
	for _, c := range []struct {
		kind    allocators.PromiseKind
		picture string
		fixed   int
		want    []int
	}{
		{allocators.PromiseN, "c F20 L10 F10", -1, []int{1}},
		{allocators.PromiseN, "c L10 L20 F10", -1, []int{1}}, // not the first one too
		{allocators.PromiseN, "c L10 P20 L10", -1, []int{0}},
		{allocators.PromiseN, "c L10 L10 F5 L10 F20", -1, []int{3}},
		{allocators.PromiseN, "c L10 L10 F5 L10 F20", 3, nil},
		{allocators.PromiseN, "c L10 L10 L10", -1, []int{0, 1, 2}},
		{allocators.PromiseN, "c L10 L10 L9", -1, nil},
		{allocators.PromiseN, "c L15 L15; c L30", -1, []int{2}},
		{allocators.PromiseN, "c L30; c L15 L15", -1, []int{0}},
		{allocators.PromiseN, "c L20 F15 L5 L20 F9 L3", -1, []int{0}},
		{allocators.PromiseN, "c L5 L5 F5 L15 L5 F10 L5", -1, []int{3, 4}},
		{allocators.PromiseN, "c F5 L5 F5 L5 F5 L5 L5 L20 F10", -1, []int{7}},
		{allocators.PromiseN, "c F20 L10 L20 F10", 1, []int{2}}, // behind one that stays
		{allocators.PromiseN, "c@1 L30", -1, nil},               // another stream's, although a flush would return it
		{allocators.PromiseN, "c@1 L30; c L30", -1, []int{1}},
		{allocators.PromiseN, "x L30", -1, nil},
		{allocators.PromiseX, "c L30", -1, nil},
		{allocators.PromiseX, "x U20 L10 F20 U10", -1, []int{1}},
		{allocators.PromiseX, "x L20 U10 F10 L20", -1, []int{3}},
	} {
		f := seeks(t, c.picture, asks(c.kind, 30, 30))
		f.eligible = f.everyLive()
		if c.fixed >= 0 {
			f.eligible[c.fixed] = false
		}
		require.Equal(t, c.want, f.row(), "%+v", c)
	}
}

// TestEmptied: the fewest blocks whose absence empties enough, and whether that is certain; else whole segments, the cheapest first.
func TestEmptied(t *testing.T) {
	pins := func(n int) string { return strings.TrimSuffix(strings.Repeat("c L1 F9;", n), ";") }
	upTo := func(n int) (out []int) {
		for i := range n {
			out = append(out, 2*i)
		}
		return out
	}
	for _, c := range []struct {
		picture        string
		size, capacity uint64
		want           []int
		exact          bool
	}{
		{"c L10 F10", 20, 40, nil, false}, // nothing need be emptied
		{"c F40", 50, 40, nil, false},     // nothing can be
		{"c L10 F10; c L5 F15", 20, 40, []int{0}, true},
		{"c L10 F10; c L5 F15", 21, 40, []int{0, 2}, true},
		{pins(40), 320, 400, upTo(32), true},
		{pins(40), 330, 400, upTo(33), false}, // one more than is looked for
		{pins(40), 401, 400, nil, false},
	} {
		q := asks(allocators.PromiseN, c.size, c.capacity)
		f := seeks(t, c.picture, q)
		f.eligible = f.everyLive()
		set, exact := f.emptied()
		require.Equal(t, c.want, set, "%+v", c)
		require.Equal(t, c.exact, exact, "%+v", c)
	}
	require.True(t, tableFits(2_000_000, 4))
	require.False(t, tableFits(2_000_001, 4))
	for _, c := range []struct {
		picture string
		bytes   uint64
		want    []int
	}{
		{"c L10 L10 L10 L10; c L20", 20, []int{4}}, // 20 MiB for one block, not 10
		{"c L20; c L10 L10 L10 L10", 20, []int{0}},
		{"c L15; c L10 F30 L10 F50", 100, []int{1, 3}},
		{"c L20; c L20; c L20", 20, []int{0}}, // among equals the lowest
		{"c L20; c L20; c L20", 21, []int{0, 1}},
		{"c L20; c L20; c L20", 61, nil},
		{"c#2 L20; c L20", 20, []int{1}},
		{"c#2 L20 F20; c L20", 40, nil},
		{"c L20; x L20 U60", 21, []int{0, 1}},
	} {
		q := asks(allocators.PromiseN, 20, 0)
		q.uses = map[allocators.PoolID]int{2: 1}
		f := seeks(t, c.picture, q)
		f.eligible = f.everyLive()
		require.Equal(t, c.want, f.greedy(f.keepers(), c.bytes*mib), "%+v", c)
	}
}

// TestSmallest: of a row of blocks and of what empties enough the smaller; what is a smallest set for certain, and what may stand
// in for it.
func TestSmallest(t *testing.T) {
	for _, c := range []struct {
		kind         allocators.PromiseKind
		picture      string
		size         uint64
		want         []int
		exact        bool
		alternatives int
	}{
		// In a pool in use nothing is emptied, so that only rows serve.
		{allocators.PromiseN, "c#2 F10 L10 F10", 30, []int{1}, true, 0},
		{allocators.PromiseN, "c#2 F10 L10 L10", 30, []int{1, 2}, true, 0},
		{allocators.PromiseN, "c#2 L10 L10 L10", 30, []int{0, 1, 2}, false, 0},
		{allocators.PromiseN, "c#2 L10 L10 L9", 30, nil, false, 0},
		{allocators.PromiseN, "c L5 F15; c L5 F15; c L10 L10 L10", 40, []int{0, 2}, true, 0},
		{allocators.PromiseN, "c L5 F15; c L5 F15; c L5 F15", 40, []int{0, 2}, true, 3},
		{allocators.PromiseN, "c L5 F15; c L5 F15; c L10 F10 L10", 30, []int{4, 6}, true, 0},
		{allocators.PromiseX, "x L20 F20 L20 F20 L20", 40, []int{0}, true, 0},
	} {
		q := asks(c.kind, c.size, 0)
		q.uses = map[allocators.PoolID]int{2: 1}
		f := seeks(t, c.picture, q)
		if strings.Contains(c.picture, "#2") {
			f.request.pool = 2
		}
		f.request.available = f.view.Reserved
		f.base.load(f.view, &f.request)
		w := f.smallest(f.everyLive())
		if c.want == nil {
			require.Nil(t, w, "%+v", c)
			continue
		}
		var set []int
		for _, b := range w.Blocks {
			set = append(set, int(b.ID))
		}
		require.Equal(t, c.want, set, "%+v", c)
		require.Equal(t, c.exact, w.Exact, "%+v", c)
		require.Equal(t, c.alternatives, w.Alternatives, "%+v", c)
	}
}

// TestReplays: the sets replayed are bounded, and so are their operations together.
func TestReplays(t *testing.T) {
	for op, want := range map[int]int{0: 1000, 3999: 1000, 4000: 999, 1_999_999: 2, 2_000_000: 1, 5_000_000: 1} {
		require.Equal(t, want, mostReplays(op), op)
	}
	for w, want := range map[*Witness]bool{{}: false, {Replays: 2, Served: 1}: false, {Replays: 2, Served: 2}: true} {
		require.Equal(t, want, w.Confirmed(), "%+v", w)
	}
}

// TestReplay: whether the request itself is served, whatever was refused before.
func TestReplay(t *testing.T) {
	tr, err := trace.ParseString("replay", "alloc 9 900MiB\nalloc 0 120MiB\nfree 0\nalloc 1 30MiB\nalloc 2 30MiB\nalloc 3 60MiB\nfree 1\nalloc 4 60MiB\n")
	require.NoError(t, err)
	f := &finder{
		program: executor.Compile(tr), capacity: 120 * mib, op: len(tr.Ops) - 1,
		target: executor.Target{Name: "classic", New: func(d device.Device) (allocators.Allocator, error) {
			return caching.New(d, caching.DefaultSettings())
		}},
		newDevice: func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) },
	}
	for _, c := range []struct {
		ids  []uint64
		want bool
	}{{nil, false}, {[]uint64{2}, true}} {
		served, err := f.replay(c.ids)
		require.NoError(t, err)
		require.Equal(t, c.want, served, "%v freed first", c.ids)
	}
}

// TestDeficit: what the device lacks, or the limit.
func TestDeficit(t *testing.T) {
	for _, c := range []struct {
		kind                  allocators.PromiseKind
		size, capacity, limit uint64
		want                  uint64
	}{
		{allocators.PromiseN, 30, 60, 0, 0}, {allocators.PromiseN, 30, 40, 0, 10}, {allocators.PromiseX, 30, 40, 0, 20},
		{allocators.PromiseN, 30, 100, 50, 0}, {allocators.PromiseN, 30, 100, 45, 5}, {allocators.PromiseN, 30, 40, 45, 10},
		{allocators.PromiseX, 30, 100, 45, 5},
	} {
		q := asks(c.kind, c.size, c.capacity)
		q.HasLimit, q.Limit = c.limit > 0, c.limit*mib
		require.Equal(t, c.want, seeks(t, "c L20", q).deficit()/mib, "%+v", c)
	}
}

// TestScan: free blocks alone, and in one piece with pending ones once those are done.
func TestScan(t *testing.T) {
	type found struct{ at, size, effective uint64 }
	for _, c := range []struct {
		kind         allocators.PromiseKind
		picture      string
		free, waited []found // MiB
		kept         uint64
	}{
		{allocators.PromiseN, "c F20 L10 F15 P10", []found{{0, 20, 20}}, []found{{0, 20, 20}, {30, 25, 25}}, 55},
		{allocators.PromiseN, "c P10 F5 P5 L10 P20", nil, []found{{0, 20, 20}, {30, 20, 20}}, 50},
		{allocators.PromiseX, "x L20 F20 P20 U60 L5", []found{{20, 20, 20}}, []found{{20, 40, 100}}, 40},
		{allocators.PromiseX, "x L20 F20 U60", []found{{20, 20, 80}}, []found{{20, 20, 80}}, 20},
		{allocators.PromiseN, "x L20 F20 U60", nil, nil, 20},
	} {
		q := asks(c.kind, 20, 200)
		var p predictor
		v := drawn(t, c.picture)
		p.load(v, &q)
		list := func(candidates []candidate) (out []found) {
			for _, b := range candidates {
				require.Equal(t, c.picture[0] == 'x', b.expandable, "%+v", c)
				out = append(out, found{uint64(b.addr-v.Segments[0].Addr) / mib, b.size / mib, b.effective / mib})
			}
			return out
		}
		require.Equal(t, c.free, list(p.candidates), "%+v", c)
		require.Equal(t, c.waited, list(p.waited), "%+v", c)
		require.Equal(t, c.kept, p.kept/mib, "%+v", c)
	}
}

// TestRooms: what must be mapped where an expandable segment can grow after a flush.
func TestRooms(t *testing.T) {
	for _, c := range []struct {
		picture       string
		size          uint64
		lowest, least uint64 // MiB in whole pages, 0 if there is no room
		endless       uint64 // the least, if the last run may grow past the reservation
	}{
		{"c F20 L20 F20", 20, 0, 0, 0},
		{"x L20 U60", 30, 40, 40, 40},
		{"x L20 F10 L10 U60", 30, 40, 40, 40},
		{"x L20 F25 L15 U40", 30, 40, 40, 40},
		{"x L20 F30 L10 U40", 20, 20, 20, 20}, // the flush takes a page
		{"x L20 F35 L5 U40", 35, 20, 20, 20},  // and leaves what lies in the next one
		{"x L30 F10 U20 L20", 30, 20, 20, 20}, // with the free bytes before it
		{"x L30 F10 U20 L20", 31, 0, 0, 0},
		{"x L25 F10 L5 U20 F10 L10 U20", 30, 20, 20, 20}, // and behind it
		{"x L30 F10 U20 F30 L10 U20", 60, 40, 40, 40},
		{"x L30 P10 U20 L20", 30, 20, 20, 20},
		{"x L20 U40 L20 U20", 20, 20, 20, 20},
		{"x L20 U40 L30 F10 U20", 30, 40, 20, 20}, // the lowest is not the cheapest
		{"x L20 U20", 30, 0, 0, 40},
		{"x L30 F10 U40; x L40 U40", 30, 20, 20, 20}, // of two segments
		{"x L20 U20 L20", 30, 0, 0, 0},
		{"x F40", 20, 0, 0, 0}, // given back altogether
		{"x F20 U20", 20, 0, 0, 0},
		{"x U20 F20", 20, 0, 0, 0},
		{"x U40", 20, 20, 20, 20}, // had nothing mapped
	} {
		q := asks(allocators.PromiseX, c.size, 200)
		var p predictor
		p.load(drawn(t, c.picture), &q)
		var r room
		require.LessOrEqual(t, len(p.rooms), 1, "%+v", c)
		if len(p.rooms) > 0 {
			r = p.rooms[0].room
		}
		pages, endless := r.by[0][0], r.by[0][1]
		require.Equal(t, []uint64{c.lowest, c.least, c.endless}, []uint64{pages.lowest / mib, pages.least / mib, endless.least / mib}, "%+v", c)
		require.Equal(t, []bool{c.lowest > 0, c.endless > 0}, []bool{pages.found, endless.found}, "%+v", c)
		if strings.Contains(c.picture, "c ") {
			require.Empty(t, p.rooms, "a classic segment has no room to grow")
		}
	}
}

// TestPurchase: which rule stands in the way of a purchase.
func TestPurchase(t *testing.T) {
	const hole, address, stream, pool = executor.RelaxHole, executor.RelaxAddressSpace, executor.RelaxStream, executor.RelaxPool
	for _, c := range []struct {
		picture                     string
		size, capacity, reservation uint64
		relaxed                     executor.Relaxation
		want                        bool
		limit                       uint64
	}{
		{"x L20", 30, 60, 30, 0, true, 0},
		{"x L20", 30, 59, 30, 0, false, 0},
		{"x L20", 30, 60, 29, 0, false, 0},
		{"x L20", 30, 60, 29, address, true, 0},
		// The lowest room needs 21 MiB, another and a segment of its own 20: where there is room no segment is made. Pages that are
		// mapped whole never come to this.
		{"x L20 U1 F5 U60", 20, 40, 90, 0, false, 0},
		{"x L20 U1 F5 U60", 20, 40, 90, hole, true, 0},
		{"x L20 U1 F5 U60", 20, 41, 90, 0, true, 0},
		{"x@1 L20; x L20 F15 U20", 25, 60, 90, 0, true, 0},
		{"x@1 L20; x L20 F15 U20", 25, 60, 90, stream, true, 0}, // the other stream has no room
		{"x L20; x#2 F40", 30, 60, 90, 0, false, 0},
		{"x L20; x#2 F40", 30, 60, 90, pool, true, 0},
		{"x L20; x#2 F20; c#2 L5 F15; c#2 F20", 30, 80, 90, pool, true, 0}, // both that are empty
		{"x L20; x#2 F20; c#2 L5 F15; c#2 F20", 50, 80, 90, pool, false, 0},
		{"x L20; x#2 F20; c#2 L5 F15; c#2 F20", 30, 80, 90, pool, true, 70},
		{"x L20; x#2 F20; c#2 L5 F15; c#2 F20", 30, 80, 90, pool, false, 69},
		{"x L20", 30, 60, 90, 0, true, 50},
		{"x L20", 30, 60, 90, 0, false, 49},
	} {
		q := asks(allocators.PromiseX, c.size, c.capacity)
		q.reservation = c.reservation * mib
		q.uses = map[allocators.PoolID]int{2: 1}
		q.HasLimit, q.Limit = c.limit > 0, c.limit*mib
		var p predictor
		p.load(drawn(t, c.picture), &q)
		before := []uint64{p.flushed, p.kept, p.keptApart}
		require.Equal(t, c.want, p.purchase(&q, c.relaxed), "%+v, %+v", c, p.rooms)
		require.Equal(t, before, []uint64{p.flushed, p.kept, p.keptApart}, "what is tried changes nothing")
	}
}

// TestKeepSegment: a pending block is free if it was waited for, else as good as live.
func TestKeepSegment(t *testing.T) {
	for waited, want := range map[bool]string{true: "L20 F20 U20 F5 L5", false: "L20 L10 F10 U20 L5 L5"} {
		var p, q predictor
		p.keepSegment(drawn(t, "x L20 P10 F10 U20 P5 L5").Blocks, waited)
		q.keepSegment(drawn(t, "x "+want).Blocks, true)
		require.Equal(t, q.items, p.items)
	}
}

// TestOversize: max_split_size_mb of 30 keeps blocks of 30 MiB from smaller requests, and larger requests from blocks that are
// 20 MiB larger.
func TestOversize(t *testing.T) {
	for _, c := range []struct {
		size, block uint64
		want        bool
	}{{29, 29, false}, {29, 30, true}, {30, 30, false}, {30, 49, false}, {30, 50, true}, {31, 50, false}, {31, 51, true}} {
		q := asks(allocators.PromiseN, c.size, 100)
		q.MaxSplitSize, q.MaxNonSplitRounding = 30*mib, 20*mib
		require.Equal(t, c.want, q.oversize(c.block*mib), "%+v", c)
	}
}

// TestLowestRoom: a first attempt maps what the lowest room of the request's own lacks, beside what is mapped.
func TestLowestRoom(t *testing.T) {
	for _, c := range []struct {
		picture  string
		size     uint64
		capacity uint64 // MiB, the least that suffices
	}{
		{"x L20 F10 U40", 30, 50},
		{"x L20 P10 U40", 30, 70}, // nobody waits for what is pending
		{"x U40 L20", 30, 60},
		{"x L20 F20 L5 F15 U40", 50, 100},
		{"x@1 L20 U40; x L20 F10 U40", 30, 70},
		{"c L20; x L20 F10 U40", 30, 70},
		{"x L20 U20 L20 F10 U40", 30, 70},
	} {
		for _, capacity := range []uint64{c.capacity, c.capacity - 1} {
			q := asks(allocators.PromiseX, c.size, capacity)
			q.reservation = 0 // a segment of its own is out of the question
			require.Equal(t, capacity == c.capacity, (&predictor{}).growsUnflushed(drawn(t, c.picture), &q), "%+v with %d", c, capacity)
		}
	}
}

// TestServedByPurchase: a purchase that the promise did not foresee, and where the promise says nothing of it.
func TestServedByPurchase(t *testing.T) {
	const without = "20971520 bytes were served by a purchase of 20971520, although a full flush leaves 10485760 bytes at the device"
	for _, c := range []struct {
		kind           allocators.PromiseKind
		pool           allocators.PoolID
		held           bool
		limit, split   uint64 // MiB, 0 for none
		foreign, total uint64 // MiB
		want           string
	}{
		{allocators.PromiseN, 0, false, 0, 0, 0, 40, ""},
		{allocators.PromiseN, 0, false, 0, 0, 0, 30, without},
		{allocators.PromiseN, 0, false, 25, 0, 0, 30, without + " and the limit leaves 5242880 bytes"},
		{allocators.PromiseN, 0, false, 15, 0, 0, 30, without + " and the limit leaves 0 bytes"},
		{allocators.PromiseN, 0, false, 0, 30, 0, 30, without},
		// More may be given back than a flush does.
		{allocators.PromiseN, 2, false, 0, 0, 0, 30, without},
		{allocators.PromiseN, 2, false, 25, 0, 0, 30, ""},
		{allocators.PromiseN, 2, false, 0, 30, 0, 30, ""},
		{allocators.PromiseN, 0, true, 0, 0, 0, 30, without},
		{allocators.PromiseN, 0, true, 25, 0, 0, 30, ""},
		{allocators.PromiseN, 0, false, 0, 0, 60, 60, strings.Replace(without, "10485760", "0", 1)},
		{allocators.PromiseN, 0, false, 0, 0, 61, 60, ""}, // others took more than there is
		{allocators.PromiseX, 0, false, 0, 0, 0, 30, "20971520 bytes were served although neither before nor after a flush " +
			"the pages can be had; 10485760 bytes at the device after it"},
	} {
		s := &executor.State{
			Operation: &trace.Op{Bytes: 20 * mib}, Entered: drawn(t, "c L20"), Calls: []device.Call{{Kind: device.CallMalloc}},
			Foreign: c.foreign * mib, Capacity: c.total * mib,
		}
		q := asks(c.kind, 20, c.total)
		q.pool, q.held = c.pool, c.held
		q.available -= min(q.available, s.Foreign)
		if q.HasLimit, q.Limit = c.limit > 0, c.limit*mib; c.split > 0 {
			q.MaxSplitSize = c.split * mib
		}
		var p predictor
		p.load(s.Entered, &q)
		got := ""
		if v := p.servedByPurchase(s, &q); v != nil {
			got = v.Detail
		}
		require.Equal(t, c.want, got, "%+v", c)
	}
}
