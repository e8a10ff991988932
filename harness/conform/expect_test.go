package conform

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// write puts a trace in a folder of its own and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// oneRefusal is 100 MiB with 60 MiB live and 60 MiB asked for.
const oneRefusal = `# shatter: 1
# capacity: 100MiB
# a comment
# expect: %s

alloc 0 60MiB
alloc 1 60MiB
# expect: {"not":"a header line"}
`

// right is what classic comes to on oneRefusal.
const right = `{"conf":"","oom_ops":[1],` +
	`"final":{"allocated":62914560,"active":62914560,"reserved":62914560,"device_free":41943040,"alloc_retries":1},` +
	`"peak":{"allocated":62914560,"reserved":62914560},"driver":{"malloc":1,"mallocfail":2},` +
	`"at_first_oom":{"op":1,"asked":62914560,"rounded":62914560,"live":62914560,"total_free":41943040,"requested_free":41943040,` +
	`"device_free":41943040,"cached":0,"largest_cached":0},"verdict":"genuine-oom"}`

// TestEachFigureIsCompared changes each figure in turn; exactly that one must be reported, with its line.
func TestEachFigureIsCompared(t *testing.T) {
	for _, c := range []struct{ old, new, figure, want, got string }{
		{`"conf":""`, `"conf":""`, "", "", ""},
		{`[1]`, `[]`, "oom_ops", "[]", "[1]"},
		{`{"allocated":62914560,"active"`, `{"allocated":1,"active"`, "final.allocated", "1", "62914560"},
		{`"active":62914560`, `"active":1`, "final.active", "1", "62914560"},
		{`"reserved":62914560,"device_free"`, `"reserved":1,"device_free"`, "final.reserved", "1", "62914560"},
		{`"device_free":41943040,"alloc`, `"device_free":1,"alloc`, "final.device_free", "1", "41943040"},
		{`"alloc_retries":1`, `"alloc_retries":0`, "final.alloc_retries", "0", "1"},
		{`"peak":{"allocated":62914560`, `"peak":{"allocated":1`, "peak.allocated", "1", "62914560"},
		{`"reserved":62914560},"driver"`, `"reserved":1},"driver"`, "peak.reserved", "1", "62914560"},
		{`"malloc":1,`, ``, "driver.malloc", "0", "1"},
		{`"mallocfail":2`, `"mallocfail":3`, "driver.mallocfail", "3", "2"},
		{`"malloc":1`, `"malloc":1,"free":1`, "driver.free", "1", "0"},
		{`"malloc":1`, `"malloc":1,"reserve":1`, "driver.reserve", "1", "0"},
		{`"malloc":1`, `"malloc":1,"unreserve":1`, "driver.unreserve", "1", "0"},
		{`"malloc":1`, `"malloc":1,"map":1`, "driver.map", "1", "0"},
		{`"malloc":1`, `"malloc":1,"unmap":1`, "driver.unmap", "1", "0"},
		{`"malloc":1`, `"malloc":1,"createfail":1`, "driver.createfail", "1", "0"},
		{`"op":1`, `"op":0`, "at_first_oom.op", "0", "1"},
		{`"asked":62914560`, `"asked":1`, "at_first_oom.asked", "1", "62914560"},
		{`"rounded":62914560`, `"rounded":1`, "at_first_oom.rounded", "1", "62914560"},
		{`"live":62914560`, `"live":1`, "at_first_oom.live", "1", "62914560"},
		{`"total_free":41943040`, `"total_free":1`, "at_first_oom.total_free", "1", "41943040"},
		{`"requested_free":41943040`, `"requested_free":1`, "at_first_oom.requested_free", "1", "41943040"},
		{`"device_free":41943040,"cached"`, `"device_free":1,"cached"`, "at_first_oom.device_free", "1", "41943040"},
		{`"cached":0`, `"cached":1`, "at_first_oom.cached", "1", "0"},
		{`"largest_cached":0`, `"largest_cached":1`, "at_first_oom.largest_cached", "1", "0"},
		{`genuine-oom`, `false-oom`, "verdict", "false-oom", "genuine-oom"},
		{`genuine-oom`, `no-oom`, "verdict", "no-oom", "genuine-oom"},
		{`"verdict"`, `"coarse":"no-oom","verdict"`, "coarse", "no-oom", "genuine-oom"},
		{`"verdict"`, `"most":{"peak.reserved":62914560,"driver.mallocfail":1},"verdict"`, "driver.mallocfail", "at most 1", "2"},
	} {
		require.Equal(t, 1, strings.Count(right, c.old), c.old)
		path := write(t, "a.trace", fmt.Sprintf(oneRefusal, strings.Replace(right, c.old, c.new, 1)))
		rep, err := CompareExpectations([]string{path}, nil)
		require.NoError(t, err)
		require.Equal(t, []int{1, 1}, []int{rep.Traces, rep.Expectations})
		if c.figure == "" {
			require.Empty(t, rep.Failures)
			continue
		}
		require.Equal(t, 1, rep.Failed)
		require.Len(t, rep.Failures, 1, c.new)
		require.Equal(t, fmt.Sprintf("%s:4: classic: %s: want %s, got %s", path, c.figure, c.want, c.got), rep.Failures[0].String())
	}
}

