package properties_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
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
	return &executor.Case{Trace: tr, Target: on, Capacity: capacity, NewDevice: simulated, Conf: conf, With: target, Explore: true}
}

// TestGrowthWithBothSettings: found, known for what it is, and a finding if known issues are off. Other settings stay as they are.
func TestGrowthWithBothSettings(t *testing.T) {
	const fence = "alloc 0 91MiB\nalloc 1 47710208\nalloc 2 2MiB\nfree 0\nfree 1\n"
	for conf, under := range map[string]string{
		"max_split_size_mb:128,expandable_segments:True":                                     "max_split_size_mb:128,expandable_segments:True",
		"expandable_segments:True":                                                           "expandable_segments:True,max_split_size_mb:21",
		"roundup_power2_divisions:[64:2,>:4],expandable_segments:True,max_split_size_mb:128": "roundup_power2_divisions:[64:2,>:4],expandable_segments:True,max_split_size_mb:128",
	} {
		v, err := properties.BoundedAlone.Check(caseOf(t, fence, conf, 1<<30))
		require.NoError(t, err)
		require.NotNil(t, v, conf)
		require.Equal(t, properties.Known193400, v.Known)
		require.True(t, strings.HasPrefix(v.Detail, "under "+under+" its first 5 operations"), v.Detail)
	}
	f, err := executor.Relate(caseOf(t, fence, "expandable_segments:True", 1<<30), properties.RelationsWithoutKnown())
	require.NoError(t, err)
	require.Equal(t, "bounded-with-both-settings.grows.expandable.runs", f.Signature())
	require.Empty(t, f.Known)

	require.Equal(t, "expandable@max_split_size_mb:21", f.Target)

	c := caseOf(t, fence, "expandable_segments:True", 1<<30)
	c.Explore = false
	v, err := properties.BoundedAlone.Check(c)
	require.NoError(t, err)
	require.Nil(t, v, "the allocator has not both, and no other settings are to be tried")
	v, err = properties.BoundedAlone.Check(caseOf(t, fence, "max_split_size_mb:128", 1<<30))
	require.NoError(t, err)
	require.Nil(t, v, "classic has not both")
	v, err = properties.BoundedAlone.Check(caseOf(t, "alloc 0 5MiB\nfree 0\n", "expandable_segments:True", 1<<30))
	require.NoError(t, err)
	require.Nil(t, v)
	v, err = properties.BoundedAlone.Check(caseOf(t, "segment 0 2MiB pool=small\n"+fence, "expandable_segments:True", 1<<30))
	require.NoError(t, err)
	require.Nil(t, v, "what it began with cannot be repeated")
	v, err = properties.BoundedAlone.Check(&executor.Case{Trace: c.Trace, Target: c.Target, Capacity: 1 << 30, NewDevice: simulated,
		Conf: "expandable_segments:True,max_split_size_mb:128"})
	require.NoError(t, err)
	require.Nil(t, v, "it takes no other settings")
	v, err = properties.BoundedAlone.Check(caseOf(t, strings.Repeat("alloc 9 5MiB\nfree 9\n", 10)+fence, "expandable_segments:True,max_split_size_mb:128", 1<<30))
	require.NoError(t, err)
	require.NotNil(t, v, "the first twenty operations are bounded, and more are looked at")
	require.True(t, strings.HasPrefix(v.Detail, "under expandable_segments:True,max_split_size_mb:128 its first 25 operations"), v.Detail)
}

// TestGrowthOfStrangers: growth of allocators that list no blocks, of which those that grow with one setting alone are left out, and those
// that do not show that they stay level.
func TestGrowthOfStrangers(t *testing.T) {
	const both = "expandable_segments:True,max_split_size_mb:21"
	leaks := through(func(*shelf, device.Addr) error { return nil })
	level := through(func(s *shelf, a device.Addr) error { return s.dev.Free(a) })
	swings := through(func(s *shelf, a device.Addr) error { // every second block is kept until the next one is freed
		if s.frees%2 == 1 {
			s.kept = a
			return nil
		}
		return errors.Join(s.dev.Free(s.kept), s.dev.Free(a))
	})
	for _, c := range []struct {
		name  string
		alone map[string]executor.Target
		grows bool
	}{
		{"level alone", map[string]executor.Target{"expandable_segments:True": level, "max_split_size_mb:21": level}, true},
		{"one grows alone", map[string]executor.Target{"expandable_segments:True": level, "max_split_size_mb:21": leaks}, false},
		{"the other grows alone", map[string]executor.Target{"expandable_segments:True": leaks, "max_split_size_mb:21": level}, false},
		{"one is not level", map[string]executor.Target{"expandable_segments:True": swings, "max_split_size_mb:21": level}, false},
	} {
		q := caseOf(t, "alloc 0 5MiB\nfree 0\n", both, 1<<30)
		q.With = func(conf string) (executor.Target, error) {
			if conf == both {
				return leaks, nil
			}
			return c.alone[conf], nil
		}
		v, err := properties.BoundedAlone.Check(q)
		require.NoError(t, err, c.name)
		require.Equal(t, c.grows, v != nil, c.name)
	}
	q := caseOf(t, "alloc 0 5MiB\nfree 0\n", both, 1<<30)
	q.With = func(string) (executor.Target, error) { return executor.Target{}, errors.New("no such settings") }
	_, err := properties.BoundedAlone.Check(q)
	require.ErrorContains(t, err, "no such settings")
}
