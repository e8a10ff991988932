package snapshot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/caching"
)

// TestInferSize: a block of which only the free is recorded has the rest of its place if the split rule would have left it there.
func TestInferSize(t *testing.T) {
	const mib = 1 << 20
	set, _, err := caching.ParseSettings("max_split_size_mb:64")
	require.NoError(t, err)
	large, small, pages := &region{}, &region{small: true}, &region{expandable: true}
	for _, c := range []struct {
		g                    *region
		requested, gap, want uint64
	}{
		{large, 11 * mib, 12 * mib, 12 * mib},
		{large, 11*mib - 1, 12 * mib, 12 * mib},
		{large, 11*mib - 512, 12 * mib, 11*mib - 512},
		{large, 5 * mib, 20 * mib, 5 * mib},
		{large, 5*mib + 1, 5*mib + 512, 5*mib + 512},
		{large, 70 * mib, 89 * mib, 89 * mib},
		{large, 70 * mib, 90 * mib, 70 * mib},
		{small, 1000, 2 * mib, 1024},
		{small, 1000, 1024, 1024},
		{pages, 11 * mib, 12 * mib, 11 * mib},
		{large, 5 * mib, mib, 5 * mib}, // it overlaps, which is told apart
	} {
		require.Equal(t, c.want, inferSize(&set, c.g, c.requested, c.gap), "%+v", c)
	}
}

// TestRegions cuts and joins mapped ranges.
func TestRegions(t *testing.T) {
	var r regions
	r.join(region{addr: 100, size: 100, expandable: true})
	r.join(region{addr: 300, size: 100, expandable: true})
	r.join(region{addr: 200, size: 100, expandable: true})
	require.Equal(t, []region{{addr: 100, size: 300, expandable: true}}, r.list)
	require.True(t, r.cut(150, 100))
	require.Equal(t, []region{{addr: 100, size: 50, expandable: true}, {addr: 250, size: 150, expandable: true}}, r.list)
	require.False(t, r.cut(140, 50))
	require.True(t, r.cut(250, 150))
	require.True(t, r.cut(100, 20))
	require.Equal(t, []region{{addr: 120, size: 30, expandable: true}}, r.list)
	r.join(region{addr: 150, size: 10, expandable: true, small: true})
	require.Len(t, r.list, 2, "pools are not joined")
	require.True(t, r.overlaps(149, 1))
	require.False(t, r.overlaps(160, 5))
	require.Nil(t, r.holding(155, 10))
	require.True(t, r.remove(150))
	require.False(t, r.remove(150))
}
