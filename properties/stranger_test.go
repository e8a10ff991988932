package properties_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// shelf declares nothing. It puts blocks one behind the other in a region that it buys at its start, and begins anew when none is left.
type shelf struct {
	dev        device.Device
	base, next device.Addr
	size       uint64
	live       map[device.Addr]uint64
	frees      int
	kept       device.Addr
	// alloc and free replace what it does, where they are set.
	alloc func(s *shelf, n uint64) (allocators.Block, error)
	free  func(s *shelf, a device.Addr) error
}

func (s *shelf) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	if s.alloc != nil {
		return s.alloc(s, n)
	}
	return s.place(n, 512)
}

func (s *shelf) place(n, quantum uint64) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	size := (n + quantum - 1) / quantum * quantum
	if uint64(s.next-s.base)+size > s.size {
		return allocators.Block{}, fmt.Errorf("full: %w", device.ErrOutOfMemory)
	}
	b := allocators.Block{Addr: s.next, Size: size}
	s.next += device.Addr(size)
	s.live[b.Addr] = size
	return b, nil
}

func (s *shelf) Free(a device.Addr) error {
	if a == 0 {
		return nil
	}
	s.frees++
	if s.free != nil {
		return s.free(s, a)
	}
	return s.take(a)
}

func (s *shelf) take(a device.Addr) error {
	if _, ok := s.live[a]; !ok {
		return fmt.Errorf("%#x: %w", uint64(a), allocators.ErrInvalidPointer)
	}
	if delete(s.live, a); len(s.live) == 0 {
		s.next = s.base
	}
	return nil
}

// shelves makes shelves on half of the device, each changed.
func shelves(change func(*shelf)) executor.Target {
	return executor.Target{Name: "shelf", New: func(d device.Device) (allocators.Allocator, error) {
		free, _ := d.Info()
		base, err := d.Malloc(free / 2)
		s := &shelf{dev: d, base: base, next: base, size: free / 2, live: map[device.Addr]uint64{}}
		change(s)
		return s, err
	}}
}

// listed is a shelf with a list of its blocks and with statistics, which a test may bend.
type listed struct {
	*shelf
	stats allocators.Stats
	bend  func(*allocators.Snapshot)
	count func(*allocators.Stats, uint64, bool)
}

func (l *listed) Stats() *allocators.Stats { return &l.stats }

func (l *listed) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := l.shelf.Alloc(n, s)
	if err == nil {
		l.count(&l.stats, b.Size, true)
	}
	return b, err
}

func (l *listed) Free(a device.Addr) error {
	size := l.live[a]
	err := l.shelf.Free(a)
	if err == nil {
		l.count(&l.stats, size, false)
	}
	return err
}

// Snapshot has a free block for each freed one, which a snapshot of a promised allocator must not have, and says nothing of sets.
func (l *listed) Snapshot(into *allocators.Snapshot) {
	into.Segments = append(into.Segments[:0], allocators.SegmentInfo{Addr: l.base, Size: l.size})
	into.Blocks = into.Blocks[:0]
	end := l.base + device.Addr(l.size)
	for at := l.base; at < end; {
		b := allocators.BlockInfo{Addr: at, Size: 512, State: allocators.Free}
		if size, ok := l.live[at]; ok {
			b.Size, b.State = size, allocators.Live
		} else if at >= l.next {
			b.Size = uint64(end - at)
		}
		into.Blocks = append(into.Blocks, b)
		at = b.End()
	}
	into.Segments[0].Count = len(into.Blocks)
	if l.bend != nil {
		l.bend(into)
	}
}

