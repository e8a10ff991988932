package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkerboard is the trace that the README's reader is asked to write.
const checkerboard = `alloc 0 80MiB
free 0
alloc 1 20MiB
alloc 2 20MiB
alloc 3 20MiB
alloc 4 20MiB
free 1
free 3
alloc 5 60MiB
`

// TestReadme executes the README's commands: those in console blocks must print what stands there (a line ... stands for any
// lines), the main command must run.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("../../../README.md")
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "checkerboard.trace"), []byte(checkerboard), 0o644))
	t.Chdir("../../..")
	blocks := consoleBlocks(string(text))
	require.GreaterOrEqual(t, len(blocks), 6, "commands of the README were lost on the way")
	for _, b := range blocks {
		t.Run(b.command, func(t *testing.T) {
			line, input, redirected := strings.Cut(b.command, "<")
			args := strings.Fields(line)
			require.Equal(t, "shatter", args[0])
			if redirected {
				f, err := os.Open(filepath.Join(dir, strings.TrimSpace(input)))
				require.NoError(t, err)
				defer f.Close()
				defer func(stdin *os.File) { os.Stdin = stdin }(os.Stdin)
				os.Stdin = f
			}
			var out, errs bytes.Buffer
			require.Equal(t, exitClean, run(context.Background(), args[1:], &out, &errs), errs.String())
			matches(t, b.output, out.String())
		})
	}
	main := "    go run ./harness/cmd/shatter run\n    go test ./...\n"
	require.Contains(t, string(text), main, "the two commands stand first")
	var out, errs bytes.Buffer
	require.Equal(t, exitClean, run(context.Background(), []string{"run", "--seqs", "7"}, &out, &errs), errs.String())
	require.Contains(t, out.String(), "no findings")
}

type consoleBlock struct{ command, output string }

// consoleBlocks returns the commands of the console blocks, each with the output below it.
func consoleBlocks(text string) []consoleBlock {
	var out []consoleBlock
	for _, part := range strings.Split(text, "```console\n")[1:] {
		body, _, _ := strings.Cut(part, "```")
		for _, c := range strings.Split("\n"+body, "\n$ ")[1:] {
			command, output, _ := strings.Cut(c, "\n")
			out = append(out, consoleBlock{command, strings.TrimRight(output, "\n") + "\n"})
		}
	}
	return out
}

// matches holds an output against the README's, in which a line ... stands for any lines.
func matches(t *testing.T, want, got string) {
	parts := strings.Split("\n"+want, "\n...\n")
	rest := "\n" + got
	for i, p := range parts {
		if p == "" && i == len(parts)-1 {
			return
		}
		at := strings.Index(rest, p)
		if i == 0 && at != 0 || at < 0 {
			require.Equal(t, want, got)
		}
		rest = rest[at+len(p):]
	}
	if len(parts) == 1 {
		require.Equal(t, want, got)
	}
}
