package caching

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// TestRestoreGoesOnAsBefore: an allocator that starts from the state of another decides as that one does from then on.
func TestRestoreGoesOnAsBefore(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 9))
		conf := []string{"", "expandable_segments:True", "max_split_size_mb:32"}[seed%3]
		set, _, err := ParseSettings(conf)
		require.NoError(t, err)
		make1 := func() (*Allocator, device.Device) {
			dev, err := simdev.New(simdev.Options{Capacity: 4 << 30})
			require.NoError(t, err)
			a, err := New(dev, set)
			require.NoError(t, err)
			return a, dev
		}
		a, _ := make1()
		var live []device.Addr
		drop := func() (addr device.Addr) {
			i := r.IntN(len(live))
			addr = live[i]
			live = slices.Delete(live, i, i+1)
			return addr
		}
		sizes := []uint64{500, 4 << 10, 700 << 10, 1 << 20, 3 << 20, 9 << 20, 11 << 20, 40 << 20, 100 << 20}
		// What stands at the beginning of an expandable segment stays: a hole there cannot be told from another base.
		for _, n := range []uint64{1, 2 << 20} {
			for stream := range device.Stream(2) {
				_, err := a.Alloc(n, stream)
				require.NoError(t, err)
			}
		}
		for range 150 {
			if r.IntN(3) > 0 {
				b, err := a.Alloc(sizes[r.IntN(len(sizes))]+r.Uint64N(3), device.Stream(r.IntN(2)))
				require.NoError(t, err)
				live = append(live, b.Addr)
			} else if len(live) > 0 {
				require.NoError(t, a.Free(drop()))
			}
			if r.IntN(20) == 0 {
				require.NoError(t, a.EmptyCache()) // leaves unmapped pages between mapped ones
			}
		}
		b, moved := restored(t, a, make1, r)
		sameState(t, a, b, moved)
		for range 60 {
			if r.IntN(2) == 0 {
				n, s := sizes[r.IntN(len(sizes))], device.Stream(r.IntN(2))
				x, errA := a.Alloc(n, s)
				y, errB := b.Alloc(n, s)
				require.Equal(t, errA == nil, errB == nil)
				require.Equal(t, x.Size, y.Size)
				moved[x.Addr] = y.Addr
				live = append(live, x.Addr)
			} else if len(live) > 0 {
				addr := drop()
				require.NoError(t, a.Free(addr))
				require.NoError(t, b.Free(moved[addr]))
			}
			require.Equal(t, a.stats.ReservedBytes.All.Current, b.stats.ReservedBytes.All.Current, "seed %d %s", seed, conf)
		}
		sameState(t, a, b, moved)
	}
}

// restored makes an allocator that starts from the state of another, with the new address of each live block. The live blocks of
// a segment come in any order.
func restored(t *testing.T, a *Allocator, make1 func() (*Allocator, device.Device), r *rand.Rand) (*Allocator, map[device.Addr]device.Addr) {
	b, dev := make1()
	var taken uint64
	moved := map[device.Addr]device.Addr{}
	var s allocators.Snapshot
	a.Snapshot(&s)
	for i := range s.Segments {
		g := &s.Segments[i]
		blocks := s.BlocksOf(i)
		var base, first device.Addr
		for k := 0; k < len(blocks); k++ {
			if blocks[k].State == allocators.Unmapped {
				continue
			}
			end := k
			for end < len(blocks) && blocks[end].State != allocators.Unmapped {
				end++
			}
			from, to := blocks[k].Addr, blocks[end-1].End()
			seg := allocators.StartSegment{Size: uint64(to - from), Stream: g.Stream, Small: g.Small, Expandable: g.Expandable}
			if base != 0 {
				seg.Range, seg.Offset = base, uint64(from-first)
			}
			at, err := b.RestoreSegment(seg)
			require.NoError(t, err)
			taken += seg.Size
			free, total := dev.Info()
			require.Equal(t, taken, total-free)
			require.Equal(t, []allocators.BlockInfo{{
				Addr: at, Size: seg.Size, State: allocators.Free, InPool: true, Small: g.Small, Expandable: g.Expandable, Stream: g.Stream,
			}}, touchedBlocks(b), "the new segment is one free block")
			if base == 0 {
				base, first = at, from
			}
			order := r.Perm(end - k)
			if r.IntN(2) == 0 {
				slices.Sort(order)
			}
			for _, i := range order {
				m := &blocks[k+i]
				if m.State != allocators.Live {
					continue
				}
				got, err := b.RestoreBlock(at+(m.Addr-from), m.Size, m.Requested)
				require.NoError(t, err)
				require.Equal(t, allocators.Block{Addr: at + (m.Addr - from), Size: m.Size}, got)
				require.Contains(t, touchedBlocks(b), allocators.BlockInfo{
					Addr: got.Addr, Size: m.Size, Requested: m.Requested, State: allocators.Live, Small: g.Small, Expandable: g.Expandable, Stream: g.Stream,
				})
				moved[m.Addr] = got.Addr
			}
			k = end - 1
		}
	}
	return b, moved
}

