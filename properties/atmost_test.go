package properties

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// TestAtMost: where pending blocks are counted, an allocator without a promise may count all of them, none, or some.
func TestAtMost(t *testing.T) {
	for _, c := range []struct {
		promised           bool
		got, live, pending uint64
		ok                 bool
	}{
		{false, 10, 10, 5, true}, {false, 12, 10, 5, true}, {false, 15, 10, 5, true}, {false, 9, 10, 5, false}, {false, 16, 10, 5, false},
		{true, 10, 10, 5, false}, {true, 12, 10, 5, false},
	} {
		s := &executor.State{}
		if c.promised {
			s.Promise.Kind = allocators.PromiseN
		}
		v := atMost(s, "A3", "active", c.got, c.live, c.pending)
		require.Equal(t, c.ok, v == nil, "%+v", c)
		if v != nil {
			require.Equal(t, "A3", v.Rule)
		}
	}
}
