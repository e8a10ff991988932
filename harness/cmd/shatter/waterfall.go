package main

import (
	"context"
	"slices"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

// waterfallRuns is how many runs each C_safe of a waterfall may take beyond its halving (measure.Safe).
const waterfallRuns = 64

type waterfallKey struct{ workload, target string }

// medianRun is a sequence on an allocator.
type medianRun struct {
	s *results.Sequence
	r *results.Run
}

// waterfalls takes apart the trace with the median kappa of each workload on each caching allocator; the lower middle one of an
// even number, as for quantiles. When the context ends, what is missing is left out.
func waterfalls(ctx context.Context, sequences []*results.Sequence, newDevice measure.NewDevice) ([]reports.Waterfall, error) {
	var order []waterfallKey
	seen := map[waterfallKey][]medianRun{}
	for _, s := range sequences {
		for i := range s.Runs {
			r := &s.Runs[i]
			if r.Measures == nil {
				continue
			}
			k := waterfallKey{s.Workload, r.Target}
			if seen[k] == nil {
				order = append(order, k)
			}
			seen[k] = append(seen[k], medianRun{s, r})
		}
	}
	out := []reports.Waterfall{}
	for _, k := range order {
		list := seen[k]
		slices.SortStableFunc(list, func(a, b medianRun) int {
			switch x, y := a.r.Measures.Kappa, b.r.Measures.Kappa; {
			case x < y:
				return -1
			case x > y:
				return 1
			}
			return 0
		})
		m := list[(len(list)-1)/2]
		spec, err := catalog.Parse(m.r.Allocator)
		if err != nil || spec.Settings == nil {
			continue
		}
		t, err := m.s.Made()
		if err != nil {
			return out, err
		}
		w, err := measure.WaterfallOf(ctx, t, *spec.Settings, newDevice, waterfallRuns)
		if ctx.Err() != nil {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, reports.Waterfall{Workload: k.workload, Allocator: m.r.Allocator, Trace: t.Name, Waterfall: w})
	}
	return out, nil
}