// TestStrangers: what is claimed of an allocator that declares nothing, operation by operation. A rule is empty where the allocator is right.
func TestStrangers(t *testing.T) {
	t.Parallel()
	const some = "alloc 0 1000\nalloc 1 700\nalloc 2 5000\nfree 0\nfree 1\nalloc 3 1MiB\nempty_cache\nfree 2\n"
	counted := func(s *allocators.Stats, n uint64, in bool) {
		if in {
			s.AllocatedBytes.All.Add(n)
		} else {
			s.AllocatedBytes.All.Sub(n)
		}
	}
	list := func(bend func(*allocators.Snapshot), count func(*allocators.Stats, uint64, bool)) executor.Target {
		plain := shelves(func(*shelf) {})
		return executor.Target{Name: "listed", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := plain.New(d)
			return &listed{shelf: a.(*shelf), bend: bend, count: count}, err
		}}
	}
	live := func(edit func(*allocators.BlockInfo)) func(*allocators.Snapshot) {
		return func(s *allocators.Snapshot) {
			for i := range s.Blocks {
				if s.Blocks[i].State == allocators.Live {
					edit(&s.Blocks[i])
					return
				}
			}
		}
	}
	quantum := func(q uint64) executor.Target {
		return shelves(func(s *shelf) {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) { return s.place(n, q) }
		})
	}
	for _, c := range []struct {
		name, trace string
		target      executor.Target
		rule        string
	}{
		{"plain", some, shelves(func(*shelf) {}), ""},
		{"aligned to 16", some, quantum(16), ""},
		{"aligned to 8", some, quantum(8), "bounds-and-alignment/alignment"},
		{"zero bytes with an address", "alloc 0 0\nfree 0\n", shelves(func(s *shelf) {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) { return s.place(max(n, 1), 512) }
		}), "bounds-and-alignment/zero"},
		{"a list with free neighbours, one figure", some, list(nil, counted), ""},
		{"the figure drifts", some, list(nil, func(s *allocators.Stats, n uint64, in bool) {
			if counted(s, n, in); !in {
				s.AllocatedBytes.All.Add(1)
			}
		}), "accounting/A2"},
		{"its history is wrong", some, list(nil, func(s *allocators.Stats, n uint64, in bool) {
			counted(s, n, in)
			s.AllocatedBytes.All.Allocated++
		}), "accounting/A10"},
		{"a live block is free", some, list(live(func(b *allocators.BlockInfo) { b.State = allocators.Free }), counted), "tiling/blocks"},
		{"a live block is smaller", some, list(live(func(b *allocators.BlockInfo) { b.Size -= 512 }), counted), "tiling/gap"},
		{"a wrong request", some, list(live(func(b *allocators.BlockInfo) { b.Requested = 1 }), counted), "tiling/requested"},
		{"a free block is live", some, list(func(s *allocators.Snapshot) {
			for i := range s.Blocks {
				s.Blocks[i].State = allocators.Live
			}
		}, counted), "tiling/blocks"},
		{"a segment is not listed", some, list(func(s *allocators.Snapshot) { s.Segments = nil }, counted), "tiling/segments"},
		{"a segment is elsewhere", some, list(func(s *allocators.Snapshot) { s.Segments[0].Addr++; s.Blocks[0].Addr++ }, counted), "tiling/gap"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			tr, err := trace.ParseString(c.name, c.trace)
			require.NoError(t, err)
			dev, err := simdev.New(simdev.Options{Capacity: 100 * mib})
			require.NoError(t, err)
			res, err := executor.Execute(executor.Compile(tr), c.target,
				executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
			require.NoError(t, err)
			require.Equal(t, c.rule, ruleOf(res.Findings), "%v", res.Findings)
		})
	}
}

func ruleOf(list []executor.Finding) string {
	if len(list) == 0 {
		return ""
	}
	return list[0].Property + "/" + list[0].Rule
}

func TestAligned(t *testing.T) {
	t.Parallel()
	tr, err := trace.ParseString("aligned", "alloc 0 1\nalloc 1 1\n")
	require.NoError(t, err)
	for bytes, rule := range map[uint64]string{512: "", 1024: "bounds-and-alignment/alignment"} {
		dev, err := simdev.New(simdev.Options{Capacity: 100 * mib})
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), shelves(func(*shelf) {}),
			executor.Options{Device: dev, Properties: []executor.Property{properties.Aligned(bytes)}})
		require.NoError(t, err)
		require.Equal(t, rule, ruleOf(res.Findings), "%d", bytes)
	}
}

// cached is a shelf that gives its region back when its cache is emptied with nothing live, and buys another one when it is needed.
type cached struct {
	*shelf
	buys uint64
}

