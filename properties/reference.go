package properties

import (
	"errors"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/reference"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// referenceOps is how much of a campaign's trace the reference is asked about: it looks at all blocks at each step.
const referenceOps = 300

// AgreesWithReference holds every decision of the caching allocator against a second one, written from the specification by brute
// force. It sees what breaks no promise and no invariant: another segment bought, another block released.
var AgreesWithReference = executor.Relation{
	ID: "agrees-with-reference",
	Claim: "Every block, segment, refusal and statistic of the caching allocator is the one that a brute-force allocator written from the " +
		"specification has.",
	Source: "specification 6 to 20",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		t := c.Trace
		if c.Explore {
			t = t.First(referenceOps)
		}
		if begun(t) {
			return nil, nil // the reference begins with an empty device
		}
		// The reference counts on a device of its own, with ascending addresses.
		dev, err := simdev.New(simdev.Options{Capacity: c.Capacity})
		if err != nil {
			return nil, err
		}
		var w *twin
		_, err = executor.Execute(executor.Compile(t), executor.Target{Name: c.Target.Name, New: func(d device.Device) (allocators.Allocator, error) {
			made, err := c.Target.New(d)
			if err != nil {
				return nil, err
			}
			a, ok := made.(*caching.Allocator)
			if !ok || a.Settings().Rules != caching.DefaultSettings().Rules {
				return nil, errNoReference
			}
			w = newTwin(a, c.Capacity)
			return w, nil
		}}, executor.Options{Device: dev, OnRow: func(row *executor.Row) { w.row(t, row) }})
		if errors.Is(err, errNoReference) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return w.broken, nil
	},
}

var errNoReference = errors.New("there is no reference for this allocator")

// twin makes each call on both allocators.
type twin struct {
	*caching.Allocator
	r      *reference.Allocator
	set    caching.Settings
	blocks map[device.Addr]*reference.Block
	broken *executor.Violation
	a, b   allocators.Snapshot
}

func newTwin(a *caching.Allocator, capacity uint64) *twin {
	set := a.Settings()
	w := &twin{Allocator: a, r: reference.New(capacity, referenceSettings(set)), set: set, blocks: map[device.Addr]*reference.Block{}}
	if set.HasFraction {
		w.r.SetFraction(set.Fraction)
	}
	return w
}

func (w *twin) breaks(rule, format string, args ...any) {
	if w.broken == nil {
		w.broken = executor.Broken(rule, format, args...)
	}
}

func (w *twin) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	got, err := w.Allocator.Alloc(n, s)
	if w.broken != nil || n == 0 {
		return got, err
	}
	want := w.r.Alloc(n, s)
	switch {
	case want == nil && err == nil:
		w.breaks("served", "%d bytes were served, the reference refuses them", n)
	case want != nil && err != nil:
		w.breaks("refused", "%d bytes were refused, the reference serves them: %v", n, err)
	case want == nil:
		var oom *allocators.OOMError
		if expect := w.r.Refusal(n, s); !errors.As(err, &oom) || *oom != expect {
			w.breaks("refusal", "the refusal of %d bytes says %v, by the reference %v", n, err, &expect)
		}
	case got.Addr != want.Addr() || got.Size != want.Size():
		w.breaks("block", "%d bytes were served by a block of %d at %#x, the reference has one of %d at %#x",
			n, got.Size, uint64(got.Addr), want.Size(), uint64(want.Addr()))
	default:
		w.blocks[got.Addr] = want
	}
	return got, err
}

func (w *twin) Free(addr device.Addr) error {
	err := w.Allocator.Free(addr)
	if w.broken == nil {
		w.r.Free(w.blocks[addr])
		delete(w.blocks, addr)
	}
	return err
}

func (w *twin) Record(addr device.Addr, s device.Stream) error {
	if w.broken == nil {
		w.r.Record(w.blocks[addr], s)
	}
	return w.Allocator.Record(addr, s)
}

func (w *twin) EmptyCache() error {
	if w.broken == nil {
		w.r.EmptyCache()
	}
	return w.Allocator.EmptyCache()
}

func (w *twin) BeginPool(r allocators.Redirection) error {
	w.r.BeginPool(r)
	return w.Allocator.BeginPool(r)
}

func (w *twin) EndPool(id allocators.PoolID) error {
	w.r.EndPool(id)
	return w.Allocator.EndPool(id)
}

func (w *twin) ReleasePool(id allocators.PoolID) error {
	w.r.ReleasePool(id)
	return w.Allocator.ReleasePool(id)
}

func (w *twin) EmptyPool(id allocators.PoolID) error {
	w.r.EmptyPool(id)
	return w.Allocator.EmptyPool(id)
}

func (w *twin) Configure(conf string) error {
	next, _, err := w.set.Apply(conf)
	if err == nil {
		w.set = next
		w.r.Set = referenceSettings(next)
	}
	return w.Allocator.Configure(conf)
}

func (w *twin) SetFraction(f float64) error {
	w.r.SetFraction(f)
	return w.Allocator.SetFraction(f)
}

// row is called behind every operation.
func (w *twin) row(t *trace.Trace, row *executor.Row) {
	if w.broken != nil {
		return
	}
	op := &t.Ops[row.Op]
	switch {
	case row.Kind == trace.Sync:
		w.r.Sync(op.Stream)
	case row.Kind == trace.Foreign && row.Outcome == executor.OK:
		w.r.Foreign = op.Bytes
	}
	if got, want := row.DeviceFree, w.r.DeviceFree(); got != want {
		w.breaks("device_free", "after operation %d (%s) device_free is %d, the reference has %d", row.Op, op, got, want)
		return
	}
	w.Snapshot(&w.a)
	w.r.Snapshot(&w.b)
	for i := range min(len(w.a.Segments), len(w.b.Segments)) {
		if g, h := w.a.Segments[i], w.b.Segments[i]; g != h {
			w.breaks("segment", "after operation %d (%s) segment %d is %+v, the reference has %+v", row.Op, op, i, g, h)
			return
		}
	}
	if len(w.a.Segments) != len(w.b.Segments) {
		w.breaks("segments", "after operation %d (%s) there are %d segments, the reference has %d", row.Op, op, len(w.a.Segments), len(w.b.Segments))
		return
	}
	for i := range min(len(w.a.Blocks), len(w.b.Blocks)) {
		g, h := w.a.Blocks[i], w.b.Blocks[i]
		if g.State == allocators.Free || g.State == allocators.Unmapped {
			g.Requested = 0
		}
		if g != h {
			w.breaks("blocks", "after operation %d (%s) block %d is %+v, the reference has %+v", row.Op, op, i, g, h)
			return
		}
	}
	if *row.Stats == w.r.Stats {
		return
	}
	want := w.r.Stats.MemoryStats()
	for i, got := range row.Stats.MemoryStats() {
		if got != want[i] {
			name, _, _ := strings.Cut(got.Key, ".")
			w.breaks(name, "after operation %d (%s) %s is %d, the reference has %d", row.Op, op, got.Key, got.Value, want[i].Value)
			return
		}
	}
}

func referenceSettings(s caching.Settings) reference.Settings {
	return reference.Settings{
		MaxSplitSize: s.MaxSplitSize, MaxNonSplitRounding: s.MaxNonSplitRounding, GCThreshold: s.GCThreshold,
		RoundupDivisions: s.RoundupDivisions, Expandable: s.Expandable, LookupAfterFlush: s.LookupAfterFlush,
		WaitsElsewhere: s.OtherDeviceCurrent && !s.UnmapOnOwnDevice,
	}
}
