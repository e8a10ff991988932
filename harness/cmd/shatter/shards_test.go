package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/results"
)

// shatterRuns runs a command line that must end with this exit code.
func shatterRuns(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	require.Equal(t, code, run(context.Background(), args, &out, &errs), "%v: %s", args, errs.String())
	return out.String()
}

// TestShards: seven shards merged are the whole, in every file but timing.json. SHATTER_SHARDED is the sequences (2000 for the whole; 49
// else).
func TestShards(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some runs")
	}
	t.Parallel()
	n := "49"
	if text := os.Getenv("SHATTER_SHARDED"); text != "" {
		n = text
	}
	dir := t.TempDir()
	flags := []string{"run", "--seed", "11", "--seqs", n, "--ops", "60"}
	whole := filepath.Join(dir, "whole")
	shatterRuns(t, exitClean, append(flags, "--out", whole)...)
	merge := []string{"report", "merge", "--out", filepath.Join(dir, "merged")}
	for _, i := range []int{3, 6, 0, 5, 2, 4, 1} {
		shard := filepath.Join(dir, fmt.Sprint(i))
		shatterRuns(t, exitClean, append(flags, "--out", shard, "--shard", fmt.Sprintf("%d/7", i))...)
		merge = append(merge, shard)
	}
	shatterRuns(t, exitClean, merge...)
	sameFolders(t, whole, filepath.Join(dir, "merged"))
	j, err := results.Read(filepath.Join(dir, "merged"))
	require.NoError(t, err)
	t.Logf("%d sequences, and the same as 7 shards merged: all files alike", len(j.Sequences))
	require.Equal(t, n, strconv.Itoa(len(j.Sequences)))
}

// sameFolders compares all files but timing.json, byte for byte.
func sameFolders(t *testing.T, a, b string) {
	t.Helper()
	list := func(dir string) map[string]string {
		out := map[string]string{}
		require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Name() == results.TimingFile {
				return err
			}
			data, err := os.ReadFile(path)
			rel, _ := filepath.Rel(dir, path)
			out[rel] = string(data)
			return err
		}))
		return out
	}
	x, y := list(a), list(b)
	require.NotEmpty(t, x[results.SummaryFile])
	require.Equal(t, len(x), len(y))
	for name, text := range x {
		require.True(t, text == y[name], "%s differs", name)
	}
}

// tool finds a program that a test needs; without it the test is skipped, or fails where all must run.
func tool(t *testing.T, name, install string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("SHATTER_REQUIRE_TOOLS") == "1" {
		t.Fatalf("%s is not installed: %s", name, install)
	}
	t.Skipf("%s is not installed: %s", name, install)
	return ""
}

// TestBenchstat: benchstat reads both runs and sets them side by side.
func TestBenchstat(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some runs")
	}
	t.Parallel()
	benchstat := tool(t, "benchstat", "go install golang.org/x/perf/cmd/benchstat@latest")
	dir := t.TempDir()
	for _, seed := range []string{"1", "2"} {
		shatterRuns(t, exitClean, "run", "--seed", seed, "--seqs", "12", "--ops", "60", "--workload", "mixed", "--out", filepath.Join(dir, seed))
	}
	lines := shatterRuns(t, exitClean, "compare", filepath.Join(dir, "1"), filepath.Join(dir, "2"), "--benchstat")
	file := filepath.Join(dir, "both.txt")
	require.NoError(t, os.WriteFile(file, []byte(lines), 0o644))
	out, err := exec.Command(benchstat, "-col", "side", file).CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `baseline +│ +candidate`, string(out))
	require.Regexp(t, `Sequence/workload=mixed/allocator=classic .*\(p=[01]\.[0-9]+ n=12\)`, string(out))
	require.Contains(t, string(out), "kappa")
}

// TestTableElsewhere reads sequences.csv with DuckDB: the same number of rows, and the same quantiles as the summary's.
func TestTableElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some runs")
	}
	t.Parallel()
	duckdb := tool(t, "duckdb", "pip install duckdb-cli")
	dir := filepath.Join(t.TempDir(), "results")
	shatterRuns(t, exitClean, "run", "--seed", "3", "--seqs", "70", "--ops", "200", "--workload", "mixed", "--workload", "step", "--workload", "streams",
		"--out", dir)
	ask := func(query string) [][]string {
		out, err := exec.Command(duckdb, "-csv", "-noheader", ":memory:", strings.ReplaceAll(query, "TABLE", "'"+filepath.Join(dir, results.TableFile)+"'")).Output()
		require.NoError(t, err, query)
		rows, err := csv.NewReader(bytes.NewReader(out)).ReadAll()
		require.NoError(t, err)
		return rows
	}
	require.Equal(t, [][]string{{"140", "70"}}, ask("select count(*), count(distinct trace_hash) from TABLE"))
	f, err := readFolder(dir)
	require.NoError(t, err)
	compared := 0
	for _, w := range f.Run.Workloads {
		for _, target := range w.Targets {
			for _, m := range target.Measures {
				if m.Measure.Name != "kappa" && m.Measure.Name != "lost" {
					continue
				}
				compared++
				got := ask(fmt.Sprintf("select count(*), quantile_disc(%s, 0.5), quantile_disc(%[1]s, 0.95) from TABLE where workload = '%s' and allocator = '%s'",
					m.Measure.Name, w.Name, target.Allocator))[0]
				for i, want := range []float64{float64(m.N), *m.Median.Value, *m.P95.Value} {
					v, err := strconv.ParseFloat(got[i], 64)
					require.NoError(t, err)
					require.Equal(t, want, v, "%s on %s, %s: %v", w.Name, target.Allocator, m.Measure.Name, got)
				}
			}
		}
	}
	require.Equal(t, 8, compared)
	t.Logf("DuckDB: 140 rows, and %d medians and 95th percentiles as in %s", compared, results.SummaryFile)
	// Verdicts, operations and flags are numbers there, names are text.
	types := map[string]string{}
	for _, row := range ask("select column_name, column_type from (describe select * from TABLE)") {
		types[row[0]] = row[1]
	}
	for _, c := range results.Columns {
		require.Contains(t, types, c.Name)
	}
	require.Equal(t, "BIGINT", types["c_safe"])
	require.Equal(t, "BIGINT", types["verdict_policy"])
	require.Equal(t, "DOUBLE", types["kappa"])
	require.Equal(t, "VARCHAR", types["workload"])
}
