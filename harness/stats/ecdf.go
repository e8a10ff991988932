package stats

import (
	"fmt"
	"math"
	"sort"
)

// Step is one jump of the empirical distribution function.
type Step struct {
	Value float64 `json:"value"`
	Count int     `json:"count"` // values at most Value
	Share float64 `json:"share"` // the same as a share of n, in (0, 1]
}

// ECDF is the share of the sample at or below x, in 0..1. x may be infinite. It fails on NaN (ErrNotFinite) and on an
// empty sample (ErrRange), which has no shares.
func (s Sample) ECDF(x float64) (float64, error) {
	if math.IsNaN(x) {
		return 0, fmt.Errorf("stats: distribution function at %v: %w", x, ErrNotFinite)
	}
	if s.N() == 0 {
		return 0, fmt.Errorf("stats: distribution function of %s: n = 0: %w", s.measure.Name, ErrRange)
	}
	count := sort.Search(s.N(), func(i int) bool { return s.sorted[i] > x })
	return float64(count) / float64(s.N()), nil
}

// Steps lists the jumps in increasing order, each distinct value once; the last Share is 1. Between two steps the
// function is flat, before the first it is 0. An empty sample has none.
func (s Sample) Steps() []Step {
	steps := []Step{}
	for i, v := range s.sorted {
		if i+1 < s.N() && s.sorted[i+1] == v {
			continue
		}
		steps = append(steps, Step{Value: v, Count: i + 1, Share: float64(i+1) / float64(s.N())})
	}
	return steps
}
