package ondevice_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/hostvmm"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/ondevice"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

func target(t *testing.T, name string) executor.Target {
	t.Helper()
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return executor.Target{Name: name, New: func(d device.Device) (allocators.Allocator, error) { return spec.New(d) }}
}

func pair(t *testing.T, tr *trace.Trace, alloc string, simCapacity uint64) *ondevice.Pair {
	t.Helper()
	if err := hostvmm.Supported(); err != nil {
		t.Skip(err)
	}
	d, err := hostvmm.New(hostvmm.Options{Capacity: 1 << 30})
	require.NoError(t, err)
	defer d.Close()
	sim, err := simdev.New(simdev.Options{Capacity: simCapacity, Order: simdev.Low})
	require.NoError(t, err)
	c := ondevice.Check{Properties: properties.All(), NewJudge: properties.NewJudge, Verify: executor.VerifyStamps}
	p, err := c.Run(executor.Compile(tr), target(t, alloc), d, sim)
	require.NoError(t, err)
	return p
}

// TestHostDecidesAsSimulated: with the same order of addresses every decision is the same.
func TestHostDecidesAsSimulated(t *testing.T) {
	for _, w := range gen.Workloads {
		for _, alloc := range []string{"classic", "expandable"} {
			tr := gen.Generate(w, 5, gen.Params{Ops: 300})
			tr.Name = w.Name
			p := pair(t, tr, alloc, 1<<30)
			require.Empty(t, p.Real.Findings)
			require.True(t, p.SameDecisions, "%s on %s: operation %d", w.Name, alloc, p.FirstDifference)
			require.True(t, p.SameOutcomes)
			require.Equal(t, p.Simulated.OOMs, p.Real.OOMs)
			require.Positive(t, p.Real.Verified)
		}
	}
}

// TestDifferencesAreSeen: on a smaller simulated device refusals come earlier.
func TestDifferencesAreSeen(t *testing.T) {
	tr, err := trace.ParseString("t", "alloc 1 400MiB\nalloc 2 400MiB\nfree 1\n")
	require.NoError(t, err)
	p := pair(t, tr, "classic", 512<<20)
	require.False(t, p.SameOutcomes)
	require.Equal(t, 1, p.FirstDifference)
}

func TestScaled(t *testing.T) {
	tr, err := trace.ParseString("t", "alloc 1 8GiB\nalloc 2 1000\nalloc 3 2MiB\nfree 1\nforeign 4GiB\n")
	require.NoError(t, err)
	s := ondevice.Scaled(tr, 80<<30, 20<<30)
	require.Equal(t, []uint64{2 << 30, 1000, 2 << 20, 0, 1 << 30},
		[]uint64{s.Ops[0].Bytes, s.Ops[1].Bytes, s.Ops[2].Bytes, s.Ops[3].Bytes, s.Ops[4].Bytes})
	require.EqualValues(t, 8<<30, tr.Ops[0].Bytes)
	require.False(t, ondevice.NeedsHold(tr))
	tr, err = trace.ParseString("t", "alloc 1 8GiB\nrecord 1 stream=3\n")
	require.NoError(t, err)
	require.True(t, ondevice.NeedsHold(tr))
}
