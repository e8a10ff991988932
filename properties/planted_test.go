package properties_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// liar is the caching allocator with a fault planted in what it does or says. Calls that are not replaced go through.
type liar struct {
	*caching.Allocator
	dev        device.Device
	stats      allocators.Stats
	calls      int // allocations so far
	last       allocators.Block
	alloc      func(l *liar, n uint64, s device.Stream) (allocators.Block, error)
	free       func(l *liar, a device.Addr) error
	emptyCache func(l *liar) error
	tell       func(*allocators.Stats)
	snapshot   func(*allocators.Snapshot)
	touched    func([]allocators.Neighbourhood) []allocators.Neighbourhood
}

func (l *liar) count() {
	l.stats = *l.Allocator.Stats()
	if l.tell != nil {
		l.tell(&l.stats)
	}
}

func (l *liar) Stats() *allocators.Stats { return &l.stats }

func (l *liar) Alloc(n uint64, s device.Stream) (b allocators.Block, err error) {
	l.calls++
	if l.alloc != nil {
		b, err = l.alloc(l, n, s)
	} else {
		b, err = l.Allocator.Alloc(n, s)
	}
	l.last = b
	l.count()
	return b, err
}

func (l *liar) Free(a device.Addr) error {
	defer l.count()
	if l.free != nil {
		return l.free(l, a)
	}
	return l.Allocator.Free(a)
}

func (l *liar) EmptyCache() error {
	defer l.count()
	if l.emptyCache != nil {
		return l.emptyCache(l)
	}
	return l.Allocator.EmptyCache()
}

func (l *liar) Snapshot(into *allocators.Snapshot) {
	l.Allocator.Snapshot(into)
	if l.snapshot != nil {
		l.snapshot(into)
	}
}

func (l *liar) Touched(into []allocators.Neighbourhood) []allocators.Neighbourhood {
	into = l.Allocator.Touched(into)
	if l.touched != nil {
		into = l.touched(into)
	}
	return into
}

// bare shows the harness Alloc, Free and EmptyCache alone, so that what the harness knows by itself must do.
type bare struct{ l *liar }

func (b bare) Alloc(n uint64, s device.Stream) (allocators.Block, error) { return b.l.Alloc(n, s) }
func (b bare) Free(a device.Addr) error                                  { return b.l.Free(a) }
func (b bare) EmptyCache() error                                         { return b.l.EmptyCache() }

// deaf is a device whose calls can be replaced.
type deaf struct {
	device.Device
	malloc  func(size uint64) (device.Addr, error)
	create  func(size uint64) (device.Handle, error)
	free    func(a device.Addr) error
	release func(h device.Handle) error
	map_    func(a device.Addr, size uint64, h device.Handle) error
	done    func(e device.Event) (bool, error)
}

func (d *deaf) Malloc(size uint64) (device.Addr, error) {
	if d.malloc != nil {
		return d.malloc(size)
	}
	return d.Device.Malloc(size)
}

func (d *deaf) Create(size uint64) (device.Handle, error) {
	if d.create != nil {
		return d.create(size)
	}
	return d.Device.Create(size)
}

func (d *deaf) Free(a device.Addr) error {
	if d.free != nil {
		return d.free(a)
	}
	return d.Device.Free(a)
}

func (d *deaf) Release(h device.Handle) error {
	if d.release != nil {
		return d.release(h)
	}
	return d.Device.Release(h)
}

func (d *deaf) Map(a device.Addr, size uint64, h device.Handle) error {
	if d.map_ != nil {
		return d.map_(a, size, h)
	}
	return d.Device.Map(a, size, h)
}

func (d *deaf) Done(e device.Event) (bool, error) {
	if d.done != nil {
		return d.done(e)
	}
	return d.Device.Done(e)
}

// planted is a fault and what must come of it.
type planted struct {
	rule  string // property/rule; for refusals verdict, or verdict/rule
	conf  string // settings of the caching allocator
	trace string
	// fault plants it in the allocator, wrap between allocator and device (the harness sees what the allocator calls),
	// below under both.
	fault func(*liar)
	wrap  func(*deaf)
	below func(*deaf)
	bare  bool
	// only is the property to check where another one, checked before, sees the fault too.
	only *executor.Property
}

