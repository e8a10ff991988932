package recording

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// low gives out the lowest free addresses, so that they come again.
func low(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity, Order: simdev.Low})
}

func target(t testing.TB, name string) executor.Target {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return executor.Target{Name: name, New: spec.New}
}

// piece is a block as a reader of a recording sees it, in bytes.
type piece struct {
	segment      string // address and size
	offset, size uint64
	state        uint64
	born         int
}

// reader makes the states of a recording again, as a page's script does: a new block takes the place of all that it overlaps.
type reader struct {
	r      *Recording
	at     int
	blocks map[uint64][]piece // by segment index, by offset
}

func (d *reader) step() (outcome, free uint64) {
	next := func() uint64 { d.at++; return d.r.Steps[d.at-1] }
	outcome, free = next(), next()*d.r.Unit
	for range next() {
		delete(d.blocks, next())
	}
	for range next() {
		seg := next()
		g := &d.r.Segments[seg]
		p := piece{segment: fmt.Sprintf("%s %d", g.Addr, g.Size*d.r.Unit), offset: next() * d.r.Unit, size: next() * d.r.Unit, state: next(), born: int(next()) - 1}
		kept := slices.DeleteFunc(d.blocks[seg], func(q piece) bool { return q.offset < p.offset+p.size && p.offset < q.offset+q.size })
		d.blocks[seg] = append(kept, p)
	}
	return outcome, free
}

func (d *reader) all() []piece {
	var out []piece
	for _, list := range d.blocks {
		out = append(out, list...)
	}
	slices.SortFunc(out, func(a, b piece) int {
		return cmp.Or(strings.Compare(a.segment, b.segment), cmp.Compare(a.offset, b.offset))
	})
	return out
}

// held lists the blocks of a run that is stepped by hand, with the operation that allocated each.
func held(t *testing.T, r *executor.Run, born map[device.Addr]int) []piece {
	var s allocators.Snapshot
	if a, ok := r.Allocator().(allocators.Snapshotter); ok {
		a.Snapshot(&s)
	} else {
		s = r.View().Snapshot
	}
	var out []piece
	for i := range s.Segments {
		g := &s.Segments[i]
		var sum uint64
		for _, b := range s.BlocksOf(i) {
			p := piece{segment: fmt.Sprintf("%#x %d", uint64(g.Addr), g.Size), offset: uint64(b.Addr - g.Addr), size: b.Size, state: uint64(b.State), born: -1}
			if b.State == allocators.Live || b.State == allocators.Pending {
				p.born = born[b.Addr]
			}
			out = append(out, p)
			sum += b.Size
		}
		require.Equal(t, g.Size, sum, "blocks tile their segment")
	}
	slices.SortFunc(out, func(a, b piece) int {
		return cmp.Or(strings.Compare(a.segment, b.segment), cmp.Compare(a.offset, b.offset))
	})
	return out
}

// TestDifferencesGiveEveryState runs traces of all workloads a second time by hand: after each operation what the differences
// came to is what the allocator lists, and the samples are its counters.
func TestDifferencesGiveEveryState(t *testing.T) {
	t.Parallel()
	states, refused := 0, 0
	for _, name := range []string{"classic", "expandable", "classic@max_split_size_mb:21", "direct", "first-fit",
		"expandable@garbage_collection_threshold:0.5,x_memory_fraction:0.9"} {
		for i, w := range gen.Workloads {
			tr := gen.Generate(w, uint64(i+7), gen.Params{Ops: 250})
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			if i%2 == 0 {
				capacity = capacity / 4 / (2 << 20) * (2 << 20) // so that something is refused
			}
			newDevice := simulated
			if i%3 == 0 {
				newDevice = low
			}
			p, tg := executor.Compile(tr), target(t, name)
			group, err := Record(p, []executor.Target{tg}, newDevice, capacity, -1, Limits{})
			require.NoError(t, err)
			require.Equal(t, []int{0, p.Len(), p.Len()}, []int{group.From, group.Ops, group.Of})
			require.Empty(t, group.Cut)
			require.Equal(t, p.Len(), strings.Count(group.Texts, "\n"))
			rec := group.Recordings[0]
			require.Equal(t, p.Len(), rec.Ops)
			require.Empty(t, rec.End)
			require.Len(t, rec.Samples, p.Len()+1)

			dev, err := newDevice(capacity)
			require.NoError(t, err)
			born := map[device.Addr]int{}
			r, err := executor.Start(p, tg, executor.Options{Device: dev, OnRow: func(*executor.Row) {}, Properties: []executor.Property{{
				ID: "born", Op: func(s *executor.State) *executor.Violation {
					if s.Operation.Kind == trace.Alloc && s.Outcome == executor.OK && s.Block.Size > 0 {
						born[s.Block.Addr] = s.Op
					}
					return nil
				},
			}}})
			require.NoError(t, err)
			d := &reader{r: rec, blocks: map[uint64][]piece{}}
			for n := 0; ; n++ {
				outcome, free := d.step()
				deviceFree, _ := dev.Info()
				require.Equal(t, deviceFree, free)
				require.Equal(t, held(t, r, born), d.all(), "%s on %s after %d operations", tr.Name, name, n)
				if outcome == uint64(executor.OOM) {
					refused++
					require.Equal(t, n-1, r.Result().OOMs[len(r.Result().OOMs)-1])
				}
				s := rec.Samples[n]
				require.Equal(t, capacity, s.Live+s.Rounding+s.Pinned+s.Idle+s.Free+s.Others)
				if h, err := measure.HeldBy(r.Allocator(), n); err == nil {
					require.Equal(t, h.Allocated, s.Live+s.Rounding)
					require.Equal(t, h.Pinned, s.Pinned, "%s on %s after %d operations", tr.Name, name, n)
					require.Equal(t, h.Releasable, s.Idle)
				}
				states++
				if !r.More() {
					break
				}
				require.NoError(t, r.Step())
			}
			require.Equal(t, len(rec.Steps), d.at, "nothing is left over")
		}
	}
	t.Logf("%d states, %d refusals", states, refused)
	require.Greater(t, states, 10_000)
	require.Greater(t, refused, 50)
}

