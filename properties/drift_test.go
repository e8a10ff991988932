package properties_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
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
}
