package caching

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/reference"
)

const mib = 1 << 20

// twins runs an Allocator and the reference side by side.
type twins struct {
	t        *testing.T
	name     string
	capacity uint64
	dev      *simdev.Device
	rec      *device.Recorder
	a        *Allocator
	r        *reference.Allocator
	set      Settings           // of both
	live     []*reference.Block // and of the Allocator what has the same address

	log            []string      // operations, for a failure's message
	calls, want    []device.Call // of the last operation: the Allocator's, the reference's
	sa, sr, before allocators.Snapshot
	touched        []allocators.Neighbourhood
	counts         map[string]int

	pools bool // use private pools
	known allocators.PoolID
}

func newTwins(t *testing.T, name string, capacity uint64, set Settings) *twins {
	t.Helper()
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	w := &twins{
		t: t, name: name, dev: dev, rec: &device.Recorder{Device: dev}, set: set, capacity: capacity,
		r: reference.New(capacity, referenceSettings(set)), counts: map[string]int{},
	}
	w.r.OnCall = func(c device.Call) { w.want = append(w.want, c) }
	if set.HasFraction {
		w.r.SetFraction(set.Fraction)
	}
	w.a, err = New(w.rec, set)
	require.NoError(t, err)
	w.op("# capacity: %d, conf: %s", capacity, set.Text)
	return w
}

func referenceSettings(s Settings) reference.Settings {
	return reference.Settings{
		MaxSplitSize: s.MaxSplitSize, MaxNonSplitRounding: s.MaxNonSplitRounding, GCThreshold: s.GCThreshold,
		RoundupDivisions: s.RoundupDivisions, Expandable: s.Expandable, LookupAfterFlush: s.LookupAfterFlush,
		Pools: s.Rules.Pools, EmptiesInCapture: s.Rules.emptiesInCapture, FullIsUnlimited: s.Rules.fullIsUnlimited,
	}
}

func (w *twins) op(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

// fail prints the operations so far, so that the case can be cut down by hand.
func (w *twins) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s: %s\n%s", w.name, fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
}

// alloc returns the block, nil if there is none.
func (w *twins) alloc(n uint64, s device.Stream) *reference.Block {
	w.op("alloc %d %d stream=%d", len(w.log), n, s)
	got, err := w.a.Alloc(n, s)
	want := w.r.Alloc(n, s)
	switch {
	case n == 0:
		if got != (allocators.Block{}) || err != nil {
			w.fail("a request of 0 bytes gave %v, %v", got, err)
		}
	case want == nil:
		w.counts["oom"]++
		var oom *allocators.OOMError
		if !errors.As(err, &oom) || !errors.Is(err, device.ErrOutOfMemory) {
			w.fail("the reference refuses, the allocator says %v, %v", got, err)
		}
		if expect := w.r.Refusal(n, s); *oom != expect {
			w.fail("refusal: want %+v, got %+v", expect, *oom)
		}
	default:
		w.counts["alloc"]++
		if err != nil || got.Addr != want.Addr() || got.Size != want.Size() {
			w.fail("want %d bytes at %#x, got %d at %#x, %v", want.Size(), uint64(want.Addr()), got.Size, uint64(got.Addr), err)
		}
		w.live = append(w.live, want)
	}
	w.compare(true)
	return want
}

func (w *twins) free(i int) {
	b := w.live[i]
	addr, held := b.Addr(), w.r.HeldBack() // a free block may grow down
	w.op("free %#x", uint64(addr))
	w.live = slices.Delete(w.live, i, i+1)
	if err := w.a.Free(addr); err != nil {
		w.fail("free: %v", err)
	}
	w.r.Free(b)
	w.counts["deferred"] += w.r.HeldBack() - held
	w.compare(true)
	if err := w.a.Free(addr); !errors.Is(err, allocators.ErrInvalidPointer) {
		w.fail("a double free gives %v", err)
	}
}

