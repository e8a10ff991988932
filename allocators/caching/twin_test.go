package caching

import (
	"errors"
	"fmt"
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
		WaitsElsewhere: s.waitsElsewhere(0),
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
	if *s != r.Stats || w.a.reserved != r.Reserved() {
		w.fail("statistics: want %+v, reserved %d\ngot %+v, reserved %d", r.Stats, r.Reserved(), *s, w.a.reserved)
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