// TestExpectationsThatDoNotFit: refusals claimed or not claimed against what happens, and the allocator's name in the report.
func TestExpectationsThatDoNotFit(t *testing.T) {
	for _, c := range []struct{ expect, want string }{
		{`{"conf":"expandable_segments:True","oom_ops":[2]}`, "expandable: oom_ops: want [2], got [1]"},
		{`{"conf":"","fraction":0.5,"oom_ops":[1]}`, "classic@x_memory_fraction:0.5: oom_ops: want [1], got [0 1]"},
		{`{"conf":"max_split_size_mb:64","verdict":"no-oom"}`, "classic@max_split_size_mb:64: verdict: want no-oom, got genuine-oom"},
	} {
		rep, err := CompareExpectations([]string{write(t, "a.trace", fmt.Sprintf(oneRefusal, c.expect))}, nil)
		require.NoError(t, err)
		require.Len(t, rep.Failures, 1)
		require.Contains(t, rep.Failures[0].String(), ":4: "+c.want)
	}
	noOOM := "# capacity: 100MiB\n# expect: {\"conf\":\"\",\"at_first_oom\":{\"op\":3}}\nalloc 0 1\n"
	rep, err := CompareExpectations([]string{write(t, "a.trace", noOOM)}, nil)
	require.NoError(t, err)
	require.Equal(t, "at_first_oom", rep.Failures[0].Figure)
}

// TestCoarseVerdicts: the recording's rule looks at bytes only: after rounding, before rounding, or neither.
func TestCoarseVerdicts(t *testing.T) {
	for _, c := range []struct{ ops, verdict string }{
		{"alloc 0 1MiB", "no-oom"},
		{"alloc 0 1MiB\nalloc 1 1MiB\nalloc 2 1", "genuine-oom"},
		{"alloc 0 1048000\nalloc 1 1048000\nalloc 2 1025", "genuine-oom"}, // 1,024 bytes left, 1,536 looked for
		{"alloc 0 1047553\nalloc 1 1047553\nalloc 2 1025", "rounding-oom"},
		{"alloc 0 700KiB\nalloc 1 700KiB\nfree 0\nalloc 2 800KiB", "false-oom"},
	} {
		text := fmt.Sprintf("# capacity: 2MiB\n# expect: {\"conf\":\"\",\"verdict\":%q}\n%s\n", c.verdict, c.ops)
		rep, err := CompareExpectations([]string{write(t, "a.trace", text)}, nil)
		require.NoError(t, err)
		require.Empty(t, rep.Failures)
	}
}

// TestWrongExpectations: what nobody would check is an error with its place.
func TestWrongExpectations(t *testing.T) {
	for _, c := range []struct{ expect, want string }{
		{`{"conf":"","oomops":[1]}`, `json: unknown field "oomops"`},
		{`{"conf":"","final":{"alocated":1}}`,
			`unknown figure "alocated" in "final" (known: allocated, active, reserved, device_free, alloc_retries)`},
		{`{"conf":"","peak":{"active":1}}`, `unknown figure "active" in "peak" (known: allocated, reserved)`},
		{`{"conf":"","driver":{"cudaMalloc":1}}`,
			`unknown figure "cudaMalloc" in "driver" (known: malloc, mallocfail, free, reserve, unreserve, map, unmap, createfail)`},
		{`{"conf":"","at_first_oom":{"when":1}}`, `unknown figure "when" in "at_first_oom" (known: op, asked, rounded, live, ` +
			`total_free, requested_free, device_free, cached, largest_cached)`},
		{`{"conf":"","verdict":"oom"}`, `unknown verdict "oom" (known: no-oom, genuine-oom, rounding-oom, false-oom, or a judge's)`},
		{`{"oom_ops":[1]}`, `"conf" is missing (write "" for the defaults)`},
		{`{"conf":""}`, `it claims nothing`},
		{`{"conf":"","coarse":"policy"}`, `unknown coarse verdict "policy"`},
		{`{"conf":"","most":{"peak.active":1}}`, `unknown figure "peak.active" in "most" (write PART.FIGURE, as peak.reserved)`},
		{`{"conf":"","verdict":"genuine"}`, `its verdict, relaxed or known needs a judge, and there is none`},
		{`{"conf":"","oom_ops":[1]} {}`, `something stands behind the JSON object`},
		{`{"conf":"","peak":{"reserved":-1}}`, `json: cannot unmarshal number -1`},
		{`{"conf":"bad:1","oom_ops":[1]}`, `settings "bad:1": unknown setting "bad"`},
		{`nonsense`, `invalid character`},
	} {
		path := write(t, "a.trace", fmt.Sprintf(oneRefusal, c.expect))
		_, err := CompareExpectations([]string{path}, nil)
		require.ErrorContains(t, err, path+":4: expect: "+c.want)
	}
	_, err := CompareExpectations([]string{"testdata/nowhere"}, nil)
	require.ErrorContains(t, err, "no such file")
	_, err = CompareExpectations([]string{write(t, "a.trace", "alloc 0\n")}, nil)
	require.ErrorContains(t, err, "a.trace:1")
}

// TestTraceFolders: folders are searched all the way down for traces, plain or compressed; a trace that claims nothing is named.
func TestTraceFolders(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	put("b.trace", fmt.Sprintf(oneRefusal, right))
	put("a/c.trace.gz", fmt.Sprintf(oneRefusal, right)) // the reader looks at the content, not at the name
	put("silent.trace", "alloc 0 1\n")
	put("README.md", "no trace")
	rep, err := CompareExpectations([]string{dir, filepath.Join(dir, "b.trace")}, nil)
	require.NoError(t, err)
	require.Equal(t, &ExpectReport{Traces: 3, Expectations: 3, Silent: []string{filepath.Join(dir, "silent.trace")}}, rep)
}
