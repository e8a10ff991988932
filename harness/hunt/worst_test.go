package hunt_test

import (
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/hunt"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/properties"
)

// The worst traces that were found are refused as their headers say, by policy or fragmentation, in the request of their class.
func TestWorst(t *testing.T) {
	files, err := filepath.Glob("testdata/worst/*.trace")
	require.NoError(t, err)
	require.Len(t, files, 2*len(hunt.Classes))
	cfg := config(t, "classic")
	for _, f := range files {
		tr, err := tracefile.Read(f)
		require.NoError(t, err)
		require.LessOrEqual(t, len(tr.Ops), hunt.MaxOps)
		require.Contains(t, hunt.Classes, tr.Ops[len(tr.Ops)-1].Bytes)
		text, _ := tr.Get("fill")
		want, err := strconv.ParseFloat(text, 64)
		require.NoError(t, err)
		got, err := hunt.Fill(tr, func(tr *trace.Trace) (executor.Target, error) {
			conf, _ := tr.Settings()
			s, err := catalog.FromSettings(conf, nil)
			return executor.Target{Name: s.Name, New: s.New}, err
		}, cfg.NewDevice, properties.NewJudge())
		require.NoError(t, err)
		require.InEpsilon(t, want, got, 0.01, f)
	}
}
