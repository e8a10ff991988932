package properties_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/properties"
)

// TestEveryContractIsChecked: each number of the contract catalogue that holds is the source of a property or relation, and each that
// does not is listed as not promised. D2 and X4 are both: what holds on classic, and what does not on expandable.
func TestEveryContractIsChecked(t *testing.T) {
	named := regexp.MustCompile(`([A-Z])(\d+)(?:-[A-Z](\d+))?`)
	numbers := func(sources []string) map[string]bool {
		out := map[string]bool{}
		for _, s := range sources {
			contracts := regexp.MustCompile(`contracts [^;]*`).FindString(s)
			for _, m := range named.FindAllStringSubmatch(contracts, -1) {
				first, _ := strconv.Atoi(m[2])
				last, err := strconv.Atoi(m[3])
				if err != nil {
					last = first
				}
				for n := first; n <= last; n++ {
					out[fmt.Sprint(m[1], n)] = true
				}
			}
		}
		return out
	}
	var checked, unpromised []string
	for _, p := range properties.All() {
		require.NotEmpty(t, p.ID)
		require.True(t, strings.HasSuffix(p.Claim, "."), "%s: the claim is a sentence", p.ID)
		require.NotEmpty(t, p.Source, p.ID)
		checked = append(checked, p.Source)
	}
	for _, r := range properties.Relations() {
		require.NotEmpty(t, r.Source, r.ID)
		require.True(t, strings.HasSuffix(r.Claim, "."), "%s: the claim is a sentence", r.ID)
		checked = append(checked, r.Source)
	}
	monotone := 0 // what one might expect to be, section 3.3
	for _, n := range properties.NotInvariants {
		unpromised = append(unpromised, n.Source)
		if strings.HasPrefix(n.Source, "contracts 3.3") {
			monotone++
		}
	}
	require.Equal(t, 4, monotone, "section 3.3 lists four")
	holds, not := numbers(checked), numbers(unpromised)
	for _, id := range strings.Fields(
		"I1 I2 I3 I4 I5 I6 I7 I8 I9 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 D1 D2 D3 E1 E3 E4 E5 P1 P2 P3 P4 P5 X1 X3",
	) {
		require.True(t, holds[id], "no property checks %s", id)
	}
	for _, id := range strings.Fields("D2 D4 E2 P6 P7 P8 P9 X2 X4") {
		require.True(t, not[id], "%s is not listed as not promised", id)
	}
}
