package tracefile

import (
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/trace"
)

const text = "# capacity: 1048576000\nalloc 0 512   # weights\nfree 0\n"

func packed(t *testing.T, text string) (gz, zst []byte) {
	var a, b bytes.Buffer
	g := gzip.NewWriter(&a)
	_, err := g.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, g.Close())
	z, err := zstd.NewWriter(&b)
	require.NoError(t, err)
	_, err = z.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	return a.Bytes(), b.Bytes()
}

func write(t *testing.T, data []byte) string {
	path := filepath.Join(t.TempDir(), "x.trace")
	require.NoError(t, os.WriteFile(path, data, 0o644))
	return path
}

func TestAllCompressions(t *testing.T) {
	gz, zst := packed(t, text)
	for name, data := range map[string][]byte{"plain": []byte(text), "gzip": gz, "zstd": zst} {
		tr, err := Read(write(t, data))
		require.NoError(t, err, name)
		require.Equal(t, text, string(tr.Format()), name)
	}
}

func TestDamagedZstd(t *testing.T) {
	_, zst := packed(t, strings.Repeat("alloc 0 512 # some text\nfree 0\n", 2000))
	var e *trace.Error
	_, err := Read(write(t, zst[:len(zst)-8]))
	require.ErrorAs(t, err, &e)
	require.ErrorContains(t, err, "zstd data is cut off after ")
	zst[len(zst)-2] ^= 0xff
	_, err = Read(write(t, zst))
	require.ErrorContains(t, err, "zstd data is corrupt after ")
	_, err = Read(write(t, zst[:6]))
	require.ErrorContains(t, err, "zstd data is cut off after 0 bytes of text")
	_, err = Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}
