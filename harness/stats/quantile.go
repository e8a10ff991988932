package stats

import "math"

// Interval limits one quantile of the population. A limit is absent (nil, null in JSON) when n is too small for it.
type Interval struct {
	Level float64 `json:"level"` // as asked for, in (0, 1)
	// Coverage is the probability, before the data are seen, that the limits given hold: at least Level if there are
	// two, at least (1+Level)/2 if there is one, nil if there is none. For populations with ties it is a lower limit.
	Coverage  *float64 `json:"coverage"`
	Lower     *float64 `json:"lower"`
	Upper     *float64 `json:"upper"`
	LowerRank int      `json:"lower_rank"` // which value of the sorted sample Lower is, from 1; 0 if absent
	UpperRank int      `json:"upper_rank"`
}

// Quantile is an observed value that stands for the p-quantile of the population, with its interval.
type Quantile struct {
	P        float64  `json:"p"`     // in (0, 1)
	N        int      `json:"n"`     // values in the sample
	Value    *float64 `json:"value"` // nil if n = 0
	Rank     int      `json:"rank"`  // which value of the sorted sample it is, from 1; 0 if n = 0
	Interval Interval `json:"interval"`
}

// Quantile is the smallest observed value with at least a share p of the sample at or below it (the inverse of the
// empirical distribution function, type 1 of Hyndman and Fan, Sample Quantiles in Statistical Packages, The American
// Statistician 50, 1996). It is always a value that some sequence showed, so it can be looked up and replayed; of an
// even number of values the median is the lower middle one.
//
// The interval is distribution-free and made of two order statistics with at most (1-level)/2 of error on either side
// (David and Nagaraja, Order Statistics, 3rd ed. 2003, section 7.1). It contains Value. Coverage is exact for continuous
// distributions and no less for others, up to rounding to twelve decimals.
//
// It fails with ErrRange unless 0 < p < 1 and 0 < level < 1. Few or no values are no error.
func (s Sample) Quantile(p, level float64) (Quantile, error) {
	if err := checkProbability(p); err != nil {
		return Quantile{}, err
	}
	if err := checkLevel(level); err != nil {
		return Quantile{}, err
	}
	return quantile(s.sorted, p, level), nil
}

// quantile wants sorted values and checked arguments.
func quantile(sorted []float64, p, level float64) Quantile {
	n := len(sorted)
	q := Quantile{P: p, N: n, Interval: Interval{Level: level}}
	if n == 0 {
		return q
	}
	q.Rank = quantileRank(n, p)
	q.Value = pointer(sorted[q.Rank-1])

	lower, upper, lowerTail, upperTail := limitRanks(n, p, level)
	q.Interval.LowerRank, q.Interval.UpperRank = lower, upper
	if lower > 0 {
		q.Interval.Lower = pointer(sorted[lower-1])
	}
	if upper > 0 {
		q.Interval.Upper = pointer(sorted[upper-1])
	}
	if lower > 0 || upper > 0 {
		// The sums are no more precise than twelve decimals; further ones would differ between machines.
		q.Interval.Coverage = pointer(math.Round((1-lowerTail-upperTail)*1e12) / 1e12)
	}
	return q
}

// quantileRank is n*p rounded up, in 1..n. A product within rounding of a whole number counts as that number: in
// floating point 100 * 0.07 is a little more than 7, and rounding that up would answer with the 8th value.
func quantileRank(n int, p float64) int {
	product := float64(n) * p
	if nearest := math.Round(product); math.Abs(product-nearest) <= 1e-12*product {
		product = nearest
	}
	return min(max(int(math.Ceil(product)), 1), n)
}
