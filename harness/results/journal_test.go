package results_test

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var params = gen.Params{Ops: 120}

// made is a short run of both kinds of workload on two allocators.
func made(t *testing.T, n int) *results.Journal {
	t.Helper()
	j := &results.Journal{Header: results.Header{
		Schema: results.Schema, Shatter: "devel", Generators: gen.Version, Seed: 3, Sequences: n, Shards: 1, Params: params, Device: "sim",
		Workloads: []string{"mixed", "streams"}, Allocators: []string{"classic", "expandable"}, Flags: []string{"--ops=120"},
	}}
	cfg := campaign.Config{
		Params: params, Sequences: n, Seed: 3, Measures: true, Decisions: true, Properties: properties.All(), NewJudge: properties.NewJudge,
		NewDevice: func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) },
	}
	kinds := map[string]gen.Kind{}
	for _, name := range j.Workloads {
		w, err := gen.Find(name)
		require.NoError(t, err)
		kinds[name] = w.Kind
		cfg.Workloads = append(cfg.Workloads, w)
	}
	for _, name := range j.Allocators {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		cfg.Targets = append(cfg.Targets, campaign.Target{Name: name, For: func(*trace.Trace) (executor.Target, error) {
			return executor.Target{Name: name, New: spec.New}, nil
		}})
	}
	require.NoError(t, campaign.Execute(context.Background(), cfg, func(s *campaign.Sequence) error {
		j.Sequences = append(j.Sequences, results.Of(s, kinds[s.Workload], params))
		return nil
	}))
	return j
}

// write makes a folder with a journal.
func write(t *testing.T, j *results.Journal) string {
	t.Helper()
	dir := t.TempDir()
	w, err := results.Create(dir, j.Header)
	require.NoError(t, err)
	for _, s := range j.Sequences {
		require.NoError(t, w.Append(s))
	}
	require.NoError(t, w.Close())
	return dir
}

func table(t *testing.T, j *results.Journal) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, j.WriteTable(&b))
	return b.String()
}

// TestRoundTrip: what is read is what was written, and the trace is made again from its seed.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	j := made(t, 12)
	got, err := results.Read(write(t, j))
	require.NoError(t, err)
	require.Equal(t, j.Header, got.Header)
	require.Equal(t, table(t, j), table(t, got))
	require.True(t, got.Complete())
	for i, s := range got.Sequences {
		want, err := j.Sequences[i].Made()
		require.NoError(t, err)
		again, err := s.Made()
		require.NoError(t, err)
		require.Equal(t, want.Format(), again.Format())
		require.Equal(t, want.Name, again.Name)
	}
	got.Sequences[3].Hash = "0123456789abcdef"
	_, err = got.Sequences[3].Made()
	require.ErrorContains(t, err, "the generators have changed")
	_, err = results.Create(write(t, j), j.Header)
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = results.Read(t.TempDir())
	require.ErrorIs(t, err, fs.ErrNotExist)
}

// TestTorn cuts a journal at every byte of its last two lines and a few others: what is whole is read, and what is run again goes on
// where it ended.
func TestTorn(t *testing.T) {
	t.Parallel()
	j := made(t, 6)
	dir := write(t, j)
	path := filepath.Join(dir, results.JournalFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	header := bytes.IndexByte(whole, '\n') + 1
	for size := len(whole); size >= header; size -= 1 + (len(whole)-size)/20 {
		require.NoError(t, os.WriteFile(path, whole[:size], 0o644))
		got, err := results.Read(dir)
		require.NoError(t, err, size)
		require.Equal(t, bytes.Count(whole[:size], []byte("\n"))-1, len(got.Sequences))
		require.Equal(t, whole[size-1] != '\n', got.Torn, size)
		there := got.Indices()
		require.Len(t, there, len(got.Sequences))
		for i := range got.Sequences {
			require.True(t, there[i])
		}
		w, err := results.Continue(dir, got)
		require.NoError(t, err)
		for _, s := range j.Sequences[len(got.Sequences):] {
			require.NoError(t, w.Append(s))
		}
		require.NoError(t, w.Close())
		again, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, string(whole), string(again), size)
	}
	require.NoError(t, os.WriteFile(path, whole[:header-1], 0o644))
	_, err = results.Read(dir)
	require.ErrorIs(t, err, results.ErrDamaged)
}

