package executor

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// TestStampPlaces: every place lies inside the block at a multiple of 8, since the pattern counts in words; both ends are among
// them, and both sides of page edges: of all edges up to 32, of 32 spread over the block above.
func TestStampPlaces(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	s := &stamper{}
	for range 20000 {
		addr := device.Addr(1<<40 + rng.Uint64N(1<<13)*512)
		size := 1 + rng.Uint64N(1<<(10+rng.IntN(22)))
		if rng.IntN(4) == 0 { // a block that ends close behind an edge
			size = (1+rng.Uint64N(40))*stampPage - uint64(addr)%stampPage + 1 + rng.Uint64N(100)
		}
		op := rng.IntN(1000)
		places := s.places(addr, size, op)
		covered := func(at uint64) bool {
			for _, p := range places {
				if p.off <= at && at < p.off+p.size {
					return true
				}
			}
			return false
		}
		for _, p := range places {
			require.Zero(t, p.off%8)
			require.Positive(t, p.size)
			require.LessOrEqual(t, p.off+p.size, size)
		}
		require.True(t, covered(0) && covered(size-1) && covered(min(size-1, 511)) && covered(size-min(size, 512)))
		edges, seen := 0, 0
		for e := stampPage - uint64(addr)%stampPage; e < size; e += stampPage {
			edges++
			if covered(e) && covered(e-1) {
				seen++
			}
		}
		require.GreaterOrEqual(t, seen, min(edges, maxEdges/2), "%d bytes at %#x", size, uint64(addr))
		if edges <= maxEdges {
			require.Equal(t, edges, seen, "%d bytes at %#x", size, uint64(addr))
		}
		require.LessOrEqual(t, len(places), maxEdges+samples+2+1)
	}
	s.full = true
	require.Equal(t, []stampSpan{{0, 5 << 20}}, s.places(0, 5<<20, 1))
}

// TestWhose: what a wrong word is said to be.
func TestWhose(t *testing.T) {
	require.NotEqual(t, word(0, 0), uint64(0), "cleared memory must not look like a block")
	require.Equal(t, word(7, 4096), word(7, 0)+512)
	require.Less(t, word(7, 512<<30-8), word(8, 0))
}
