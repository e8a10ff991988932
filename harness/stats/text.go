package stats

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// String is the summary on one line, for people. JSON has all the digits.
func (s Summary) String() string {
	name := s.Measure.Name
	if s.Measure.Unit != "" && s.Measure.Unit != "1" && s.Measure.Unit != "bytes" {
		name += " (" + s.Measure.Unit + ")"
	}
	if s.N == 0 {
		return name + ": n = 0"
	}
	unit := s.Measure.Unit
	return fmt.Sprintf("%s: n = %d; min %s; median %s; p95 %s; p99 %s; max %s; mean %s; intervals at %s",
		name, s.N, formatValue(*s.Min, unit), s.Median.Text(unit), s.P95.Text(unit), s.P99.Text(unit),
		formatValue(*s.Max, unit), formatValue(*s.Mean, unit), formatShare(s.Level))
}

// Text writes the value and its limits: '1.12 (1.1 to 1.14)', or with a limit missing '1.9, at least 1.5 (n = 20 gives
// no upper limit)'. unit is that of the measure; 'bytes' is written in KiB, MiB and so on.
func (q Quantile) Text(unit string) string {
	if q.Value == nil {
		return "none (n = 0)"
	}
	value, lower, upper := formatValue(*q.Value, unit), q.Interval.Lower, q.Interval.Upper
	switch {
	case lower != nil && upper != nil:
		return fmt.Sprintf("%s (%s to %s)", value, formatValue(*lower, unit), formatValue(*upper, unit))
	case lower != nil:
		return fmt.Sprintf("%s, at least %s (n = %d gives no upper limit)", value, formatValue(*lower, unit), q.N)
	case upper != nil:
		return fmt.Sprintf("%s, at most %s (n = %d gives no lower limit)", value, formatValue(*upper, unit), q.N)
	}
	return fmt.Sprintf("%s (n = %d gives no interval)", value, q.N)
}

// String is '3/20 = 15 % (5.24 % to 36.04 %)'.
func (p Proportion) String() string {
	if p.Share == nil {
		return "0/0 (n = 0 gives no share)"
	}
	return fmt.Sprintf("%d/%d = %s (%s to %s)",
		p.Successes, p.N, formatShare(*p.Share), formatShare(*p.Lower), formatShare(*p.Upper))
}

// String is the comparison on one line, for people.
func (c PairComparison) String() string {
	if c.N == 0 {
		return "n = 0 pairs"
	}
	return fmt.Sprintf("n = %d pairs; median ratio %s; better %s; equal %s; worse %s; intervals at %s",
		c.N, c.MedianRatio.Text("1"), c.Better, c.Equal, c.Worse, formatShare(c.Level))
}

// formatShare writes 0.15 as '15 %'. Two decimals, so that 0 % and 100 % may be rounded: beside n they mislead nobody.
func formatShare(share float64) string {
	return strconv.FormatFloat(math.Round(share*1e4)/1e2, 'f', -1, 64) + " %"
}

// formatValue keeps four digits, more only before the decimal point.
func formatValue(v float64, unit string) string {
	if unit != "bytes" {
		return formatNumber(v)
	}
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	i := 0
	for ; math.Abs(v) >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return formatNumber(v) + " " + units[i]
}

func formatNumber(v float64) string {
	size := math.Abs(v)
	switch {
	case size >= 1e15 || size != 0 && size < 1e-4:
		return strconv.FormatFloat(v, 'g', 4, 64)
	case size >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	decimals := 3
	for ; size >= 10; size /= 10 {
		decimals--
	}
	for ; size != 0 && size < 1; size *= 10 {
		decimals++
	}
	text := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	return text
}