// run executes the case, with the fault or without.
func (p *planted) run(t *testing.T, faulty bool) *executor.Result {
	tr, err := trace.ParseString(p.rule, p.trace)
	require.NoError(t, err, p.rule)
	sim, err := simdev.New(simdev.Options{Capacity: 100 * mib})
	require.NoError(t, err)
	set, _, err := caching.ParseSettings(p.conf)
	require.NoError(t, err)
	below := &deaf{Device: sim}
	if faulty && p.below != nil {
		p.below(below)
	}
	target := executor.Target{Name: "planted", New: func(d device.Device) (allocators.Allocator, error) {
		wrapped := &deaf{Device: d}
		if faulty && p.wrap != nil {
			p.wrap(wrapped)
		}
		a, err := caching.New(wrapped, set)
		l := &liar{Allocator: a, dev: wrapped}
		if faulty && p.fault != nil {
			p.fault(l)
		}
		l.count()
		if p.bare {
			return bare{l}, err
		}
		return l, err
	}}
	checked := properties.All()
	if p.only != nil {
		checked = []executor.Property{*p.only}
	}
	res, err := executor.Execute(executor.Compile(tr), target,
		executor.Options{Device: below, Properties: checked, Judge: properties.NewJudge()})
	require.NoError(t, err, p.rule)
	return res
}

const mib = 1 << 20

// check runs all cases: each fault must be found under its property and rule, and the allocator without it be clean.
func check(t *testing.T, cases []planted) {
	for i, c := range cases {
		res := c.run(t, true)
		require.Len(t, res.Findings, 1, "case %d, %s: nothing was found", i, c.rule)
		f := &res.Findings[0]
		require.Equal(t, c.rule, f.Property+"/"+f.Rule, f.String())
		require.Empty(t, c.run(t, false).Findings, "%s: without the fault", c.rule)
	}
}

const (
	// oneLive has a live block in a segment with a free rest; twoPieces a free block between two live ones.
	oneLive   = "alloc 0 1MiB\nempty_cache\n"
	twoPieces = "alloc 0 2MiB\nalloc 1 2MiB\nalloc 2 2MiB\nfree 1\nempty_cache\n"
	expanded  = "expandable_segments:True"
)

// block edits the first block of a snapshot in some state.
func block(state allocators.State, edit func(*allocators.BlockInfo)) func(*liar) {
	return func(l *liar) {
		l.snapshot = func(s *allocators.Snapshot) {
			for i := range s.Blocks {
				if s.Blocks[i].State == state {
					edit(&s.Blocks[i])
					return
				}
			}
		}
	}
}

// neighbours edits the first thing touched.
func neighbours(edit func(*allocators.Neighbourhood)) func(*liar) {
	return func(l *liar) {
		l.touched = func(list []allocators.Neighbourhood) []allocators.Neighbourhood {
			if len(list) > 0 {
				edit(&list[0])
			}
			return list
		}
	}
}

// handsOut changes what the second allocation returns.
func handsOut(edit func(l *liar, b *allocators.Block)) func(*liar) {
	return func(l *liar) {
		l.alloc = func(l *liar, n uint64, s device.Stream) (allocators.Block, error) {
			before := l.last
			b, err := l.Allocator.Alloc(n, s)
			if l.calls == 2 {
				l.last = before
				edit(l, &b)
			}
			return b, err
		}
	}
}

func TestPlantedBlocks(t *testing.T) {
	t.Parallel()
	const two = "alloc 0 2MiB\nalloc 1 2MiB\n"
	check(t, []planted{
		{rule: "no-overlap/live", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Addr = l.last.Addr + mib })},
		{rule: "no-overlap/live", trace: two, bare: true, fault: handsOut(func(l *liar, b *allocators.Block) { b.Addr = l.last.Addr - mib })},
		// The allocator takes every event for done, so it hands out memory that stream 7 still uses.
		{rule: "reuse-before-event/pending", trace: "alloc 0 2MiB\nrecord 0 stream=7\nfree 0\nalloc 1 2MiB\n",
			wrap: func(d *deaf) { d.done = func(device.Event) (bool, error) { return true, nil } }},
		{rule: "bounds-and-alignment/too-small", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Size = 2*mib - 1 })},
		{rule: "bounds-and-alignment/outside", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Addr += 1 << 40 })},
		{rule: "bounds-and-alignment/no-memory", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Size = 19 * mib })},
		{rule: "bounds-and-alignment/no-memory", trace: two, conf: expanded, fault: handsOut(func(l *liar, b *allocators.Block) { b.Addr += 20 * mib })},
		// Only the first page of two is mapped.
		{rule: "bounds-and-alignment/no-memory", trace: "alloc 0 30MiB\n", conf: expanded, wrap: func(d *deaf) {
			maps := 0
			d.map_ = func(a device.Addr, size uint64, h device.Handle) error {
				if maps++; maps == 2 {
					return nil
				}
				return d.Device.Map(a, size, h)
			}
		}},
		{rule: "bounds-and-alignment/alignment", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Addr += 256 })},
		{rule: "bounds-and-alignment/alignment", trace: two, fault: handsOut(func(l *liar, b *allocators.Block) { b.Size += 100 })},
		// The segment goes back to the device while a block in it is live.
		{rule: "bounds-and-alignment/lost-memory", trace: oneLive, bare: true, fault: func(l *liar) {
			l.emptyCache = func(l *liar) error { return l.dev.Free(l.last.Addr) }
		}},
	})
}

