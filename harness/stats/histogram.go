package stats

import (
	"fmt"
	"sort"
	"strings"
)

// Bin counts the values v with Lower <= v < Upper; the last bin includes its Upper.
type Bin struct {
	Lower float64 `json:"lower"`
	Upper float64 `json:"upper"`
	Count int     `json:"count"`
}

// maxBins keeps a slip of the caller from costing memory; no screen shows more.
const maxBins = 1 << 16

// Histogram divides the range from the smallest to the largest value into bins of equal width. An empty sample has no
// bins, and one whose values are all equal has a single bin. It fails with ErrRange unless 1 <= bins <= 65536.
func (s Sample) Histogram(bins int) ([]Bin, error) {
	if bins < 1 || bins > maxBins {
		return nil, fmt.Errorf("stats: %d bins: %w: 1..%d", bins, ErrRange, maxBins)
	}
	n := s.N()
	if n == 0 {
		return []Bin{}, nil
	}
	low, high := s.sorted[0], s.sorted[n-1]
	if low == high {
		return []Bin{{Lower: low, Upper: high, Count: n}}, nil
	}
	histogram := make([]Bin, bins)
	lower, below := low, 0
	for i := range histogram {
		upper, upTo := high, n
		if i < bins-1 {
			// A weighted mean of the ends: high - low could overflow. The edges are computed first and the values
			// counted against them, so that no value sits outside the bin it is counted in.
			t := float64(i+1) / float64(bins)
			upper = min(max(low*(1-t)+high*t, lower), high)
			upTo = sort.SearchFloat64s(s.sorted, upper)
		}
		histogram[i] = Bin{Lower: lower, Upper: upper, Count: upTo - below}
		lower, below = upper, upTo
	}
	return histogram, nil
}

// Sparkline draws the histogram in one line of bins characters (one if all values are equal, none if n = 0). A blank
// is a bin without values; the lowest bar is any number of values, so that a lonely outlier shows. It fails as
// Histogram does.
func (s Sample) Sparkline(bins int) (string, error) {
	histogram, err := s.Histogram(bins)
	if err != nil {
		return "", err
	}
	return Sparkline(histogram), nil
}

// Sparkline draws bins in one line of as many characters.
func Sparkline(histogram []Bin) string {
	highest := 0
	for _, bin := range histogram {
		highest = max(highest, bin.Count)
	}
	bars := []rune(" ▁▂▃▄▅▆▇█")
	var line strings.Builder
	for _, bin := range histogram {
		// Rounded up: only an empty bin is blank.
		line.WriteRune(bars[(bin.Count*(len(bars)-1)+highest-1)/highest])
	}
	return line.String()
}
