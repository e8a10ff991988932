package executor_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const startState = `segment 7 20MiB pool=large
block 0 2MiB requested=2000000 at=7+0
segment 1 10MiB pool=large
segment 2 40MiB pool=large expandable
segment 3 20MiB pool=large expandable at=2+60MiB
block 9 4MiB requested=4MiB at=3+1MiB
alloc 2 5MiB
free 0
free 9
empty_cache
`

func startRun(t *testing.T, alloc string, capacity uint64) (*executor.Result, error) {
	tr, err := trace.ParseString("start", startState)
	require.NoError(t, err)
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	return executor.Execute(executor.Compile(tr), executor.Target{Name: alloc, New: spec.New}, executor.Options{
		Device: dev, OnRow: func(*executor.Row) {},
	})
}

// TestStartRows: a block of the state to start from has its place in the decision log, and keeps it until it is freed.
func TestStartRows(t *testing.T) {
	tr, err := trace.ParseString("start", startState)
	require.NoError(t, err)
	var places []string
	_, err = executor.Execute(executor.Compile(tr), target(t, "expandable"), executor.Options{Device: sim(t, 200<<20), OnRow: func(r *executor.Row) {
		if r.HasBlock {
			places = append(places, fmt.Sprintf("%s %d+%d", &tr.Ops[r.Op], r.Segment, r.Offset))
		}
	}})
	require.NoError(t, err)
	require.Equal(t, []string{
		"block 0 2097152 requested=2000000 at=7+0 0+0", "block 9 4194304 requested=4194304 at=3+1048576 2+63963136",
		"alloc 2 5242880 1+0", "free 0 0+0", "free 9 2+63963136",
	}, places)
}

// TestStartFromState: segments and blocks are there before the first operation; idle ones are left out where there is no room; a device
// that has not the memory for the others refuses; and allocators that cannot start from a state say so.
func TestStartFromState(t *testing.T) {
	r, err := startRun(t, "classic", 100<<20)
	require.NoError(t, err)
	require.Empty(t, r.OOMs)
	require.EqualValues(t, 90<<20, r.PeakReserved)
	require.EqualValues(t, 5<<20, r.Stats.AllocatedBytes.All.Current)

	r, err = startRun(t, "classic", 82<<20)
	require.NoError(t, err)
	require.Empty(t, r.OOMs)
	require.EqualValues(t, 80<<20, r.PeakReserved, "the idle segment was left out")

	r, err = startRun(t, "classic", 70<<20)
	require.NoError(t, err)
	require.Equal(t, []int{4}, r.OOMs, "the second range does not fit")

	_, err = startRun(t, "direct", 100<<20)
	require.EqualError(t, err, "direct cannot start from a state, and start begins with one (operations segment and block): take classic or expandable")
}