// TestWindow: of a long run the operation of interest is kept, with most of the window before it, and what is missing is said.
func TestWindow(t *testing.T) {
	w, err := gen.Find("mixed")
	require.NoError(t, err)
	tr := gen.Generate(w, 3, gen.Params{Ops: 3000})
	p, both := executor.Compile(tr), []executor.Target{target(t, "classic"), target(t, "expandable")}
	whole, err := Record(p, both, simulated, 80<<30, 1500, Limits{})
	require.NoError(t, err)
	states := make([][][]piece, len(both))
	for k, r := range whole.Recordings {
		full := &reader{r: r, blocks: map[uint64][]piece{}}
		for range whole.Ops + 1 {
			full.step()
			states[k] = append(states[k], full.all())
		}
	}
	for _, l := range []Limits{{Ops: 1000}, {Ops: 100}, {Numbers: 20_000}, {Numbers: 5_000}} {
		part, err := Record(p, both, simulated, 80<<30, 1500, l)
		require.NoError(t, err)
		require.LessOrEqual(t, part.From, 1500)
		require.Greater(t, part.From+part.Ops, 1500)
		require.Contains(t, part.Cut, "of 3,000 are kept here")
		require.Equal(t, l.Numbers > 0, strings.Contains(part.Cut, "too large"))
		if l.Ops > 0 {
			require.Equal(t, l.Ops, part.Ops)
		}
		for k, r := range part.Recordings {
			require.Equal(t, part.Ops, r.Ops)
			d := &reader{r: r, blocks: map[uint64][]piece{}}
			for n := range part.Ops + 1 {
				d.step()
				require.Equal(t, states[k][part.From+n], d.all(), "%+v: after operation %d", l, part.From+n-1)
			}
			require.Equal(t, len(r.Steps), d.at)
			// Whoever allocated what is still live can be named.
			for _, b := range d.all() {
				if b.born >= 0 && b.born < part.From {
					require.Equal(t, tr.Ops[b.born].String(), part.Earlier[b.born])
				}
			}
		}
	}
	_, err = Record(p, both, simulated, 80<<30, 1500, Limits{Numbers: 10})
	require.ErrorContains(t, err, "too much for a map")
}

// TestUnits: sizes are as small as they can be, and come out as they went in.
func TestUnits(t *testing.T) {
	tr, err := trace.ParseString("units", "alloc 0 30MiB\nalloc 1 10MiB\nfree 0\n")
	require.NoError(t, err)
	g, err := Record(executor.Compile(tr), []executor.Target{target(t, "classic")}, simulated, 100<<20, -1, Limits{})
	require.NoError(t, err)
	doc, err := json.Marshal(g)
	require.NoError(t, err)
	require.JSONEq(t, `{"from":0,"ops":3,"of":3,"texts":"alloc 0 31457280\nalloc 1 10485760\nfree 0\n",
		"recordings":[{"allocator":"classic","capacity":104857600,"unit":10485760,"ops":3,
			"segments":[{"at":"0x7f0000000000","size":3},{"at":"0x7f0001e00000","size":1}],
			"steps":[0,10,0,0, 0,7,0,1,0,0,3,3,1, 0,6,0,1,1,0,1,3,2, 0,6,0,1,0,0,3,1,0]}]}`, string(doc))
}

// bomb panics at its third allocation.
type bomb struct {
	allocators.Allocator
	n int
}

func (b *bomb) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if b.n++; b.n == 3 {
		panic("boom")
	}
	return b.Allocator.Alloc(n, s)
}

func TestPanicEndsTheRecording(t *testing.T) {
	tr, err := trace.ParseString("bomb", "alloc 0 1MiB\nalloc 1 1MiB\nalloc 2 1MiB\nalloc 3 1MiB\n")
	require.NoError(t, err)
	inner := target(t, "direct")
	g, err := Record(executor.Compile(tr), []executor.Target{{Name: "bomb", New: func(d device.Device) (allocators.Allocator, error) {
		a, err := inner.New(d)
		return &bomb{Allocator: a}, err
	}}, inner}, simulated, 1<<30, -1, Limits{})
	require.NoError(t, err)
	require.Equal(t, "the allocator panicked (boom) at operation 2", g.Recordings[0].End)
	require.Equal(t, 2, g.Recordings[0].Ops)
	require.Equal(t, 4, g.Recordings[1].Ops)
}
