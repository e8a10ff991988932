package conform

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

// TestCommittedPools holds the private pools to what four releases of PyTorch decided, recorded as testdata/README.md says.
func TestCommittedPools(t *testing.T) {
	t.Parallel()
	const dir = "testdata/pools"
	rep, err := CompareLogs(dir, nil)
	require.NoError(t, err)
	showDifferences(t, rep)
	require.Equal(t, []int{56, 39021, 0}, []int{rep.Logs, rep.Rows, rep.Divergent})
	require.True(t, rep.Pools)

	logs, err := ReadIndex(dir)
	require.NoError(t, err)
	for sub, want := range map[string]int{"traces": 56, "logs": 56} {
		files, err := os.ReadDir(dir + "/" + sub)
		require.NoError(t, err)
		require.Len(t, files, want, "files in %s that the index does not know would never be compared", sub)
	}
	kinds, rules := map[trace.Kind]int{}, map[string]int{}
	for _, l := range logs {
		tr, err := tracefile.Read(l.TracePath)
		require.NoError(t, err)
		for i := range tr.Ops {
			kinds[tr.Ops[i].Kind]++
		}
		rules[l.Config]++
	}
	for _, k := range []trace.Kind{trace.PoolBegin, trace.PoolEnd, trace.PoolRelease, trace.EmptyCache, trace.Record, trace.Use} {
		require.Greater(t, kinds[k], 100, k)
	}
	require.GreaterOrEqual(t, len(rules), 20, "four releases, six settings: %v", rules)
}
