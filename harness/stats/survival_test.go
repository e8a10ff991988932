package stats

import (
	"encoding/json"
	"math"
	"slices"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
)

// Ten sequences of 100 operations, three of which end early with an OOM: no censoring before 100, so plain shares.
func TestSurvivalOfOneLength(t *testing.T) {
	lifetimes := slices.Repeat([]Lifetime{{100, false}}, 7)
	lifetimes = append(lifetimes, Lifetime{49, true}, Lifetime{20, true}, Lifetime{49, true})
	curve, err := Survival(lifetimes, []int{100, 0, 20, 21, 50, 49, 50}, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, 10, curve.N)
	require.Equal(t, 3, curve.OOMs)
	require.Equal(t, 7, curve.Censored)
	require.Empty(t, curve.Warnings)
	require.Len(t, curve.Points, 6)
	for i, want := range []struct{ operations, survivors int }{{0, 10}, {20, 10}, {21, 9}, {49, 9}, {50, 7}, {100, 7}} {
		point := curve.Points[i]
		require.Equal(t, want.operations, point.Operations)
		require.Equal(t, want.survivors, point.Served)
		require.Equal(t, 10-want.survivors, point.OOMs)
		require.Equal(t, float64(want.survivors)/10, *point.Share)
		if want.operations > 0 {
			wilson, err := Wilson(want.survivors, 10, DefaultLevel)
			require.NoError(t, err)
			require.InDelta(t, *wilson.Lower, *point.Lower, 1e-12)
			require.InDelta(t, *wilson.Upper, *point.Upper, 1e-12)
		}
	}
	require.Equal(t, 1.0, *curve.Points[0].Lower, "every sequence serves no operations")
}

func TestSurvivalWithCensoring(t *testing.T) {
	// OOMs at operations 3 and 6 of five; one stops after 4 operations, two after 8. By hand: 4/5, then 4/5 * 2/3.
	lifetimes := []Lifetime{{8, false}, {2, true}, {5, true}, {4, false}, {8, false}}
	curve, err := Survival(lifetimes, nil, DefaultLevel)
	require.NoError(t, err)
	require.Len(t, curve.Points, 3)
	require.Equal(t, []int{0, 3, 6}, []int{curve.Points[0].Operations, curve.Points[1].Operations, curve.Points[2].Operations})
	require.Equal(t, 4.0/5, *curve.Points[1].Share)
	require.InDelta(t, 4.0/5*2/3, *curve.Points[2].Share, 1e-15)
	lower, upper := wilsonLimits(4.0/5*2/3, 2/(4.0/5*2/3), DefaultLevel)
	require.InDelta(t, lower, *curve.Points[2].Lower, 1e-12)
	require.InDelta(t, upper, *curve.Points[2].Upper, 1e-12)
	require.Equal(t, []string{
		"n = 5: 1 ended without an OOM before operation 6; shares after that are Kaplan-Meier estimates"}, curve.Warnings)
}

func TestSurvivalBeyondTheData(t *testing.T) {
	curve, err := Survival([]Lifetime{{8, false}, {2, true}}, []int{8, 9, 10}, DefaultLevel)
	require.NoError(t, err)
	require.Equal(t, 0.5, *curve.Points[0].Share)
	require.Nil(t, curve.Points[1].Share)
	require.Nil(t, curve.Points[1].Lower)
	require.Nil(t, curve.Points[1].Upper)
	require.Contains(t, curve.Warnings, "n = 2: no sequence was run to operation 9 or beyond: no share there")
}

// Once all are gone the share is 0 for good, and the limit is that of 0 in n.
func TestSurvivalOfNone(t *testing.T) {
	curve, err := Survival([]Lifetime{{1, true}, {2, true}, {3, true}}, []int{4, 1000}, DefaultLevel)
	require.NoError(t, err)
	wilson, err := Wilson(0, 3, DefaultLevel)
	require.NoError(t, err)
	for _, point := range curve.Points {
		require.Equal(t, 0.0, *point.Share)
		require.Equal(t, 0.0, *point.Lower)
		require.InDelta(t, *wilson.Upper, *point.Upper, 1e-12)
	}
	require.Empty(t, curve.Warnings)
}

