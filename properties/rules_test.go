package properties

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Here each property is shown states made by hand, on both sides of every border, and what it says is compared to the letter.
// Whether real faults come to such states is asked elsewhere (planted_test.go, bent_test.go).

// says is what a violation says, empty if there is none.
func says(v *executor.Violation) string {
	if v == nil {
		return ""
	}
	return v.Rule + ": " + v.Detail
}

// ruled is a state and what is said of it.
type ruled struct {
	name string
	s    *executor.State
	want string
}

func checkRules(t *testing.T, hook func(*executor.State) *executor.Violation, cases []ruled) {
	t.Helper()
	for _, c := range cases {
		require.Equal(t, c.want, says(hook(c.s)), c.name)
	}
}

// handPromise rounds, buys and maps as PyTorch does.
func handPromise(kind allocators.PromiseKind, edit func(*allocators.Promise)) allocators.Promise {
	p := allocators.Promise{
		Kind: kind, MaxSplitSize: 1 << 62, MaxNonSplitRounding: 20 * mib,
		Round: func(n uint64) uint64 { return max(roundUp(n, 512), 512) },
		SegmentSize: func(n uint64) uint64 {
			switch {
			case n <= mib:
				return 2 * mib
			case n < 10*mib:
				return 20 * mib
			}
			return roundUp(n, 2*mib)
		},
		PageSize: func(small bool) uint64 {
			if small {
				return 2 * mib
			}
			return 20 * mib
		},
	}
	if edit != nil {
		edit(&p)
	}
	return p
}

var (
	handN = handPromise(allocators.PromiseN, nil)
	handX = handPromise(allocators.PromiseX, nil)
)

// handed is the state behind an alloc that got a block in a region.
func handed(p allocators.Promise, n uint64, b allocators.Block, r executor.Region, edit func(*executor.State)) *executor.State {
	s := &executor.State{
		Operation: &trace.Op{Kind: trace.Alloc, Bytes: n}, Block: b, Entry: &shadow.Entry{}, Region: &r, Covered: true, Promise: p,
	}
	if edit != nil {
		edit(s)
	}
	return s
}

func TestBlockRules(t *testing.T) {
	block := allocators.Block{Addr: 0x1800, Size: 0x1000}
	over := func(addr device.Addr, pending bool) *executor.State {
		return handed(handN, 0x1000, block, executor.Region{}, func(s *executor.State) {
			s.Operation.Stream = 2
			s.Overlapped = &shadow.Entry{Addr: addr, Size: 0x1000, Op: 3, Pending: pending}
		})
	}
	checkRules(t, NoOverlap.Op, []ruled{
		{"nothing below", handed(handN, 0x1000, block, executor.Region{}, nil), ""},
		{"live, before", over(0x1000, false), "live: 4096 bytes at 0x1800 handed out, of which 0x1800 to 0x2000 is live since operation 3"},
		{"live, behind", over(0x2000, false), "live: 4096 bytes at 0x1800 handed out, of which 0x2000 to 0x2800 is live since operation 3"},
		{"pending", over(0x1000, true), ""},
	})
	checkRules(t, ReuseBeforeEvent.Op, []ruled{
		{"nothing below", handed(handN, 0x1000, block, executor.Region{}, nil), ""},
		{"live", over(0x1000, false), ""},
		{"pending", over(0x1000, true), "pending: 4096 bytes at 0x1800 handed out on stream 2 while a stream still uses the block of operation 3 there"},
	})

	region := executor.Region{Addr: 0x10000, Ordinal: 4}
	at := func(addr device.Addr, size uint64) allocators.Block { return allocators.Block{Addr: addr, Size: size} }
	none := allocators.Promise{}
	zero := func(edit func(*executor.State)) *executor.State {
		return handed(handN, 0, at(0x10200, 0), region, func(s *executor.State) { s.Entry = nil; edit(s) })
	}
	checkRules(t, Bounds.Op, []ruled{
		{"right", handed(handN, 1000, at(0x10200, 1024), region, nil), ""},
		{"the exact size", handed(handN, 1024, at(0x10200, 1024), region, nil), ""},
		{"zero bytes", zero(func(s *executor.State) {}),
			"zero: a request of 0 bytes was given the address 0x10200, which the program never frees; it must get the zero Block"},
		{"zero bytes, no address", zero(func(s *executor.State) { s.Block = allocators.Block{} }), ""},
		{"zero bytes, refused", zero(func(s *executor.State) { s.Outcome = executor.OOM }), ""},
		{"a free", zero(func(s *executor.State) { s.Operation.Kind = trace.Free }), ""},
		{"refused", handed(handN, 1025, at(0x10200, 1024), region, func(s *executor.State) { s.Entry = nil }), ""},
		{"too small", handed(handN, 1025, at(0x10200, 1024), region, nil), "too-small: 1024 bytes handed out where 1025 were asked for"},
		{"in no segment", handed(handN, 1000, at(0x10200, 1024), region, func(s *executor.State) { s.Region = nil }),
			"outside: 1024 bytes at 0x10200 lie in no segment of the device"},
		{"not on memory", handed(handN, 1000, at(0x10200, 1024), region, func(s *executor.State) { s.Covered = false }),
			"no-memory: 1024 bytes at 0x10200 do not all lie on memory of segment 4"},
		{"place", handed(handN, 1000, at(0x10110, 1024), region, nil),
			"alignment: 1024 bytes at offset 272 of segment 4: place and size must be multiples of 512"},
		{"place in a segment at an odd address", handed(handN, 1000, at(0x10210, 1024), executor.Region{Addr: 0x10010}, nil), ""},
		{"size", handed(handN, 1000, at(0x10200, 1040), region, nil),
			"alignment: 1040 bytes at offset 512 of segment 4: place and size must be multiples of 512"},
		{"place, nothing promised", handed(none, 1000, at(0x10110, 1040), region, nil), ""},
		{"address, nothing promised", handed(none, 1000, at(0x10108, 1040), region, nil),
			"alignment: 1040 bytes handed out at 0x10108, which is no multiple of 16"},
	})
	checkRules(t, Bounds.Walk, []ruled{
		{"on memory", &executor.State{View: &executor.View{}}, ""},
		{"stray", &executor.State{View: &executor.View{Stray: &shadow.Entry{Op: 3, Size: 512, Addr: 0x200}}},
			"lost-memory: the block of operation 3, 512 bytes at 0x200, no longer lies on memory"},
	})
	checkRules(t, Aligned(1024).Op, []ruled{
		{"aligned", handed(none, 1, at(0x400, 1), region, nil), ""},
		{"not", handed(none, 1, at(0x600, 1), region, nil), "alignment: 1 bytes handed out at 0x600, which is no multiple of 1024"},
		{"refused", handed(none, 1, at(0x600, 1), region, func(s *executor.State) { s.Entry = nil }), ""},
	})
	require.Equal(t, "The address of every block is a multiple of 1024.", Aligned(1024).Claim)
}