func (w *twins) record(i int, s device.Stream) {
	addr := w.live[i].Addr()
	w.op("record %#x stream=%d", uint64(addr), s)
	if err := w.a.Record(addr, s); err != nil {
		w.fail("record: %v", err)
	}
	w.r.Record(w.live[i], s)
	w.compare(false)
}

func (w *twins) sync(s device.Stream) {
	w.op("sync stream=%d", s)
	if s < 0 {
		require.NoError(w.t, w.dev.SyncAll())
	} else {
		require.NoError(w.t, w.dev.Sync(s))
	}
	w.r.Sync(s)
	w.compare(false)
}

func (w *twins) emptyCache() {
	w.op("empty_cache")
	if w.r.Holding() {
		w.counts["held-flush"]++
	}
	w.same(w.a.EmptyCache(), w.r.EmptyCache())
	w.compare(true)
}

// same holds an error against whether the reference could do it.
func (w *twins) same(err error, ok bool) {
	w.t.Helper()
	if ok != (err == nil) || err != nil && !errors.Is(err, allocators.ErrUnsupported) {
		w.fail("%v, which can be done: %t", err, ok)
	}
}

func (w *twins) beginPool(r allocators.Redirection) {
	w.op("pool begin %d stream=%d capture=%t", r.Pool, r.Stream, r.Capture)
	w.same(w.a.BeginPool(r), true)
	w.r.BeginPool(r)
	w.compare(false)
}

func (w *twins) endPool(id allocators.PoolID) {
	w.op("pool end %d", id)
	w.same(w.a.EndPool(id), true)
	w.r.EndPool(id)
	w.compare(false)
}

func (w *twins) releasePool(id allocators.PoolID) {
	w.op("pool release %d", id)
	w.same(w.a.ReleasePool(id), true)
	w.r.ReleasePool(id)
	w.compare(false)
}

func (w *twins) emptyPool(id allocators.PoolID) {
	w.op("empty_cache pool=%d", id)
	w.same(w.a.EmptyPool(id), w.r.EmptyPool(id))
	w.compare(true)
}

func (w *twins) configure(conf string) {
	w.op("conf %s", conf)
	require.NoError(w.t, w.a.Configure(conf))
	set, _, err := w.set.Apply(conf)
	require.NoError(w.t, err)
	w.set, w.r.Set = set, referenceSettings(set)
	w.compare(false)
}

func (w *twins) setFraction(f float64) {
	w.op("fraction %v", f)
	require.NoError(w.t, w.a.SetFraction(f))
	w.r.SetFraction(f)
	w.compare(false)
}

func (w *twins) setForeign(bytes uint64) {
	w.op("foreign %d", bytes)
	if err := w.dev.SetForeign(bytes); err == nil {
		w.r.Foreign = bytes
	} else if bytes+w.r.Reserved() <= w.capacity {
		w.fail("foreign: %v", err)
	}
	w.compare(false)
}

// compare holds calls, blocks and statistics against the reference, and what the allocator says it touched against what
// changed.
func (w *twins) compare(touches bool) {
	w.t.Helper()
	w.calls = w.calls[:0]
	for _, c := range w.rec.Calls {
		if c.Handle = 0; c.Kind != device.CallWait {
			w.calls = append(w.calls, c)
		}
	}
	if !slices.Equal(w.calls, w.want) {
		w.fail("device calls:\nwant %s\ngot  %s", callTexts(w.want), callTexts(w.calls))
	}
	for _, c := range w.want {
		w.counts[callNames[c.Kind]]++
	}
	w.rec.Reset()
	w.want = w.want[:0]
	w.before, w.sa = w.sa, w.before
	w.a.Snapshot(&w.sa)
	for i := range w.sa.Blocks {
		if b := &w.sa.Blocks[i]; b.State == allocators.Free || b.State == allocators.Unmapped {
			b.Requested = 0
		}
	}
	w.r.Snapshot(&w.sr)
	if !slices.Equal(w.sa.Segments, w.sr.Segments) {
		w.fail("segments:\nwant %+v\ngot  %+v", w.sr.Segments, w.sa.Segments)
	}
	for i, want := range w.sr.Blocks {
		if got := w.sa.Blocks[i]; got != want {
			w.fail("block %d:\nwant %+v\ngot  %+v", i, want, got)
		}
	}
	w.compareTouched(touches)
	w.compareStats()
}

