package caching

import (
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// TestFailedCalls makes each kind of device call fail once, the first to the eighth of it, in a short program. Whatever fails, the
// blocks tile their segments, what is counted as reserved is what the device gave, and the same operation made again goes through;
// in the end nothing is left at the device.
func TestFailedCalls(t *testing.T) {
	hits := map[string]int{}
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:30"} {
		for _, call := range []string{"malloc", "free", "reserve", "unreserve", "create", "release", "map", "unmap", "record", "done", "wait", "sync", "destroy"} {
			for nth := 1; nth <= 8; nth++ {
				plan := fmt.Sprintf("fail %s nth %d", call, nth)
				dev, a := faulty(t, conf, plan)
				failures := 0
				withFaults(t, fmt.Sprintf("%s, %s", conf, plan), dev, a, &failures)
				hits[call] += failures
			}
		}
	}
	for _, call := range []string{"malloc", "free", "reserve", "unreserve", "create", "release", "map", "unmap", "record", "done", "wait", "sync", "destroy"} {
		require.NotZero(t, hits[call], call)
	}
}

// faulty makes an allocator on a device of 200 MiB whose calls fail as the plan says.
func faulty(t *testing.T, conf, plan string) (*faultdev.Device, *Allocator) {
	faults, err := faultdev.Parse(plan, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
	require.NoError(t, err)
	sim, err := simdev.New(simdev.Options{Capacity: 200 * mib})
	require.NoError(t, err)
	dev := faultdev.New(sim, faults)
	set, _, err := ParseSettings(conf)
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	return dev, a
}

// TestFailedUndo makes the device fail in what takes a failed mapping back: the pages that it does not unmap stay as free memory,
// and the next request is served from them.
func TestFailedUndo(t *testing.T) {
	for plan, stays := range map[string]uint64{
		"fail map nth 4":                     0,
		"fail map nth 4; fail unmap nth 3":   20 * mib,
		"fail map nth 4; fail unmap nth 2":   40 * mib,
		"fail map nth 4; fail unmap nth 1":   60 * mib,
		"oom map nth 4; fail unmap nth 2":    40 * mib,
		"fail map nth 1":                     0,
		"fail map nth 1; fail release nth 1": 0,
	} {
		dev, a := faulty(t, "expandable_segments:True", plan)
		_, err := a.Alloc(90*mib, 0) // five pages
		require.ErrorIs(t, err, device.ErrDriver, plan)
		require.Equal(t, stays, a.reserved, plan)
		consistent(t, plan, dev, a)
		b, err := a.Alloc(90*mib, 0)
		require.NoError(t, err, plan)
		require.EqualValues(t, 100*mib, a.reserved, plan)
		consistent(t, plan+", again", dev, a)
		require.NoError(t, a.Free(b.Addr))
		require.NoError(t, a.EmptyCache())
		require.Equal(t, faultdev.Held{}, dev.Held(), plan)
	}
}

// TestOwedChunks makes the device not take back a chunk: it is owed, the next request gives it back, once.
func TestOwedChunks(t *testing.T) {
	dev, a := faulty(t, "expandable_segments:True", "fail release nth 1")
	b, err := a.Alloc(90*mib, 0)
	require.NoError(t, err)
	require.NoError(t, a.Free(b.Addr))
	require.ErrorIs(t, a.EmptyCache(), device.ErrDriver)
	require.Len(t, a.owed, 1)
	_, err = a.Alloc(90*mib, 0)
	require.NoError(t, err)
	require.Empty(t, a.owed)
	consistent(t, "given back", dev, a)
}

// TestNoWaitForNothing: a free block without a whole page is not waited for (section 17.5).
func TestNoWaitForNothing(t *testing.T) {
	_, a := faulty(t, "expandable_segments:True", "fail sync nth 1")
	_, err := a.Alloc(5*mib, 0) // 15 MiB of its page are free
	require.NoError(t, err)
	require.NoError(t, a.EmptyCache())
}

// TestOwedEvents makes a free fail at its third event and the device not take back the two before: they are owed, the next
// requests give them back, each once, and the block is still live.
func TestOwedEvents(t *testing.T) {
	dev, a := faulty(t, "", "fail record nth 3; fail destroy nth 1 times 3")
	b, err := a.Alloc(90*mib, 0)
	require.NoError(t, err)
	for s := range device.Stream(3) {
		require.NoError(t, a.Record(b.Addr, s+1))
	}
	require.ErrorIs(t, a.Free(b.Addr), device.ErrDriver)
	require.Equal(t, 2, dev.Held().Events)
	_, err = a.Alloc(1, 0)
	require.ErrorIs(t, err, device.ErrDriver, "the third Destroy fails too")
	require.Equal(t, 2, dev.Held().Events)
	small, err := a.Alloc(1, 0)
	require.NoError(t, err)
	require.Zero(t, dev.Held().Events)
	consistent(t, "given back", dev, a)
	require.NoError(t, a.Free(small.Addr))
	require.NoError(t, a.Free(b.Addr), "it was not freed")
	require.NoError(t, a.EmptyCache())
	require.Equal(t, faultdev.Held{}, dev.Held())
}

// withFaults runs the program; what fails for another reason than lack of memory is made again.
func withFaults(t *testing.T, name string, dev *faultdev.Device, a *Allocator, failures *int) {
	var live []device.Addr
	try := func(what string, do func() error) {
		reserved, flushes := a.reserved, a.stats.NumSyncAllStreams
		err := do()
		consistent(t, name+", "+what, dev, a)
		if err == nil || errors.Is(err, device.ErrOutOfMemory) {
			return
		}
		*failures++
		if a.stats.NumSyncAllStreams == flushes {
			require.Equal(t, reserved, a.reserved, "%s: %s failed and left something: %v", name, what, err)
		}
		if again := do(); !errors.Is(again, device.ErrOutOfMemory) {
			require.NoError(t, again, "%s: %s again, after %v", name, what, err)
		}
		consistent(t, name+", "+what+" again", dev, a)
	}
	alloc := func(bytes uint64, s device.Stream) {
		try(fmt.Sprintf("alloc %d", bytes), func() error {
			b, err := a.Alloc(bytes, s)
			if err == nil {
				live = append(live, b.Addr)
			}
			return err
		})
	}
	free := func(i int) {
		addr := live[i]
		try("free", func() error { return a.Free(addr) })
		live = append(live[:i], live[i+1:]...)
	}
	record := func(i int, s device.Stream) {
		try("record", func() error { return a.Record(live[i], s) })
	}
	alloc(90*mib, 0) // five pages
	alloc(50*mib, 0)
	alloc(1, 1)
	alloc(3*mib, 1)
	record(0, 1)
	record(0, 2)
	record(1, 1)
	free(0) // both pending
	free(0)
	alloc(70*mib, 0) // waits for them and returns what is whole
	try("sync", func() error { return dev.SyncAll() })
	alloc(45*mib, 1)
	record(0, 0)
	free(0)
	try("empty", a.EmptyCache)
	alloc(100*mib, 1)
	alloc(100*mib, 0)
	for len(live) > 0 {
		free(0)
	}
	try("empty", a.EmptyCache)
	try("empty", a.EmptyCache)
	dev.Pause()
	require.NoError(t, a.EmptyCache())
	held := dev.Held()
	if len(a.segments) > 0 { // address space that the device failed to take back stays, to be used again
		require.Equal(t, 1, held.Reservations, name)
		require.True(t, a.segments[0].first.next == nil && !a.segments[0].first.mapped, name)
		held.Reservations = 0
	}
	require.Equal(t, faultdev.Held{}, held, name)
}

// consistent holds what an allocator says against itself and the device.
func consistent(t *testing.T, name string, dev *faultdev.Device, a *Allocator) {
	var s allocators.Snapshot
	a.Snapshot(&s)
	var mapped uint64
	for i := range s.Segments {
		g := &s.Segments[i]
		at := g.Addr
		for _, b := range s.BlocksOf(i) {
			require.Equal(t, at, b.Addr, "%s: a gap or an overlap", name)
			require.NotZero(t, b.Size, "%s: an empty block", name)
			at = b.End()
			if b.State != allocators.Unmapped {
				mapped += b.Size
			}
		}
		require.Equal(t, g.Addr+device.Addr(g.Size), at, "%s: the end of a segment", name)
	}
	waiting := len(a.deferred)
	for i := range a.queues {
		waiting += len(a.queues[i].items) - a.queues[i].head
	}
	require.Equal(t, waiting, a.outstanding, "%s: what is counted as outstanding", name)
	require.Equal(t, mapped, a.reserved, name)
	require.Equal(t, mapped, uint64(a.stats.ReservedBytes.All.Current), name)
	// Chunks that the device did not take back are owed to it.
	free, total := dev.Info()
	require.GreaterOrEqual(t, total-free, mapped, name)
	if len(a.owed) == 0 {
		require.Equal(t, mapped, total-free, name)
	}
}

// TestRefuseAtLimit: with throw_on_cudamalloc_oom a purchase over the limit is refused at once, nothing is released for it; one up
// to the limit is made.
func TestRefuseAtLimit(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 100 * mib})
	require.NoError(t, err)
	set, _, err := ParseSettings("x_rules:2.13,throw_on_cudamalloc_oom:True,x_memory_fraction:0.5")
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	b, err := a.Alloc(20*mib, 0)
	require.NoError(t, err)
	require.NoError(t, a.Free(b.Addr))
	_, err = a.Alloc(32*mib, 0)
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	require.EqualValues(t, 52*mib, a.NextCapacity()/2, "it would be made on a device whose half holds both")
	require.EqualValues(t, 20*mib, a.reserved, "the cache stays")
	require.Zero(t, a.stats.NumAllocRetries)
	_, err = a.Alloc(30*mib, 0)
	require.NoError(t, err, "up to the limit")
	require.EqualValues(t, 50*mib, a.reserved)
}
