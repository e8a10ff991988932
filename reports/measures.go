package reports

import (
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// The measures of a distribution workload.
const (
	Kappa = iota
	Lost
	IdleCacheAtPeak
	PinnedAtPeak
	MeanIdleCache
	BoughtPerAllocated
	DeviceCalls
	measureCount
)

func taken(of func(*results.Measures) float64) func(*results.Sequence, *results.Run) (float64, bool) {
	return func(_ *results.Sequence, r *results.Run) (float64, bool) {
		if r.Measures == nil {
			return 0, false
		}
		return of(r.Measures), true
	}
}

// counted is taken for figures that need the allocator's statistics, listed for those that need a list of its blocks.
func counted(of func(*measure.Profile) float64) func(*results.Sequence, *results.Run) (float64, bool) {
	return func(_ *results.Sequence, r *results.Run) (float64, bool) {
		if r.Measures == nil || r.Measures.Profile.Uncounted {
			return 0, false
		}
		return of(&r.Measures.Profile), true
	}
}

func listed(of func(*measure.Profile) float64) func(*results.Sequence, *results.Run) (float64, bool) {
	return func(s *results.Sequence, r *results.Run) (float64, bool) {
		v, ok := counted(of)(s, r)
		return v, ok && !r.Measures.Profile.Peak.Unlisted
	}
}

// Measures names them, with a sentence each on what they say.
var Measures = [measureCount]struct {
	stats.Measure
	Says string
	// Of takes it from a run; ok is false where it was not taken.
	Of func(*results.Sequence, *results.Run) (v float64, ok bool)
}{
	Kappa: {stats.Measure{Name: "kappa", Unit: "1"},
		"C_safe / L*: the capacity from which on the trace passes, by the peak of live bytes; 1 is no loss",
		taken(func(m *results.Measures) float64 { return m.Kappa })},
	Lost: {stats.Measure{Name: "lost", Unit: "bytes"},
		"C_safe - L*: memory that the allocator needs beyond what is live",
		taken(func(m *results.Measures) float64 { return float64(m.Lost) })},
	IdleCacheAtPeak: {stats.Measure{Name: "idle_cache_at_peak", Unit: "1"},
		"(reserved - allocated) / reserved at the peak of live bytes; it counts cache that a release returns: not fragmentation",
		counted(func(p *measure.Profile) float64 { return p.Peak.IdleCache() })},
	PinnedAtPeak: {stats.Measure{Name: "pinned_at_peak", Unit: "bytes"},
		"reserved and used by nobody, but kept by live blocks in the same segment or page, at the peak of live bytes",
		listed(func(p *measure.Profile) float64 { return float64(p.Peak.Pinned) })},
	MeanIdleCache: {stats.Measure{Name: "mean_idle_cache", Unit: "1"},
		"idle by reserved bytes, summed over all operations",
		counted(func(p *measure.Profile) float64 { return p.MeanIdleCache })},
	BoughtPerAllocated: {stats.Measure{Name: "bought_per_allocated", Unit: "1"},
		"bytes bought or mapped by bytes handed out, at the trace's own capacity: what the cache did not save",
		func(_ *results.Sequence, r *results.Run) (float64, bool) {
			return float64(r.Bought) / float64(max(r.Allocated, 1)), r.Measures != nil && r.Allocated > 0
		}},
	DeviceCalls: {stats.Measure{Name: "device_calls", Unit: "1"},
		"calls to buy, map or return memory, by 1,000 operations, at the trace's own capacity",
		func(_ *results.Sequence, r *results.Run) (float64, bool) {
			return 1000 * float64(r.MemoryCalls) / float64(max(r.Ops, 1)), r.Measures != nil && r.Ops > 0
		}},
}
