package whatif

import (
	"cmp"
	"context"
	"slices"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Change is a change to the program's code, replayed.
type Change struct {
	Site string `json:"site"`
	// What was changed: own-pool, up-front or freed-early.
	What string `json:"what"`
	// Saved is by how many bytes C_safe falls; Need is what it falls to.
	Saved uint64 `json:"saved"`
	Need  Need   `json:"need"`
	// Passes says that the trace passes at the case's capacity then; meaningless if that is not known.
	Passes bool `json:"passes"`
}

// ChangeMeaning says what each change is.
var ChangeMeaning = map[string]string{
	"own-pool":    "allocate its blocks in a pool of their own (torch.cuda.MemPool)",
	"up-front":    "allocate its blocks before the first step",
	"freed-early": "free its blocks at the end of the phase before",
}

// maxSites is how many pinning call sites are tried.
const maxSites = 5

// FindChanges replays changes for the call sites that pin most at a moment. When ctx ends, what was not replayed is counted.
func FindChanges(ctx context.Context, c *Case, m *Moment) (list []Change, unevaluated int, err error) {
	base, err := FindNeed(ctx, c.program(), c.Target, c.NewDevice, SureOps)
	if err != nil || ctx.Err() != nil {
		return nil, 3 * min(len(m.Pins), maxSites), err
	}
	phases := Phases(c.Trace)
	phase := 0 // the last end of a phase before the moment
	for _, p := range phases {
		if p < m.Op {
			phase = p
		}
	}
	type variant struct {
		what  string
		trace func() *trace.Trace
	}
	tried := map[string]bool{}
	for i := range m.Pins {
		for _, site := range m.Pins[i].Sites {
			if len(tried) >= maxSites || tried[site] {
				continue
			}
			tried[site] = true
			pins := map[int]bool{}
			for k := range m.Pins {
				if slices.Contains(m.Pins[k].Sites, site) {
					for _, op := range m.Pins[k].Ops {
						pins[op] = pins[op] || c.site(op) == site
					}
				}
			}
			ofSite := func(op int) bool { return c.Trace.Ops[op].Kind == trace.Alloc && c.site(op) == site }
			pinning := func(op int) bool { return pins[op] }
			for _, v := range []variant{
				{"own-pool", func() *trace.Trace { return ownPool(c.Trace, ofSite) }},
				{"up-front", func() *trace.Trace { return upFront(c.Trace, pinning) }},
				{"freed-early", func() *trace.Trace { return freedAt(c.Trace, pinning, phase) }},
			} {
				if v.what == "freed-early" && phase == 0 {
					continue
				}
				if ctx.Err() != nil {
					unevaluated++
					continue
				}
				ch, err := c.change(ctx, site, v.what, v.trace(), base)
				if err != nil {
					return nil, 0, err
				}
				if ctx.Err() != nil {
					unevaluated++
				} else if ch.Saved > 0 {
					list = append(list, ch)
				}
			}
		}
	}
	slices.SortStableFunc(list, func(a, b Change) int { return cmp.Compare(b.Saved, a.Saved) })
	return list, unevaluated, nil
}

func (c *Case) change(ctx context.Context, site, what string, t *trace.Trace, base Need) (Change, error) {
	ch := Change{Site: site, What: what}
	p := executor.Compile(t)
	need, err := FindNeed(ctx, p, c.Target, c.NewDevice, SureOps)
	if err != nil {
		return ch, err
	}
	ch.Need = need
	ch.Saved = base.Safe - min(base.Safe, need.Safe)
	ch.Passes = c.Capacity > 0 && c.Capacity >= need.Safe
	return ch, nil
}

// Deficit is how many bytes a trace lacks at a capacity whatever the allocator does: its peak of live bytes above it, 0 if that fits.
func Deficit(t *trace.Trace, capacity uint64) uint64 {
	live, _ := measure.PeakLive(t)
	return live - min(live, capacity)
}