func (c cached) EmptyCache() error {
	if len(c.live) > 0 || c.size == 0 {
		return nil
	}
	c.size = 0
	return c.dev.Free(c.base)
}

func (c cached) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if c.size == 0 {
		base, err := c.dev.Malloc(c.buys)
		if err != nil {
			return allocators.Block{}, err
		}
		c.base, c.next, c.size = base, base, c.buys
	}
	return c.shelf.Alloc(n, s)
}

// recording can be told of uses, of whatever address.
type recording struct{ *shelf }

func (recording) Record(device.Addr, device.Stream) error { return nil }

// through buys each block; what becomes of it when it is freed is up to do.
func through(do func(s *shelf, a device.Addr) error) executor.Target {
	return shelves(func(s *shelf) {
		s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
			a, err := s.dev.Malloc(n)
			s.live[a] = n
			return allocators.Block{Addr: a, Size: n}, err
		}
		s.free = func(s *shelf, a device.Addr) error {
			if err := s.take(a); err != nil {
				return err
			}
			return do(s, a)
		}
	})
}

// TestStrangersOverRuns: what is claimed of an allocator that declares nothing, of several runs. In the trace blocks of
// different life are freed, and their addresses handed out again.
func TestStrangersOverRuns(t *testing.T) {
	t.Parallel()
	const some = "alloc 0 1MiB\nalloc 1 1MiB\nfree 0\nalloc 2 7MiB\nfree 1\nfree 2\nempty_cache\n" +
		"alloc 3 1MiB\nfree 3\nalloc 4 2MiB\nfree 4\nalloc 5 1MiB\nalloc 6 1MiB\n"
	free := func(do func(s *shelf, a device.Addr) error) executor.Target {
		return shelves(func(s *shelf) { s.free = do })
	}
	wrapped := func(wrap func(s *shelf) allocators.Allocator) executor.Target {
		plain := shelves(func(*shelf) {})
		return executor.Target{Name: "wrapped", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := plain.New(d)
			return wrap(a.(*shelf)), err
		}}
	}
	// keeps is through with what was freed kept for requests of the same size, and given back at each request of another, from its largest
	// size on not.
	keeps := func(gives bool, large uint64) executor.Target {
		return shelves(func(s *shelf) {
			kept := map[uint64][]device.Addr{}
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
				if l := kept[n]; len(l) > 0 {
					kept[n], s.live[l[0]] = l[1:], n
					return allocators.Block{Addr: l[0], Size: n}, nil
				}
				for size, l := range kept {
					for _, a := range l {
						if gives && (large == 0 || size < large) {
							_ = s.dev.Free(a)
							delete(kept, size)
						}
					}
				}
				a, err := s.dev.Malloc(n)
				s.live[a] = n
				return allocators.Block{Addr: a, Size: n}, err
			}
			s.free = func(s *shelf, a device.Addr) error {
				n := s.live[a]
				if err := s.take(a); err != nil {
					return err
				}
				kept[n] = append(kept[n], a)
				return nil
			}
		})
	}
	for _, c := range []struct {
		name   string
		target executor.Target
		rule   string // the first finding, empty if there is none
	}{
		{"plain", shelves(func(*shelf) {}), ""},
		{"takes a double free", free(func(s *shelf, a device.Addr) error { _ = s.take(a); return nil }), "wrong-calls/accepted"},
		{"has an error of its own", free(func(s *shelf, a device.Addr) error {
			if s.take(a) != nil {
				return errors.New("no such block")
			}
			return nil
		}), "wrong-calls/error"},
		{"panics at a wrong free", free(func(s *shelf, a device.Addr) error {
			if err := s.take(a); err != nil {
				panic(err)
			}
			return nil
		}), "wrong-calls/panic"},
		{"takes the free of an inner address", free(func(s *shelf, a device.Addr) error {
			for at, n := range s.live {
				if a >= at && a < at+device.Addr(n) {
					return s.take(at)
				}
			}
			return s.take(a)
		}), "wrong-calls/accepted"},
		{"takes the free of a middle", free(func(s *shelf, a device.Addr) error {
			for at, n := range s.live {
				if n == 7*mib && a == at+device.Addr(n/2) { // where no other block was
					return s.take(at)
				}
			}
			return s.take(a)
		}), "wrong-calls/accepted"},
		{"takes any record", wrapped(func(s *shelf) allocators.Allocator { return recording{s} }), "wrong-calls/accepted"},
		{"does not begin anew", free(func(s *shelf, a device.Addr) error {
			next := s.next
			err := s.take(a)
			s.next = next
			return err
		}), "serves-when-empty/refused"},
		{"buys again what it gave back", wrapped(func(s *shelf) allocators.Allocator { return cached{s, 50 * mib} }), ""},
		{"buys less than it gave back", wrapped(func(s *shelf) allocators.Allocator { return cached{s, 40 * mib} }), "serves-when-empty/refused"},
		{"gives each block back", through(func(s *shelf, a device.Addr) error { return s.dev.Free(a) }), ""},
		{"forgets every fourth block", through(func(s *shelf, a device.Addr) error {
			if s.frees%4 == 0 {
				return nil
			}
			return s.dev.Free(a)
		}), "gives-back/leak"},
		{"forgets the first blocks", through(func(s *shelf, a device.Addr) error {
			if s.frees < 8 {
				return nil
			}
			return s.dev.Free(a)
		}), ""},
		{"keeps less each time", through(func(s *shelf, a device.Addr) error {
			if n := s.frees; n&(n-1) == 0 {
				return nil
			}
			return s.dev.Free(a)
		}), ""},
		{"keeps its first block until the twentieth", through(func(s *shelf, a device.Addr) error {
			switch s.frees {
			case 1:
				s.base = a
				return nil
			case 20:
				return errors.Join(s.dev.Free(s.base), s.dev.Free(a))
			}
			return s.dev.Free(a)
		}), ""},
		{"gives memory back for a request", keeps(true, 0), ""},
		{"gives small memory back for a request", keeps(true, 2*mib), "serves-when-empty/refused"},
		{"gives nothing back", keeps(false, 0), ""},
		{"has an error of its own where its room would do", through(func(s *shelf, a device.Addr) error {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) { return allocators.Block{}, errors.New("sorry") }
			return s.dev.Free(a)
		}), "serves-when-empty/refused-call"},
		{"crashes on a small device", shelves(func(s *shelf) {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
				if n > 8*mib && s.frees > 0 {
					panic("too large")
				}
				return s.place(n, 512)
			}
		}), "no-crash/panic"},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			tr, err := trace.ParseString(c.name, some)
			require.NoError(t, err)
			f, err := executor.Relate(&executor.Case{Trace: tr, Target: c.target, Capacity: 100 * mib, NewDevice: func(n uint64) (device.Device, error) {
				return simdev.New(simdev.Options{Capacity: n})
			}}, []executor.Relation{properties.WrongCalls, properties.ServesWhenEmpty, properties.GivesBack})
			require.NoError(t, err)
			if c.rule == "" {
				require.Nil(t, f)
				return
			}
			require.NotNil(t, f)
			require.Equal(t, c.rule, f.Property+"/"+f.Rule, f.String())
		})
	}
}

