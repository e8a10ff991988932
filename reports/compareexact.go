package reports

import (
	"slices"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/results"
)

// Exact is what changed on traces that both sides ran. No statistics: it is so.
type Exact struct {
	Traces int `json:"traces"`
	Runs   int `json:"runs"` // a trace on an allocator
	// SameDecisions counts the runs that are alike in every decision, of those that were Decided: run on devices of one capacity by
	// programs that took digests.
	SameDecisions int `json:"same_decisions"`
	Decided       int `json:"decided"`
	// Of the runs Measured for it, C_safe fell, rose, rose beyond the margin.
	Measured    int `json:"measured"`
	SafeLower   int `json:"safe_lower"`
	SafeHigher  int `json:"safe_higher"`
	SafeWorse   int `json:"safe_worse"`
	SafeBetter  int `json:"safe_better"` // fell beyond the margin
	NewRefusals int `json:"new_refusals"`
	// NoRefusals counts the runs that were refused something and no longer are.
	NoRefusals int `json:"no_refusals"`
	// Changes are the runs that differ, the worst first.
	Changes []Change `json:"changes"`
}

// Change is a run that differs.
type Change struct {
	Trace     string `json:"trace"`
	Workload  string `json:"workload"`
	Allocator string `json:"allocator"`
	Verdict   string `json:"verdict"` // worse, better or equal, by the margin
	// From and To limit the first operation that was decided otherwise: From is the first that may be, To the first that no longer may.
	From int `json:"from"`
	To   int `json:"to"`
	// Safe are C_safe on both sides, in bytes, 0 if not measured.
	Safe [2]uint64 `json:"c_safe"`
	// FirstOOM is the first refused operation on both sides, nil if none was.
	FirstOOM [2]*int `json:"first_oom"`
}

// grown is by how much C_safe rose, as a share.
func (c *Change) grown() float64 {
	if c.Safe[0] == 0 {
		return 0
	}
	return float64(c.Safe[1])/float64(c.Safe[0]) - 1
}

// exactly compares trace by trace.
func (c *comparer) exactly() {
	e := &Exact{Traces: len(c.shared), Changes: []Change{}}
	c.Exact = e
	for _, s := range c.shared {
		for _, p := range c.pairs {
			e.add(s, &s[0].Runs[p[0]], &s[1].Runs[p[1]], c.Margin)
		}
	}
	if e.Decided < e.Runs {
		c.Warnings = append(c.Warnings, "decisions are compared only on devices of the same capacity")
	}
	slices.SortStableFunc(e.Changes, func(a, b Change) int {
		rank := func(c *Change) int { return slices.Index([]string{Worse, Better, Equal}, c.Verdict) }
		if d := rank(&a) - rank(&b); d != 0 {
			return d
		}
		switch x, y := a.grown(), b.grown(); {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	switch {
	case e.SafeWorse > 0 || e.NewRefusals > 0:
		c.Verdict = Worse
	case e.SafeBetter > 0 || e.NoRefusals > 0:
		c.Verdict = Better
	default:
		c.Verdict = Equal
	}
}

func (e *Exact) add(s [2]*results.Sequence, a, b *results.Run, margin float64) {
	e.Runs++
	change := Change{Trace: s[0].Trace, Workload: s[0].Workload, Allocator: a.Target, Verdict: Equal, FirstOOM: [2]*int{a.FirstOOM, b.FirstOOM}}
	differs := false
	sameDevice := s[0].Capacity == s[1].Capacity
	if sameDevice && len(a.Decisions) == campaign.Digests && len(b.Decisions) == campaign.Digests {
		e.Decided++
		if i := firstDifference(a.Decisions, b.Decisions); i < 0 {
			e.SameDecisions++
		} else {
			differs = true
			change.To = campaign.DigestOps(s[0].Ops, i)
			if i > 0 {
				change.From = campaign.DigestOps(s[0].Ops, i-1)
			}
		}
	}
	if a.Measures != nil && b.Measures != nil {
		e.Measured++
		change.Safe = [2]uint64{a.Measures.Safe, b.Measures.Safe}
		switch grown := change.grown(); {
		case grown > 0:
			e.SafeHigher++
			if differs = true; grown > margin {
				e.SafeWorse++
				change.Verdict = Worse
			}
		case grown < 0:
			e.SafeLower++
			if differs = true; grown < -margin {
				e.SafeBetter++
				change.Verdict = Better
			}
		}
	}
	if sameDevice {
		switch refused, now := a.FirstOOM != nil, b.FirstOOM != nil; {
		case now && !refused:
			e.NewRefusals++
			change.Verdict, differs = Worse, true
		case refused && !now:
			e.NoRefusals++
			if differs = true; change.Verdict == Equal {
				change.Verdict = Better
			}
		}
	}
	if differs {
		e.Changes = append(e.Changes, change)
	}
}

// firstDifference is the place of the first digest that differs, -1 if none does.
func firstDifference(a, b []string) int {
	for i := range a {
		if a[i] != b[i] {
			return i
		}
	}
	return -1
}
