package caching

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRound has the table of section 6 and the boundaries of section 6.1. Sizes are bytes.
func TestRound(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		conf string // divisions; empty: none
		want uint64
	}{
		{1, "", 512}, {511, "", 512}, {512, "", 512}, {1, "8", 512}, {512, "8", 512},
		{513, "", 1024},
		{1200, "4", 1536}, // 1,200 <= 512*4: plain rounding, not 1,280
		{2048, "4", 2048},
		{2049, "4", 2560},
		{2561, "4", 3072},
		{100 * mib, "8", 104 * mib},
		{1100 * mib, "2", 1536 * mib}, {1100 * mib, "4", 1280 * mib}, {1100 * mib, "8", 1152 * mib},
		{1100 * mib, "1", 1100 * mib}, // one division is none (pytorch#161139)
		{5242881, "4", 6291456},
		{128 * mib, "4", 128 * mib},       // a power of two stays
		{160 * mib, "4", 160 * mib},       // so does a multiple of the step
		{9 * mib, "4", 10 * mib},          // crosses 10 MiB: a segment of its own
		{1<<20 - 1, "2", 1 << 20},         // never crosses the small limit
		{1<<60 - 1, "4", 1 << 60},         // the largest request
		{1 << 60, "", 1 << 60},            //
		{2*mib - 1, "[1:0,2:2]", 2 * mib}, // bucket 0 is all below 2 MiB
		{2*mib + 1, "[1:0,2:2]", 3 * mib},
		{4*mib - 1, "[1:0,2:2]", 4 * mib},
		{4*mib + 1, "[1:0,2:2]", 4*mib + 512}, // bucket 2 is not named
		{32<<30 + 1, "[32768:2]", 48 << 30},   // bucket 15 is all from 32 GiB on
		{256<<30 + 1, "[32768:2]", 384 << 30},
		{16<<30 + 1, "[1:0,32768:2]", 16<<30 + 512}, // and bucket 14 is another
		{32<<30 + 1, "[1:0,16384:2]", 32<<30 + 512},
		{3 << 30, "[256:1,512:2,1024:4,>:8]", 3 << 30},
		{1100 * mib, "[256:1,512:2,1024:4,>:8]", 1152 * mib}, // `>` overwrites the entry of 1024
		{600 * mib, "[256:1,512:2,1024:4,>:8]", 768 * mib},
		{300*mib + 1, "[256:1,512:2,1024:4,>:8]", 300*mib + 512},
	} {
		conf := ""
		if c.conf != "" {
			conf = "roundup_power2_divisions:" + c.conf
		}
		set, _, err := ParseSettings(conf)
		require.NoError(t, err)
		require.Equal(t, c.want, set.Round(c.n), "%d with divisions %s", c.n, c.conf)
	}
}

// TestRoundIsMonotone and at least the request, a multiple of 512 and its own rounding, whatever the divisions.
func TestRoundIsMonotone(t *testing.T) {
	for _, d := range []string{"", "2", "4", "8", "64", "1024", "[1:2,4:2,16:4]", "[>:16]", "[256:1,512:2,1024:4,>:8]"} {
		conf := ""
		if d != "" {
			conf = "roundup_power2_divisions:" + d
		}
		set, _, err := ParseSettings(conf)
		require.NoError(t, err)
		last := uint64(0)
		for shift := range 60 {
			base := uint64(1) << shift
			for _, n := range []uint64{base - 1, base, base + 1, base + base/8, base + base/3, base + base/2 + 1, 2*base - 1} {
				if n == 0 || n < last/4 {
					continue
				}
				s := set.Round(n)
				require.True(t, s >= n && s%512 == 0 && set.Round(s) >= s, "%s: %d rounds to %d", d, n, s)
				require.GreaterOrEqual(t, set.Round(n+1), s, fmt.Sprintf("%s: %d", d, n))
				last = n
			}
		}
	}
}

// TestSegmentSize has the table of section 8.
func TestSegmentSize(t *testing.T) {
	for _, c := range [][2]uint64{
		{512, 2 * mib}, {1 * mib, 2 * mib},
		{1*mib + 512, 20 * mib}, {10*mib - 512, 20 * mib},
		{10 * mib, 10 * mib}, {10*mib + 512, 12 * mib}, {21 * mib, 22 * mib}, {64*mib + 512, 66 * mib},
		{1 << 60, 1 << 60},
	} {
		require.Equal(t, c[1], rules26.SegmentSize(c[0]), c[0])
	}
	require.EqualValues(t, 2*mib, rules26.PageSize(true))
	require.EqualValues(t, 20*mib, rules26.PageSize(false))
}

func TestRules(t *testing.T) {
	r, err := RulesFor("2.6")
	require.NoError(t, err)
	require.Equal(t, rules26, r)
	_, err = RulesFor("2.7")
	require.EqualError(t, err, "x_rules:2.7: there are rules of PyTorch 2.6, 2.9, 2.11, 2.13")
}

// TestExactPurchase: what requests buy where a purchase is no larger than the request, in whole pages.
func TestExactPurchase(t *testing.T) {
	r := rules26
	r.ExactPurchase = true
	for rounded, want := range map[uint64]uint64{
		512: 2 * mib, 1 * mib: 2 * mib, 2 * mib: 2 * mib, 2*mib + 512: 4 * mib, 4 * mib: 4 * mib, 11 * mib: 12 * mib, 12 * mib: 12 * mib,
	} {
		require.Equal(t, want, r.SegmentSize(rounded), "%d", rounded)
	}
	require.EqualValues(t, 2*mib, r.PageSize(false))
}