// elsewhere lives in a process of its own, as far as the harness knows.
type elsewhere struct{ allocators.Allocator }

func (elsewhere) FollowSync(device.Stream) error { return nil }
func (elsewhere) FollowForeign(uint64) error     { return nil }

// listedElsewhere lists its blocks from there.
type listedElsewhere struct {
	*listed
	elsewhere
}

func (l listedElsewhere) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	return l.listed.Alloc(n, s)
}
func (l listedElsewhere) Free(a device.Addr) error { return l.listed.Free(a) }

// TestWrongCallsElsewhere: an allocator in a process of its own is asked only if it lists its blocks: a C library's free may crash.
func TestWrongCallsElsewhere(t *testing.T) {
	t.Parallel()
	takesAll := shelves(func(s *shelf) { s.free = func(s *shelf, a device.Addr) error { _ = s.take(a); return nil } })
	for name, c := range map[string]struct {
		wrap  func(*shelf) allocators.Allocator
		asked bool
	}{
		"here":            {func(s *shelf) allocators.Allocator { return s }, true},
		"elsewhere":       {func(s *shelf) allocators.Allocator { return elsewhere{s} }, false},
		"elsewhere, seen": {func(s *shelf) allocators.Allocator { return listedElsewhere{listed: listing(s)} }, true},
	} {
		tr, err := trace.ParseString(name, "alloc 0 1000\nalloc 1 1000\nfree 0\n")
		require.NoError(t, err)
		v, err := properties.WrongCalls.Check(&executor.Case{Trace: tr, Capacity: 100 * mib, NewDevice: simulated,
			Target: executor.Target{Name: name, New: func(d device.Device) (allocators.Allocator, error) {
				a, err := takesAll.New(d)
				return c.wrap(a.(*shelf)), err
			}}})
		require.NoError(t, err)
		require.Equal(t, c.asked, v != nil, name)
	}
}

