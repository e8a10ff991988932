package stats

import (
	"fmt"
	"math"
	"math/big"
	"slices"

	"gonum.org/v1/gonum/stat/distuv"
)

// Shift says by how much the values of one sample lie above those of another, independent one.
type Shift struct {
	Baseline  int     `json:"baseline"`  // values in the baseline
	Candidate int     `json:"candidate"` // values in the candidate
	Level     float64 `json:"level"`
	// Value is the median of all differences candidate - baseline, nil if a sample is empty; of an even number the lower middle one.
	Value *float64 `json:"value"`
	// Lower and Upper limit the shift; both are nil where the samples are too small for an interval.
	Lower    *float64 `json:"lower"`
	Upper    *float64 `json:"upper"`
	Warnings []string `json:"warnings"`
}

// CompareSamples estimates by how much candidate is larger than baseline: the median of all differences between a value of one and
// a value of the other (Hodges and Lehmann, Estimates of Location Based on Rank Tests, Annals of Mathematical Statistics 34,
// 1963). The interval has all shifts that the rank sum test of Mann and Whitney does not refuse (Annals of Mathematical Statistics
// 18, 1947): two order statistics of the differences, exact up to exactValues values in all, by the normal approximation above.
//
// If the two populations are equal, whatever their shape, the interval misses 0 with probability at most 1-level; with ties less
// often. If they differ it limits the shift only if one is the other one shifted; else it still leaves out 0 when values of
// one tend to be larger. Logarithms make shifts of ratios. It fails as NewSample does, and unless 0 < level < 1.
func CompareSamples(baseline, candidate []float64, level float64) (Shift, error) {
	if err := checkLevel(level); err != nil {
		return Shift{}, err
	}
	a, err := NewSample(Measure{Name: "baseline"}, Population{}, baseline)
	if err != nil {
		return Shift{}, err
	}
	b, err := NewSample(Measure{Name: "candidate"}, Population{}, candidate)
	if err != nil {
		return Shift{}, err
	}
	return shiftOf(a.sorted, b.sorted, level), nil
}

// shiftOf wants sorted values.
func shiftOf(baseline, candidate []float64, level float64) Shift {
	n, m := len(baseline), len(candidate)
	s := Shift{Baseline: n, Candidate: m, Level: level, Warnings: []string{}}
	if n == 0 || m == 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("n = %d and %d: nothing to compare", n, m))
		return s
	}
	pairs := n * m
	s.Value = pointer(difference(baseline, candidate, (pairs+1)/2))
	rank := rankSumLimit(n, m, tailAllowed(level))
	if rank == 0 {
		s.Warnings = append(s.Warnings, fmt.Sprintf("n = %d and %d give no interval", n, m))
		return s
	}
	s.Lower = pointer(difference(baseline, candidate, rank))
	s.Upper = pointer(difference(baseline, candidate, pairs+1-rank))
	return s
}

// difference is the k-th smallest of all candidate - baseline, k from 1, without making them: it halves the range of numbers,
// ordered as their bits are, and counts.
func difference(baseline, candidate []float64, k int) float64 {
	low, high := ordered(candidate[0]-baseline[len(baseline)-1]), ordered(candidate[len(candidate)-1]-baseline[0])
	for low < high {
		middle := low + (high-low)/2
		if differencesUpTo(baseline, candidate, unordered(middle)) >= k {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return unordered(low)
}

// differencesUpTo counts the differences that are at most d.
func differencesUpTo(baseline, candidate []float64, d float64) int {
	count, i := 0, len(candidate) // candidate[:i] are near enough
	for k := len(baseline) - 1; k >= 0; k-- {
		for i > 0 && candidate[i-1]-baseline[k] > d {
			i--
		}
		count += i
	}
	return count
}

// ordered maps numbers to integers in the same order; unordered is its inverse.
func ordered(v float64) uint64 {
	bits := math.Float64bits(v + 0)
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}

func unordered(bits uint64) float64 {
	if bits>>63 != 0 {
		return math.Float64frombits(bits &^ (1 << 63))
	}
	return math.Float64frombits(^bits)
}

// exactValues is up to how many values in both samples together the distribution of the rank sum is counted out.
const exactValues = 50

// rankSumLimit is the largest k such that Mann and Whitney's U is below k with probability at most half if both samples are of one
// population; 0 if there is none.
func rankSumLimit(n, m int, half float64) int {
	if n+m > exactValues {
		z := distuv.UnitNormal.Quantile(1 - half)
		mean, sd := float64(n)*float64(m)/2, math.Sqrt(float64(n)*float64(m)*float64(n+m+1)/12)
		// U < k is U <= k-1, and the step of a discrete distribution reaches half a unit further.
		return max(int(math.Floor(mean-z*sd+0.5)), 0)
	}
	// ways[u] is in how many of the orders of n and m values U is u: the coefficients of a Gaussian binomial.
	ways := make([]*big.Int, n*m+1)
	for u := range ways {
		ways[u] = new(big.Int)
	}
	ways[0].SetInt64(1)
	for i := 1; i <= n; i++ {
		for u := len(ways) - 1; u >= m+i; u-- {
			ways[u].Sub(ways[u], ways[u-m-i])
		}
		for u := i; u < len(ways); u++ {
			ways[u].Add(ways[u], ways[u-i])
		}
	}
	total := new(big.Float).SetInt(new(big.Int).Binomial(int64(n+m), int64(n)))
	sum := new(big.Int)
	for k := range ways {
		sum.Add(sum, ways[k])
		share, _ := new(big.Float).Quo(new(big.Float).SetInt(sum), total).Float64()
		if share > half {
			return k
		}
	}
	return 0
}

// SignTest is the two-sided probability of so uneven a split of the pairs that are not equal, if better and worse were equally
// likely (Dixon and Mood, Journal of the American Statistical Association 41, 1946). 1 if there are none.
func SignTest(better, worse int) float64 {
	n := better + worse
	if n == 0 {
		return 1
	}
	return min(1, 2*atMost(min(better, worse), n, 0.5))
}

// Holm decides a family of k questions together (Holm, Scandinavian Journal of Statistics 6, 1979): shown(i, level) says whether the
// interval of question i at a level shows something. The error of showing anything where there is nothing is at most 1-level for
// the whole family. It returns which are shown, and the level at which each was decided.
func Holm(k int, level float64, shown func(i int, level float64) bool) (yes []bool, levels []float64) {
	yes, levels = make([]bool, k), make([]float64, k)
	open := make([]int, k)
	for i := range open {
		open[i] = i
	}
	for len(open) > 0 {
		at := 1 - (1-level)/float64(len(open))
		var left []int
		for _, i := range open {
			levels[i] = at
			if yes[i] = shown(i, at); !yes[i] {
				left = append(left, i)
			}
		}
		if len(left) == len(open) {
			break
		}
		open = slices.Clone(left)
	}
	return yes, levels
}
