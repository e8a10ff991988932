package trace

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSizes(t *testing.T) {
	for text, want := range map[string]uint64{
		"0": 0, "512": 512, "1KiB": kib, "2MiB": 2 * mib, "1.5GiB": 1536 * mib, "0.5KiB": 512, "16777215TiB": (1<<24 - 1) * tib,
		"18446744073709551615": math.MaxUint64, "0.0009765625KiB": 1, "1.50MiB": 1536 * kib, "2.0": 2, "1024TiB": 1 << 50,
	} {
		n, err := ParseSize(text)
		require.NoError(t, err, text)
		require.Equal(t, want, n, text)
	}
	_, err := ParseSize("16777216TiB")
	require.EqualError(t, err, `size "16777216TiB" is too large (`+sizeHint+`)`)
	_, err = ParseSize("16777216.0TiB")
	require.EqualError(t, err, `size "16777216.0TiB" is too large (`+sizeHint+`)`)
	_, err = ParseSize("")
	require.EqualError(t, err, `size is empty (`+sizeHint+`)`)
}

func TestFormatSizeIsTheShortestExactForm(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 512: "512", 1025: "1025", kib: "1KiB", 2 * mib: "2MiB", 1536 * mib: "1536MiB", 80 * gib: "80GiB", 1 << 60: "1048576TiB",
		math.MaxUint64: "18446744073709551615",
	} {
		require.Equal(t, want, FormatSize(n))
		back, err := ParseSize(want)
		require.NoError(t, err)
		require.Equal(t, n, back)
	}
}