// compareTouched: every block that is not as it was before must have been named.
func (w *twins) compareTouched(touches bool) {
	w.t.Helper()
	was := map[device.Addr]allocators.BlockInfo{}
	for _, b := range w.before.Blocks {
		was[b.Addr] = b
	}
	named := map[device.Addr]bool{}
	if touches {
		w.touched = w.a.Touched(w.touched[:0])
		for _, n := range w.touched {
			named[n.Block.Addr] = true
		}
	}
	for _, b := range w.sa.Blocks {
		// What is left of a hole or of a split block is seen as the neighbour of what was cut off.
		rest := b.State == allocators.Unmapped || b.State == allocators.Free
		if old, ok := was[b.Addr]; (!ok || old != b) && !named[b.Addr] && !rest {
			w.fail("the operation changed %+v to %+v without telling (Touched)", old, b)
		}
	}
	if !touches {
		return
	}
	at := map[device.Addr]int{}
	for i, b := range w.sa.Blocks {
		at[b.Addr] = i
	}
	for _, n := range w.touched {
		i := at[n.Block.Addr]
		sizes := [3]uint64{0, w.sa.Blocks[i].Size, 0}
		for j, g := range w.sa.Segments {
			if i > g.First && i < g.First+g.Count {
				sizes[0] = w.sa.Blocks[i-1].Size
			}
			if i >= g.First && i+1 < g.First+g.Count {
				sizes[2] = w.sa.Blocks[i+1].Size
			}
			if i >= g.First && i < g.First+g.Count && (n.Base != g.Addr || n.Size != g.Size) {
				w.fail("a touched block's segment is %#x+%d, not %+v", uint64(n.Base), n.Size, w.sa.Segments[j])
			}
		}
		if got := [3]uint64{n.Prev.Size, n.Block.Size, n.Next.Size}; got != sizes || n.HasPrev != (sizes[0] > 0) || n.HasNext != (sizes[2] > 0) {
			w.fail("a touched block and its neighbours have sizes %v, not %v", got, sizes)
		}
	}
}

