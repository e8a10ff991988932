package shrink_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestStart: a state to start from shrinks as well: a segment goes with the blocks in it and what is done on them, and what is
// left is legal all along.
func TestStart(t *testing.T) {
	in := parse(t, `segment 7 20971520 stream=0 pool=large
block 3 2097152 requested=2097000 at=7+0
block 4 2097152 requested=2097000 at=7+4194304
segment 9 2097152 stream=1 pool=small
block 5 512 requested=1 at=9+512
free 3
record 5 stream=2
free 5
alloc 3 1048577
alloc 6 5
free 4
`)
	r := minimise(t, in, func(t2 *trace.Trace) shrink.Answer {
		require.NoError(t, t2.Validate(), "%s", t2.Format())
		return when(func(t *trace.Trace) bool { return count(t, trace.Block) >= 1 && count(t, trace.Free) >= 1 })(t2)
	})
	require.Equal(t, 3, r.After)
	require.Equal(t, 1, count(r.Trace, trace.Segment))
}

// TestStartRenumbered: segments are numbered from 0 like allocations, and their streams are streams like others: one that has
// nothing to do with the failure goes, and the rest are numbered from 0 too.
func TestStartRenumbered(t *testing.T) {
	in := parse(t, `segment 7 20971520 stream=5 pool=large expandable
block 3 2097152 requested=2097000 at=7+0
segment 8 20971520 stream=5 pool=large expandable at=7+41943040
block 4 2097152 requested=2097000 at=8+4194304
segment 9 2097152 stream=1 pool=small
alloc 5 5 stream=5
free 4
`)
	home := func(t *trace.Trace) bool { // a block of a segment that goes on, and an allocation on its stream
		n := len(t.Ops)
		return n > 0 && t.Ops[n-1].Kind == trace.Free && count(t, trace.Block) > 0 && has(t, func(op trace.Op) bool {
			return op.GoesOn && has(t, func(other trace.Op) bool { return other.Kind == trace.Alloc && other.Stream == op.Stream })
		})
	}
	r := minimise(t, in, func(t2 *trace.Trace) shrink.Answer {
		require.NoError(t, t2.Validate(), "%s", t2.Format())
		return when(home)(t2)
	})
	require.Equal(t, `segment 0 20971520 stream=0 pool=large expandable
segment 1 20971520 stream=0 pool=large expandable at=0+41943040
block 0 2097152 requested=2097000 at=1+4194304
alloc 1 1
free 0
`, operations(r.Trace))
}
