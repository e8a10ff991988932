package cudrv

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write calls.h")

var (
	comment   = regexp.MustCompile(`(?s)/\*.*?\*/`)
	spaces    = regexp.MustCompile(`\s+`)
	prototype = regexp.MustCompile(`CUresult (cu\w+)\(([^;]*)\);`)
)

// calls makes the list of functions from the header: CALL(name, (type a, ...), (a, ...)), all but cuInit.
func calls(header string) string {
	var b strings.Builder
	b.WriteString("// Made from include/cuda.h by the test of this package; do not edit.\n")
	header = spaces.ReplaceAllString(comment.ReplaceAllString(header, ""), " ")
	for _, m := range prototype.FindAllStringSubmatch(header, -1) {
		name, params := m[1], m[2]
		if name == "cuInit" {
			continue
		}
		var typed, args []string
		if params != "void" {
			for i, p := range strings.Split(params, ",") {
				arg := string(rune('a' + i))
				args = append(args, arg)
				typed = append(typed, strings.TrimSpace(p)+" "+arg)
			}
		} else {
			typed = []string{"void"}
		}
		fmt.Fprintf(&b, "CALL(%s, (%s), (%s))\n", name, strings.Join(typed, ", "), strings.Join(args, ", "))
	}
	return b.String()
}

// TestCallsAreThoseOfTheHeader: the list is up to date, and has what cu and the binding of virtual memory call.
func TestCallsAreThoseOfTheHeader(t *testing.T) {
	header, err := os.ReadFile("../include/cuda.h")
	require.NoError(t, err)
	want := calls(string(header))
	if *update {
		require.NoError(t, os.WriteFile("calls.h", []byte(want), 0o644))
	}
	got, err := os.ReadFile("calls.h")
	require.NoError(t, err)
	require.Equal(t, want, string(got), "go test -update writes it anew")
	require.Equal(t, 171, strings.Count(want, "\nCALL("))
	for _, name := range []string{"cuMemAddressReserve", "cuMemMap", "cuMemSetAccess", "cuStreamWaitValue32", "cuMemAlloc_v2"} {
		require.Contains(t, want, "\nCALL("+name+", (")
	}
}