// around is a neighbourhood of three blocks of 512 bytes in a segment of 2,048.
func around(edit func(*allocators.Neighbourhood)) *executor.State {
	n := allocators.Neighbourhood{
		HasPrev: true, Prev: allocators.BlockInfo{Addr: 0x1000, Size: 512, State: allocators.Free},
		Block:   allocators.BlockInfo{Addr: 0x1200, Size: 512, State: allocators.Live},
		HasNext: true, Next: allocators.BlockInfo{Addr: 0x1400, Size: 512, State: allocators.Free},
		Base: 0x1000, Size: 2048,
	}
	edit(&n)
	return &executor.State{Promise: handN, Touched: []allocators.Neighbourhood{n}}
}

func TestTouchedRules(t *testing.T) {
	const begins = "gap: the block at 0x1200 does not begin where its neighbour ends"
	ends := "gap: the block at 0x1200 of 512 bytes does not end where its neighbour begins"
	checkRules(t, Tiling.Op, []ruled{
		{"right", around(func(*allocators.Neighbourhood) {}), ""},
		{"nothing touched", &executor.State{}, ""},
		{"behind a gap", around(func(n *allocators.Neighbourhood) { n.Prev.Size = 511 }), begins},
		{"before a gap", around(func(n *allocators.Neighbourhood) { n.Next.Addr++ }), ends},
		{"first, but not at the base", around(func(n *allocators.Neighbourhood) { n.HasPrev = false }), begins},
		{"first, at the base", around(func(n *allocators.Neighbourhood) { n.HasPrev, n.Base = false, 0x1200 }), ""},
		{"last, but not at the end", around(func(n *allocators.Neighbourhood) { n.HasNext = false }), ends},
		{"last, at the end", around(func(n *allocators.Neighbourhood) { n.HasNext, n.Size = false, 1024 }), ""},
		{"no bytes", around(func(n *allocators.Neighbourhood) { n.Block.Size, n.Next.Addr = 0, 0x1200 }), "empty: the block at 0x1200 has no bytes"},
	})
	live := func(state allocators.State) *executor.State {
		return around(func(n *allocators.Neighbourhood) { n.Block.State, n.Prev.State, n.Next.State = state, state, state })
	}
	checkRules(t, Coalescing.Op, []ruled{
		{"right", around(func(*allocators.Neighbourhood) {}), ""},
		{"live beside live", live(allocators.Live), ""},
		{"pending beside pending", live(allocators.Pending), ""},
		{"free beside free", live(allocators.Free), "free: the free blocks at 0x1000 (512 bytes) and 0x1200 (512 bytes) are adjacent"},
		{"unmapped", live(allocators.Unmapped), "unmapped: the unmapped blocks at 0x1000 (512 bytes) and 0x1200 (512 bytes) are adjacent"},
		{"with the next one", around(func(n *allocators.Neighbourhood) { n.Block.State, n.Prev.State = allocators.Free, allocators.Live }),
			"free: the free blocks at 0x1200 (512 bytes) and 0x1400 (512 bytes) are adjacent"},
		{"none before", around(func(n *allocators.Neighbourhood) {
			n.Block.State, n.HasPrev, n.Next.State = allocators.Free, false, allocators.Live
		}), ""},
		{"none behind", around(func(n *allocators.Neighbourhood) {
			n.Block.State, n.HasNext, n.Prev.State = allocators.Free, false, allocators.Live
		}), ""},
		{"free beside unmapped", around(func(n *allocators.Neighbourhood) { n.Block.State, n.Prev.State = allocators.Unmapped, allocators.Live }), ""},
		{"nothing promised", func() *executor.State { s := live(allocators.Free); s.Promise.Kind = allocators.PromiseNone; return s }(), ""},
	})
}

