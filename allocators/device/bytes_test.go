package device_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// TestPattern: words count up from the seed in little-endian order, a rest has the first bytes of its word.
func TestPattern(t *testing.T) {
	p := bytes.Repeat([]byte{0xee}, 21)
	device.PutPattern(p[:19], 0x0102030405060708)
	require.Equal(t, []byte{8, 7, 6, 5, 4, 3, 2, 1, 9, 7, 6, 5, 4, 3, 2, 1, 10, 7, 6, 0xee, 0xee}, p)
	for n := range 20 {
		_, ok := device.CheckPattern(p[:n], 0x0102030405060708)
		require.True(t, ok, n)
	}
	// A part of a pattern is the pattern of the seed plus its place in words.
	_, ok := device.CheckPattern(p[8:19], 0x0102030405060709)
	require.True(t, ok)
}

// TestPatternMismatch: every byte counts, and the first wrong word is told.
func TestPatternMismatch(t *testing.T) {
	p := make([]byte, 19)
	for i := range p {
		device.PutPattern(p, 1<<40)
		p[i] ^= 0x80
		m, ok := device.CheckPattern(p, 1<<40)
		require.False(t, ok, i)
		require.EqualValues(t, i/8*8, m.Offset)
		require.Equal(t, m.Want^0x80<<(8*(i%8)), m.Got)
	}
}