// compareStats counts everything anew by the definitions of section 20.
func (w *twins) compareStats() {
	w.t.Helper()
	var want allocators.Stats
	for i, g := range w.sr.Segments {
		if !g.Expandable {
			want.Segment.Add(g.Small, 1)
			want.ReservedBytes.Add(g.Small, g.Size)
		}
		for _, b := range w.sr.BlocksOf(i) {
			switch b.State {
			case allocators.Live:
				want.Allocation.Add(g.Small, 1)
				want.AllocatedBytes.Add(g.Small, b.Size)
			case allocators.Free:
				if !g.Expandable && g.Count > 1 {
					want.InactiveSplit.Add(g.Small, 1)
					want.InactiveSplitBytes.Add(g.Small, b.Size)
				}
			}
			if b.State == allocators.Live || b.State == allocators.Pending {
				want.Active.Add(g.Small, 1)
				want.ActiveBytes.Add(g.Small, b.Size)
				want.RequestedBytes.Add(g.Small, b.Requested)
			}
			if g.Expandable && b.State != allocators.Unmapped {
				want.ReservedBytes.Add(g.Small, b.Size)
			}
		}
	}
	waiting := len(w.a.deferred)
	for i := range w.a.queues {
		waiting += len(w.a.queues[i].items) - w.a.queues[i].head
	}
	if w.a.outstanding != waiting {
		w.fail("%d events are counted as outstanding, there are %d", w.a.outstanding, waiting)
	}
	s := &w.a.stats
	for _, p := range []struct {
		name      string
		want, got *allocators.Pooled
	}{
		{"allocation", &want.Allocation, &s.Allocation}, {"allocated_bytes", &want.AllocatedBytes, &s.AllocatedBytes},
		{"active", &want.Active, &s.Active}, {"active_bytes", &want.ActiveBytes, &s.ActiveBytes},
		{"requested_bytes", &want.RequestedBytes, &s.RequestedBytes}, {"segment", &want.Segment, &s.Segment},
		{"reserved_bytes", &want.ReservedBytes, &s.ReservedBytes}, {"inactive_split", &want.InactiveSplit, &s.InactiveSplit},
		{"inactive_split_bytes", &want.InactiveSplitBytes, &s.InactiveSplitBytes},
	} {
		for _, c := range [][2]*allocators.Stat{{&p.want.All, &p.got.All}, {&p.want.Small, &p.got.Small}, {&p.want.Large, &p.got.Large}} {
			if c[0].Current != c[1].Current || c[1].Current != c[1].Allocated-c[1].Freed || c[1].Peak < c[1].Current {
				w.fail("%s: want %d, got %+v", p.name, c[0].Current, *c[1])
			}
		}
	}
	r := w.r
	got := []uint64{s.NumAllocRetries, s.NumOOMs, s.NumSyncAllStreams, s.NumDeviceAlloc, s.NumDeviceFree, w.a.reserved}
	if want := []uint64{r.Retries, r.OOMs, r.Syncs, r.DeviceAllocs, r.DeviceFrees, r.Reserved()}; !slices.Equal(got, want) {
		w.fail("retries, ooms, syncs, device allocs and frees, reserved: want %v, got %v", want, got)
	}
	oversize := []int64{int64(s.OversizeAllocations.Current), int64(s.OversizeSegments.Current)}
	if want := []int64{r.OversizeAllocations, r.OversizeSegments}; !slices.Equal(oversize, want) {
		w.fail("oversize allocations and segments: want %v, got %v", want, oversize)
	}
	if free, total := w.dev.Info(); free != r.DeviceFree() || total != w.capacity {
		w.fail("the device has %d of %d free, not %d of %d", free, total, r.DeviceFree(), w.capacity)
	}
}

// callNames are the words that calls are counted under.
var callNames = map[device.CallKind]string{
	device.CallMalloc: "malloc", device.CallMallocFail: "mallocfail", device.CallFree: "free", device.CallReserve: "reserve",
	device.CallUnreserve: "unreserve", device.CallCreate: "create", device.CallCreateFail: "createfail", device.CallRelease: "release",
	device.CallMap: "map", device.CallUnmap: "unmap",
}

func callTexts(calls []device.Call) string {
	var out []string
	for _, c := range calls {
		out = append(out, fmt.Sprintf("%s %d at %#x", callNames[c.Kind], c.Size, uint64(c.Addr)))
	}
	return strings.Join(out, "; ")
}

// edges are the sizes at which something changes; random ones lie 512 bytes or one byte beside them too.
var edges = []uint64{
	1, 512, 1024, 4096, 256 << 10, 512 << 10, 1 * mib, 2 * mib, 5 * mib, 10 * mib, 12 * mib, 20 * mib, 21 * mib, 22 * mib,
	30 * mib, 40 * mib, 41 * mib, 60 * mib, 64 * mib, 100 * mib,
}

func randomSize(rng *rand.Rand, capacity uint64) uint64 {
	switch rng.IntN(40) {
	case 0:
		return 0
	case 1:
		return rng.Uint64N(2*capacity) + 1
	case 2:
		return 1 << (40 + rng.IntN(21))
	}
	n := edges[rng.IntN(len(edges))]
	if rng.IntN(3) > 0 {
		n = edges[rng.IntN(13)] // the smaller ones more often, so that a small device holds several
	}
	switch rng.IntN(6) {
	case 0:
		n++
	case 1:
		n--
	case 2:
		n += 512
	case 3:
		n -= min(n, 512)
	case 4:
		n = rng.Uint64N(n) + 1
	}
	return n
}