// TestDamaged: whatever else is wrong is an error that names the line.
func TestDamaged(t *testing.T) {
	t.Parallel()
	j := made(t, 4)
	dir := write(t, j)
	path := filepath.Join(dir, results.JournalFile)
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	edit := func(line int, old, new string) string {
		out := append([]string{}, lines...)
		require.Contains(t, out[line], old)
		out[line] = strings.Replace(out[line], old, new, 1)
		return strings.Join(out, "") + "\n"
	}
	for want, text := range map[string]string{
		"line 3: ":                                                    edit(2, `{`, `[`),
		"line 2: sequence 1000000 is none":                            edit(1, `"index":0`, `"index":1000000`), // of shard 0/7, below
		"line 4: sequence 0 stands on line 2 already":                 edit(3, `"index":2`, `"index":0`),
		"line 2: sequence 0: run 0 is on \"x\", not \"classic\"":      edit(1, `"target":"classic"`, `"target":"x"`),
		"line 2: sequence -1 is none of shard 0/1":                    edit(1, `"index":0`, `"index":-1`),
		"line 3: sequence 1: run 0 counts 1 kinds of device calls":    edit(2, `"device_calls":[`, `"device_calls":[1],"x":[`),
		"line 2: sequence 0: run 0 has 0 scarce capacities":           edit(1, `"lives":[`, `"lives":[],"x":[`),
		"line 1: shard 2 of 1":                                        edit(0, `"shard":0`, `"shard":2`),
		"line 1: no header":                                           "",
		"line 1: invalid character":                                   "x\n",
		`the layout is "shatter.results/2", and this program reads s`: edit(0, `results/1`, `results/2`),
	} {
		if strings.Contains(want, "1000000") {
			text = strings.Replace(text, `"shards":1`, `"shards":7`, 1)
			text = text[:strings.LastIndex(text[:len(text)-1], `{"index":1`)]
		}
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		_, err := results.Read(dir)
		require.ErrorContains(t, err, want)
		require.ErrorContains(t, err, path)
	}
}

// TestMerge: shards make the whole, whatever their order; what is of another run, or there twice, is refused.
func TestMerge(t *testing.T) {
	t.Parallel()
	whole := made(t, 14)
	var names []string
	var parts []*results.Journal
	for _, shard := range []int{4, 0, 2, 1, 3} {
		p := &results.Journal{Header: whole.Header}
		p.Shard, p.Shards = shard, 5
		for _, s := range whole.Sequences {
			if s.Index%5 == shard {
				p.Sequences = append(p.Sequences, s)
			}
		}
		require.True(t, p.Complete())
		names, parts = append(names, fmt.Sprint(shard)), append(parts, p)
	}
	got, err := results.Merge(names, parts)
	require.NoError(t, err)
	require.Equal(t, whole, got)

	_, err = results.Merge([]string{"a", "b"}, []*results.Journal{parts[0], parts[0]})
	require.EqualError(t, err, "a and b: both have sequence 4")
	other := *parts[1]
	other.Seed++
	_, err = results.Merge([]string{"a", "b"}, []*results.Journal{parts[0], &other})
	require.EqualError(t, err, "a and b: they are of different runs: seed is 3 and 4")
	_, err = results.Merge(nil, nil)
	require.Error(t, err)
	part, err := results.Merge(names[:1], parts[:1])
	require.NoError(t, err)
	require.False(t, part.Complete())
}

// TestTable: a row a sequence and allocator, as many cells as columns, names that any tool takes, and a sentence for each.
func TestTable(t *testing.T) {
	t.Parallel()
	j := made(t, 10)
	rows, err := csv.NewReader(strings.NewReader(table(t, j))).ReadAll()
	require.NoError(t, err)
	require.Len(t, rows, 1+20)
	seen := map[string]int{}
	for i, c := range results.Columns {
		require.Equal(t, c.Name, rows[0][i])
		require.Regexp(t, `^[a-z][a-z0-9_]*$`, c.Name)
		require.NotEmpty(t, c.Says)
		require.NotContains(t, seen, c.Name)
		seen[c.Name] = i
	}
	for k, row := range rows[1:] {
		s := j.Sequences[k/2]
		r := s.Runs[k%2]
		require.Equal(t, fmt.Sprint(s.Index), row[seen["index"]])
		require.Equal(t, s.Hash, row[seen["trace_hash"]])
		require.Equal(t, r.Target, row[seen["allocator"]])
		require.Equal(t, fmt.Sprint(r.OOMs), row[seen["ooms"]])
		verdicts := 0
		for _, v := range executor.Verdicts {
			var n int
			_, err := fmt.Sscan(row[seen["verdict_"+strings.ReplaceAll(v.String(), "-", "_")]], &n)
			require.NoError(t, err)
			verdicts += n
		}
		require.Equal(t, r.OOMs, verdicts)
		if s.Kind == "distribution" {
			require.Equal(t, fmt.Sprint(r.Measures.Safe), row[seen["c_safe"]])
			require.Equal(t, fmt.Sprint(r.Measures.Lives[1].Served), row[seen["served_at_1050"]])
		} else {
			require.Empty(t, row[seen["c_safe"]])
			require.Empty(t, row[seen["refused_at_1200"]])
		}
	}
}
