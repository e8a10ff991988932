package smallscope_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/smallscope"
	"github.com/shatter-gpu/shatter/properties"
)

func check(t *testing.T, alloc string, wrap func(allocators.Allocator) allocators.Allocator) smallscope.Check {
	t.Helper()
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	return smallscope.Check{
		Target: executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) {
			a, err := spec.New(d)
			return wrap(a), err
		}},
		NewDevice:  func(c uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: c}) },
		Properties: properties.All(), NewJudge: properties.NewJudge,
	}
}

func as(a allocators.Allocator) allocators.Allocator { return a }

// TestCount: the number of traces, by hand for short ones, and the one that the project speaks of.
func TestCount(t *testing.T) {
	one := smallscope.Scope{Sizes: smallscope.EdgeSizes, Streams: 1}
	for _, c := range []struct{ ops, all, full int }{{1, 7, 7}, {2, 7 + 6*8 + 7, 6*8 + 7}, {7, 4858855, 4396525}} {
		one.Ops = c.ops
		all, full := one.Count()
		require.Equal(t, []int{c.all, c.full}, []int{int(all), int(full)}, "%d operations", c.ops)
	}
}

// TestEnumerates: as many runs as were counted, on one stream and on two, without a finding.
func TestEnumerates(t *testing.T) {
	for _, c := range []struct {
		alloc string
		scope smallscope.Scope
	}{
		{"classic", smallscope.Scope{Ops: 4, Sizes: smallscope.EdgeSizes, Streams: 1, Capacity: smallscope.EdgeCapacity}},
		{"expandable", smallscope.Scope{Ops: 3, Sizes: smallscope.FewSizes, Streams: 2, Capacity: smallscope.EdgeCapacity}},
	} {
		_, full := c.scope.Count()
		r, err := smallscope.Run(context.Background(), c.scope, check(t, c.alloc, as), 2, nil)
		require.NoError(t, err)
		require.Nil(t, r.Finding)
		require.Equal(t, full, r.Runs)
		require.NotZero(t, r.Refused)
	}
}

// forgetful is the caching allocator with a planted bug: empty_cache keeps what is cached.
type forgetful struct{ caching }

// caching is what the allocator can do.
type caching interface {
	allocators.Allocator
	allocators.StreamRecorder
	allocators.CacheEmptier
	allocators.StatsReader
	allocators.Snapshotter
	allocators.Toucher
	allocators.Promiser
}

func (forgetful) EmptyCache() error { return nil }

// generous hands out the block of the last free again although a later request may have it: a use after free.
type generous struct {
	caching
	last allocators.Block
}

func (g *generous) Free(a device.Addr) error {
	g.last.Addr = a
	return g.caching.Free(a)
}

func (g *generous) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := g.caching.Alloc(n, s)
	if g.last.Addr != 0 && err == nil && b.Addr != g.last.Addr {
		b.Addr, g.last.Addr = g.last.Addr, 0
	}
	return b, err
}

// TestFindsPlantedBugs: with the fewest operations that show each, and the same whatever the number of workers.
func TestFindsPlantedBugs(t *testing.T) {
	for _, c := range []struct {
		name string
		wrap func(allocators.Allocator) allocators.Allocator
		ops  int
	}{
		{"empty_cache keeps the cache", func(a allocators.Allocator) allocators.Allocator { return forgetful{a.(caching)} }, 1},
		{"a freed block is handed out", func(a allocators.Allocator) allocators.Allocator { return &generous{caching: a.(caching)} }, 3},
	} {
		scope := smallscope.Scope{Ops: c.ops, Sizes: smallscope.EdgeSizes, Streams: 1, Capacity: smallscope.EdgeCapacity}
		if c.ops > 1 {
			scope.Ops = c.ops - 1
			r, err := smallscope.Run(context.Background(), scope, check(t, "classic", c.wrap), 1, nil)
			require.NoError(t, err)
			require.Nil(t, r.Finding, "%s: shows in fewer operations", c.name)
			scope.Ops = c.ops
		}
		var found []string
		for _, workers := range []int{1, 3} {
			r, err := smallscope.Run(context.Background(), scope, check(t, "classic", c.wrap), workers, nil)
			require.NoError(t, err)
			require.NotNil(t, r.Finding, c.name)
			found = append(found, r.Finding.String()+string(r.Trace.Format()))
		}
		require.Equal(t, found[0], found[1])
		t.Logf("%s: %s", c.name, found[0])
	}
}
