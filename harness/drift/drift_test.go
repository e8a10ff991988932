package drift_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
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

// TestOtherAddresses: where addresses are given again or at random, a state that looks the same proves nothing.
func TestOtherAddresses(t *testing.T) {
	tr, err := trace.ParseString("drift", "alloc 0 5MiB\nfree 0\nempty_cache\n")
	require.NoError(t, err)
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	const level = "level: 0 reserved after each of the last 10 of 40 repeats"
	for order, want := range map[simdev.Order]string{
		simdev.Bump: "bounded: after repeat 2 the state is that after repeat 1",
		simdev.Low:  level, simdev.Random: level,
	} {
		d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: spec.New}, func(n uint64) (device.Device, error) {
			return simdev.New(simdev.Options{Capacity: n, Order: order, Seed: 3})
		})
		require.NoError(t, err)
		require.Equal(t, want, d.String())
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

// unlisted hides what the caching allocator tells beyond Alloc and Free, and is elsewhere: it must be told of syncs.
type unlisted struct {
	allocators.Allocator
	syncs  int
	script allocators.Script
}

func (u *unlisted) FollowSync(device.Stream) error   { u.syncs++; return nil }
func (u *unlisted) FollowForeign(uint64) error       { return nil }
func (u *unlisted) Foresee(script allocators.Script) { u.script = script }

// TestUnlisted: without a list of blocks nothing is proved; growth shows all the same, and that there is none.
func TestUnlisted(t *testing.T) {
	for _, c := range []struct {
		conf, want string
		level      bool
	}{
		{"max_split_size_mb:128", "level: 158MiB reserved after each of the last 10 of 40 repeats", true},
		{"expandable_segments:True", "level: 160MiB reserved after each of the last 10 of 40 repeats", true},
		{"max_split_size_mb:128,expandable_segments:True", "grows by 138.00 MiB a repeat", false},
	} {
		tr, err := trace.ParseString("drift", fence+"sync stream=1\nempty_cache\n")
		require.NoError(t, err)
		tr.Ops = tr.Ops[:len(tr.Ops)-1]
		spec, err := catalog.FromSettings(c.conf, nil)
		require.NoError(t, err)
		var u *unlisted
		d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: func(dev device.Device) (allocators.Allocator, error) {
			a, err := spec.New(dev)
			u = &unlisted{Allocator: a}
			return u, err
		}}, func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) })
		require.NoError(t, err)
		require.False(t, d.Listed)
		require.Equal(t, c.want, d.String(), c.conf)
		require.Equal(t, c.level, d.Level())
		require.Equal(t, 2*drift.MaxRepeats, u.syncs) // of stream 1 and at the end of each repeat
		// Three allocs, two frees and two syncs; from the second repeat on the block that stayed is freed too.
		require.Equal(t, 8*drift.MaxRepeats-1, u.script.Len)
		last := u.script.At(7 + 3)
		require.Equal(t, allocators.Request{Kind: allocators.RequestFree, ID: 3}, last)
	}
}
