package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// maxText bounds the text of one trace, 1 GiB: some thirty million operations. A small compressed file can claim to hold
// more than the machine has.
const maxText = 1 << 30

// The first bytes of compressed files.
var (
	gzipMagic = []byte{0x1f, 0x8b}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// IsZstd tells whether a file that begins with these bytes is compressed by zstd.
func IsZstd(head []byte) bool { return bytes.HasPrefix(head, zstdMagic) }

// MaxText bounds the text of one trace, in bytes.
const MaxText = maxText

// ParseDecompressed parses text that a decompressor gives; format names the compression in errors, such as zstd.
func ParseDecompressed(name, format string, r io.Reader) (*Trace, error) {
	text, err := readAll(name, format, r, maxText)
	if err != nil {
		return nil, err
	}
	return parseText(name, text)
}

// readText reads all of r, decompressed if its first bytes say so.
func readText(name string, r io.Reader) ([]byte, error) {
	buffered := bufio.NewReader(r)
	head, err := buffered.Peek(len(zstdMagic))
	if err != nil && err != io.EOF {
		return nil, readError(name, err)
	}
	switch {
	case bytes.HasPrefix(head, gzipMagic):
		z, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, compressedError(name, "gzip", 0, err)
		}
		return readAll(name, "gzip", z, maxText)
	case bytes.HasPrefix(head, zstdMagic):
		// Package tracefile reads them; it alone brings the library that this takes.
		return nil, &Error{Name: name, Op: -1, Msg: "the text is compressed by zstd", Hint: "decompress it first: zstd -d"}
	}
	return readAll(name, "", buffered, maxText)
}

// readAll reads r to its end, at most limit bytes; format names the compression, empty for plain text.
func readAll(name, format string, r io.Reader, limit int64) ([]byte, error) {
	var text bytes.Buffer
	n, err := io.Copy(&text, io.LimitReader(r, limit+1))
	switch {
	case n > limit:
		return nil, &Error{Name: name, Op: -1, Msg: fmt.Sprintf("the text is over the limit of %d bytes", limit), Hint: "split the trace"}
	case err != nil && format == "":
		return nil, readError(name, err)
	case err != nil:
		return nil, compressedError(name, format, n, err)
	}
	return text.Bytes(), nil
}

// readError names the file of a failed read; a *fs.PathError inside already does.
func readError(name string, err error) error {
	if name == "" {
		name = "trace"
	}
	return fmt.Errorf("%s: reading failed: %w", name, err)
}

// compressedError tells a file that was cut off from one that is damaged; n is how many bytes of text came before.
func compressedError(name, format string, n int64, err error) *Error {
	what := "is corrupt"
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		what = "is cut off"
	}
	return &Error{
		Name: name, Op: -1, Err: err,
		Msg:  fmt.Sprintf("%s data %s after %d bytes of text: %v", format, what, n, err),
		Hint: "copy or download the file again, or write it anew",
	}
}

// compress packs text by gzip if the ending of a file name is .gz, and returns it unchanged for others but .zst. The same text
// gives the same bytes: no time and no name is stored.
func compress(ext string, text []byte) ([]byte, error) {
	var packed bytes.Buffer
	var w io.WriteCloser
	switch ext {
	case ".gz":
		w = gzip.NewWriter(&packed)
	case ".zst":
		return nil, errors.New("zstd is read, not written; name the file .gz")
	default:
		return text, nil
	}
	if _, err := w.Write(text); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}
