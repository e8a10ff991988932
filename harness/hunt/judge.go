package hunt

import (
	"math"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// The figures: all of them the larger the better for the hunt.
const (
	// FillSmall, FillPage and FillLarge are minus the fill at refusal of each class; minus infinity if it is not refused.
	FillSmall = iota
	FillPage
	FillLarge
	// Growth is the bytes that are held and not live, by which each repetition adds, where no single setting does.
	Growth
	// Wanted is how many figures are results; those behind it lead there.
	Wanted
	// Pinned is bytes that nobody uses and a release would not return, at the end; the next two take a few and many times the
	// live bytes off.
	Pinned = iota - 1
	PinnedFew
	PinnedMany
	// Pins counts the segments, or pages, that hold such bytes.
	Pins
	// Held is the bytes that the device cannot give, less 64 times the live ones.
	Held
	// Refused counts the refused requests, Retries and Calls are the allocator's own counts of them and of device calls.
	Refused
	Retries
	Calls
	FigureCount
)

// FigureNames are the names of the figures, for files and reports.
var FigureNames = [FigureCount]string{
	"fill-1MiB+1", "fill-20MiB", "fill-1GiB", "growth", "pinned", "pinned-few", "pinned-many", "pins", "held", "refused", "retries", "calls",
}

// Figures are what a trace came to.
type Figures [FigureCount]float64

// figures runs a trace, asks for a block of each class at its end, largest first, and then repeats it.
func (h *Hunter) figures(t *trace.Trace) (Figures, error) {
	var f Figures
	for c := range Classes {
		f[c] = math.Inf(-1)
	}
	target, err := h.cfg.Target(t)
	if err != nil {
		return f, err
	}
	r, err := h.start(executor.Compile(t), target, nil)
	if err != nil {
		return f, err
	}
	if err := all(r); err != nil {
		return f, err
	}
	held, err := measure.HeldBy(r.Allocator(), len(t.Ops))
	if err != nil {
		return f, err
	}
	alloc := r.Allocator()
	stats := alloc.(allocators.StatsReader).Stats()
	f[Refused], f[Retries], f[Calls] = float64(len(r.Result().OOMs)), float64(stats.NumAllocRetries), float64(stats.NumDeviceAlloc+stats.NumDeviceFree)
	live, pinned := float64(held.Requested), float64(held.Pinned)
	f[Pinned], f[PinnedFew], f[PinnedMany] = pinned, pinned-8*live, pinned-128*live
	f[Held] = float64(held.Reserved-held.Releasable) - 64*live
	f[Pins] = pins(alloc)
	for c := len(Classes) - 1; c >= 0; c-- {
		b, err := alloc.Alloc(Classes[c], 0)
		if err == nil {
			if err := alloc.Free(b.Addr); err != nil {
				return f, err
			}
			continue
		}
		f[Refused]++
		// Neither genuine nor by rounding: enough bytes are there even in block sizes.
		if Capacity-held.Allocated >= Classes[c]+512 {
			f[c] = -live / Capacity
		}
	}
	f[Growth], err = h.growth(t)
	return f, err
}

func (h *Hunter) start(p *executor.Program, t executor.Target, judge executor.Judge) (*executor.Run, error) {
	dev, err := h.cfg.NewDevice(Capacity)
	if err != nil {
		return nil, err
	}
	return executor.Start(p, t, executor.Options{Device: dev, Judge: judge})
}

func all(r *executor.Run) error {
	for r.More() {
		if err := r.Step(); err != nil {
			return err
		}
	}
	return nil
}

// pins counts segments and pages that hold live blocks and bytes that nobody uses.
func pins(a allocators.Allocator) float64 {
	var s allocators.Snapshot
	a.(allocators.Snapshotter).Snapshot(&s)
	n := 0
	for i := range s.Segments {
		idle, live := false, 0
		for _, b := range s.BlocksOf(i) {
			idle = idle || b.State == allocators.Free
			if b.State == allocators.Live {
				live++
			}
		}
		switch {
		case !idle || live == 0:
		case s.Segments[i].Expandable:
			n += live
		default:
			n++
		}
	}
	return float64(n)
}

// cycle is how many operations of a trace are repeated for growth, repeats how often.
const (
	cycle   = 16
	repeats = 6
)

// growth repeats the first operations of a trace and returns by how much what is held and not live rises from one repetition to
// the next, over the last half of them; 0 if it also rises with one of the settings alone, or if there are no settings.
func (h *Hunter) growth(t *trace.Trace) (float64, error) {
	conf, _ := t.Settings()
	if h.cfg.Alone == nil || len(h.cfg.Alone(conf)) == 0 {
		return 0, nil
	}
	repeated := repeat(t, min(cycle, len(t.Ops)), repeats)
	g, err := h.rise(repeated, conf)
	if err != nil || g <= 0 {
		return 0, err
	}
	for _, one := range h.cfg.Alone(conf) {
		n, err := h.rise(repeated, one)
		if err != nil {
			return 0, err
		}
		g -= 2 * max(n, 0)
	}
	return max(g, 0), nil
}

// rise is the bytes of growth under a settings string.
func (h *Hunter) rise(t *trace.Trace, conf string) (float64, error) {
	t = &trace.Trace{Ops: t.Ops, Header: []trace.Field{{Key: trace.KeyConf, Value: conf}}}
	target, err := h.cfg.Target(t)
	if err != nil {
		return 0, err
	}
	r, err := h.start(executor.Compile(t), target, nil)
	if err != nil {
		return 0, err
	}
	var at [repeats + 1]float64
	stats := r.Allocator().(allocators.StatsReader).Stats()
	n := len(t.Ops) / repeats
	for i := 1; i <= repeats; i++ {
		for range n {
			if err := r.Step(); err != nil {
				return 0, err
			}
		}
		if len(r.Result().OOMs) > 0 {
			return 0, nil // what is refused does not grow
		}
		at[i] = float64(stats.ReservedBytes.All.Current) - float64(stats.AllocatedBytes.All.Current)
	}
	return (at[repeats] - at[repeats/2]) / (repeats - repeats/2), nil
}

// repeat makes a trace of the first n operations, several times; what is live at the end of a repetition stays.
func repeat(t *trace.Trace, n, times int) *trace.Trace {
	out := &trace.Trace{Header: t.Header}
	for k := range uint64(times) {
		for _, op := range t.Ops[:n] {
			if op.Kind <= trace.Record {
				op.ID += k << 32
			}
			out.Ops = append(out.Ops, op)
		}
	}
	return out
}

// With is a trace with the request of a class at its end, on the hunt's device.
func With(t *trace.Trace, class int) *trace.Trace {
	out := &trace.Trace{Header: t.Header, Ops: append(t.Ops[:len(t.Ops):len(t.Ops)], trace.Op{Kind: trace.Alloc, ID: newID(t.Ops), Bytes: Classes[class]})}
	out.Set(trace.KeyCapacity, strconv.Itoa(Capacity))
	return out
}

// confirmed judges the refusal of a class at the end of a trace.
func (h *Hunter) confirmed(t *trace.Trace, class int) (bool, error) {
	fill, err := Fill(With(t, class), h.cfg.Target, h.cfg.NewDevice, h.cfg.NewJudge())
	return fill <= 1, err
}

// Fill runs a trace with a judge and returns the live bytes by the capacity at its last operation, if that is refused by policy or
// fragmentation; infinity if not.
func Fill(t *trace.Trace, make func(*trace.Trace) (executor.Target, error), newDevice measure.NewDevice, judge executor.Judge) (float64, error) {
	target, err := make(t)
	if err != nil {
		return 0, err
	}
	dev, err := newDevice(Capacity)
	if err != nil {
		return 0, err
	}
	r, err := executor.Start(executor.Compile(t), target, executor.Options{Device: dev, Judge: judge})
	if err != nil {
		return 0, err
	}
	if err := all(r); err != nil {
		return 0, err
	}
	list := r.Result().Judgements
	if len(list) == 0 {
		return math.Inf(1), nil
	}
	j := &list[len(list)-1]
	if j.Op != len(t.Ops)-1 || j.Verdict != executor.Policy && j.Verdict != executor.Fragmentation {
		return math.Inf(1), nil
	}
	return float64(j.LiveRequested) / Capacity, nil
}
