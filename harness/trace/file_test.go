package trace

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const smallText = "# shatter: 1\n\nalloc 0 512   # weights\nfree 0\n"

func TestFilesComeBack(t *testing.T) {
	dir := t.TempDir()
	for name, magic := range map[string][]byte{"a.trace": []byte("# sh"), "a.trace.gz": gzipMagic} {
		path := filepath.Join(dir, name)
		require.NoError(t, WriteFile(path, mustParse(t, "alloc 0 1\n")), "write, to be replaced")
		require.NoError(t, WriteFile(path, mustParse(t, smallText)))
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		require.True(t, bytes.HasPrefix(data, magic), "%s begins with % x", name, data[:4])
		tr, err := ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, path, tr.Name)
		require.Equal(t, smallText, string(tr.Format()))
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o644), info.Mode())
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 2, "no temporary file stays")
	require.ErrorContains(t, WriteFile(filepath.Join(dir, "a.trace.zst"), mustParse(t, smallText)), "name the file .gz")
}

func TestEndingsDoNotMatterForReading(t *testing.T) {
	packed, err := compress(".gz", []byte(smallText))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "named-wrongly.zst")
	require.NoError(t, os.WriteFile(path, packed, 0o644))
	tr, err := ReadFile(path)
	require.NoError(t, err)
	require.Len(t, tr.Ops, 2)
}

func TestWriteFileRefusesAnIllegalTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.trace")
	var e *Error
	require.ErrorAs(t, WriteFile(path, &Trace{Ops: []Op{{Kind: Free}}}), &e)
	require.NoFileExists(t, path)
	require.ErrorIs(t, WriteFile(filepath.Join(path, "no", "folder"), &Trace{}), fs.ErrNotExist)
}

func TestFailedRenameLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "taken")
	require.NoError(t, os.Mkdir(target, 0o755))
	require.Error(t, WriteFile(target, &Trace{}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1)
}

func TestReadingErrors(t *testing.T) {
	long := strings.Repeat("alloc 0 512 # some text\nfree 0\n", 2000)
	gz, err := compress(".gz", []byte(long))
	require.NoError(t, err)
	flip := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0xff
		return b
	}
	for name, c := range map[string]struct {
		data []byte
		want string // the beginning
	}{
		"gz cut":       {gz[:len(gz)-6], "t.gz: gzip data is cut off after 62000 bytes of text: unexpected EOF (copy or download the file again, or write it anew)"},
		"gz cut early": {gz[:5], "t.gz: gzip data is cut off after 0 bytes of text: "},
		"gz sum":       {flip(gz, len(gz)-6), "t.gz: gzip data is corrupt after 62000 bytes of text: gzip: invalid checksum (copy or"},
		"gz body":      {flip(gz, 20), "t.gz: gzip data is "},
		"gz tail":      {append(bytes.Clone(gz), "more"...), "t.gz: gzip data is "},
		"zst":          {append(bytes.Clone(zstdMagic), long...), "t.gz: the text is compressed by zstd (decompress it first: zstd -d)"},
		"zero byte":    {[]byte("alloc 0 1\nfree\x000"), "t.gz:2:5: byte 0x00 is not text (a trace is plain text, or text in a .gz or .zst file; a memory snapshot must be imported first)"},
		"pickle":       {[]byte("\x80\x04\x95"), "t.gz:1:2: byte 0x04 is not text (a trace is plain text"},
		"escape":       {[]byte("# \x1b[0m\n"), "t.gz:1:3: byte 0x1b is not text"},
		"lone return":  {[]byte("alloc 0 1\rfree 0\n"), "t.gz:1:10: byte 0x0d is not text"},
		"latin1":       {[]byte("# gr\xfc\xdfe\n"), "t.gz:1:5: byte 0xfc is not UTF-8 text"},
		"long line":    {[]byte("\n# " + strings.Repeat("x", maxLine)), "t.gz:2:1: line is 1048578 bytes long, over the limit of 1048576 (a trace is"},
		"long comment": {[]byte("sync #" + strings.Repeat("x", maxLine-10)), "t.gz:1:5: comment is 1048568 bytes long, over the limit of 1048416 (put it on lines of its own)"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("t.gz", bytes.NewReader(c.data))
			var e *Error
			require.ErrorAs(t, err, &e)
			require.True(t, strings.HasPrefix(err.Error(), c.want), "got  %s\nwant %s", err, c.want)
		})
	}
	_, err = ReadFile(filepath.Join(t.TempDir(), "none.trace"))
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = ReadFile(t.TempDir())
	require.ErrorContains(t, err, "is a directory")
}

func TestTextIsBounded(t *testing.T) {
	_, err := readAll("t.gz", "gzip", strings.NewReader("sync\n"), 5)
	require.NoError(t, err)
	_, err = readAll("t.gz", "gzip", strings.NewReader("sync\n\n"), 5)
	require.EqualError(t, err, "t.gz: the text is over the limit of 5 bytes (split the trace)")
}

func TestByteOrderMarkIsSkipped(t *testing.T) {
	require.Len(t, mustParse(t, "\xef\xbb\xbfalloc 0 1\n").Ops, 1)
}

type brokenReader struct{ err error }

func (b brokenReader) Read([]byte) (int, error) { return 0, b.err }

func TestReaderErrorsArePassedOn(t *testing.T) {
	broken := errors.New("broken pipe")
	_, err := Parse("", brokenReader{broken})
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "trace: reading failed: broken pipe")
	_, err = Parse("x", io.MultiReader(strings.NewReader("alloc 0 1\n"), brokenReader{broken}))
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "x: reading failed: broken pipe")
}

func TestStandardInput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "in")
	require.NoError(t, os.WriteFile(path, []byte("bad\n"), 0o644))
	in, err := os.Open(path)
	require.NoError(t, err)
	defer in.Close()
	keep := os.Stdin
	os.Stdin = in
	defer func() { os.Stdin = keep }()
	_, err = ReadFile("-")
	require.ErrorContains(t, err, "stdin:1:1: unknown operation")
}