// listing is a shelf that lists its blocks and counts nothing.
func listing(s *shelf) *listed {
	return &listed{shelf: s, count: func(*allocators.Stats, uint64, bool) {}}
}

// TestWrongCallsAreFew: after which operations wrong calls are made, and about which blocks: each costs a call, and in a long trace most
// places are like others.
func TestWrongCallsAreFew(t *testing.T) {
	t.Parallel()
	// ask returns, by operation, the offsets at which something was freed that was not live; foreign addresses have offset -1.
	ask := func(text string, list bool) map[int][]int {
		op, wrong := -1, map[int][]int{}
		plain := shelves(func(s *shelf) {
			s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
				op++
				return s.place(n, 1)
			}
			s.free = func(s *shelf, a device.Addr) error {
				err := s.take(a)
				if err == nil {
					op++
				} else if off := uint64(a - s.base); off < s.size {
					wrong[op] = append(wrong[op], int(off))
				} else {
					wrong[op] = append(wrong[op], -1)
				}
				return err
			}
		})
		tr, err := trace.ParseString("few", text)
		require.NoError(t, err)
		v, err := properties.WrongCalls.Check(&executor.Case{Trace: tr, Capacity: 100 * mib, NewDevice: simulated,
			Target: executor.Target{Name: "few", New: func(d device.Device) (allocators.Allocator, error) {
				a, err := plain.New(d)
				if list {
					return listing(a.(*shelf)), err
				}
				return a, err
			}}})
		require.NoError(t, err)
		require.Nil(t, v)
		return wrong
	}
	var text strings.Builder
	for i := range 32 {
		fmt.Fprintf(&text, "alloc %d 512\nfree %d\n", i, i)
	}
	asked := ask(text.String(), false)
	for op := range 64 {
		require.Equal(t, op%4 == 0 || op%6 == 3, asked[op] != nil, "operation %d", op)
	}
	// 36 blocks, of which the first 18 are freed again.
	text.Reset()
	for i := range 36 {
		fmt.Fprintf(&text, "alloc %d 512\n", i)
	}
	for i := range 18 {
		fmt.Fprintf(&text, "free %d\n", i)
	}
	text.WriteString("alloc 40 512\n")
	var followed, ofList []int
	for i := range 16 {
		followed = append(followed, 512*(i+2))
	}
	for i := range 16 {
		followed = append(followed, 512*(i+21)+256)
	}
	for i := range 16 {
		ofList = append(ofList, 512*i)
	}
	require.Equal(t, append(followed, -1), ask(text.String(), false)[54])
	require.Equal(t, append(ofList, -1), ask(text.String(), true)[54])
	require.Equal(t, map[int][]int{0: {-1}}, ask("alloc 0 0\nfree 0\n", false), "the null address is no block")
	// A block of one byte has no inner address.
	require.Equal(t, map[int][]int{0: {-1}}, ask("alloc 0 1\n", false))
	require.Equal(t, map[int][]int{0: {1, -1}}, ask("alloc 0 1\n", true))
}

// emptying has a cache to empty, it says.
type emptying struct{ *shelf }

func (emptying) EmptyCache() error { return nil }