func TestPlantedTiling(t *testing.T) {
	t.Parallel()
	coalescing := &properties.Coalescing
	// divide makes two blocks of the first one in a state.
	divide := func(state allocators.State) func(*liar) {
		return func(l *liar) {
			l.snapshot = func(s *allocators.Snapshot) {
				i := slices.IndexFunc(s.Blocks, func(b allocators.BlockInfo) bool { return b.State == state })
				if i < 0 {
					return
				}
				rest := s.Blocks[i]
				rest.Addr, rest.Size = rest.Addr+512, rest.Size-512
				s.Blocks[i].Size = 512
				s.Blocks = slices.Insert(s.Blocks, i+1, rest)
				for k := range s.Segments {
					switch g := &s.Segments[k]; {
					case g.First > i:
						g.First++
					case g.First+g.Count > i:
						g.Count++
					}
				}
			}
		}
	}
	check(t, []planted{
		{rule: "tiling/gap", trace: oneLive, fault: neighbours(func(n *allocators.Neighbourhood) { n.Block.Addr += 512 })},
		{rule: "tiling/gap", trace: oneLive, fault: neighbours(func(n *allocators.Neighbourhood) { n.Block.Size += 512 })},
		{rule: "tiling/gap", trace: oneLive, fault: neighbours(func(n *allocators.Neighbourhood) { n.HasNext = false })},
		{rule: "tiling/gap", trace: twoPieces, fault: neighbours(func(n *allocators.Neighbourhood) {
			if n.HasPrev {
				n.Prev.Size--
			}
		})},
		{rule: "tiling/empty", trace: oneLive, fault: neighbours(func(n *allocators.Neighbourhood) { n.Block.Size, n.Next.Addr = 0, n.Block.Addr })},
		{rule: "tiling/gap", trace: oneLive, fault: block(allocators.Live, func(b *allocators.BlockInfo) { b.Size -= 512 })},
		{rule: "tiling/gap", trace: oneLive, fault: block(allocators.Free, func(b *allocators.BlockInfo) { b.Size += 512 })},
		{rule: "tiling/set", trace: oneLive, fault: block(allocators.Free, func(b *allocators.BlockInfo) { b.InPool = false })},
		{rule: "tiling/set", trace: oneLive, fault: block(allocators.Live, func(b *allocators.BlockInfo) { b.InPool = true })},
		{rule: "tiling/set", trace: oneLive, conf: expanded, fault: block(allocators.Unmapped, func(b *allocators.BlockInfo) { b.InPool = false })},
		{rule: "tiling/segments", trace: oneLive, fault: func(l *liar) {
			l.snapshot = func(s *allocators.Snapshot) { s.Segments = s.Segments[:0] }
		}},
		{rule: "tiling/segments", trace: oneLive, fault: func(l *liar) {
			l.snapshot = func(s *allocators.Snapshot) {
				if len(s.Segments) > 0 {
					s.Segments[0].Stream = 3
				}
			}
		}},
		{rule: "tiling/blocks", trace: oneLive, fault: block(allocators.Live, func(b *allocators.BlockInfo) { b.State = allocators.Pending })},
		{rule: "tiling/blocks", trace: oneLive, fault: divide(allocators.Free)},
		{rule: "tiling/requested", trace: oneLive, fault: block(allocators.Live, func(b *allocators.BlockInfo) { b.Requested-- })},
		{rule: "coalescing/free", trace: "alloc 0 1MiB\n", fault: neighbours(func(n *allocators.Neighbourhood) { n.Block.State = allocators.Free })},
		{rule: "coalescing/free", trace: twoPieces, fault: neighbours(func(n *allocators.Neighbourhood) {
			if n.HasPrev {
				n.Prev.State = n.Block.State
				if n.Block.State == allocators.Live {
					n.Prev.State = allocators.Pending // two live neighbours are fine
				}
			}
		})},
		{rule: "coalescing/unmapped", trace: "alloc 0 20MiB\n", conf: expanded, fault: neighbours(func(n *allocators.Neighbourhood) {
			n.Block.State = n.Next.State
		})},
		{rule: "coalescing/free", trace: oneLive, fault: divide(allocators.Free), only: coalescing},
		{rule: "coalescing/unmapped", trace: oneLive, conf: expanded, fault: divide(allocators.Unmapped), only: coalescing},
	})
}