// listing is a state in which the allocator lists what the harness knows, edited.
func listing(kind allocators.PromiseKind, edit func(a *allocators.Snapshot, v *executor.View, s *executor.State)) *executor.State {
	blocks := func() []allocators.BlockInfo {
		return []allocators.BlockInfo{
			{Addr: 0x1000, Size: 512, Requested: 500, State: allocators.Live},
			{Addr: 0x1200, Size: 512, State: allocators.Free, InPool: true},
			{Addr: 0x1400, Size: 1024, Requested: 600, State: allocators.Pending},
			{Addr: 0x4000, Size: 1024, State: allocators.Unmapped, InPool: true},
			{Addr: 0x4400, Size: 1024, Requested: 1000, State: allocators.Live},
		}
	}
	segments := func() []allocators.SegmentInfo {
		return []allocators.SegmentInfo{{Addr: 0x1000, Size: 2048, Count: 3}, {Addr: 0x4000, Size: 2048, Expandable: true, First: 3, Count: 2}}
	}
	a := &allocators.Snapshot{Segments: segments(), Blocks: blocks()}
	v := &executor.View{Snapshot: allocators.Snapshot{Segments: segments(), Blocks: blocks()}}
	s := &executor.State{Snapshot: a, View: v}
	s.Promise.Kind = kind
	if edit != nil {
		edit(a, v, s)
	}
	return s
}

func TestListingRules(t *testing.T) {
	n := func(edit func(a *allocators.Snapshot, v *executor.View)) *executor.State {
		return listing(allocators.PromiseN, func(a *allocators.Snapshot, v *executor.View, _ *executor.State) { edit(a, v) })
	}
	// view edits what the harness knows, so that the list is right in itself.
	segment := func(edit func(g *allocators.SegmentInfo)) *executor.State {
		return n(func(_ *allocators.Snapshot, v *executor.View) { edit(&v.Segments[1]) })
	}
	block := func(i int, edit func(b *allocators.BlockInfo)) *executor.State {
		return n(func(_ *allocators.Snapshot, v *executor.View) { edit(&v.Blocks[i]) })
	}
	const other = "segments: segment 1: the allocator has {Addr:16384 Size:2048 Small:false Expandable:true PageSize:0 Stream:0 Pool:0 First:3 Count:2}, " +
		"the device gave "
	checkRules(t, Tiling.Walk, []ruled{
		{"right", listing(allocators.PromiseN, nil), ""},
		{"no list", &executor.State{}, ""},
		{"a gap between", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[0].Size = 256 }),
			"gap: segment at 0x1000: a block begins at 0x1200 where 0x1100 was expected"},
		{"a gap at the end", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[2].Size = 512 }),
			"gap: segment at 0x1000: its blocks end at 0x1600, the segment at 0x1800"},
		{"free, in no set", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[1].InPool = false }),
			"set: the free block at 0x1200 is in a free or unmapped set: false"},
		{"unmapped, in no set", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[3].InPool = false }),
			"set: the unmapped block at 0x4000 is in a free or unmapped set: false"},
		{"live, in a set", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[4].InPool = true }),
			"set: the live block at 0x4400 is in a free or unmapped set: true"},
		{"a segment too few", n(func(a *allocators.Snapshot, _ *executor.View) { a.Segments = a.Segments[:1] }),
			"segments: the allocator has 1 segments, the device gave 2"},
		{"a segment elsewhere", segment(func(g *allocators.SegmentInfo) { g.Addr = 0x4001 }),
			other + "{Addr:16385 Size:2048 Small:false Expandable:true PageSize:0 Stream:0 Pool:0 First:3 Count:2}"},
		{"of another size", segment(func(g *allocators.SegmentInfo) { g.Size = 2049 }),
			other + "{Addr:16384 Size:2049 Small:false Expandable:true PageSize:0 Stream:0 Pool:0 First:3 Count:2}"},
		{"of the other kind", segment(func(g *allocators.SegmentInfo) { g.Expandable = false }),
			other + "{Addr:16384 Size:2048 Small:false Expandable:false PageSize:0 Stream:0 Pool:0 First:3 Count:2}"},
		{"for small requests", segment(func(g *allocators.SegmentInfo) { g.Small = true }),
			other + "{Addr:16384 Size:2048 Small:true Expandable:true PageSize:0 Stream:0 Pool:0 First:3 Count:2}"},
		{"of another stream", segment(func(g *allocators.SegmentInfo) { g.Stream = 1 }),
			other + "{Addr:16384 Size:2048 Small:false Expandable:true PageSize:0 Stream:1 Pool:0 First:3 Count:2}"},
		{"of another pool", segment(func(g *allocators.SegmentInfo) { g.Pool = 1 }),
			other + "{Addr:16384 Size:2048 Small:false Expandable:true PageSize:0 Stream:0 Pool:1 First:3 Count:2}"},
		{"a page size is the allocator's to tell", segment(func(g *allocators.SegmentInfo) { g.PageSize = 1 }), ""},
		{"a block elsewhere", block(4, func(b *allocators.BlockInfo) { b.Addr = 0x4401 }),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where a live one of 1024 bytes at 0x4401 must be"},
		{"a block of another size", block(4, func(b *allocators.BlockInfo) { b.Size = 1023 }),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where a live one of 1023 bytes at 0x4400 must be"},
		{"a block in another state", block(4, func(b *allocators.BlockInfo) { b.State = allocators.Pending }),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where a pending one of 1024 bytes at 0x4400 must be"},
		{"a live block of another request", block(0, func(b *allocators.BlockInfo) { b.Requested = 501 }),
			"requested: the live block at 0x1000 holds a request of 501 bytes, the allocator has 500"},
		{"a pending block of another request", block(2, func(b *allocators.BlockInfo) { b.Requested = 601 }),
			"requested: the pending block at 0x1400 holds a request of 601 bytes, the allocator has 600"},
		{"what a free block held is the allocator's to keep", block(1, func(b *allocators.BlockInfo) { b.Requested = 1 }), ""},
		{"a block too many", n(func(_ *allocators.Snapshot, v *executor.View) { v.Blocks = v.Blocks[:4] }), "blocks: the allocator has 5 blocks, 4 must be"},
		{"a block too few", n(func(_ *allocators.Snapshot, v *executor.View) { v.Blocks = append(v.Blocks, v.Blocks[0]) }),
			"blocks: the allocator has 5 blocks, 6 must be"},
	})

	split := func(divide func(a *allocators.Snapshot), i int) *executor.State {
		return n(func(a *allocators.Snapshot, _ *executor.View) {
			half := a.Blocks[i]
			half.Addr, half.Size = half.Addr+256, half.Size-256
			a.Blocks[i].Size = 256
			a.Blocks = append(a.Blocks[:i+1], append([]allocators.BlockInfo{half}, a.Blocks[i+1:]...)...)
			divide(a)
		})
	}
	first := func(a *allocators.Snapshot) { a.Segments[0].Count, a.Segments[1].First = 4, 4 }
	second := func(a *allocators.Snapshot) { a.Segments[1].Count = 3 }
	unpromised := split(first, 1)
	unpromised.Promise.Kind = allocators.PromiseNone
	checkRules(t, Coalescing.Walk, []ruled{
		{"right", listing(allocators.PromiseN, nil), ""},
		{"no list", &executor.State{Promise: handN}, ""},
		{"free twice", split(first, 1), "free: the free blocks at 0x1200 (256 bytes) and 0x1300 (256 bytes) are adjacent"},
		{"unmapped twice", split(second, 3), "unmapped: the unmapped blocks at 0x4000 (256 bytes) and 0x4100 (768 bytes) are adjacent"},
		{"live twice", split(first, 0), ""},
		{"pending twice", split(first, 2), ""},
		{"nothing promised", unpromised, ""},
		{"in two segments", n(func(a *allocators.Snapshot, _ *executor.View) { a.Blocks[2].State = allocators.Unmapped }), ""},
	})
}