func TestSurvivalOfNothing(t *testing.T) {
	curve, err := Survival(nil, []int{5}, DefaultLevel)
	require.NoError(t, err)
	data, err := json.Marshal(curve)
	require.NoError(t, err)
	require.Equal(t, `{"n":0,"ooms":0,"censored":0,"level":0.95,"points":[],"warnings":["n = 0: no sequences"]}`, string(data))
}

func TestSurvivalRefuses(t *testing.T) {
	fine := []Lifetime{{1, false}}
	for name, f := range map[string]func() (SurvivalCurve, error){
		"negative life":  func() (SurvivalCurve, error) { return Survival([]Lifetime{{-1, true}}, nil, 0.95) },
		"endless life":   func() (SurvivalCurve, error) { return Survival([]Lifetime{{math.MaxInt, true}}, nil, 0.95) },
		"negative count": func() (SurvivalCurve, error) { return Survival(fine, []int{-1}, 0.95) },
		"endless count":  func() (SurvivalCurve, error) { return Survival(fine, []int{math.MaxInt}, 0.95) },
		"level":          func() (SurvivalCurve, error) { return Survival(fine, nil, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f()
			require.ErrorIs(t, err, ErrRange)
		})
	}
}

// productLimit is Kaplan and Meier's definition read aloud: walk through all operations, and at each ask everyone.
func productLimit(lifetimes []Lifetime, operations int) float64 {
	share := 1.0
	for operation := 1; operation <= operations; operation++ {
		atRisk, refused := 0, 0
		for _, life := range lifetimes {
			switch {
			case life.Served >= operation:
				atRisk++
			case life.OOM && life.Served+1 == operation:
				atRisk++
				refused++
			}
		}
		if refused > 0 {
			share *= 1 - float64(refused)/float64(atRisk)
		}
	}
	return share
}

func TestSurvivalProperties(t *testing.T) {
	lifetimes := gen.SliceOf(gen.IntRange(-30, 30)).Map(func(whole []int) []Lifetime {
		lives := make([]Lifetime, len(whole))
		for i, v := range whole {
			lives[i] = Lifetime{Served: max(v, -v), OOM: v < 0} // the sign says how it ended
		}
		return lives
	})
	everywhere := make([]int, 35)
	for i := range everywhere {
		everywhere[i] = i
	}
	properties := gopter.NewProperties(parameters(t))
	properties.Property("equals the product over all operations, falls, stays within its limits", prop.ForAll(
		func(lives []Lifetime) bool {
			curve, err := Survival(lives, everywhere, DefaultLevel)
			if err != nil || len(lives) == 0 {
				return err == nil && len(curve.Points) == 0
			}
			last := 1.0
			for i, point := range curve.Points {
				want := productLimit(lives, i)
				if point.Share == nil {
					if want == 0 || point.Served > 0 {
						return false
					}
					continue
				}
				share := *point.Share
				if math.Abs(share-want) > 1e-12 || share > last || *point.Lower > share || *point.Upper < share {
					return false
				}
				last = share
			}
			return true
		}, lifetimes))
	properties.Property("the order of sequences does not matter", prop.ForAll(
		func(lives []Lifetime) bool {
			forth, err := Survival(lives, nil, DefaultLevel)
			if err != nil {
				return false
			}
			slices.Reverse(lives)
			back, err := Survival(lives, nil, DefaultLevel)
			if err != nil {
				return false
			}
			a, errA := json.Marshal(forth)
			b, errB := json.Marshal(back)
			return errA == nil && errB == nil && string(a) == string(b)
		}, lifetimes))
	properties.TestingRun(t)
}