var (
	twinConfs = []string{
		"", "", "max_split_size_mb:21", "max_split_size_mb:30", "max_split_size_mb:64,max_non_split_rounding_mb:40",
		"garbage_collection_threshold:0.6", "garbage_collection_threshold:0.05", "roundup_power2_divisions:4",
		"roundup_power2_divisions:[1:2,8:8,>:2]", "max_split_size_mb:21,garbage_collection_threshold:0.3",
		"x_lookup_after_flush:True", "max_split_size_mb:-1",
	}
	twinModes     = []string{"", ",expandable_segments:True", ",expandable_segments:False"}
	twinFractions = []float64{1, 0.99, 0.7, 0.5, 0.1, 0}
	twinStreams   = []device.Stream{0, 1, 7, math.MaxInt32}
)

func twinConf(rng *rand.Rand, modes int) string {
	return strings.Trim(twinConfs[rng.IntN(len(twinConfs))]+twinModes[rng.IntN(modes)], ",")
}

// run makes random operations: how often each kind comes is itself random, so that some runs never sync or never free much.
func (w *twins) run(rng *rand.Rand, ops int) {
	w.t.Helper()
	streams := 1 + rng.IntN(len(twinStreams))
	stream := func() device.Stream { return twinStreams[rng.IntN(streams)] }
	changes := rng.IntN(3) // 0: no change of settings, 1: a few, 2: many
	weights := [12]int{40, 20 + rng.IntN(25), rng.IntN(15), rng.IntN(6), rng.IntN(3), changes, changes * rng.IntN(2), changes * rng.IntN(2)}
	if w.pools {
		weights[8], weights[9], weights[10], weights[11] = 1+rng.IntN(3), 1+rng.IntN(6), rng.IntN(3), rng.IntN(3)
	}
	most := 10 + rng.IntN(120) // live blocks; the reference takes quadratic time
	sum := 0
	for _, v := range weights {
		sum += v
	}
	for range ops {
		kind, left := 0, rng.IntN(sum)
		for left >= weights[kind] {
			left -= weights[kind]
			kind++
		}
		if len(w.live) == 0 && (kind == 1 || kind == 2) || kind == 0 && len(w.live) >= most {
			continue
		}
		switch kind {
		case 0:
			w.alloc(randomSize(rng, w.capacity), stream())
		case 1:
			w.free(rng.IntN(len(w.live)))
		case 2:
			w.record(rng.IntN(len(w.live)), stream())
		case 3:
			if rng.IntN(3) == 0 {
				w.sync(-1)
			} else {
				w.sync(stream())
			}
		case 4:
			w.emptyCache()
		case 5:
			w.configure(twinConf(rng, 3))
		case 6:
			w.setFraction(twinFractions[rng.IntN(len(twinFractions))])
		case 7:
			w.setForeign(rng.Uint64N(w.capacity/(2*mib)) * 2 * mib)
		case 8:
			w.randomBegin(rng, stream)
		case 9:
			if n := len(w.r.Open()); n > 0 {
				w.endPool(w.r.Open()[rng.IntN(n)].Pool)
			}
		case 10:
			w.randomRelease(rng)
		case 11:
			if w.known > 0 {
				w.emptyPool(1 + allocators.PoolID(rng.IntN(int(w.known))))
			}
		}
		w.counts["op"]++
	}
}

// randomBegin opens a new pool or one that is in use.
func (w *twins) randomBegin(rng *rand.Rand, stream func() device.Stream) {
	r := allocators.Redirection{Pool: w.known + 1, Stream: allocators.AnyStream, Capture: rng.IntN(2) == 0}
	if rng.IntN(2) == 0 {
		r.Stream = stream()
	}
	if id := 1 + allocators.PoolID(rng.IntN(int(w.known)+2)); id <= w.known {
		r.Pool = id
	}
	if w.r.Uses(r.Pool) == 0 && r.Pool <= w.known || w.isOpen(r.Pool) {
		return // released, or open
	}
	w.known = max(w.known, r.Pool)
	w.counts["pool"]++
	w.beginPool(r)
}

