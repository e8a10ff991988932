package shadow

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
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

// TestRangesTwin holds the chunks against one sorted slice, growing and shrinking over several chunks.
func TestRangesTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(testSeed(t), 13))
	var r ranges
	var twin []*Entry // by address
	overlaps, chunks := 0, 0
	for step := range 10_000 {
		// The number of entries swings between none and some thousand.
		grow := rng.IntN(100) < 30+40*(step/2500%2)
		if grow || len(twin) == 0 {
			// Sizes leave gaps of every width, none included, and overlap now and then.
			e := &Entry{Addr: device.Addr(rng.IntN(1 << 17)), Size: uint64(1 + rng.IntN(40)), Op: int32(step)}
			want := -1
			for i, o := range twin {
				if o.Addr < e.End() && o.End() > e.Addr {
					want = i
					break
				}
			}
			got := r.insert(e)
			if want >= 0 {
				overlaps++
				require.NotNil(t, got, step)
				require.True(t, got.Addr < e.End() && got.End() > e.Addr, "it was given an entry that it does not overlap")
				require.Contains(t, twin, got)
			} else {
				require.Nil(t, got, step)
				i, _ := slices.BinarySearchFunc(twin, e, func(a, b *Entry) int { return int(int64(a.Addr) - int64(b.Addr)) })
				twin = slices.Insert(twin, i, e)
			}
		} else {
			i := rng.IntN(len(twin))
			r.remove(twin[i])
			twin = slices.Delete(twin, i, i+1)
		}
		chunks = max(chunks, len(r.chunks))
		if step%50 == 0 {
			checkRanges(t, &r, twin)
		}
	}
	for _, e := range slices.Clone(twin) {
		r.remove(e)
	}
	checkRanges(t, &r, nil)
	require.Greater(t, overlaps, 200)
	require.Greater(t, chunks, 10)
}

func checkRanges(t *testing.T, r *ranges, twin []*Entry) {
	var list []*Entry
	r.each(func(e *Entry) bool {
		list = append(list, e)
		return true
	})
	require.Equal(t, len(twin), len(list))
	for i := range twin {
		require.Same(t, twin[i], list[i])
	}
	h := Heap{ranges: *r}
	c := h.Cursor()
	for i := range twin {
		require.Same(t, twin[i], c.Next())
	}
	require.Nil(t, c.Next())
	require.Nil(t, c.Next())
	require.Len(t, r.firsts, len(r.chunks))
	for i, k := range r.chunks {
		require.Positive(t, k.n, "an empty chunk stayed")
		require.Equal(t, k.starts[0], r.firsts[i])
		for n, e := range k.entries {
			if n < k.n {
				require.Equal(t, e.Addr, k.starts[n])
			} else {
				require.Nil(t, e, "a removed entry is kept alive")
			}
		}
	}
	// Removals merge chunks, so they are not many more than need be.
	require.LessOrEqual(t, len(r.chunks), 2+len(twin)/(chunkCap/8))
	stopped := 0
	r.each(func(*Entry) bool { stopped++; return stopped < 3 })
	require.Equal(t, min(3, len(twin)), stopped)
}
