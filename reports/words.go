package reports

import "github.com/shatter-gpu/shatter/harness/stats"

// Interval writes a quantile with its limits; the unit is that of figures: bytes, share or 1.
func Interval(q stats.Quantile, unit string) string { return interval(q, unit) }

// Bound writes a high quantile: with too few sequences it has no upper limit.
func Bound(q stats.Quantile, unit string) string { return bound(q, unit) }

// Measure returns the summary of a measure (Kappa and so on), nil if it was not taken.
func (t *WorkloadTarget) Measure(m int) *stats.Summary { return t.measure(m) }
