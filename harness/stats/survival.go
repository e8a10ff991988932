package stats

import (
	"fmt"
	"slices"
	"sort"
)

// Lifetime is what one sequence showed: how many operations were served until it ended, and whether an OOM ended it. A
// sequence that ended otherwise is censored: it would have served at least that many.
type Lifetime struct {
	Served int  `json:"served"` // operations served before the end, 0..2^53
	OOM    bool `json:"oom"`    // the next operation was refused
}

// SurvivalPoint is the share of sequences that serve at least so many operations.
type SurvivalPoint struct {
	Operations int      `json:"operations"`
	Served     int      `json:"served"` // sequences seen to serve that many
	OOMs       int      `json:"ooms"`   // sequences with their OOM at or before that operation, counted from 1
	Share      *float64 `json:"share"`  // 0..1; nil, as are the limits, where no sequence was run that long
	Lower      *float64 `json:"lower"`
	Upper      *float64 `json:"upper"`
}

// SurvivalCurve has its points in increasing order of operations.
type SurvivalCurve struct {
	N        int             `json:"n"`
	OOMs     int             `json:"ooms"`
	Censored int             `json:"censored"`
	Level    float64         `json:"level"`
	Points   []SurvivalPoint `json:"points"`
	Warnings []string        `json:"warnings"`
}

// Survival estimates which share of sequences serves at least as many operations as each count in at (any order,
// repetitions dropped). Without counts the points are 0 and every operation at which the curve drops.
//
// The share is that of Kaplan and Meier (Nonparametric Estimation from Incomplete Observations, Journal of the American
// Statistical Association 53, 1958). Before the first censored sequence, and so for sequences of one length, it is
// simply survivors / n with Wilson's interval. Past it the interval is Wilson's for survivors / share trials: the
// effective number that follows from the conservative variance of Peto and others (British Journal of Cancer 35,
// 1977, part II). This is an approximation, and each interval holds for its own point, not for the whole curve. It assumes
// that censoring has nothing to do with being close to an OOM.
//
// It fails with ErrRange on negative counts, counts above 2^53 and unless 0 < level < 1.
func Survival(lifetimes []Lifetime, at []int, level float64) (SurvivalCurve, error) {
	if err := checkLevel(level); err != nil {
		return SurvivalCurve{}, err
	}
	for i, life := range lifetimes {
		if life.Served < 0 || life.Served > 1<<53 {
			return SurvivalCurve{}, fmt.Errorf("stats: lifetime %d: %d operations: %w: 0..2^53", i, life.Served, ErrRange)
		}
	}
	for _, operations := range at {
		if operations < 0 || operations > 1<<53 {
			return SurvivalCurve{}, fmt.Errorf("stats: survival of %d operations: %w: 0..2^53", operations, ErrRange)
		}
	}

	curve := SurvivalCurve{N: len(lifetimes), Level: level, Points: []SurvivalPoint{}, Warnings: []string{}}
	served := make([]int, 0, len(lifetimes))
	refused := []int{} // the operation, counted from 1, that each OOM refused
	for _, life := range lifetimes {
		served = append(served, life.Served)
		if life.OOM {
			refused = append(refused, life.Served+1)
		}
	}
	slices.Sort(served)
	slices.Sort(refused)
	curve.OOMs, curve.Censored = len(refused), curve.N-len(refused)
	if curve.N == 0 {
		curve.Warnings = append(curve.Warnings, "n = 0: no sequences")
		return curve, nil
	}

	drops := kaplanMeier(served, refused)
	if len(at) == 0 {
		at = append([]int{0}, refused...)
	}
	at = slices.Clone(at)
	slices.Sort(at)
	at = slices.Compact(at)
	for _, operations := range at {
		curve.Points = append(curve.Points, survivalPoint(served, drops, operations, level))
	}
	curve.Warnings = append(curve.Warnings, survivalWarnings(curve)...)
	return curve, nil
}

// drop is a step down of the curve: atRisk sequences asked for that operation, and some were refused.
type drop struct {
	operation     int
	atRisk        int
	ooms          int // so far, this operation included
	before, after float64
}

// kaplanMeier wants both slices sorted and at least one sequence.
func kaplanMeier(served, refused []int) []drop {
	var drops []drop
	share, alive := 1.0, len(served)
	// While nobody is censored the product of the steps telescopes to alive / baseAlive. Using that instead of the
	// product gives survivors / n to the last digit.
	base, baseAlive := share, alive
	for i := 0; i < len(refused); {
		d := drop{operation: refused[i], before: share}
		start := i
		for i < len(refused) && refused[i] == d.operation {
			i++
		}
		survivors := servedAtLeast(served, d.operation)
		d.ooms, d.atRisk = i, survivors+i-start
		if d.atRisk != alive {
			base, baseAlive = share, d.atRisk
		}
		alive = survivors
		share = base * (float64(alive) / float64(baseAlive))
		d.after = share
		drops = append(drops, d)
	}
	return drops
}

func survivalPoint(served []int, drops []drop, operations int, level float64) SurvivalPoint {
	point := SurvivalPoint{Operations: operations, Served: servedAtLeast(served, operations)}
	if operations == 0 {
		// Every sequence serves no operations: certain, not estimated.
		point.Share, point.Lower, point.Upper = pointer(1), pointer(1), pointer(1)
		return point
	}
	share, trials := 1.0, float64(len(served))
	if i := sort.Search(len(drops), func(i int) bool { return drops[i].operation > operations }); i > 0 {
		last := drops[i-1]
		point.OOMs, share = last.ooms, last.after
		// Used where the curve has reached 0: those who were the last to be at risk.
		trials = float64(last.atRisk) / last.before
	}
	if share > 0 {
		if point.Served == 0 {
			return point // the longest sequences ended without an OOM before this: nobody knows
		}
		trials = float64(point.Served) / share
	}
	lower, upper := wilsonLimits(share, trials, level)
	point.Share, point.Lower, point.Upper = &share, &lower, &upper
	return point
}

// servedAtLeast counts the sequences that served that many operations, OOM afterwards or not.
func servedAtLeast(sorted []int, operations int) int {
	return len(sorted) - sort.SearchInts(sorted, operations)
}

func survivalWarnings(curve SurvivalCurve) []string {
	var warnings []string
	last := curve.Points[len(curve.Points)-1]
	if early := curve.N - last.Served - last.OOMs; early > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"n = %d: %d ended without an OOM before operation %d; shares after that are Kaplan-Meier estimates",
			curve.N, early, last.Operations))
	}
	for _, point := range curve.Points {
		if point.Share == nil {
			warnings = append(warnings, fmt.Sprintf("n = %d: no sequence was run to operation %d or beyond: no share there",
				curve.N, point.Operations))
			break
		}
	}
	return warnings
}
