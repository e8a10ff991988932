package properties_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// target makes the caching allocator under a settings string.
func target(conf string) (executor.Target, error) {
	spec, err := catalog.FromSettings(conf, nil)
	return executor.Target{Name: spec.Name, New: spec.New}, err
}

func caseOf(t *testing.T, text, conf string, capacity uint64) *executor.Case {
	t.Helper()
	tr, err := trace.ParseString("case", text)
	require.NoError(t, err)
	on, err := target(conf)
	require.NoError(t, err)
	return &executor.Case{Trace: tr, Target: on, Capacity: capacity, NewDevice: simulated, Conf: conf, With: target}
}

// fence is the sequence of https://github.com/pytorch/pytorch/pull/193400 with a small block that stays until the next repeat.
const fence = "alloc 0 91MiB\nalloc 1 47710208\nalloc 2 2MiB\nfree 0\nfree 1\n"

func TestDrift(t *testing.T) {
	for _, c := range []struct {
		name, text, conf string
		want             drift.Drift
	}{
		{"nothing", "alloc 0 5MiB\nfree 0\n", "", drift.Drift{Kind: drift.Bounded, Repeats: 2, Period: 1}},
		{"classic", fence, "max_split_size_mb:128", drift.Drift{Kind: drift.Bounded}},
		{"expandable", fence, "expandable_segments:True", drift.Drift{Kind: drift.Bounded}},
		{"both", fence, "max_split_size_mb:128,expandable_segments:True", drift.Drift{Kind: drift.Grows, Repeats: drift.MaxRepeats}},
		// Golden vector G6 of the specification: a loop of one alloc and one free grows until the device is full.
		{"oversize", "alloc 0 21495808\nfree 0\n", "max_split_size_mb:21", drift.Drift{Kind: drift.Grows, PerRepeat: 22 << 20}},
	} {
		e := caseOf(t, c.text, c.conf, 1<<30)
		d, err := drift.Measure(e.Trace, e.Target, simulated)
		require.NoError(t, err, c.name)
		t.Logf("%s: %s", c.name, d)
		require.Equal(t, c.want.Kind, d.Kind, c.name)
		if c.want.PerRepeat > 0 {
			require.Equal(t, c.want.PerRepeat, d.PerRepeat, c.name)
		}
	}
}

// TestGrowthWithBothSettings: found, and known for what it is.
func TestGrowthWithBothSettings(t *testing.T) {
	v, err := properties.BoundedAlone.Check(caseOf(t, fence, "max_split_size_mb:128,expandable_segments:True", 1<<30))
	require.NoError(t, err)
	require.NotNil(t, v)
	require.Equal(t, properties.Known193400, v.Known)
	t.Log(v.Detail)
	for _, conf := range []string{"max_split_size_mb:128", "expandable_segments:True"} {
		v, err := properties.BoundedAlone.Check(caseOf(t, fence, conf, 1<<30))
		require.NoError(t, err)
		require.Nil(t, v)
	}
}
