package drift_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func measured(t *testing.T, text, conf string) *drift.Drift {
	t.Helper()
	tr, err := trace.ParseString("drift", text)
	require.NoError(t, err)
	spec, err := catalog.FromSettings(conf, nil)
	require.NoError(t, err)
	d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: spec.New}, func(n uint64) (device.Device, error) {
		return simdev.New(simdev.Options{Capacity: n})
	})
	require.NoError(t, err)
	return d
}

// fence is the sequence of https://github.com/pytorch/pytorch/pull/193400 with a small block that stays until the next repeat.
const fence = "alloc 0 91MiB\nalloc 1 47710208\nalloc 2 2MiB\nfree 0\nfree 1\n"

func TestMeasure(t *testing.T) {
	for _, c := range []struct{ name, text, conf, want string }{
		{"one block", "alloc 0 5MiB\nfree 0\n", "", "bounded: after repeat 2 the state is that after repeat 1"},
		{"what stays is replaced", "alloc 0 5MiB\n", "", "bounded: after repeat 3 the state is that after repeat 1"},
		// The contracts' example of a repeat that reserves more than the first (3.3).
		{"the second is larger", "alloc 0 12MiB\nfree 0\nalloc 1 10MiB\nalloc 2 10MiB\nfree 1\nalloc 3 12MiB\nfree 2\nfree 3\n", "",
			"bounded: after repeat 3 the state is that after repeat 2"},
		{"classic", fence, "max_split_size_mb:128", "bounded: after repeat 3 the state is that after repeat 1"},
		{"expandable", fence, "expandable_segments:True", "bounded: after repeat 4 the state is that after repeat 2"},
		{"both", fence, "max_split_size_mb:128,expandable_segments:True", "grows by 138.00 MiB a repeat"},
		// Golden vector G6 of the specification: a loop of one alloc and one free grows until the device is full.
		{"oversize", "alloc 0 21495808\nfree 0\n", "max_split_size_mb:21", "grows by 22.00 MiB a repeat"},
		{"uses on other streams are done by the end", "alloc 0 5MiB\nrecord 0 stream=1\nfree 0\n", "",
			"bounded: after repeat 2 the state is that after repeat 1"},
		{"settings, limits and others are left out", "conf max_split_size_mb:21\nfraction 0.5\nforeign 1MiB\nalloc 0 5MiB\nfree 0\n", "",
			"bounded: after repeat 2 the state is that after repeat 1"},
		{"what no device has", "alloc 0 100TiB\nfree 0\n", "", "bounded: after repeat 2 the state is that after repeat 1"},
	} {
		require.Equal(t, c.want, measured(t, c.text, c.conf).String(), c.name)
	}
}

// TestFigures: reserved and live bytes after each repeat.
func TestFigures(t *testing.T) {
	d := measured(t, "alloc 0 21495808\nfree 0\n", "max_split_size_mb:21")
	require.Equal(t, drift.MaxRepeats, d.Repeats)
	require.Len(t, d.Reserved, drift.MaxRepeats)
	for i, n := range d.Reserved {
		require.EqualValues(t, uint64(i+1)*22<<20, n)
		require.Zero(t, d.Live[i])
	}
}