// touchedBlocks are the blocks that an allocator says it touched.
func touchedBlocks(a *Allocator) []allocators.BlockInfo {
	var out []allocators.BlockInfo
	for _, n := range a.Touched(nil) {
		out = append(out, n.Block)
	}
	return out
}

// sameState compares the blocks of two allocators by size and state, and what they count.
func sameState(t *testing.T, a, b *Allocator, _ map[device.Addr]device.Addr) {
	var x, y allocators.Snapshot
	a.Snapshot(&x)
	b.Snapshot(&y)
	type kind struct {
		size  uint64
		state allocators.State
	}
	list := func(s *allocators.Snapshot) []kind {
		var out []kind
		for i := range s.Blocks {
			if s.Blocks[i].State != allocators.Unmapped {
				out = append(out, kind{s.Blocks[i].Size, s.Blocks[i].State})
			}
		}
		return out
	}
	require.Equal(t, list(&x), list(&y))
	for _, p := range [][2]*allocators.Pooled{
		{&a.stats.ReservedBytes, &b.stats.ReservedBytes}, {&a.stats.AllocatedBytes, &b.stats.AllocatedBytes},
		{&a.stats.InactiveSplitBytes, &b.stats.InactiveSplitBytes}, {&a.stats.InactiveSplit, &b.stats.InactiveSplit},
		{&a.stats.Segment, &b.stats.Segment}, {&a.stats.RequestedBytes, &b.stats.RequestedBytes},
		{&a.stats.Allocation, &b.stats.Allocation}, {&a.stats.Active, &b.stats.Active}, {&a.stats.ActiveBytes, &b.stats.ActiveBytes},
	} {
		require.Equal(t, p[0].All.Current, p[1].All.Current)
		require.Equal(t, p[0].Small.Current, p[1].Small.Current)
	}
	require.Equal(t, a.stats.OversizeAllocations.Current, b.stats.OversizeAllocations.Current)
	require.Equal(t, a.stats.OversizeSegments.Current, b.stats.OversizeSegments.Current)
	require.Equal(t, a.reserved, b.reserved)
}

func TestRestoreRefuses(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 64 << 20})
	require.NoError(t, err)
	a, err := New(dev, DefaultSettings())
	require.NoError(t, err)
	at, err := a.RestoreSegment(allocators.StartSegment{Size: 20 << 20})
	require.NoError(t, err)
	_, err = a.RestoreBlock(at+1<<20, 1<<20, 5)
	require.NoError(t, err)
	for _, c := range []struct{ at, size uint64 }{{1 << 20, 512}, {0, 2 << 20}, {19 << 20, 2 << 20}, {20 << 20, 512}, {30 << 20, 512}, {0, 0}} {
		_, err = a.RestoreBlock(at+device.Addr(c.at), c.size, 1)
		require.ErrorIs(t, err, device.ErrInvalid)
	}
	idle, err := a.RestoreSegment(allocators.StartSegment{Size: 20 << 20, Idle: true, Needed: 30 << 20})
	require.NoError(t, err)
	require.Zero(t, idle, "left out: there is no room for it and what is still to come")
	require.EqualValues(t, 70<<20, a.NextCapacity())
	_, err = a.RestoreSegment(allocators.StartSegment{Size: 60 << 20})
	require.ErrorIs(t, err, device.ErrOutOfMemory)
	idle, err = a.RestoreSegment(allocators.StartSegment{Size: 20 << 20, Idle: true, Needed: 24 << 20})
	require.NoError(t, err)
	require.NotZero(t, idle, "there is just room enough")
	a, err = New(dev, DefaultSettings())
	require.NoError(t, err)
	_, err = a.RestoreBlock(at, 512, 1)
	require.ErrorIs(t, err, device.ErrInvalid, "there is no segment")
	_, err = a.RestoreSegment(allocators.StartSegment{Size: 5 << 20, Expandable: true})
	require.ErrorContains(t, err, "not made of pages")
}