// TestUnpromisedListing: without a promise only the segments and what is live are compared.
func TestUnpromisedListing(t *testing.T) {
	n := func(edit func(a *allocators.Snapshot, v *executor.View, s *executor.State)) *executor.State {
		return listing(allocators.PromiseNone, edit)
	}
	list := func(i int, edit func(b *allocators.BlockInfo)) *executor.State {
		return n(func(a *allocators.Snapshot, _ *executor.View, _ *executor.State) { edit(&a.Blocks[i]) })
	}
	known := func(i int, edit func(b *allocators.BlockInfo)) *executor.State {
		return n(func(_ *allocators.Snapshot, v *executor.View, _ *executor.State) { edit(&v.Blocks[i]) })
	}
	checkRules(t, Tiling.Walk, []ruled{
		{"right", n(nil), ""},
		{"in no set", list(1, func(b *allocators.BlockInfo) { b.InPool = false }), ""},
		{"free for pending", list(2, func(b *allocators.BlockInfo) { b.State = allocators.Free }), ""},
		{"of another stream and pool", n(func(a *allocators.Snapshot, _ *executor.View, _ *executor.State) {
			g := &a.Segments[0]
			g.Stream, g.Pool, g.Small, g.Expandable = 1, 1, true, true
		}), ""},
		{"requests not told", list(0, func(b *allocators.BlockInfo) { b.Requested = 0 }), ""},
		{"a segment too few", n(func(a *allocators.Snapshot, _ *executor.View, _ *executor.State) { a.Segments = a.Segments[:1] }),
			"segments: the allocator has 1 segments, the device gave 2"},
		{"a segment elsewhere", n(func(_ *allocators.Snapshot, v *executor.View, _ *executor.State) { v.Segments[1].Addr++ }),
			"segments: segment 1: the allocator has 2048 bytes at 0x4000, the device gave 2048 at 0x4001"},
		{"of another size", n(func(_ *allocators.Snapshot, v *executor.View, _ *executor.State) { v.Segments[1].Size++ }),
			"segments: segment 1: the allocator has 2048 bytes at 0x4000, the device gave 2049 at 0x4000"},
		{"live too late", list(2, func(b *allocators.BlockInfo) { b.State = allocators.Live }),
			"blocks: the allocator has a live block of 1024 bytes at 0x1400 where the program's next one has 1024 bytes at 0x4400"},
		{"of a smaller size", known(4, func(b *allocators.BlockInfo) { b.Size = 1023 }),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where the program's next one has 1023 bytes at 0x4400"},
		{"sizes not told", n(func(_ *allocators.Snapshot, v *executor.View, s *executor.State) {
			v.Blocks[4].Size, s.Unsized = 1000, true
		}), ""},
		{"sizes not told, elsewhere", n(func(_ *allocators.Snapshot, v *executor.View, s *executor.State) {
			v.Blocks[4].Addr, s.Unsized = 0x4401, true
		}),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where the program's next one has 1024 bytes at 0x4401"},
		{"another request", known(4, func(b *allocators.BlockInfo) { b.Requested = 999 }),
			"requested: the live block at 0x4400 holds a request of 999 bytes, the allocator has 1000"},
		{"live, but freed by the program", known(4, func(b *allocators.BlockInfo) { b.State = allocators.Free }),
			"blocks: the allocator has a live block at 0x4400, the program has none there or behind"},
		{"free, but held by the program", list(4, func(b *allocators.BlockInfo) { b.State = allocators.Free }),
			"blocks: the program's block of 1024 bytes at 0x4400 is not live in the allocator"},
		{"the first one is free", list(0, func(b *allocators.BlockInfo) { b.State = allocators.Free }),
			"blocks: the allocator has a live block of 1024 bytes at 0x4400 where the program's next one has 512 bytes at 0x1000"},
	})
}

func TestPlacementRules(t *testing.T) {
	large, small := executor.Region{}, executor.Region{Small: true}
	// got is a request of n bytes that got size.
	got := func(p allocators.Promise, n, size uint64) *executor.State {
		r := large
		if n <= mib {
			r = small
		}
		return handed(p, n, allocators.Block{Addr: 0x1000, Size: size}, r, nil)
	}
	with := func(p allocators.Promise, edit func(*executor.State)) *executor.State {
		return handed(p, 3*mib, allocators.Block{Addr: 0x1000, Size: 3 * mib}, large, edit)
	}
	down := handPromise(allocators.PromiseN, func(p *allocators.Promise) { p.Round = func(n uint64) uint64 { return n / 512 * 512 } })
	max3 := handPromise(allocators.PromiseN, func(p *allocators.Promise) { p.MaxSplitSize = 3 * mib })
	allows1 := handPromise(allocators.PromiseN, func(p *allocators.Promise) { p.MaxSplitSize, p.MaxNonSplitRounding = 3*mib, mib })
	checkRules(t, Placement.Op, []ruled{
		{"right", got(handN, 3*mib, 3*mib), ""},
		{"refused", with(handN, func(s *executor.State) { s.Entry, s.Block.Size = nil, 1 }), ""},
		{"in no region", with(handN, func(s *executor.State) { s.Region, s.Block.Size = nil, 1 }), ""},
		{"nothing promised", with(allocators.Promise{}, func(s *executor.State) { s.Block.Size = 1 }), ""},
		{"rounded down", got(down, 1000, 512), "I3: a request of 1000 bytes is rounded to 512 and got 512"},
		{"less than is rounded to", got(handN, 1000, 1023), "I3: a request of 1000 bytes is rounded to 1024 and got 1023"},
		{"of another stream", with(handN, func(s *executor.State) { s.Operation.Stream, s.Region.Stream = 1, 2 }),
			"stream: a request of stream 1 got memory of stream 2"},
		{"large from small", with(handN, func(s *executor.State) { s.Region.Small = true }),
			"pool: a request of 3145728 bytes got memory of a segment for small requests"},
		{"small from large", with(handN, func(s *executor.State) { s.Operation.Bytes = mib }),
			"pool: a request of 1048576 bytes got memory of a segment for large requests"},
		{"the least large one from small", with(handN, func(s *executor.State) { s.Operation.Bytes, s.Region.Small = mib+1, true }),
			"pool: a request of 1048577 bytes got memory of a segment for small requests"},

		{"small, 512 too many", got(handN, 1000, 1536), "I3: a request of 1000 bytes, rounded to 1024, got a block of 1536: 512 bytes should have been split off"},
		{"large, 1 MiB over", got(handN, 3*mib-1, 4*mib), ""},
		{"large, more over", got(handN, 3*mib-1, 4*mib+512),
			"I3: a request of 3145727 bytes, rounded to 3145728, got a block of 4194816: 1049088 bytes should have been split off"},
		{"in an expandable segment nothing is over", got(handX, 3*mib, 3*mib+512),
			"I3: a request of 3145728 bytes, rounded to 3145728, got a block of 3146240: 512 bytes should have been split off"},
		{"may be split still", got(max3, 3*mib-512, 4*mib),
			"I3: a request of 3145216 bytes, rounded to 3145216, got a block of 4194304: 1049088 bytes should have been split off"},
		{"may not be split: the allowance", got(max3, 3*mib, 23*mib-1), ""},
		{"may not be split: beyond the allowance", got(max3, 3*mib, 23*mib),
			"I3: a request of 3145728 bytes, rounded to 3145728, got a block of 24117248: 20971520 bytes should have been split off"},
		{"may not be split: a segment of its own", got(allows1, 3*mib, 20*mib), ""},
		{"may not be split: larger than that", got(allows1, 3*mib, 20*mib+512),
			"I3: a request of 3145728 bytes, rounded to 3145728, got a block of 20972032: 17826304 bytes should have been split off"},
	})

	// beside is a request of n bytes with a neighbour before or behind it.
	type near = func(n *allocators.Neighbourhood)
	beside := func(p allocators.Promise, n uint64, edit near) *executor.State {
		s := got(p, n, n)
		around := allocators.Neighbourhood{Block: allocators.BlockInfo{Addr: 0x1000, Size: n, State: allocators.Live}}
		edit(&around)
		// What else the operation touched comes first and says nothing.
		elsewhere := allocators.Neighbourhood{
			HasPrev: true, Prev: allocators.BlockInfo{Size: 512, State: allocators.Free},
			Block: allocators.BlockInfo{Addr: 0x200, State: allocators.Live},
		}
		s.Touched = []allocators.Neighbourhood{elsewhere, around}
		return s
	}
	before := func(state allocators.State) near {
		return func(n *allocators.Neighbourhood) {
			n.HasPrev, n.Prev = true, allocators.BlockInfo{Size: 512, State: state}
		}
	}
	behind := func(state allocators.State, size uint64) near {
		return func(n *allocators.Neighbourhood) {
			n.HasNext, n.Next = true, allocators.BlockInfo{Size: size, State: state}
		}
	}
	const low = "I7: the block at 0x1000 was not placed at the low end: 512 free bytes lie before it"
	checkRules(t, Placement.Op, []ruled{
		{"alone", beside(handN, 3*mib, func(*allocators.Neighbourhood) {}), ""},
		{"behind free bytes", beside(handN, 3*mib, before(allocators.Free)), low},
		{"behind free bytes, small", beside(handN, 1024, before(allocators.Free)), low},
		{"behind a live block", beside(handN, 3*mib, before(allocators.Live)), ""},
		{"what lay before is not a neighbour", beside(handN, 3*mib, func(n *allocators.Neighbourhood) { before(allocators.Free)(n); n.HasPrev = false }), ""},
		{"touched, but not live", beside(handN, 3*mib, func(n *allocators.Neighbourhood) { before(allocators.Free)(n); n.Block.State = allocators.Free }), ""},
		{"before much", beside(handN, 3*mib, behind(allocators.Free, mib+512)), ""},
		{"before little", beside(handN, 3*mib, behind(allocators.Free, mib)),
			"split: 1048576 bytes were split off behind the block at 0x1000; in the large pool 1 MiB or less is not"},
		{"before little that is live", beside(handN, 3*mib, behind(allocators.Live, mib)), ""},
		{"what lay behind is not a neighbour", beside(handN, 3*mib, func(n *allocators.Neighbourhood) {
			behind(allocators.Free, mib)(n)
			n.HasNext = false
		}), ""},
		{"small, before little", beside(handN, 1024, behind(allocators.Free, 512)), ""},
		{"expandable, before little", beside(handX, 3*mib, behind(allocators.Free, 512)), ""},
		{"may not be split", beside(max3, 3*mib, behind(allocators.Free, 2*mib)),
			"split: a block for 3145728 bytes was split, 2097152 bytes lie behind it, although max_split_size is 3145728"},
		{"may be split still", beside(max3, 3*mib-512, behind(allocators.Free, 2*mib)), ""},
	})
}

func TestFractionLimitRules(t *testing.T) {
	limited := handPromise(allocators.PromiseN, func(p *allocators.Promise) { p.HasLimit, p.Limit = true, 100 })
	after := func(p allocators.Promise, reserved uint64, edit func(*executor.State)) *executor.State {
		s := &executor.State{Operation: &trace.Op{Kind: trace.Alloc}, Promise: p, Calls: []device.Call{{Kind: device.CallMalloc}}, Stats: &allocators.Stats{}}
		s.Stats.ReservedBytes.All.Current = reserved
		if edit != nil {
			edit(s)
		}
		return s
	}
	expandable, unlimited := limited, limited
	expandable.Kind, unlimited.HasLimit = allocators.PromiseX, false
	const beyond = "D2: 101 bytes are reserved, the limit is 100"
	checkRules(t, FractionLimit.Op, []ruled{
		{"at the limit", after(limited, 100, nil), ""},
		{"beyond it", after(limited, 101, nil), beyond},
		{"beyond it before", after(limited, 101, func(s *executor.State) { s.ReservedBefore = 101 }), beyond},
		{"less than before", after(limited, 101, func(s *executor.State) {
			s.ReservedBefore = 150
			s.Calls = []device.Call{{Kind: device.CallFree}, {Kind: device.CallMalloc}}
		}), beyond},
		{"nothing was bought", after(limited, 101, func(s *executor.State) { s.Calls = nil }), ""},
		{"it was tried", after(limited, 101, func(s *executor.State) { s.Calls[0].Kind = device.CallMallocFail }), ""},
		{"some was returned", after(limited, 101, func(s *executor.State) { s.Calls[0].Kind, s.ReservedBefore = device.CallFree, 150 }), ""},
		{"no statistics", after(limited, 101, func(s *executor.State) { s.Stats = nil }), ""},
		{"nothing was asked for", after(limited, 101, func(s *executor.State) { s.Operation.Kind = trace.EmptyCache }), ""},
		{"expandable", after(expandable, 101, nil), ""},
		{"no limit", after(unlimited, 101, nil), ""},
	})
}

func TestDeviceCounterRules(t *testing.T) {
	limited := handPromise(allocators.PromiseN, func(p *allocators.Promise) { p.MaxSplitSize = 1000 })
	counted := func(edit func(st *allocators.Stats, s *executor.State)) *executor.State {
		s := &executor.State{Promise: limited, Bought: 5, Returned: 4, OOMs: 3, UnretriedOOMs: 1, View: &executor.View{}}
		s.Stats = &allocators.Stats{NumDeviceAlloc: 5, NumDeviceFree: 4, NumOOMs: 3, NumAllocRetries: 2}
		s.Stats.OversizeAllocations.Current, s.Stats.OversizeSegments.Current = 2, 2
		s.View.Segments = []allocators.SegmentInfo{{Size: 999}, {Size: 1000}, {Size: 1001}, {Size: 1000, Expandable: true}}
		s.View.Blocks = []allocators.BlockInfo{
			{Size: 999, State: allocators.Live}, {Size: 1000, State: allocators.Live}, {Size: 1001, State: allocators.Live},
			{Size: 1000, State: allocators.Free}, {Size: 1000, State: allocators.Free}, {Size: 1000, State: allocators.Pending},
		}
		edit(s.Stats, s)
		return s
	}
	checkRules(t, DeviceCounters.Walk, []ruled{
		{"right", counted(func(*allocators.Stats, *executor.State) {}), ""},
		{"no statistics", counted(func(_ *allocators.Stats, s *executor.State) { s.Stats = nil }), ""},
		{"nothing promised", counted(func(st *allocators.Stats, s *executor.State) { st.NumOOMs, s.Promise.Kind = 9, allocators.PromiseNone }), ""},
		{"refused without a retry", counted(func(st *allocators.Stats, s *executor.State) { st.NumOOMs, s.OOMs = 4, 4 }), "A14: 3 refusals after only 2 retries"},
		{"purchases", counted(func(st *allocators.Stats, s *executor.State) { st.NumDeviceAlloc = 6 }), "A9: num_device_alloc is 6, must be 5"},
		{"returns", counted(func(st *allocators.Stats, s *executor.State) { st.NumDeviceFree = 5 }), "A9: num_device_free is 5, must be 4"},
		{"refusals", counted(func(st *allocators.Stats, s *executor.State) { st.NumOOMs = 2 }), "A9: num_ooms is 2, must be 3"},
		{"failed half-way", counted(func(st *allocators.Stats, s *executor.State) { st.NumDeviceAlloc, s.Faulty = 6, true }), ""},
		{"large blocks", counted(func(st *allocators.Stats, s *executor.State) { st.OversizeAllocations.Current = 3 }), "A11: oversize_allocations is 3, must be 2"},
		{"large segments", counted(func(st *allocators.Stats, s *executor.State) { st.OversizeSegments.Current = 3 }), "A11: oversize_segments is 3, must be 2"},
		{"large by another limit", counted(func(st *allocators.Stats, s *executor.State) { st.OversizeSegments.Current, s.Reconfigured = 3, true }), ""},
	})
}

func TestWholePageRules(t *testing.T) {
	const page = 20 * mib
	mapped := func(edit func(v *executor.View)) *executor.State {
		v := &executor.View{}
		v.Segments = []allocators.SegmentInfo{{Addr: 512, Size: 2048, Count: 1}, {Addr: 1 << 40, Size: 3 * page, Expandable: true, First: 1, Count: 3}}
		v.Blocks = []allocators.BlockInfo{
			{Addr: 512, Size: 2048, State: allocators.Free}, {Addr: 1 << 40, Size: page, State: allocators.Live},
			{Addr: 1<<40 + page, Size: page, State: allocators.Unmapped}, {Addr: 1<<40 + 2*page, Size: page, State: allocators.Free},
		}
		edit(v)
		return &executor.State{Promise: handX, View: v}
	}
	none := mapped(func(v *executor.View) { v.Segments[1].Size++ })
	none.Promise.Kind = allocators.PromiseNone
	checkRules(t, WholePages.Walk, []ruled{
		{"right", mapped(func(*executor.View) {}), ""},
		{"nothing promised", none, ""},
		{"small pages", mapped(func(v *executor.View) { v.Segments[1].Small, v.Blocks[2].Size = true, page-2*mib }), ""},
		{"an odd reservation", mapped(func(v *executor.View) { v.Segments[1].Size += 2 * mib }),
			"X3: the reservation at 0x10000000000 has 65011712 bytes, no multiple of the page of 20971520"},
		{"begins within a page", mapped(func(v *executor.View) { v.Blocks[2].Addr += 512 }),
			"X1: 20971520 bytes without memory at offset 20972032 of the segment at 0x10000000000 do not lie on pages of 20971520"},
		{"ends within a page", mapped(func(v *executor.View) { v.Blocks[2].Size -= 512 }),
			"X1: 20971008 bytes without memory at offset 20971520 of the segment at 0x10000000000 do not lie on pages of 20971520"},
		{"with memory it may", mapped(func(v *executor.View) { v.Blocks[3].Size -= 512; v.Blocks[3].Addr += 512 }), ""},
	})
}

func TestReturnedRules(t *testing.T) {
	const page = 20 * mib
	base := device.Addr(1 << 40)
	// emptied is the state behind an empty_cache: a classic segment with a live block and a rest, and an expandable one of four pages, of
	// which a live block keeps the second.
	emptied := func(edit func(v *executor.View, s *executor.State)) *executor.State {
		v := &executor.View{}
		v.Segments = []allocators.SegmentInfo{{Addr: 0x1000, Size: 2048, Count: 2}, {Addr: base, Size: 4 * page, Expandable: true, First: 2, Count: 5}}
		v.Blocks = []allocators.BlockInfo{
			{Addr: 0x1000, Size: 512, State: allocators.Live}, {Addr: 0x1200, Size: 1536, State: allocators.Free},
			{Addr: base, Size: page, State: allocators.Unmapped}, {Addr: base + page, Size: 512, State: allocators.Free},
			{Addr: base + page + 512, Size: 512, State: allocators.Live}, {Addr: base + page + 1024, Size: page - 1024, State: allocators.Free},
			{Addr: base + 2*page, Size: 2 * page, State: allocators.Unmapped},
		}
		s := &executor.State{Promise: handX, View: v, Heap: &shadow.Heap{}, Operation: &trace.Op{Kind: trace.EmptyCache}}
		edit(v, s)
		return s
	}
	// kept leaves the segment without its live block.
	kept := func(v *executor.View) {
		v.Segments[0].Count = 1
		v.Blocks[0] = allocators.BlockInfo{Addr: 0x1000, Size: 2048, State: allocators.Free}
	}
	// mapped leaves pages mapped behind the live block.
	mapped := func(v *executor.View, more uint64) {
		v.Blocks[5].Size += more
		v.Blocks[6].Addr, v.Blocks[6].Size = v.Blocks[6].Addr+addr(more), v.Blocks[6].Size-more
	}
	const whole = "E1: empty_cache kept a segment of 2048 bytes without a live block"
	checkRules(t, EverythingReturned.Walk, []ruled{
		{"right", emptied(func(*executor.View, *executor.State) {}), ""},
		{"a segment", emptied(func(v *executor.View, _ *executor.State) { kept(v) }), whole},
		{"a segment that is live", emptied(func(v *executor.View, _ *executor.State) { kept(v); v.Blocks[0].State = allocators.Live }), ""},
		{"less than a page", emptied(func(v *executor.View, _ *executor.State) { mapped(v, page-512) }), ""},
		{"a page behind", emptied(func(v *executor.View, _ *executor.State) { mapped(v, page) }),
			"E1: empty_cache kept 1 mapped pages of 20971520 bytes that overlap no live block"},
		{"two pages behind", emptied(func(v *executor.View, _ *executor.State) { mapped(v, 2*page) }),
			"E1: empty_cache kept 2 mapped pages of 20971520 bytes that overlap no live block"},
		{"a page before", emptied(func(v *executor.View, _ *executor.State) {
			v.Segments[1].First, v.Segments[1].Count = 3, 4
			v.Blocks[3].Addr, v.Blocks[3].Size = base, page+512
		}), "E1: empty_cache kept 1 mapped pages of 20971520 bytes that overlap no live block"},
		{"after another operation", emptied(func(v *executor.View, s *executor.State) { kept(v); s.Operation.Kind = trace.Sync }), ""},
		{"a failed one", emptied(func(v *executor.View, s *executor.State) { kept(v); s.Outcome = executor.Unsupported }), ""},
		{"nothing promised", emptied(func(v *executor.View, s *executor.State) { kept(v); s.Promise.Kind = allocators.PromiseNone }), ""},
		{"held back", emptied(func(v *executor.View, s *executor.State) { kept(v); s.Held = true }), ""},
		{"pending blocks", emptied(func(_ *executor.View, s *executor.State) { s.Heap.Pending.Count = 2 }), "E1: empty_cache left 2 pending blocks"},
		{"pending blocks, and one pool was emptied", emptied(func(_ *executor.View, s *executor.State) { s.Heap.Pending.Count, s.Operation.Pool = 2, 1 }), ""},
		{"of a pool in use", emptied(func(v *executor.View, s *executor.State) {
			kept(v)
			v.Segments[0].Pool, s.PoolUses = 1, map[allocators.PoolID]int{1: 1}
		}), ""},
		{"of a pool not in use", emptied(func(v *executor.View, s *executor.State) {
			kept(v)
			v.Segments[0].Pool, s.PoolUses = 1, map[allocators.PoolID]int{2: 1}
		}), whole},
		{"of the default pool", emptied(func(v *executor.View, s *executor.State) { kept(v); s.PoolUses = map[allocators.PoolID]int{0: 1} }), whole},
		{"of the pool that was emptied", emptied(func(v *executor.View, s *executor.State) { kept(v); v.Segments[0].Pool, s.Operation.Pool = 1, 1 }), whole},
		{"of another pool", emptied(func(v *executor.View, s *executor.State) { kept(v); s.Operation.Pool = 1 }), ""},
		{"of another pool, and behind it of the emptied one", emptied(func(v *executor.View, s *executor.State) {
			kept(v)
			mapped(v, page)
			v.Segments[1].Pool, s.Operation.Pool = 1, 1
		}), "E1: empty_cache kept 1 mapped pages of 20971520 bytes that overlap no live block"},
	})

	ended := func(kind allocators.PromiseKind, taken, atStart uint64, empties bool) *executor.State {
		s := &executor.State{Capacity: 1000, Foreign: 100, DeviceFree: 900 - taken, AtStart: atStart, Empties: empties}
		s.Promise.Kind = kind
		return s
	}
	const taken = "E3: everything is freed and the cache emptied, 50 bytes are still taken from the device"
	checkRules(t, EverythingReturned.End, []ruled{
		{"all back", ended(allocators.PromiseN, 0, 0, true), ""},
		{"not all", ended(allocators.PromiseN, 50, 0, true), taken},
		{"not all, taken at the start", ended(allocators.PromiseN, 50, 50, true), taken},
		{"it cannot be emptied", ended(allocators.PromiseN, 50, 0, false), ""},
		{"nothing promised, taken at the start", ended(allocators.PromiseNone, 50, 50, true), ""},
		{"nothing promised, more than at the start", ended(allocators.PromiseNone, 50, 49, true), taken},
	})
	ranges := func(edit func(*executor.State)) *executor.State {
		s := ended(allocators.PromiseX, 0, 0, true)
		s.Ranges = 1
		edit(s)
		return s
	}
	checkRules(t, EverythingReturned.End, []ruled{
		{"address space", ranges(func(*executor.State) {}), "E3: everything is freed and the cache emptied, 1 address ranges that had memory are still reserved"},
		{"none", ranges(func(s *executor.State) { s.Ranges = 0 }), ""},
		{"that the device may have failed to take", ranges(func(s *executor.State) { s.Faulty = true }), ""},
		{"and it cannot be emptied", ranges(func(s *executor.State) { s.Empties = false }), ""},
		{"and nothing promised", ranges(func(s *executor.State) { s.Promise.Kind = allocators.PromiseNone }), ""},
	})
}

func TestConservationRules(t *testing.T) {
	after := func(edit func(*executor.State)) *executor.State {
		s := &executor.State{Operation: &trace.Op{Kind: trace.Free}, Promise: handN, Stats: &allocators.Stats{}, ReservedBefore: 100}
		s.Stats.ReservedBytes.All.Current = 50
		edit(s)
		return s
	}
	checkRules(t, DeviceConservation.Op, []ruled{
		{"a free", after(func(*executor.State) {}), "D3: a free changed reserved bytes from 100 to 50"},
		{"a free that changes nothing", after(func(s *executor.State) { s.ReservedBefore = 50 }), ""},
		{"something else", after(func(s *executor.State) { s.Operation.Kind = trace.EmptyCache }), ""},
		{"no statistics", after(func(s *executor.State) { s.Stats = nil }), ""},
		{"nothing promised", after(func(s *executor.State) { s.Promise.Kind = allocators.PromiseNone }), ""},
	})
	held := func(reserved uint64) *executor.State {
		return &executor.State{Capacity: 1000, Foreign: 100, DeviceFree: 840, View: &executor.View{Reserved: reserved}}
	}
	checkRules(t, DeviceConservation.Walk, []ruled{
		{"right", held(60), ""}, {"too much", held(61), "D1: the device has given 60 bytes, its calls add up to 61"},
	})
}
