package stats

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Proportion is a share of n independent trials, with Wilson's interval. All shares lie in 0..1.
type Proportion struct {
	Successes int      `json:"successes"`
	N         int      `json:"n"`
	Share     *float64 `json:"share"` // nil if n = 0, and so are the limits
	Level     float64  `json:"level"`
	Lower     *float64 `json:"lower"`
	Upper     *float64 `json:"upper"`
	Warnings  []string `json:"warnings"`
}

// Wilson estimates a proportion with the score interval (Wilson, Probable Inference, the Law of Succession, and
// Statistical Inference, Journal of the American Statistical Association 22, 1927), without continuity correction. It
// behaves at 0 and n successes, where the textbook interval has no width. Its coverage is near the level on
// average over true shares, but it is not a guarantee: for some shares it is lower.
//
// It fails with ErrRange unless 0 <= successes <= n and 0 < level < 1. n = 0 gives a warning and no share.
func Wilson(successes, n int, level float64) (Proportion, error) {
	if err := checkLevel(level); err != nil {
		return Proportion{}, err
	}
	if successes < 0 || successes > n {
		return Proportion{}, fmt.Errorf("stats: %d successes in %d trials: %w: 0 <= successes <= trials",
			successes, n, ErrRange)
	}
	p := Proportion{Successes: successes, N: n, Level: level, Warnings: []string{}}
	if n == 0 {
		p.Warnings = append(p.Warnings, "n = 0: no share, no interval")
		return p, nil
	}
	share := float64(successes) / float64(n)
	lower, upper := wilsonLimits(share, float64(n), level)
	p.Share, p.Lower, p.Upper = &share, &lower, &upper
	return p, nil
}

// wilsonLimits takes a share in 0..1 of trials > 0, which need not be whole.
func wilsonLimits(share, trials, level float64) (lower, upper float64) {
	// The lower tail, because 1 - tail would round to 1 and the quantile to infinity for levels close to 1.
	z := -distuv.UnitNormal.Quantile((1 - level) / 2)
	zz := z * z / trials
	middle := (share + zz/2) / (1 + zz)
	half := z / (1 + zz) * math.Sqrt(share*(1-share)/trials+zz/(4*trials))
	// At the ends the limit is the share itself; clamping takes away what rounding adds.
	return min(max(middle-half, 0), share), max(min(middle+half, 1), share)
}
