package stats

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Pair holds one measure of the same sequence on two targets. Both values are above 0, in the same unit, and
// smaller is better.
type Pair struct {
	Baseline  float64 `json:"baseline"`
	Candidate float64 `json:"candidate"`
}

// MatchPairs pairs values by the key of their sequence (its trace hash), in the order of the keys. unmatched counts the
// keys that only one side has: say so beside the result, for a sequence seldom goes missing by chance.
func MatchPairs(baseline, candidate map[string]float64) (pairs []Pair, unmatched int) {
	pairs = []Pair{}
	for _, key := range slices.Sorted(maps.Keys(baseline)) {
		if value, ok := candidate[key]; ok {
			pairs = append(pairs, Pair{Baseline: baseline[key], Candidate: value})
		}
	}
	return pairs, len(baseline) + len(candidate) - 2*len(pairs)
}

// PairComparison compares a candidate with a baseline over n sequences that both ran.
type PairComparison struct {
	N     int     `json:"n"`
	Level float64 `json:"level"`
	// MedianRatio is the median of candidate / baseline: below 1 the candidate is better.
	MedianRatio Quantile `json:"median_ratio"`
	// MedianLogRatio is the natural logarithm of the same, in which twice and half are equally far from 0.
	MedianLogRatio Quantile `json:"median_log_ratio"`
	// Better, Equal and Worse are the shares of pairs with a smaller, the same and a larger candidate.
	Better   Proportion `json:"better"`
	Equal    Proportion `json:"equal"`
	Worse    Proportion `json:"worse"`
	Warnings []string   `json:"warnings"`
}

// ComparePairs takes pairs of independent sequences. The median and its interval are order statistics as in
// Sample.Quantile: the ratio of an actual pair, of an even number the lower middle one. Logarithms keep order, so ratio
// and log ratio share one interval. Each interval is at the level by itself, not all together.
//
// It fails with ErrNotFinite or ErrRange on a value that is not finite and above 0, on a ratio that floating point
// cannot hold, and unless 0 < level < 1. No pairs give warnings.
func ComparePairs(pairs []Pair, level float64) (PairComparison, error) {
	if err := checkLevel(level); err != nil {
		return PairComparison{}, err
	}
	ratios := make([]float64, 0, len(pairs))
	better, equal := 0, 0
	for i, pair := range pairs {
		ratio, err := pair.ratio()
		if err != nil {
			return PairComparison{}, fmt.Errorf("stats: pair %d: %w", i, err)
		}
		ratios = append(ratios, ratio)
		switch {
		case pair.Candidate < pair.Baseline:
			better++
		case pair.Candidate == pair.Baseline:
			equal++
		}
	}
	slices.Sort(ratios)

	n := len(pairs)
	comparison := PairComparison{N: n, Level: level, Warnings: []string{}}
	comparison.MedianRatio = quantile(ratios, 0.5, level)
	comparison.MedianLogRatio = logarithm(comparison.MedianRatio)
	var err error
	if comparison.Better, err = Wilson(better, n, level); err != nil {
		return PairComparison{}, err
	}
	if comparison.Equal, err = Wilson(equal, n, level); err != nil {
		return PairComparison{}, err
	}
	if comparison.Worse, err = Wilson(n-better-equal, n, level); err != nil {
		return PairComparison{}, err
	}
	if n == 0 {
		comparison.Warnings = append(comparison.Warnings, "n = 0: no pairs")
		return comparison, nil
	}
	comparison.Warnings = append(comparison.Warnings, quantileWarnings("median ratio", comparison.MedianRatio)...)
	return comparison, nil
}

func (p Pair) ratio() (float64, error) {
	for _, v := range []float64{p.Baseline, p.Candidate} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return 0, fmt.Errorf("%v: %w", v, ErrNotFinite)
		}
		if v <= 0 {
			return 0, fmt.Errorf("%v: %w: a ratio needs values above 0", v, ErrRange)
		}
	}
	ratio := p.Candidate / p.Baseline
	if ratio == 0 || math.IsInf(ratio, 0) {
		return 0, fmt.Errorf("%v / %v: %w: the ratio cannot be held", p.Candidate, p.Baseline, ErrRange)
	}
	return ratio, nil
}

// logarithm leaves ranks and coverage as they are and shares no memory with q's limits.
func logarithm(q Quantile) Quantile {
	for _, v := range []**float64{&q.Value, &q.Interval.Lower, &q.Interval.Upper} {
		if *v != nil {
			*v = pointer(math.Log(**v))
		}
	}
	return q
}
