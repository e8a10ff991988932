package verify

import (
	"slices"
	"strings"
)

// Duplicates groups reports that show the same: pending findings of one signature, whatever leads there, and other cases with the
// same signature and the same coverage. The first of a group is the one to keep: an accepted case before a pending one, else the
// one with fewer operations.
func Duplicates(all []*Report) [][]*Report {
	groups := map[string][]*Report{}
	var order []string
	for _, r := range all {
		key := strings.Join(r.Signature, " ") + "\n" + strings.Join(r.Coverage, "\n")
		if f := r.Case.Finding(); f != "" {
			key = f
		}
		if groups[key] == nil {
			order = append(order, key)
		}
		groups[key] = append(groups[key], r)
	}
	var out [][]*Report
	for _, key := range order {
		if g := groups[key]; len(g) > 1 {
			slices.SortStableFunc(g, func(a, b *Report) int {
				if x, y := rank(a), rank(b); x != y {
					return x - y
				}
				return len(a.Case.Trace.Ops) - len(b.Case.Trace.Ops)
			})
			out = append(out, g)
		}
	}
	return out
}

func rank(r *Report) int {
	return slices.Index([]string{"accepted", "known", "pending", "flaky", "retired"}, string(r.Case.State))
}

// Nearest is the case among others whose coverage has the most in common with r's, by Jaccard's measure (common decisions by
// all decisions, 0 to 1); nil if there is none.
func Nearest(r *Report, others []*Report) (best *Report, similarity float64) {
	for _, o := range others {
		if o.Case.Name == r.Case.Name {
			continue
		}
		if s := jaccard(r.Coverage, o.Coverage); best == nil || s > similarity {
			best, similarity = o, s
		}
	}
	return best, similarity
}

func jaccard(a, b []string) float64 {
	common := 0
	for _, s := range a {
		if _, ok := slices.BinarySearch(b, s); ok {
			common++
		}
	}
	if all := len(a) + len(b) - common; all > 0 {
		return float64(common) / float64(all)
	}
	return 0
}
