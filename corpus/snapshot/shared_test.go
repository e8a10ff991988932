package snapshot_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus/snapshot"
)

// shared is a folder beside the repository with real snapshots, which are not part of it.
const shared = "../../../shared/snapshots"

func sharedFile(t testing.TB, name string) string {
	path := filepath.Join(shared, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("%s is not there: the real snapshots are kept beside the repository", path)
	}
	return path
}

func imported(t testing.TB, path string, o snapshot.Options) *snapshot.Imported {
	s, err := snapshot.ReadFile(path)
	require.NoError(t, err)
	m, err := snapshot.Import(s, s.Devices()[0], o)
	require.NoError(t, err)
	return m
}

// TestRecorded: PyTorch 2.6.0 wrote these from the first allocation on, so every decision must come out again.
func TestRecorded(t *testing.T) {
	sharedFile(t, "recorded")
	files, err := filepath.Glob(filepath.Join(shared, "recorded", "*.pickle"))
	require.NoError(t, err)
	require.Greater(t, len(files), 90)
	decisions := 0
	for _, file := range files {
		var rec struct {
			Capacity uint64 `json:"capacity"`
			Fraction string `json:"fraction"`
		}
		data, err := os.ReadFile(strings.TrimSuffix(file, ".pickle") + ".json")
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(data, &rec))
		o := snapshot.Options{Capacity: rec.Capacity}
		if f, err := strconv.ParseFloat(rec.Fraction, 64); err == nil {
			o.Fraction = &f
		}
		m := imported(t, file, o)
		v := m.Verified
		name := filepath.Base(file)
		if v.First != "" || !v.EndSame {
			t.Errorf("%s: %d of %d decisions; %s; end: %s", name, v.Reproduced, v.Decisions, v.First, v.EndDifference)
		}
		decisions += v.Reproduced
	}
	t.Logf("%d files, %d decisions reproduced", len(files), decisions)
}

func TestReal(t *testing.T) {
	for _, c := range []struct{ file string }{{"a-cs336-train-step.pickle"}, {"b-cs336-inference-cache.pickle"}, {"c-attention-full-history.pickle"}, {"d-flexgen-oom-torch20.pickle"}} {
		m := imported(t, sharedFile(t, c.file), snapshot.Options{})
		v := m.Verified
		t.Logf("%s: %d ops, %+v\n%+v", c.file, len(m.Trace.Ops), v, m.Loss)
	}
	s, err := snapshot.ReadFile(sharedFile(t, "e-mosaic-synthetic-4streams.pickle"))
	require.NoError(t, err)
	_, err = snapshot.Import(s, 0, snapshot.Options{})
	t.Log(err)
}
