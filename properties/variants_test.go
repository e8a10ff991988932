package properties

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestVariants: which trace is run beside a trace, operation by operation, as testdata/variants.txt has it; -update writes it anew.
func TestVariants(t *testing.T) {
	const name = "testdata/variants.txt"
	make := map[string]variant{
		"renamed": renamed, "frees shuffled": freesShuffled, "pairs inserted": insertPairs, "emptied twice": doubleEmptyCache, "run twice": runTwice,
	}
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	cases := strings.Split(string(data), "\n== ")
	for i, c := range cases[1:] {
		of, rest, _ := strings.Cut(c, "\n")
		text, _, _ := strings.Cut(rest, "---\n")
		tr, err := trace.ParseString(of, text)
		require.NoError(t, err)
		require.Contains(t, make, of)
		v, at := make[of](tr, rand.New(variantSeed(tr)))
		cases[i+1] = fmt.Sprintf("%s\n%s---\n%s", of, text, paired(v, at))
	}
	got := strings.Join(cases, "\n== ")
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
		return
	}
	require.Equal(t, string(data), got)
}

// paired writes the operations of a variant, each behind the number of the one that it must decide as.
func paired(v *trace.Trace, at []int) string {
	if v == nil {
		return "none\n"
	}
	of := map[int]int{}
	for i, k := range at {
		of[k] = i
	}
	var out strings.Builder
	for k := range v.Ops {
		if i, ok := of[k]; ok {
			fmt.Fprintf(&out, "%d: %s\n", i, &v.Ops[k])
		} else {
			fmt.Fprintf(&out, "-: %s\n", &v.Ops[k])
		}
	}
	return out.String()
}
