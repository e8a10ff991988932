package panel

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Setting is one that people use. Conf is PyTorch's settings string; Expandable says that it is the choice of segment source.
type Setting struct {
	Name, Conf string
	Expandable bool
}

// Settings are those of PyTorch's documentation (notes on CUDA, memory management) at the values that guides recommend.
var Settings = []Setting{
	{"expandable", "", true},
	{"max_split 128", "max_split_size_mb:128", false},
	{"gc 0.8", "garbage_collection_threshold:0.8,x_memory_fraction:1.0", false},
	{"roundup 4", "roundup_power2_divisions:4", false},
	{"non_split_rounding 200", "max_non_split_rounding_mb:200", false},
	{"fraction 0.9", "x_memory_fraction:0.9", false},
}

// Name is the allocator with some settings: classic or expandable, @ and what they set. The second fraction counts.
func Name(settings ...Setting) string {
	base := "classic"
	var confs []string
	for _, s := range settings {
		if s.Expandable {
			base = "expandable"
		} else {
			confs = append(confs, s.Conf)
		}
	}
	if len(confs) > 0 {
		base += "@" + strings.Join(confs, ",")
	}
	return base
}

// Harm is what a pair of settings does to a trace that neither does alone.
type Harm uint8

const (
	Safe Harm = iota
	// Grows: on a device that refuses nothing it holds half as much again as the worst of neither, the one and the other, and
	// 64 MiB at least.
	Grows
	// Refuses: it refuses a request on a device with a tenth more than what the other three hold, on which they pass.
	Refuses
	// Thrashes: at that capacity it makes three times as many device calls as the worst of them, and 100 at least.
	Thrashes
)

// String returns safe, grows, refuses or thrashes.
func (h Harm) String() string { return [...]string{"safe", "grows", "refuses", "thrashes"}[h] }

// Case is a trace that shows harm.
type Case struct {
	Harm  Harm
	Trace *trace.Trace
	// Capacity is the device's bytes (Refuses, Thrashes).
	Capacity uint64
	// Pair is the figure of the pair, Others the worst of the other three: bytes held (Grows), device calls (Thrashes), the
	// refused operation (Refuses; Others is 0).
	Pair, Others uint64
}

// Pair is two settings and the shortest harmful trace of each kind; none means that they were safe on all traces that ran.
type Pair struct {
	A, B   string
	Name   string // of the allocator with both
	Traces int
	Cases  [Thrashes + 1]*Case
}

// target makes a target by name.
type target func(name string) (executor.Target, error)

