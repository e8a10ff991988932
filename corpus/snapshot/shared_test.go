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

// TestReal: programs' own recordings. What the replay must end with is PyTorch's own final state: segments, blocks, sizes, states.
func TestReal(t *testing.T) {
	for _, c := range []struct {
		file, version       string
		operations, decided int
		inferred            string
	}{
		{"a-cs336-train-step.pickle", "2.11", 4867, 2162, "447 blocks were live before it; 225 of them are live at the end, and 222 are freed in it"},
		{"b-cs336-inference-cache.pickle", "2.11", 3887, 1721, "229 blocks were live before it; 227 of them are live at the end, and 2 are freed in it"},
		{"c-attention-full-history.pickle", "2.6", 62, 45, ""},
		{"d-flexgen-oom-torch20.pickle", "2.6", 636, 0, ""},
	} {
		m := imported(t, sharedFile(t, c.file), snapshot.Options{})
		require.Equal(t, c.version, m.Version, c.file)
		require.Len(t, m.Trace.Ops, c.operations, c.file)
		require.Equal(t, c.decided, m.Verified.Reproduced, c.file)
		require.Empty(t, m.Verified.First, c.file)
		require.Empty(t, m.Verified.EndDifference, c.file)
		require.Contains(t, strings.Join(m.Loss.Inferred, "\n"), c.inferred, c.file)
	}
	d := imported(t, sharedFile(t, "d-flexgen-oom-torch20.pickle"), snapshot.Options{Capacity: 11844714496, Request: 32 << 20})
	require.EqualValues(t, 11844714496, d.Reserved)
	require.Contains(t, strings.Join(d.Loss.Exact, "\n"), "4554752 bytes are reserved and not live")
	require.Equal(t, []int{636}, d.OOMs)

	s, err := snapshot.ReadFile(sharedFile(t, "e-mosaic-synthetic-4streams.pickle"))
	require.NoError(t, err)
	_, err = snapshot.Import(s, 0, snapshot.Options{})
	var unfit *snapshot.NotReplayable
	require.ErrorAs(t, err, &unfit)
	require.Contains(t, unfit.Reason, "520 of 1040 entries lie in no segment")
}