// TestRestoreCounts: a segment and a block of just max_split_size are oversize, those below are not.
func TestRestoreCounts(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 80 << 20})
	require.NoError(t, err)
	set, _, err := ParseSettings("max_split_size_mb:30")
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	for _, size := range []uint64{28 << 20, 30 << 20} {
		at, err := a.RestoreSegment(allocators.StartSegment{Size: size})
		require.NoError(t, err)
		_, err = a.RestoreBlock(at, size, size)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, a.stats.NumDeviceAlloc)
	require.EqualValues(t, 1, a.stats.OversizeSegments.Current)
	require.EqualValues(t, 1, a.stats.OversizeAllocations.Current)
}

// TestRestoreRange: where a mapped range of an expandable segment can stand.
func TestRestoreRange(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 80 << 20})
	require.NoError(t, err)
	a, err := New(dev, DefaultSettings())
	require.NoError(t, err)
	const page = 20 << 20
	classic, err := a.RestoreSegment(allocators.StartSegment{Size: page})
	require.NoError(t, err)
	at, err := a.RestoreSegment(allocators.StartSegment{Size: page, Expandable: true})
	require.NoError(t, err)
	for _, c := range []struct {
		segment allocators.StartSegment
		want    string
	}{
		{allocators.StartSegment{Size: page, Offset: page + 512, Range: at}, "not made of pages"},
		{allocators.StartSegment{Offset: 2 * page, Range: at}, "not made of pages"}, // none
		{allocators.StartSegment{Size: page, Offset: 2 * page, Range: at, Stream: 1}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page, Offset: 2 * page, Range: at, Small: true}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page + 512, Offset: page, Range: at}, "not made of pages"},
		{allocators.StartSegment{Size: page, Offset: page, Range: at + 1}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page, Offset: page, Range: classic}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page, Offset: page, Range: at + 1<<40}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page, Offset: page, Range: 1 << 63}, "no expandable segment of this stream and pool begins at"},
		{allocators.StartSegment{Size: page, Offset: 0, Range: at}, "does not lie behind what is mapped"},    // mapped
		{allocators.StartSegment{Size: page, Offset: page, Range: at}, "does not lie behind what is mapped"}, // touches a mapped one
	} {
		c.segment.Expandable = true
		_, err := a.RestoreSegment(c.segment)
		require.ErrorContains(t, err, c.want, "%+v", c.segment)
		require.ErrorIs(t, err, device.ErrInvalid)
	}
	for _, c := range []allocators.StartSegment{
		{Size: page, Offset: 5 * page, Range: at}, {Size: 3 * page, Offset: 3 * page, Range: at}, {Size: 6 * page},
	} {
		a.next = math.MaxUint64
		c.Expandable = true
		_, err = a.RestoreSegment(c)
		require.ErrorIs(t, err, device.ErrOutOfMemory, "the address range has five pages")
		require.EqualValues(t, 6*page, reservation(a.NextCapacity(), page))
		require.EqualValues(t, 5*page, reservation(a.NextCapacity()-1, page))
	}
	_, err = a.RestoreSegment(allocators.StartSegment{Size: 3 * page, Offset: 2 * page, Range: at, Expandable: true})
	require.ErrorIs(t, err, device.ErrOutOfMemory, "two pages are left")
	up, err := a.RestoreSegment(allocators.StartSegment{Size: 2 * page, Offset: 3 * page, Range: at, Expandable: true})
	require.NoError(t, err)
	require.Equal(t, at+3*page, up, "up to the very end")
	_, err = a.RestoreSegment(allocators.StartSegment{Size: page, Offset: 2 * page, Range: at, Expandable: true})
	require.ErrorContains(t, err, "does not lie behind what is mapped", "the last range is mapped")
	for _, size := range []uint64{page, 5 * page} { // 5 pages are the whole address range, more than the device has
		_, err = a.RestoreSegment(allocators.StartSegment{Size: size, Expandable: true})
		require.ErrorIs(t, err, device.ErrOutOfMemory)
	}
	_, err = a.RestoreBlock(at+page, page, page)
	require.ErrorIs(t, err, device.ErrInvalid, "no memory is mapped there")
	var s allocators.Snapshot
	a.Snapshot(&s)
	var states []allocators.State
	var sizes []uint64
	for _, b := range s.BlocksOf(0) {
		states, sizes = append(states, b.State), append(sizes, b.Size)
	}
	require.Equal(t, []allocators.State{allocators.Free, allocators.Unmapped, allocators.Free}, states)
	require.Equal(t, []uint64{page, 2 * page, 2 * page}, sizes)
}