// Map compares every pair of settings with each of the two and with neither, on all traces. Refusals of neither and of single
// settings are no harm of a pair. Workers share the traces; the shortest cases win, whatever the order.
func Map(ctx context.Context, traces []*trace.Trace, settings []Setting, make target, newDevice measure.NewDevice, workers int) ([]Pair, error) {
	var pairs []Pair
	for i := range settings {
		for k := i + 1; k < len(settings); k++ {
			pairs = append(pairs, Pair{A: settings[i].Name, B: settings[k].Name, Name: Name(settings[i], settings[k])})
		}
	}
	m := &mapper{make: make, newDevice: newDevice}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := 0
	for range max(workers, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				if n >= len(traces) || ctx.Err() != nil {
					return
				}
				found, err := m.all(traces[n], settings, pairs)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				for i, cases := range found {
					pairs[i].Traces++
					for h, c := range cases {
						if c != nil && (pairs[i].Cases[h] == nil || shorter(c.Trace, pairs[i].Cases[h].Trace)) {
							pairs[i].Cases[h] = c
						}
					}
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return pairs, context.Cause(ctx)
}

// shorter orders by operations, then by bytes, then by text.
func shorter(a, b *trace.Trace) bool {
	if len(a.Ops) != len(b.Ops) {
		return len(a.Ops) < len(b.Ops)
	}
	x, y := bytesOf(a), bytesOf(b)
	if x != y {
		return x < y
	}
	return a.ID() < b.ID()
}

func bytesOf(t *trace.Trace) (sum uint64) {
	for i := range t.Ops {
		sum += t.Ops[i].Bytes
	}
	return sum
}

type mapper struct {
	make      target
	newDevice measure.NewDevice
}

// ran is what a run came to.
type ran struct {
	reserved uint64 // at most
	calls    uint64 // device calls that take or give memory
	oom      int    // -1 for none
}

func (m *mapper) run(p *executor.Program, name string, capacity uint64) (ran, error) {
	t, err := m.make(name)
	if err != nil {
		return ran{}, err
	}
	dev, err := m.newDevice(capacity)
	if err != nil {
		return ran{}, err
	}
	res, err := executor.Execute(p, t, executor.Options{Device: dev})
	if err != nil {
		return ran{}, err
	}
	r := ran{reserved: res.PeakReserved, calls: res.Stats.NumDeviceAlloc + res.Stats.NumDeviceFree, oom: -1}
	if len(res.OOMs) > 0 {
		r.oom = res.OOMs[0]
	}
	return r, nil
}

// all runs a trace with none of the settings, each and each pair.
func (m *mapper) all(t *trace.Trace, settings []Setting, pairs []Pair) ([][Thrashes + 1]*Case, error) {
	p := executor.Compile(t)
	names := []string{Name()}
	for _, s := range settings {
		names = append(names, Name(s))
	}
	free := make([]ran, len(names))
	var err error
	for i, name := range names {
		if free[i], err = m.run(p, name, measure.Unbounded); err != nil {
			return nil, err
		}
	}
	out := make([][Thrashes + 1]*Case, len(pairs))
	n := 0
	for i := 1; i < len(names); i++ {
		for k := i + 1; k < len(names); k++ {
			three := []int{0, i, k}
			var worst uint64
			for _, x := range three {
				worst = max(worst, free[x].reserved)
			}
			both, err := m.run(p, pairs[n].Name, measure.Unbounded)
			if err != nil {
				return nil, err
			}
			if both.reserved > worst+worst/2 && both.reserved > worst+64<<20 {
				out[n][Grows] = &Case{Harm: Grows, Trace: t, Pair: both.reserved, Others: worst}
			}
			if err := m.tight(p, pairs[n].Name, []string{names[0], names[i], names[k]}, worst, &out[n]); err != nil {
				return nil, err
			}
			n++
		}
	}
	return out, nil
}

// tight runs the pair and the three others on a device that has a tenth and 40 MiB more than the three would hold if they were
// refused nothing, and if they do not pass there, a twelfth more each time.
func (m *mapper) tight(p *executor.Program, pair string, three []string, worst uint64, out *[Thrashes + 1]*Case) error {
	capacity := (worst + worst/10 + 40<<20) >> 21 << 21
	for range 4 {
		passes, calls := true, uint64(0)
		for _, name := range three {
			r, err := m.run(p, name, capacity)
			if err != nil {
				return err
			}
			passes, calls = passes && r.oom < 0, max(calls, r.calls)
		}
		if !passes {
			capacity = (capacity + capacity/12 + 2<<20) >> 21 << 21
			continue
		}
		r, err := m.run(p, pair, capacity)
		if err != nil {
			return err
		}
		if r.oom >= 0 {
			out[Refuses] = &Case{Harm: Refuses, Trace: p.Trace, Capacity: capacity, Pair: uint64(r.oom)}
		} else if r.calls > 3*calls && r.calls > calls+100 {
			out[Thrashes] = &Case{Harm: Thrashes, Trace: p.Trace, Capacity: capacity, Pair: r.calls, Others: calls}
		}
		return nil
	}
	return nil
}

// CycleSizes are sizes around those that the settings speak of, in bytes: they share a segment, have their own, lie below
// max_split_size_mb:128 but not two together, and above it.
var CycleSizes = []uint64{2 << 20, 12 << 20, 45<<20 + 512<<10, 91 << 20, 150 << 20}

// CycleRepeats is how often the cycles of the map are repeated: enough that growth by a block a cycle shows.
const CycleRepeats = 24

// Cycles are all traces of a small scope that repeat: a cycle allocates up to most blocks of the sizes and then frees, in the same
// order, all but at most one of them. Every cycle is repeated as often.
func Cycles(sizes []uint64, most, repeats int) []*trace.Trace {
	var out []*trace.Trace
	var build func(blocks []uint64)
	build = func(blocks []uint64) {
		if len(blocks) > 0 {
			for keep := -1; keep < len(blocks); keep++ {
				out = append(out, cycle(blocks, keep, repeats))
			}
		}
		if len(blocks) < most {
			for _, s := range sizes {
				build(append(blocks[:len(blocks):len(blocks)], s))
			}
		}
	}
	build(nil)
	return out
}

func cycle(blocks []uint64, keep, repeats int) *trace.Trace {
	t := &trace.Trace{Name: fmt.Sprintf("cycle of %d, %d times", len(blocks), repeats)}
	id := uint64(0)
	for range repeats {
		first := id
		for _, s := range blocks {
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: s})
			id++
		}
		for i := range blocks {
			if i != keep {
				t.Ops = append(t.Ops, trace.Op{Kind: trace.Free, ID: first + uint64(i)})
			}
		}
	}
	return t
}