func (w *twins) isOpen(id allocators.PoolID) bool {
	return slices.ContainsFunc(w.r.Open(), func(o allocators.Redirection) bool { return o.Pool == id })
}

func (w *twins) randomRelease(rng *rand.Rand) {
	if w.known == 0 {
		return
	}
	id := 1 + allocators.PoolID(rng.IntN(int(w.known)))
	if n := w.r.Uses(id); n > 1 || n == 1 && !w.isOpen(id) {
		w.releasePool(id)
	}
}

// closePools ends and releases all.
func (w *twins) closePools() {
	for len(w.r.Open()) > 0 {
		w.endPool(w.r.Open()[0].Pool)
	}
	for id := range w.known {
		for w.r.Uses(id+1) > 0 {
			w.releasePool(id + 1)
		}
	}
}

// TestPoolTwins compares with the reference where private pools come and go, under the rules of every version that differ in them.
func TestPoolTwins(t *testing.T) {
	t.Parallel()
	sum := map[string]int{}
	for i := range 120 {
		rng := rand.New(rand.NewPCG(20260202, uint64(i)))
		capacity := uint64(20+rng.IntN(150)) * 2 * mib
		rules := RuleVersions()[i%len(RuleVersions())]
		set, _, err := ParseSettings(strings.Trim("x_rules:"+rules+","+twinConf(rng, 2), ","))
		require.NoError(t, err)
		w := newTwins(t, fmt.Sprintf("run %d", i), capacity, set)
		w.pools = true
		w.run(rng, 400)
		w.closePools()
		for len(w.live) > 0 {
			w.free(0)
		}
		w.emptyCache()
		require.Zero(t, w.r.Reserved(), w.name)
		require.Empty(t, w.a.deferred)
		for _, p := range w.a.privates {
			require.Zero(t, p.uses)
			require.Positive(t, p.segments, "%s: a pool without a segment is forgotten", w.name)
		}
		for k, n := range w.counts {
			sum[k] += n
		}
	}
	t.Logf("%v", sum)
	for _, kind := range []string{"oom", "malloc", "free", "map", "unmap", "pool", "deferred", "held-flush"} {
		require.Greater(t, sum[kind], 100, "%s is too rare for the comparison to mean much", kind)
	}
}

// TestTwins compares with the reference after every one of 200,000 random operations.
func TestTwins(t *testing.T) {
	t.Parallel()
	const workers, runs, ops = 4, 100, 580
	seed := uint64(20260101)
	t.Logf("seed %d", seed)
	totals := make([]map[string]int, workers)
	t.Run("workers", func(t *testing.T) {
		for worker := range workers {
			t.Run(fmt.Sprint(worker), func(t *testing.T) {
				t.Parallel()
				total := map[string]int{}
				totals[worker] = total
				for i := range runs {
					rng := rand.New(rand.NewPCG(seed, uint64(worker*runs+i)))
					capacity := uint64(1+rng.IntN(150)) * 2 * mib
					set, _, err := ParseSettings(twinConf(rng, 2))
					require.NoError(t, err)
					if rng.IntN(3) == 0 {
						set.HasFraction, set.Fraction = true, twinFractions[rng.IntN(len(twinFractions))]
					}
					w := newTwins(t, fmt.Sprintf("worker %d, run %d", worker, i), capacity, set)
					w.run(rng, ops)
					for len(w.live) > 0 {
						w.free(0)
					}
					w.emptyCache()
					for k, n := range w.counts {
						total[k] += n
					}
				}
			})
		}
	})
	sum := map[string]int{}
	for _, m := range totals {
		for k, n := range m {
			sum[k] += n
		}
	}
	t.Logf("%v", sum)
	require.GreaterOrEqual(t, sum["op"], 200_000)
	for _, kind := range []string{"oom", "malloc", "mallocfail", "free", "reserve", "unreserve", "map", "unmap", "createfail"} {
		require.Greater(t, sum[kind], 1000, "%s is too rare for the comparison to mean much", kind)
	}
}
