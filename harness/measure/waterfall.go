package measure

import (
	"context"
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Step is a part of C_safe, in bytes; negative if the rule saves memory here.
type Step struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"`
}

// Waterfall says what C_safe is made of: L*, then what each rule of the allocator adds. Its parts add up to C_safe exactly.
type Waterfall struct {
	PeakLive uint64 `json:"peak_live"` // L*
	// Steps are rounding, purchase size, pools, streams, pins, in this order.
	Steps []Step `json:"steps"`
	Safe  uint64 `json:"safe"` // C_safe
	// Exact says that every C_safe in it is; else those that are not are lower bounds.
	Exact bool `json:"exact"`
}

// WaterfallOf takes C_safe apart by switching rules of the caching allocator off, one after the other in this order and none on
// again: streams (everything runs on stream 0 and nothing is recorded), pools (all sizes from one pool), purchase size (no more
// is bought than was asked for, in pages of 2 MiB). A step is what C_safe falls by. Rounding is by how much the peak of
// live bytes in rounded sizes exceeds L*, and pins is what is then left: holes between live blocks, and settings. Another order
// would give other parts: what two rules cost together goes to the one that is switched off first. budget is as in Safe.
func WaterfallOf(ctx context.Context, t *trace.Trace, set caching.Settings, newDevice NewDevice, budget int) (*Waterfall, error) {
	w := &Waterfall{Exact: true}
	w.PeakLive, _ = PeakLive(t)
	safe := func(t *trace.Trace, set caching.Settings) (int64, error) {
		target := executor.Target{Name: "waterfall", New: func(d device.Device) (allocators.Allocator, error) { return caching.New(d, set) }}
		s, err := Safe(ctx, executor.Compile(t), target, newDevice, budget)
		w.Exact = w.Exact && s.Exact
		return int64(s.Bytes), err
	}
	full, err := safe(t, set)
	if err != nil {
		return nil, err
	}
	w.Safe = uint64(full)
	alone := oneStream(t)
	one, err := safe(alone, set)
	if err != nil {
		return nil, err
	}
	set.Rules.OnePool = true
	pooled, err := safe(alone, set)
	if err != nil {
		return nil, err
	}
	set.Rules.ExactPurchase = true
	bought, err := safe(alone, set)
	if err != nil {
		return nil, err
	}
	rounded := int64(peakRounded(t, set.Round))
	w.Steps = []Step{
		{"rounding", rounded - int64(w.PeakLive)}, {"purchase size", pooled - bought}, {"pools", one - pooled},
		{"streams", full - one}, {"pins", bought - rounded},
	}
	return w, nil
}

// oneStream is the trace with all work on stream 0.
func oneStream(t *trace.Trace) *trace.Trace {
	out := &trace.Trace{Name: t.Name, Header: t.Header}
	for _, op := range t.Ops {
		switch op.Kind {
		case trace.Record, trace.Sync:
			continue
		case trace.Alloc:
			op.Stream = 0
		}
		out.Ops = append(out.Ops, op)
	}
	return out
}

// peakRounded is the peak of live bytes, each request rounded.
func peakRounded(t *trace.Trace, round func(uint64) uint64) uint64 {
	rounded := &trace.Trace{}
	for _, op := range t.Ops {
		if op.Kind == trace.Alloc && op.Bytes > 0 {
			op.Bytes = round(op.Bytes)
		}
		rounded.Ops = append(rounded.Ops, op)
	}
	peak, _ := PeakLive(rounded)
	return peak
}

// Format writes the waterfall on one line, sizes by size: L* 40 GiB + rounding 1 GiB - pools 2 MiB ... = 41 GiB.
func (w *Waterfall) Format(size func(uint64) string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "L* %s", size(w.PeakLive))
	for _, step := range w.Steps {
		sign, n := "+", step.Bytes
		if n < 0 {
			sign, n = "-", -n
		}
		fmt.Fprintf(&s, " %s %s %s", sign, step.Name, size(uint64(n)))
	}
	about := "="
	if !w.Exact {
		about = ">="
	}
	fmt.Fprintf(&s, " %s %s", about, size(w.Safe))
	return s.String()
}
