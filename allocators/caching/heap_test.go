package caching

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// steady is a round of work that ends where it began: splits and merges in both pools on two streams, uses on another stream, and,
// if flush is set, refusals, flushes and purchases.
func steady(t testing.TB, conf string, flush bool) func() {
	dev, err := simdev.New(simdev.Options{Capacity: 200 * mib})
	require.NoError(t, err)
	set, _, err := ParseSettings(conf)
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	sizes := []uint64{1, 512, 5000, 700 << 10, 1 * mib, 1*mib + 1, 3 * mib, 9 * mib, 12 * mib, 25 * mib}
	addrs := make([]device.Addr, 0, 64)
	alloc := func(n uint64, s device.Stream) {
		b, err := a.Alloc(n, s)
		if err == nil {
			addrs = append(addrs, b.Addr)
		}
	}
	return func() {
		for i, n := range sizes {
			alloc(n, device.Stream(i&1)*3)
			alloc(n, 0)
		}
		if flush {
			alloc(220*mib, 0) // fits the address space, so no reservation is left behind at each attempt (17.5)
			if err := a.EmptyCache(); err != nil {
				t.Fatal(err)
			}
		}
		for i, addr := range addrs {
			if i&3 == 0 {
				if err := a.Record(addr, 5); err != nil {
					t.Fatal(err)
				}
			}
			if err := a.Free(addr); err != nil {
				t.Fatal(err)
			}
		}
		addrs = addrs[:0]
		if err := dev.Sync(5); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNoGoHeapAllocations: once warm, an allocator takes nothing from the Go heap, so a campaign is not slowed by the collector.
func TestNoGoHeapAllocations(t *testing.T) {
	for _, conf := range []string{
		"", "expandable_segments:True", "max_split_size_mb:21", "roundup_power2_divisions:4",
		"garbage_collection_threshold:0.3,x_memory_fraction:1", "expandable_segments:True,max_split_size_mb:21",
	} {
		for _, flush := range []bool{false, true} {
			round := steady(t, conf, flush)
			for range 50 {
				round()
			}
			require.Zero(t, testing.AllocsPerRun(200, round), "conf %q, flush %v", conf, flush)
		}
	}
}

// TestEventQueueStaysShort: a queue of events that never runs empty does not grow with what has gone through it.
func TestEventQueueStaysShort(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 200 * mib})
	require.NoError(t, err)
	a, err := New(dev, DefaultSettings())
	require.NoError(t, err)
	for range 2000 {
		b, err := a.Alloc(1, 0)
		require.NoError(t, err)
		require.LessOrEqual(t, a.outstanding, 1, "of the round before")
		require.NoError(t, dev.Sync(5))
		require.NoError(t, a.Record(b.Addr, 5))
		require.NoError(t, a.Free(b.Addr))
	}
	require.Equal(t, 2, a.outstanding)
	require.LessOrEqual(t, cap(a.queues[0].items), 8)
}

func BenchmarkSteady(b *testing.B) {
	for _, conf := range []string{"", "expandable_segments:True"} {
		name := "classic"
		if conf != "" {
			name = "expandable"
		}
		b.Run(name, func(b *testing.B) {
			round := steady(b, conf, false)
			b.ReportAllocs()
			for b.Loop() {
				round()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/40, "ns/request")
		})
	}
}
