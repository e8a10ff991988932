package main

import (
	"context"
	"slices"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// waterfallRuns is how many runs each C_safe of a waterfall may take beyond its halving (measure.Safe).
const waterfallRuns = 64

// medians remembers the kappa of each trace, so that the trace with the median one can be taken apart.
type medians struct {
	order []medianKey
	seen  map[medianKey][]medianTrace
}

type medianKey struct{ workload, target string }

type medianTrace struct {
	kappa     float64
	trace     *trace.Trace
	allocator string
}

func (m *medians) add(s *campaign.Sequence) {
	for _, r := range s.Runs {
		if r.Spectrum == nil {
			continue
		}
		if m.seen == nil {
			m.seen = map[medianKey][]medianTrace{}
		}
		k := medianKey{s.Workload, r.Target}
		if m.seen[k] == nil {
			m.order = append(m.order, k)
		}
		m.seen[k] = append(m.seen[k], medianTrace{r.Spectrum.Kappa(), s.Trace, r.Allocator})
	}
}

// waterfalls takes apart the median trace of each workload on each caching allocator; the lower middle one of an even number, as
// for quantiles. When the context ends, what is missing is left out.
func (m *medians) waterfalls(ctx context.Context, newDevice measure.NewDevice) ([]reports.Waterfall, error) {
	out := []reports.Waterfall{}
	for _, k := range m.order {
		list := m.seen[k]
		slices.SortStableFunc(list, func(a, b medianTrace) int {
			switch {
			case a.kappa < b.kappa:
				return -1
			case a.kappa > b.kappa:
				return 1
			}
			return 0
		})
		t := list[(len(list)-1)/2]
		s, err := catalog.Parse(t.allocator)
		if err != nil || s.Settings == nil {
			continue
		}
		w, err := measure.WaterfallOf(ctx, t.trace, *s.Settings, newDevice, waterfallRuns)
		if ctx.Err() != nil {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, reports.Waterfall{Workload: k.workload, Allocator: t.allocator, Trace: t.trace.Name, Waterfall: w})
	}
	return out, nil
}
