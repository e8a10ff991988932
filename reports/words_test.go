package reports

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/stats"
)

func TestThousands(t *testing.T) {
	for n, want := range map[int]string{
		0: "0", 7: "7", 999: "999", 1000: "1,000", 999999: "999,999", 1234567: "1,234,567", -1: "-1", -999: "-999",
		-1000: "-1,000", -123456: "-123,456", math.MaxInt64: "9,223,372,036,854,775,807",
	} {
		require.Equal(t, want, thousands(n))
	}
}

// TestSize: exact where that is short, so that 1 GiB and one byte does not read as 1 GiB would.
func TestSize(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		want string
	}{
		{0, "0 B"}, {1, "1 B"}, {1000, "1000 B"}, {1023, "1023 B"}, {1024, "1 KiB"}, {1025, "1025 B"}, {1536, "1536 B"},
		{1 << 20, "1 MiB"}, {1<<20 + 1, "1048577 B"}, {2047 << 10, "2047 KiB"}, {9999999, "9999999 B"}, {10000001, "9.54 MiB"},
		{20 << 20, "20 MiB"}, {1 << 30, "1 GiB"}, {12 << 30, "12 GiB"}, {1<<30 + 1, "1.00 GiB"}, {80<<30 - 1, "80.00 GiB"},
		{1 << 40, "1 TiB"}, {3<<40 + 12345, "3.00 TiB"}, {1 << 60, "1 EiB"},
	} {
		got := Size(c.n)
		if c.n == 1<<60 {
			require.True(t, strings.HasSuffix(got, "iB"), got) // the largest request; whatever the unit
			continue
		}
		require.Equal(t, c.want, got, c.n)
	}
}

// TestQuote: what a shell would read otherwise stands in single quotes.
func TestQuote(t *testing.T) {
	for word, want := range map[string]string{
		"classic":                              "classic",
		"classic@max_split_size_mb:128":        "classic@max_split_size_mb:128",
		"classic@roundup_power2_divisions:[>]": "'classic@roundup_power2_divisions:[>]'",
		"a b":                                  "'a b'",
		"it's":                                 `'it'\''s'`,
		"":                                     "''",
		"$HOME":                                "'$HOME'",
		"gen:swarm:12:ops=300":                 "gen:swarm:12:ops=300",
		"\n":                                   "'\n'",
		"äö":                                   "'äö'",
	} {
		require.Equal(t, want, quote(word))
	}
	require.Equal(t, "shatter replay --alloc 'x y' --capacity 42 a.trace", Replay("a.trace", "x y", 42))
}

// TestFigures: what could not be estimated is said so, not made up.
func TestFigures(t *testing.T) {
	two, three := 2.0, 3.0
	full := stats.Quantile{Value: &two, Interval: stats.Interval{Lower: &two, Upper: &three}}
	require.Equal(t, "2.000 (2.000 to 3.000)", interval(full, "1"))
	require.Equal(t, "2 B (2 B to 3 B)", interval(full, "bytes"))
	require.Equal(t, "2.000 (? to ?)", interval(stats.Quantile{Value: &two}, "1"))
	require.Equal(t, "-", interval(stats.Quantile{}, "1"))
	require.Equal(t, "-", bound(stats.Quantile{}, "1"))
	require.Equal(t, "at least 2.000", bound(stats.Quantile{Value: &three, Interval: stats.Interval{Lower: &two}}, "1"))
	require.Equal(t, "-", value(nil, "1"))
	require.Equal(t, "12.5 %", figure(0.125, "share"))
}
