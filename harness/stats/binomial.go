package stats

import (
	"fmt"
	"math"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

// atMost is P(B <= k) for B binomial(n, p), n >= 1, 0 < p < 1; any k. gonum's incomplete beta panics outside that.
func atMost(k, n int, p float64) float64 {
	switch {
	case k < 0:
		return 0
	case k >= n:
		return 1
	}
	return distuv.Binomial{N: float64(n), P: p}.CDF(float64(k))
}

// atLeast is P(B >= k). It counts failures instead of subtracting from one, which keeps the digits of small tails.
func atLeast(k, n int, p float64) float64 {
	return atMost(n-k, n, 1-p)
}

// tailAllowed is the probability of erring that either limit may have. A tail that equals (1-level)/2 is allowed, as
// one value and p95 at level 0.9; the slack keeps the last digits of the machine from deciding that.
func tailAllowed(level float64) float64 { return (1 - level) / 2 * (1 + 1e-12) }

// limitRanks chooses the order statistics that limit the p-quantile of a population from n >= 1 values: lower is the
// greatest rank, upper the smallest, that errs with probability at most (1-level)/2. Rank 0 means there is none.
// Ranks count from 1. lowerTail and upperTail are the probabilities of erring at those ranks (0 for rank 0).
//
// The r-th smallest value exceeds the p-quantile exactly if fewer than r values are at most that quantile, and the
// number of those is binomial(n, p): no assumption on the shape of the distribution is needed.
func limitRanks(n int, p, level float64) (lower, upper int, lowerTail, upperTail float64) {
	half := tailAllowed(level)
	// Both searches are over monotone functions of the rank.
	lower = sort.Search(n, func(i int) bool { return atMost(i, n, p) > half })
	upper = 1 + sort.Search(n, func(i int) bool { return atLeast(i+1, n, p) <= half })
	if upper > n {
		upper = 0
	}
	if lower > 0 {
		lowerTail = atMost(lower-1, n, p)
	}
	if upper > 0 {
		upperTail = atLeast(upper, n, p)
	}
	return lower, upper, lowerTail, upperTail
}

// SizeFor is the smallest number of values from which the p-quantile has both limits at the level: 6 for the median,
// 72 for p95 and 368 for p99 at 0.95. It fails with ErrRange unless 0 < p < 1 and 0 < level < 1, or if no
// number below 2^53 is enough.
func SizeFor(p, level float64) (int, error) {
	if err := checkProbability(p); err != nil {
		return 0, err
	}
	if err := checkLevel(level); err != nil {
		return 0, err
	}
	// The rarer side decides: with probability (1-rare)^n nothing at all is seen beyond the quantile.
	rare := min(p, 1-p)
	n := math.Ceil(math.Log(tailAllowed(level)) / math.Log1p(-rare))
	if !(n < 1<<53) {
		return 0, fmt.Errorf("stats: quantile %v at level %v: %w: needs more than 2^53 values", p, level, ErrRange)
	}
	return max(int(n), 1), nil
}
