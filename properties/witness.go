package properties

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
)

// Pin is a live block of a witness.
type Pin struct {
	ID        uint64 `json:"id"`
	Op        int    `json:"op"`       // operation that allocated it
	Bytes     uint64 `json:"bytes"`    // asked for
	BlockSize uint64 `json:"block"`    // set aside
	Releases  uint64 `json:"releases"` // bytes that its absence would return or leave in one piece
}

// Witness is a smallest set of live blocks whose absence serves a refused request. It is looked for among the blocks that
// pin memory, since they are what fragments it: that a live block larger than the request would make room by itself says
// nothing about fragmentation, so such a set stands apart, in Any.
type Witness struct {
	// Blocks are the set, in address order. If pins alone cannot serve, they are of all live blocks.
	Blocks []Pin `json:"blocks"`
	// Any is a smaller set of any live blocks, nil if there is none.
	Any []Pin `json:"any,omitempty"`
	// Exact says that no smaller set serves; else the set came from a greedy choice.
	Exact bool `json:"exact"`
	// Alternatives is how many live blocks each pin a segment of their own such that any len(Blocks) of them serve;
	// 0 if the set has no such alternatives.
	Alternatives int `json:"alternatives"`
	// Each is the size asked for that all alternatives have, 0 if they differ.
	Each uint64 `json:"each,omitempty"`
	// Replays is how many sets were freed before the request in a replay, Served how many of these served it.
	Replays int `json:"replays"`
	Served  int `json:"served"`
}

// Confirmed says that every replay served the request.
func (w *Witness) Confirmed() bool { return w.Replays > 0 && w.Served == w.Replays }

// FindWitness looks for the witness of the refusal at operation op of a trace, at a capacity, and confirms it by replays in
// which the blocks are freed first. It returns nil if no set of live blocks serves the request.
func FindWitness(p *executor.Program, t executor.Target, newDevice measure.NewDevice, capacity uint64, op int) (*Witness, error) {
	dev, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	f := &finder{program: p, target: t, newDevice: newDevice, capacity: capacity, op: op}
	var state executor.State
	r, err := executor.Start(p, t, executor.Options{Device: dev, Judge: func(s *executor.State, _ *oomError) executor.Judgement {
		if s.Op == op {
			state = *s
		}
		return executor.Judgement{}
	}})
	if err != nil {
		return nil, err
	}
	for r.More() && r.Position() <= op {
		if err := r.Step(); err != nil {
			return nil, err
		}
	}
	if state.Entered == nil {
		return nil, fmt.Errorf("operation %d of %s was not refused on %s", op, p.Trace.Name, t.Name)
	}
	if state.Promise.Kind == allocators.PromiseNone {
		return nil, nil // how it serves is not known
	}
	f.request = newRequest(&state)
	// At entry, as a replay finds it: what the refusal's flush returned still lies between the live blocks.
	f.view = state.Entered
	f.base.load(f.view, &f.request)
	any := f.smallest(f.everyLive())
	w := f.smallest(f.pinning())
	switch {
	case any == nil:
		return nil, nil
	case w == nil:
		w = any
	case len(any.Blocks) < len(w.Blocks):
		w.Any = any.Blocks
	}
	return w, f.confirm(w)
}

// everyLive lists all live blocks of the view.
func (f *finder) everyLive() []bool {
	out := make([]bool, len(f.view.Blocks))
	for i := range f.view.Blocks {
		out[i] = f.view.Blocks[i].State == allocators.Live
	}
	return out
}

// pinning lists the live blocks that share a segment, or a page, with memory that nobody uses.
func (f *finder) pinning() []bool {
	out := make([]bool, len(f.view.Blocks))
	for k := range f.view.Segments {
		g := &f.view.Segments[k]
		list := f.view.BlocksOf(k)
		idle := func(i int) bool { return list[i].State == allocators.Free || list[i].State == allocators.Pending }
		any := false
		for i := range list {
			any = any || idle(i)
		}
		for i := range list {
			if !any || list[i].State != allocators.Live {
				continue
			}
			if !g.Expandable {
				out[g.First+i] = true
				continue
			}
			// Look through the pages that the block lies in, to the left and to the right of it.
			page := addr(f.request.PageSize(g.Small))
			from, to := (list[i].Addr-g.Addr)/page*page, ((list[i].End()-g.Addr)+page-1)/page*page
			for j := i - 1; j >= 0 && list[j].End()-g.Addr > from && !out[g.First+i]; j-- {
				out[g.First+i] = idle(j)
			}
			for j := i + 1; j < len(list) && list[j].Addr-g.Addr < to && !out[g.First+i]; j++ {
				out[g.First+i] = idle(j)
			}
		}
	}
	return out
}

