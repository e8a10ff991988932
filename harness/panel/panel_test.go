package panel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/panel"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func target(name string) (executor.Target, error) {
	s, err := catalog.Parse(name)
	return executor.Target{Name: name, New: s.New}, err
}

// The same rows whatever the number of workers, and figures that are in order.
func TestRun(t *testing.T) {
	var rows [2][]panel.Row
	for i := range rows {
		c := panel.Config{Seeds: 2, Seed: 5, Ops: 3000, Workers: 1 + 2*i, NewDevice: simulated}
		for _, w := range []string{"moe", "rl"} {
			g, err := gen.Find(w)
			require.NoError(t, err)
			c.Workloads = append(c.Workloads, g)
		}
		for _, name := range []string{"classic", "expandable"} {
			s, err := target(name)
			require.NoError(t, err)
			c.Targets = append(c.Targets, s)
		}
		var err error
		rows[i], err = panel.Run(context.Background(), c)
		require.NoError(t, err)
	}
	require.Equal(t, rows[0], rows[1])
	require.Len(t, rows[0], 4)
	for _, r := range rows[0] {
		require.Len(t, r.Cells, 2)
		for _, c := range r.Cells {
			require.GreaterOrEqual(t, c.Kappa, 1.0)
			require.Equal(t, c.Safe.Bytes, c.PeakLive+c.Lost)
			require.Equal(t, c.Kappa > 1.05+1e-3, c.Life.OOM, "kappa %f", c.Kappa)
		}
	}
}

// pytorch#193400 falls out of the cycles: freed blocks that together are oversize, behind one that stays. Single settings and
// other pairs are safe on it.
func TestMapFindsTheFence(t *testing.T) {
	traces := panel.Cycles([]uint64{2 << 20, 45<<20 + 512<<10, 91 << 20}, 3, panel.CycleRepeats)
	pairs, err := panel.Map(context.Background(), traces, panel.Settings[:4], target, simulated, 2)
	require.NoError(t, err)
	require.Len(t, pairs, 6)
	for _, p := range pairs {
		require.Equal(t, len(traces), p.Traces)
		if p.Name != "expandable@max_split_size_mb:128" {
			require.Nil(t, p.Cases[panel.Grows], p.Name)
			continue
		}
		c := p.Cases[panel.Grows]
		require.NotNil(t, c)
		require.Greater(t, c.Pair, uint64(3<<30))
		require.Less(t, c.Others, uint64(256<<20))
		require.Len(t, c.Trace.Ops, 5*panel.CycleRepeats, "three allocations, two frees, a fence")
	}
}

func TestCyclesAreLegalAndDistinct(t *testing.T) {
	sizes := []uint64{1 << 20, 2 << 20}
	traces := panel.Cycles(sizes, 2, 3)
	require.Len(t, traces, 2*2+4*3) // one block: kept or freed; two: none or either kept
	seen := map[[32]byte]bool{}
	for _, tr := range traces {
		require.NoError(t, tr.Validate())
		require.False(t, seen[tr.Hash()])
		seen[tr.Hash()] = true
		require.Equal(t, trace.Alloc, tr.Ops[0].Kind)
	}
}
