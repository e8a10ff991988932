package shrink

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestPoolsStayLegal: whatever is removed, what is left of the operations on pools is legal.
func TestPoolsStayLegal(t *testing.T) {
	w, err := gen.Find("graphs")
	require.NoError(t, err)
	removed := 0
	for i := range 20 {
		tr := gen.Generate(w, uint64(i), gen.Params{Ops: 300})
		tr = with(tr, distinct(tr.Ops))
		for _, cut := range [][][]int{units(tr), loose(tr)} {
			for k := range cut {
				out := without(tr, cut[k])
				require.NoError(t, out.Validate())
				removed += len(tr.Ops) - len(out.Ops)
			}
		}
		keep := make([]bool, len(tr.Ops))
		for k := range keep {
			keep[k] = k%3 > 0
		}
		require.NoError(t, keeping(tr, keep).Validate())
	}
	require.Greater(t, removed, 1000)
}

// TestUnitsOfPools: a pool with all that is done to it is a unit; each of its operations can go alone, with what hangs on it.
func TestUnitsOfPools(t *testing.T) {
	tr, err := trace.ParseString("t", `
pool begin 7 capture
alloc 0 1
use 0 stream=0
pool end 7
pool begin 9
pool end 9
pool begin 7 stream=2
pool end 7
pool release 7
empty_cache pool=7
free 0
`)
	require.NoError(t, err)
	require.Equal(t, [][]int{{0, 3, 6, 7, 8, 9}, {1, 2, 10}, {4, 5}}, units(tr))
	require.Equal(t, "pool begin 1\npool end 1\n", string(without(tr, []int{0, 3, 6, 7, 8, 9}, []int{1, 2, 10}).Format()))
	require.Equal(t, "alloc 0 1\nuse 0 stream=0\npool begin 1\npool end 1\npool begin 2 stream=2\npool end 2\npool release 2\n"+
		"empty_cache pool=2\nfree 0\n", string(without(tr, []int{0}).Format()), "its end goes too, and pools are numbered anew")
}

// TestPoolsGetPlainer: what does not matter of a pool's opening goes.
func TestPoolsGetPlainer(t *testing.T) {
	tr, err := trace.ParseString("t", "pool begin 5 stream=3 capture\nalloc 0 1 stream=3\npool end 5\npool release 5\n")
	require.NoError(t, err)
	tr.Set(trace.KeyCapacity, "2097152")
	r, err := Minimise(context.Background(), tr, func(t *trace.Trace) Answer {
		for i := range t.Ops {
			if t.Ops[i].Kind == trace.PoolBegin {
				return Answer{Kind: Same, Op: len(t.Ops) - 1}
			}
		}
		return Answer{Kind: Passes}
	}, Budget{})
	require.NoError(t, err)
	require.Equal(t, "pool begin 1\n", string(trace.Append(nil, r.Trace.Ops[0]))+"\n")
	require.Len(t, r.Trace.Ops, 1)
}

// TestEmptiedPools: emptying a pool's cache goes alone where the pool stays.
func TestEmptiedPools(t *testing.T) {
	tr, err := trace.ParseString("t", "pool begin 1\nalloc 0 1\nempty_cache pool=1\nfree 0\n")
	require.NoError(t, err)
	r, err := Minimise(context.Background(), tr, func(t *trace.Trace) Answer {
		if len(t.Ops) > 0 && t.Ops[0].Kind == trace.PoolBegin {
			return Answer{Kind: Same, Op: len(t.Ops) - 1}
		}
		return Answer{}
	}, Budget{})
	require.NoError(t, err)
	require.True(t, r.Minimal)
	require.Equal(t, "pool begin 1", r.Trace.Ops[len(r.Trace.Ops)-1].String())
	require.Len(t, r.Trace.Ops, 1)
}
