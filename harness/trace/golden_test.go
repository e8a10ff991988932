package trace

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// goldenCase is one case of a golden file: `=== name`, the input, `---`, the expected output.
type goldenCase struct{ name, in, out string }

// runGolden runs every case of the files in a folder of testdata. With -update it rewrites what is expected.
func runGolden(t *testing.T, dir string, run func(in string) string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", dir, "*.txt"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "no golden files in testdata/%s", dir)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		cases := splitGolden(t, file, string(data))
		var fresh strings.Builder
		for _, c := range cases {
			got := run(c.in)
			fmt.Fprintf(&fresh, "=== %s\n%s---\n%s", c.name, c.in, got)
			t.Run(filepath.Base(file)+"/"+c.name, func(t *testing.T) {
				if !*update {
					require.Equal(t, c.out, got)
				}
			})
		}
		if *update {
			require.NoError(t, os.WriteFile(file, []byte(fresh.String()), 0o644))
		}
	}
}

func splitGolden(t *testing.T, file, data string) []goldenCase {
	t.Helper()
	var cases []goldenCase
	parts := strings.Split("\n"+data, "\n=== ")[1:]
	for i, part := range parts {
		if i < len(parts)-1 {
			part += "\n" // the split took it
		}
		name, body, _ := strings.Cut(part, "\n")
		in, out, ok := strings.Cut("\n"+body, "\n---\n")
		require.True(t, ok, "%s: case %q has no --- line", file, name)
		if in = strings.TrimPrefix(in, "\n"); in != "" {
			in += "\n"
		}
		cases = append(cases, goldenCase{name, in, out})
	}
	require.NotEmpty(t, cases, file)
	return cases
}

// textOrError is the canonical text of a trace, or the error's line.
func textOrError(in string) string {
	tr, err := ParseString("t.trace", in)
	if err != nil {
		return err.Error() + "\n"
	}
	return string(tr.Format())
}

func TestFormatGolden(t *testing.T) {
	runGolden(t, "format", func(in string) string {
		out := textOrError(in)
		require.Equal(t, out, textOrError(out), "canonical text must come back unchanged")
		return out
	})
}

func TestErrorsGolden(t *testing.T) {
	runGolden(t, "errors", func(in string) string {
		_, err := ParseString("t.trace", in)
		var e *Error
		require.ErrorAs(t, err, &e, "accepted: %q", in)
		require.Positive(t, e.Line)
		require.Positive(t, e.Column)
		return err.Error() + "\n"
	})
}

// TestBytesGolden holds the meaning of bytes still. A changed line here means that stored fuzz inputs changed their
// meaning.
func TestBytesGolden(t *testing.T) {
	runGolden(t, "bytes", func(in string) string {
		b, err := hex.DecodeString(strings.Join(strings.Fields(in), ""))
		require.NoError(t, err)
		tr := Decode(b)
		return string(tr.Format()) + "# canonical bytes: " + fmt.Sprintf("% x", Encode(tr)) + "\n"
	})
}