// finder searches one state.
type finder struct {
	program   *executor.Program
	target    executor.Target
	newDevice measure.NewDevice
	capacity  uint64
	op        int
	request   request
	view      *executor.View
	base      predictor
	eligible  []bool // blocks of the view that a set may hold
	pins      []int  // alternatives: blocks of the view that each keep a segment alone
}

// smallest tries, by rising size: blocks that lie in one row in a segment of the request's pool and stream, and blocks whose
// absence empties enough segments or pages to buy what is needed. In expandable segments a purchase can need less than
// whole pages, so smaller sets are tried one by one there, as far as that goes.
func (f *finder) smallest(eligible []bool) *Witness {
	f.eligible, f.pins = eligible, nil
	row := f.row()
	emptied, exact := f.emptied()
	set := emptied
	if emptied == nil || row != nil && len(row) <= len(emptied) {
		set, exact = row, exact || len(row) <= 2
	}
	if f.request.Kind == allocators.PromiseX {
		smaller := 2
		if set != nil {
			smaller = len(set) - 1
		}
		found, tried := f.exhaustive(smaller)
		if found != nil {
			return f.witness(found, true)
		}
		exact = len(set) <= tried+1
	}
	if set == nil {
		return nil
	}
	if len(row) != len(set) {
		f.alternatives(len(set))
	}
	return f.witness(set, exact)
}

func (f *finder) witness(set []int, exact bool) *Witness {
	w := &Witness{Exact: exact}
	for _, i := range set {
		w.Blocks = append(w.Blocks, f.pin(i))
	}
	if len(f.pins) > len(set) {
		w.Alternatives = len(f.pins)
		w.Each = f.view.Blocks[f.pins[0]].Requested
		for _, i := range f.pins {
			if f.view.Blocks[i].Requested != w.Each {
				w.Each = 0
			}
		}
	}
	return w
}

func (f *finder) pin(i int) Pin {
	e := f.view.Entries[i]
	return Pin{
		ID: f.program.Trace.Ops[e.Op].ID, Op: int(e.Op), Bytes: e.Requested, BlockSize: e.Size, Releases: f.releases(i),
	}
}

// releases is the bytes of the segment, or of the pages, that the block alone keeps.
func (f *finder) releases(i int) uint64 {
	b := &f.view.Blocks[i]
	for k := range f.view.Segments {
		g := &f.view.Segments[k]
		if i < g.First || i >= g.First+g.Count {
			continue
		}
		if f.request.keeps(g) {
			return 0
		}
		var prev, next *allocators.BlockInfo
		for j := i - 1; j >= g.First; j-- {
			if f.view.Blocks[j].State == allocators.Live {
				prev = &f.view.Blocks[j]
				break
			}
		}
		for j := i + 1; j < g.First+g.Count; j++ {
			if f.view.Blocks[j].State == allocators.Live {
				next = &f.view.Blocks[j]
				break
			}
		}
		if !g.Expandable {
			if prev == nil && next == nil {
				return g.Size
			}
			return 0
		}
		page := f.request.PageSize(g.Small)
		first, last := uint64(b.Addr-g.Addr)/page, (uint64(b.End()-g.Addr)-1)/page
		n := last + 1 - first
		if prev != nil && (uint64(prev.End()-g.Addr)-1)/page == first {
			n--
		}
		if next != nil && uint64(next.Addr-g.Addr)/page == last && n > 0 {
			n--
		}
		return n * page
	}
	return 0
}

