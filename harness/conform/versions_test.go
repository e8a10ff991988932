package conform

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func parsed(t *testing.T, name string) catalog.Spec {
	t.Helper()
	s, err := catalog.Parse(name)
	require.NoError(t, err)
	return s
}

// TestRecorder: what it writes is what CompareLogs reads, byte for byte that of the recorded logs, and a second recording goes on
// where the first one ended.
func TestRecorder(t *testing.T) {
	t.Parallel()
	tr, err := trace.ParseString("some/where/small.trace", smallTrace)
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "logs")
	half := 0.5
	for range 2 {
		r, err := NewRecorder(dir)
		require.NoError(t, err)
		require.NoError(t, r.Record(parsed(t, "classic"), tr, "", nil, 32<<20))
		require.NoError(t, r.Record(parsed(t, "classic"), tr, "max_split_size_mb:21", &half, 64<<20))
		require.NoError(t, r.Close())
	}
	index, err := os.ReadFile(filepath.Join(dir, "index.tsv"))
	require.NoError(t, err)
	require.Equal(t, indexColumns+"\nsmall\tdefault\t-\t33554432\t-\t5\t1\n"+
		"small\tmax_split_size_mb_21_fraction0.5\tmax_split_size_mb:21\t67108864\t0.5\t5\t1\n", string(index))
	rep, err := CompareLogs(dir, nil)
	require.NoError(t, err)
	require.Equal(t, &LogReport{Logs: 2, Rows: 10}, rep)

	// The same allocator under the name that --alloc takes; another one differs.
	same := parsed(t, "classic")
	rep, err = CompareLogsOn(dir, &same, nil)
	require.NoError(t, err)
	require.Zero(t, rep.Divergent)
	other := parsed(t, "direct")
	rep, err = CompareLogsOn(dir, &other, nil)
	require.NoError(t, err)
	require.Equal(t, 2, rep.Divergent)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "index.tsv"), []byte("other\n"), 0o644))
	_, err = NewRecorder(dir)
	require.ErrorContains(t, err, "index.tsv has other columns than")
}

// TestCompareVersions: decisions are compared pair by pair, and the first difference shrinks to what makes it.
func TestCompareVersions(t *testing.T) {
	t.Parallel()
	dir := smallFolder(t, smallIndex, header()+smallLog)
	targets := []catalog.Spec{parsed(t, "classic"), parsed(t, "expandable"), parsed(t, "direct")}
	v, err := CompareVersions(dir, targets, nil)
	require.NoError(t, err)
	require.Equal(t, 1, v.Logs)
	// A classic or expandable target is what the settings of the log make of it, so these two are one.
	require.Equal(t, []int{1, 0}, []int{v.Targets[1].Same, v.Targets[1].Different})
	require.Equal(t, []int{0, 1}, []int{v.Targets[2].Same, v.Targets[2].Different})
	d := &v.Targets[2].Differences[0]
	require.Empty(t, d.Explanation)
	require.Equal(t, 1, d.Count)
	small, err := d.Shrink(context.Background(), targets[0], targets[2], 20*time.Second)
	require.NoError(t, err)
	require.Len(t, small.Ops, 1)
}

func TestExplain(t *testing.T) {
	t.Parallel()
	// Where one of the two is 2.12 a block of the same size in another place is explained, and nothing else.
	d := Difference{Column: "offset", Want: "0\talloc\tok\t0\t0\t512", Got: "0\talloc\tok\t0\t1024\t512"}
	require.Equal(t, agedBlocks, explain(&Log{}, &d, true))
	require.Empty(t, explain(&Log{}, &d, false))
	d.Got = "0\talloc\tok\t0\t1024\t1024"
	require.Empty(t, explain(&Log{}, &d, true))
	d = Difference{Column: "driver_events", Want: "0\talloc\tfree:s1;free:s2;malloc:8=s3", Got: "0\talloc\tfree:s2;free:s1;malloc:8=s3"}
	require.Equal(t, agedBlocks, explain(&Log{}, &d, true))
	d.Got = "0\talloc\tfree:s2;malloc:8=s3"
	require.Empty(t, explain(&Log{}, &d, true))
	one := 1.0
	row := func(size string) string { return "0\talloc\tok\t0\t0\t" + size + "\t0" }
	for _, c := range []struct {
		conf     string
		fraction *float64
		d        Difference
		want     string
	}{
		{"max_non_split_rounding_mb:40", nil, Difference{Column: "settings", Got: "Unrecognized CachingAllocator option: max_non_split_rounding_mb"},
			"alloc-conf.md 8: 2.6.0 has the keys of section 4 (max_non_split_rounding_mb)"},
		{"max_split_size_mb:21", nil, Difference{Column: "settings", Got: "no"}, ""},
		{"roundup_power2_divisions:[256:1,>:8]", nil, Difference{Column: "block_size", Want: row("1024"), Got: row("1000")},
			"alloc-conf.md 8: 1-division alignment (126830, May 2024)"},
		{"roundup_power2_divisions:[256:2,>:8]", nil, Difference{Column: "block_size", Want: row("1024"), Got: row("2048")},
			"alloc-conf.md 8: the key > also overwrote the last key's bucket (fix 165304, Oct 2025)"},
		{"expandable_segments:True,max_split_size_mb:64", nil, Difference{Column: "op"},
			"alloc-conf.md 8: guards for mixing expandable with GC / max_split (134338, Aug 2024)"},
		{"expandable_segments:True", nil, Difference{Column: "driver_events", Want: "reserve:8=s3;createfail:2@1", Got: "reserve:8=s3;unreserve:s3"},
			"caching-allocator.md 24: requests larger than the reserve fail through the OOM path (PR 192269, Aug 2026)"},
		{"garbage_collection_threshold:0.8", &one, Difference{Column: "driver_events"}, "caching-allocator.md 24: fraction 1 = no limit (2.10)"},
		{"garbage_collection_threshold:0.8", nil, Difference{Column: "driver_events"}, ""},
	} {
		require.Equal(t, c.want, Explain(c.conf, c.fraction, &c.d), c.conf)
	}
}
