package measure_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Each rule shows up where it is all there is, and the parts always add up.
func TestWaterfall(t *testing.T) {
	size := func(n uint64) string { return fmt.Sprint(n / (1 << 10)) } // KiB
	for name, c := range map[string]struct{ target, text, want string }{
		// Contracts 3.2: with two divisions 1,100 MiB become 1,536.
		"rounding": {
			"classic@roundup_power2_divisions:2", "alloc 0 1100MiB",
			"L* 1126400 + rounding 446464 + purchase size 0 + pools 0 + streams 0 + pins 0 = 1572864",
		},
		// 2 MiB buy 20 MiB.
		"purchase": {"classic", "alloc 0 2MiB", "L* 2048 + rounding 0 + purchase size 18432 + pools 0 + streams 0 + pins 0 = 20480"},
		// A small and a large block cannot share a segment.
		"pools": {"classic", "alloc 0 2MiB\nalloc 1 512KiB", "L* 2560 + rounding 0 + purchase size 16384 + pools 2048 + streams 0 + pins 1536 = 22528"},
		// The cache of stream 0 is pinned by half a segment, and serves stream 1 no block.
		"streams": {
			"classic", "alloc 0 100MiB\nfree 0\nalloc 1 40MiB\nalloc 2 60MiB stream=1",
			"L* 102400 + rounding 0 + purchase size 0 + pools 0 + streams 61440 + pins 0 = 163840",
		},
		// Contracts 3.2: 60 MiB free in two pieces.
		"pins": {
			"classic", "alloc 0 120MiB\nfree 0\nalloc 1 30MiB\nalloc 2 30MiB\nalloc 3 30MiB\nalloc 4 30MiB\nfree 1\nfree 3\nalloc 5 60MiB",
			"L* 122880 + rounding 0 + purchase size 0 + pools 0 + streams 0 + pins 61440 = 184320",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := trace.ParseString(name, c.text+"\n")
			require.NoError(t, err)
			spec, err := catalog.Parse(c.target)
			require.NoError(t, err)
			w, err := measure.WaterfallOf(context.Background(), tr, *spec.Settings, simulated, 1<<20)
			require.NoError(t, err)
			require.Equal(t, c.want, w.Format(size))
			sum := int64(w.PeakLive)
			for _, s := range w.Steps {
				sum += s.Bytes
			}
			require.EqualValues(t, w.Safe, sum)
		})
	}
}
