package gen_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// testSeed returns the seed of random tests, SHATTER_SEED or 1, and prints it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SHATTER_SEED")
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

func find(t testing.TB, name string) gen.Workload {
	w, err := gen.Find(name)
	require.NoError(t, err)
	return w
}

// several makes n traces of a workload.
func several(t testing.TB, name string, n int, p gen.Params) []*trace.Trace {
	w := find(t, name)
	traces := make([]*trace.Trace, n)
	for i := range traces {
		traces[i] = gen.Generate(w, gen.Seed(testNumber, name, uint64(i)), p)
	}
	return traces
}

// testNumber is the campaign of tests that assert statistics: they must not depend on luck.
const testNumber = 1

// kinds counts the operations of a trace by kind.
func kinds(tr *trace.Trace) map[trace.Kind]int {
	n := map[trace.Kind]int{}
	for _, op := range tr.Ops {
		n[op.Kind]++
	}
	return n
}
