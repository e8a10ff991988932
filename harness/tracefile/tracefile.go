// Package tracefile reads traces from files as people keep them: plain, gzip or zstd, told by the first bytes. It stands apart
// from package trace so that only the command line brings the library that zstd takes.
package tracefile

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/zstd"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// Read reads a trace from a file; "-" reads standard input. A trace that is wrong gives a *trace.Error.
func Read(path string) (*trace.Trace, error) {
	if path == "-" {
		return parse("stdin", os.Stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parse(path, f)
}

func parse(name string, r io.Reader) (*trace.Trace, error) {
	buffered := bufio.NewReader(r)
	head, err := buffered.Peek(4)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: reading failed: %w", name, err)
	}
	if !trace.IsZstd(head) {
		return trace.Parse(name, buffered)
	}
	z, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(trace.MaxText))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer z.Close()
	return trace.ParseDecompressed(name, "zstd", z)
}