// row returns the fewest live blocks of one segment, in a row, whose absence leaves one free block that is large enough.
func (f *finder) row() []int {
	var best []int
	for k := range f.view.Segments {
		g := &f.view.Segments[k]
		if f.request.category(g) != 0 || g.Expandable != (f.request.Kind == allocators.PromiseX) {
			continue
		}
		list := f.view.BlocksOf(k)
		// Two ends move over the stretches of mapped blocks; inside lie `live` blocks and `size` bytes.
		var size uint64
		live, from := 0, 0
		for to := range list {
			if list[to].State == allocators.Unmapped || list[to].State == allocators.Live && !f.eligible[g.First+to] {
				size, live, from = 0, 0, to+1
				continue
			}
			size += list[to].Size
			if list[to].State == allocators.Live {
				live++
			}
			for size-list[from].Size >= f.request.size {
				size -= list[from].Size
				if list[from].State == allocators.Live {
					live--
				}
				from++
			}
			if size < f.request.size || best != nil && live >= len(best) || live == 0 {
				continue
			}
			var set []int
			for i := from; i <= to; i++ {
				if list[i].State == allocators.Live {
					set = append(set, g.First+i)
				}
			}
			if f.servesWithout(set) {
				best = set
			}
		}
	}
	return best
}

// servesWithout predicts whether the request is served once the blocks are freed and no work is outstanding.
func (f *finder) servesWithout(set []int) bool {
	v := executor.View{Snapshot: allocators.Snapshot{Segments: slices.Clone(f.view.Segments)}}
	for k := range v.Segments {
		g := &v.Segments[k]
		first := len(v.Blocks)
		for i := g.First; i < g.First+g.Count; i++ {
			b := f.view.Blocks[i]
			if b.State == allocators.Pending || slices.Contains(set, i) {
				b.State = allocators.Free
			}
			if n := len(v.Blocks); n > first && b.State == allocators.Free && v.Blocks[n-1].State == allocators.Free {
				v.Blocks[n-1].Size += b.Size
				continue
			}
			v.Blocks = append(v.Blocks, b)
		}
		g.First, g.Count = first, len(v.Blocks)-first
	}
	var p predictor
	p.load(&v, &f.request)
	return p.lookup(&f.request) != nil || p.purchase(&f.request, 0)
}

// maxSets bounds the sets of one size that are tried one by one.
const maxSets = 8192

// exhaustive tries all sets of up to most blocks, smallest first, as long as there are not too many; up to sets of tried blocks
// it tried them all.
func (f *finder) exhaustive(most int) (set []int, tried int) {
	var live []int
	for i := range f.view.Blocks {
		if f.eligible[i] {
			live = append(live, i)
		}
	}
	errFound := errors.New("found")
	for sets := 1; tried < most; tried++ {
		k := tried + 1
		if k > len(live) {
			return nil, most
		}
		if sets = sets * (len(live) - k + 1) / k; sets > maxSets { // n over k
			break
		}
		pick := make([]int, k)
		if combinations(len(live), k, sets, func(places []int) error {
			for i, p := range places {
				pick[i] = live[p]
			}
			if f.servesWithout(pick) {
				return errFound
			}
			return nil
		}) != nil {
			return pick, tried
		}
	}
	return nil, tried
}

// alternatives collects the blocks that alone keep a segment or pages with free bytes in them, if any n of them return enough.
func (f *finder) alternatives(n int) {
	var sizes []uint64
	for i := range f.view.Blocks {
		if !f.eligible[i] {
			continue
		}
		if got := f.releases(i); got > f.view.Blocks[i].Size {
			f.pins = append(f.pins, i)
			sizes = append(sizes, got)
		}
	}
	slices.Sort(sizes)
	var least uint64
	for _, s := range sizes[:min(n, len(sizes))] {
		least += s
	}
	if len(sizes) < n || least < f.deficit() {
		f.pins = nil
	}
}

// deficit is how many more bytes must be returned before the purchase is possible.
func (f *finder) deficit() uint64 {
	q := &f.request
	need := q.buy
	if q.Kind == allocators.PromiseX {
		need = roundUp(q.size, q.page)
	}
	d := need - min(need, f.base.flushed)
	if q.HasLimit {
		charged := f.base.kept + q.buy
		d = max(d, charged-min(charged, q.Limit))
	}
	return d
}