// TestRuleSets: the differences between versions that settings show.
func TestRuleSets(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
		want func(*Settings)
	}{
		{"max_split_size_mb:20", false, nil},
		{"x_rules:2.9,max_split_size_mb:20", true, func(s *Settings) { s.MaxSplitSize = 20 << 20 }},
		{"max_split_size_mb:20,x_rules:2.9", true, func(s *Settings) { s.MaxSplitSize = 20 << 20 }},
		{"x_rules:2.9,large_segment_size_mb:32", false, nil},
		{"expandable_segments :\tTrue,x_rules:2.6,x_rules:2.9", true, func(s *Settings) { s.Expandable = true }}, // as the last has it
		{"x_rules:2.11,large_segment_size_mb:33", false, nil},
		{"x_rules:2.11,large_segment_size_mb:10", false, nil},
		{"x_rules:2.11,large_segment_size_mb:1048578", false, nil},
		{"x_rules:2.11,large_segment_size_mb:12", true, func(s *Settings) {
			s.Rules.LargeSegment, s.Rules.MinLimitMB, s.MaxNonSplitRounding = 12<<20, 12, 12<<20
		}},
		{"x_rules:2.11,large_segment_size_mb:1048576", true, func(s *Settings) {
			s.Rules.LargeSegment, s.Rules.MinLimitMB, s.MaxNonSplitRounding = 1<<40, 1<<20, 1<<40
		}},
		{"x_rules:2.11,large_segment_size_mb:32", true, func(s *Settings) {
			s.Rules.LargeSegment, s.Rules.MinLimitMB, s.MaxNonSplitRounding = 32<<20, 32, 32<<20
		}},
		{"x_rules:2.11,max_split_size_mb:24,large_segment_size_mb:32", false, nil},
		{"x_rules:2.11,per_process_memory_fraction:0.5", true, func(s *Settings) { s.HasFraction, s.Fraction = true, 0.5 }},
		{"per_process_memory_fraction:0.5", false, nil},
		{"x_rules:2.13,throw_on_cudamalloc_oom:True", true, func(s *Settings) { s.RefuseAtLimit = true }},
		{"x_rules:2.11,throw_on_cudamalloc_oom:True", false, nil},
		{"x_rules:2.13,pinned_reserve_segment_size_mb:64", true, func(*Settings) {}},
		{"x_rules:2.13,pinned_reserve_segment_size_mb:0", false, nil},
		{"x_rules:2.9,expandable_segments :\tTrue", true, func(s *Settings) { s.Expandable = true }},
	} {
		got, _, err := ParseSettings(c.text)
		require.Equal(t, c.ok, err == nil, "%s: %v", c.text, err)
		if !c.ok {
			continue
		}
		want := DefaultSettings()
		want.Rules = got.Rules
		want.Text = c.text
		c.want(&want)
		require.Equal(t, want, got, c.text)
	}
	_, _, err := ParseSettings("x_rules:2.9,large_segment_size_mb:9")
	require.ErrorContains(t, err, `setting "large_segment_size_mb" came with PyTorch 2.11`, "not what is wrong with its value")
	_, _, err = ParseSettings("x_rules:2.11,large_segment_size_mb:33")
	require.ErrorContains(t, err, "large_segment_size_mb:33: must be an even number from 12 to 1048576 (odd ones, which PyTorch takes, are not modelled)")
	for version, least := range map[string]uint64{"2.6": 21, "2.9": 20, "2.11": 20, "2.13": 20} {
		r, err := RulesFor(version)
		require.NoError(t, err)
		require.EqualValues(t, 20<<20, r.LargeSegment, version)
		require.Equal(t, least, r.MinLimitMB, version)
		require.Equal(t, version == "2.6", r.Source() == "verified by recorded decisions", version)
		require.True(t, version == "2.6" || strings.HasPrefix(r.Source(), "592 recorded traces replayed against the wheel"), version)
	}
	require.Equal(t, []string{"2.6", "2.9", "2.11", "2.13"}, RuleVersions())
	list := "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]"
	old, _, err := ParseSettings(list)
	require.NoError(t, err)
	fixed, _, err := ParseSettings("x_rules:2.11," + list)
	require.NoError(t, err)
	require.EqualValues(t, 8, old.RoundupDivisions[10])
	require.EqualValues(t, 4, fixed.RoundupDivisions[10])
	dev, err := simdev.New(simdev.Options{Capacity: 64 << 20})
	require.NoError(t, err)
	set, _, err := ParseSettings("x_rules:2.11,x_memory_fraction:1")
	require.NoError(t, err)
	a, err := New(dev, set)
	require.NoError(t, err)
	require.False(t, a.hasLimit, "a fraction of 1 is no limit from 2.10 on")
}
