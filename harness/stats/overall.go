package stats

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// Overall is the equally weighted mean of figures of several workloads. It speaks for these workloads, and for no others: they are
// not drawn from anything.
type Overall struct {
	Workloads int     `json:"workloads"`
	Value     float64 `json:"value"`
	Level     float64 `json:"level"`
	Lower     float64 `json:"lower"`
	Upper     float64 `json:"upper"`
	Resamples int     `json:"resamples"`
}

// Resamples is how many draws are enough for Mean's interval at 0.95.
const Resamples = 2000

// Mean takes the mean of one figure a workload, with an interval by resampling: draws of each workload's sequences with
// replacement, the workloads themselves staying as they are (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, section
// 13.3, the percentile interval; approximate). figure i is called with a function that fills indices below n; nil means the values as they
// are. Draws follow from a fixed seed: the same values give the same interval.
func Mean(level float64, draws int, figures []func(draw func(n int) []int) float64) (Overall, error) {
	if err := checkLevel(level); err != nil {
		return Overall{}, err
	}
	if draws < 1 {
		return Overall{}, fmt.Errorf("stats: %d resamples: %w: at least 1", draws, ErrRange)
	}
	o := Overall{Workloads: len(figures), Level: level, Resamples: draws}
	if len(figures) == 0 {
		return o, nil
	}
	mean := func(draw func(n int) []int) float64 {
		sum := 0.0
		for _, f := range figures {
			sum += f(draw)
		}
		return sum / float64(len(figures))
	}
	o.Value = mean(nil)
	rng := rand.New(rand.NewPCG(20261130, 1))
	draw := func(n int) []int {
		out := make([]int, n)
		for i := range out {
			out[i] = rng.IntN(n)
		}
		return out
	}
	means := make([]float64, draws)
	for i := range means {
		means[i] = mean(draw)
	}
	slices.Sort(means)
	o.Lower = means[quantileRank(draws, (1-level)/2)-1]
	o.Upper = means[quantileRank(draws, (1+level)/2)-1]
	return o, nil
}

// MedianFigure is the median of values, for Mean.
func MedianFigure(values []float64) func(draw func(n int) []int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return func(draw func(n int) []int) float64 {
		v := drawn(sorted, draw)
		return v[quantileRank(len(v), 0.5)-1]
	}
}

// ShiftFigure is the median of all differences candidate - baseline, for Mean.
func ShiftFigure(baseline, candidate []float64) func(draw func(n int) []int) float64 {
	a, b := slices.Sorted(slices.Values(baseline)), slices.Sorted(slices.Values(candidate))
	return func(draw func(n int) []int) float64 {
		x, y := drawn(a, draw), drawn(b, draw)
		return difference(x, y, (len(x)*len(y)+1)/2)
	}
}

func drawn(sorted []float64, draw func(n int) []int) []float64 {
	if draw == nil {
		return sorted
	}
	out := make([]float64, len(sorted))
	for i, k := range draw(len(sorted)) {
		out[i] = sorted[k]
	}
	slices.Sort(out)
	return out
}