// TestGivesBack: of whom it is asked whether what is kept grows, and how a leak is told from a cache. kept is how many pages of 2 MiB are
// kept after each run of one request; the last figure stays.
func TestGivesBack(t *testing.T) {
	t.Parallel()
	const one = "alloc 0 1MiB\nfree 0\n"
	const page = 2 * mib
	rising := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	self := func(s *shelf) allocators.Allocator { return s }
	leak := func(held ...any) string {
		return fmt.Sprintf("leak: nothing is live, and the allocator holds %d bytes of the device after the trace has been run once, "+
			"%d after %d times, %d after %d times", held...)
	}
	for _, c := range []struct {
		name, text string
		kept       []int
		refuse     int // in this run, if there is one
		wrap       func(*shelf) allocators.Allocator
		want       string
	}{
		{"leaks", one, rising, 0, self, leak(1*page, 7*page, 7, 13*page, 13)},
		{"leaks half as much later", one, []int{10, 12, 14, 16, 18, 20, 22, 23, 24, 25, 26, 27, 28}, 0, self, leak(10*page, 22*page, 7, 28*page, 13)},
		{"leaks less than half as much later", one, []int{10, 12, 14, 16, 18, 20, 22, 23, 24, 25, 26, 27, 27}, 0, self, ""},
		{"settles", one, []int{1, 2, 3, 4, 5, 6, 7}, 0, self, ""},
		{"is back where it was, and there it stays", one, []int{5, 6, 7, 8, 9, 6, 5}, 0, self, ""},
		{"settles at once", one, []int{5, 6, 7, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, 0, self, ""},
		{"leaks until it is full, five times", one, rising, 6, self, leak(1*page, 3*page, 3, 5*page, 5)},
		{"leaks until it is full, four times", one, rising, 5, self, ""},
		{"with a pool", "pool begin 1\n" + one + "pool end 1\n", rising, 0, self, ""},
		{"that promises", one, rising, 0, func(s *shelf) allocators.Allocator { return promising{s} }, ""},
		{"that empties its cache", one, rising, 0, func(s *shelf) allocators.Allocator { return emptying{s} }, ""},
		{"elsewhere", one, rising, 0, func(s *shelf) allocators.Allocator { return elsewhere{s} }, ""},
		{"fails", one, rising, -3, self, "refused-call: on a device of 419430400 bytes, at operation 0 (alloc 0 1048576): " +
			"the allocation failed with an error that is no refusal (one is an *allocators.OOMError or wraps device.ErrOutOfMemory): sorry"},
	} {
		tr, err := trace.ParseString(c.name, c.text)
		require.NoError(t, err)
		v, err := properties.GivesBack.Check(&executor.Case{Trace: tr, Capacity: 100 * mib, NewDevice: simulated,
			Target: executor.Target{Name: c.name, New: func(d device.Device) (allocators.Allocator, error) {
				s := &shelf{dev: d, live: map[device.Addr]uint64{}}
				runs, kept := 0, []device.Addr{}
				s.alloc = func(s *shelf, n uint64) (allocators.Block, error) {
					switch runs++; {
					case runs == c.refuse:
						return allocators.Block{}, device.ErrOutOfMemory
					case runs == -c.refuse:
						return allocators.Block{}, errors.New("sorry")
					}
					a, err := s.dev.Malloc(n)
					s.live[a] = n
					return allocators.Block{Addr: a, Size: n}, err
				}
				s.free = func(s *shelf, a device.Addr) error {
					want := c.kept[min(runs, len(c.kept))-1]
					if err := errors.Join(s.take(a), s.dev.Free(a)); err != nil {
						return err
					}
					for ; len(kept) < want; kept = append(kept, a) {
						var err error
						if a, err = s.dev.Malloc(page); err != nil {
							return err
						}
					}
					for ; len(kept) > want; kept = kept[1:] {
						if err := s.dev.Free(kept[0]); err != nil {
							return err
						}
					}
					return nil
				}
				return c.wrap(s), nil
			}}})
		require.NoError(t, err)
		got := ""
		if v != nil {
			got = v.Rule + ": " + v.Detail
		}
		require.Equal(t, c.want, got, c.name)
	}
}
