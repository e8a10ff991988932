package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/floats"
)

// Summary describes one sample. All values are in the unit of the measure and nil (null in JSON) if n = 0.
type Summary struct {
	Measure    Measure    `json:"measure"`
	Population Population `json:"population"`
	N          int        `json:"n"`
	Level      float64    `json:"level"`
	Min        *float64   `json:"min"`
	Median     Quantile   `json:"median"`
	P95        Quantile   `json:"p95"`
	P99        Quantile   `json:"p99"`
	Max        *float64   `json:"max"`
	// Mean is descriptive: it has no interval, because none holds without assumptions on the tail, and a single
	// sequence can move it anywhere. Compare medians.
	Mean *float64 `json:"mean"`
	// Histogram has up to SummaryBins bins of equal width, from Min to Max. Never nil.
	Histogram []Bin `json:"histogram"`
	// Warnings say what the sample is too small for. Never nil.
	Warnings []string `json:"warnings"`
}

// SummaryBins is how many bins a summary's histogram has at most.
const SummaryBins = 12

// Summarize computes all figures at one confidence level; each interval is at that level by itself, not all three
// together. It fails with ErrRange unless 0 < level < 1.
func Summarize(s Sample, level float64) (Summary, error) {
	if err := checkLevel(level); err != nil {
		return Summary{}, err
	}
	summary := Summary{
		Measure:    s.measure,
		Population: s.population.clone(),
		N:          s.N(),
		Level:      level,
		Median:     quantile(s.sorted, 0.50, level),
		P95:        quantile(s.sorted, 0.95, level),
		P99:        quantile(s.sorted, 0.99, level),
		Histogram:  []Bin{},
		Warnings:   []string{},
	}
	if s.N() == 0 {
		summary.Warnings = append(summary.Warnings, "n = 0: no values")
		return summary, nil
	}
	summary.Histogram, _ = s.Histogram(SummaryBins) // in range
	summary.Min = pointer(s.sorted[0])
	summary.Max = pointer(s.sorted[s.N()-1])
	summary.Mean = pointer(mean(s.sorted))
	summary.Warnings = append(summary.Warnings, quantileWarnings("median", summary.Median)...)
	summary.Warnings = append(summary.Warnings, quantileWarnings("p95", summary.P95)...)
	summary.Warnings = append(summary.Warnings, quantileWarnings("p99", summary.P99)...)
	return summary, nil
}

// mean wants at least one value, sorted. The compensated sum is plain Go: the faster floats.Sum adds in another order
// on machines with vector code, and last digits would depend on the machine.
func mean(sorted []float64) float64 {
	low, high := sorted[0], sorted[len(sorted)-1]
	n := float64(len(sorted))
	m := floats.SumCompensated(sorted) / n
	if math.IsNaN(m) || math.IsInf(m, 0) {
		// The sum left the range of floating point although the mean cannot: add parts instead.
		parts := make([]float64, len(sorted))
		for i, v := range sorted {
			parts[i] = v / n
		}
		m = floats.SumCompensated(parts)
	}
	return min(max(m, low), high)
}

// quantileWarnings says which limits are missing, and how many values would give them.
func quantileWarnings(name string, q Quantile) []string {
	var warnings []string
	if missing := missingLimits(q.Interval); missing != "" {
		warning := fmt.Sprintf("n = %d: no %s for the %s", q.N, missing, name)
		if needed, err := SizeFor(q.P, q.Interval.Level); err == nil {
			warning += fmt.Sprintf(" (n = %d would give one)", needed)
		}
		warnings = append(warnings, warning)
	}
	if q.N > 1 && q.P > 0.5 && q.Rank == q.N {
		warnings = append(warnings, fmt.Sprintf("n = %d: the %s is the largest value seen", q.N, name))
	}
	return warnings
}

// missingLimits is empty if both limits are there.
func missingLimits(i Interval) string {
	switch {
	case i.Lower == nil && i.Upper == nil:
		return "interval"
	case i.Lower == nil:
		return "lower limit"
	case i.Upper == nil:
		return "upper limit"
	}
	return ""
}
