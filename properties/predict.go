package properties

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
)

type oomError = allocators.OOMError

// predictor foretells whether a request is served from a state, under the allocator's rules or with some of them relaxed.
// It is written from the specification, by linear scans over the harness's own view, and shares nothing with the allocator.
// Its slices are kept between calls.
type predictor struct {
	view       *executor.View
	candidates []candidate // free blocks of the request's pool and stream that are large enough
	// found[waited][category]: a large enough free block exists; accepted: the oversize rules let it serve.
	found, accepted [2][categories]bool
	waited          []candidate // as candidates, after pending frees completed
	// flushed is the device's free bytes after a full flush, kept the bytes that stay reserved.
	flushed, kept uint64
	// keptApart is what stays reserved only since private pools are in use, or hold releases back.
	keptApart uint64
	rooms     []streamRoom // where expandable segments can grow
	items     []item
}

// A category is whose free block it is: the request's own pool and stream, or another.
const (
	otherStream = 1 << iota
	otherPool
	categories = 4
)

func (q *request) category(g *allocators.SegmentInfo) int {
	c := 0
	if g.Stream != q.stream {
		c = otherStream
	}
	if g.Small != q.small || g.Pool != q.pool {
		c |= otherPool
	}
	return c
}

// keeps tells whether a flush returns nothing of a segment: there is none, or a private pool in use has it (specification 15.2).
func (q *request) keeps(g *allocators.SegmentInfo) bool {
	return q.held || g.Pool != 0 && q.uses[g.Pool] > 0
}

// candidate is a free block that is large enough.
type candidate struct {
	addr            device.Addr
	size, effective uint64 // bytes; effective: with the unmapped space behind it
	expandable      bool
}

func (c *candidate) before(d *candidate) bool {
	return c.size < d.size || c.size == d.size && c.addr < d.addr
}

// load scans a view for a request.
func (p *predictor) load(v *executor.View, q *request) {
	p.view = v
	p.candidates, p.waited = p.candidates[:0], p.waited[:0]
	p.found, p.accepted = [2][categories]bool{}, [2][categories]bool{}
	p.rooms = p.rooms[:0]
	p.kept, p.keptApart = 0, 0
	for i := range v.Segments {
		g := &v.Segments[i]
		p.scan(g, v.BlocksOf(i), q)
		if g.Expandable && q.Kind == allocators.PromiseX {
			p.measureRooms(g, v.BlocksOf(i), q)
		}
	}
	p.flushed = q.available - min(q.available, p.kept)
}

// scan notes what a segment offers to a lookup, and what of it a flush keeps.
func (p *predictor) scan(g *allocators.SegmentInfo, list []allocators.BlockInfo, q *request) {
	c := q.category(g)
	live := false
	var mapped, held uint64 // bytes of the segment, and those that live blocks keep
	page := q.PageSize(g.Small)
	nextPage := uint64(0)
	var merged candidate // free and pending blocks in a row, as they are once the pending ones complete
	for k := range list {
		b := &list[k]
		if b.State == allocators.Free {
			p.offer(0, c, candidate{addr: b.Addr, size: b.Size, effective: b.Size, expandable: g.Expandable}, list, k, q)
		}
		if b.State == allocators.Free || b.State == allocators.Pending {
			if merged.size == 0 {
				merged = candidate{addr: b.Addr, expandable: g.Expandable}
			}
			merged.size += b.Size
			if k+1 == len(list) || list[k+1].State == allocators.Live || list[k+1].State == allocators.Unmapped {
				merged.effective = merged.size
				p.offer(1, c, merged, list, k, q)
				merged = candidate{}
			}
		}
		if g.Expandable && b.State != allocators.Unmapped {
			mapped += b.Size
		}
		if b.State != allocators.Live {
			continue
		}
		live = true
		if g.Expandable {
			first, last := uint64(b.Addr-g.Addr)/page, (uint64(b.End()-g.Addr)-1)/page
			held += (last + 1 - max(first, nextPage)) * page
			nextPage = last + 1
		}
	}
	if !g.Expandable {
		if mapped = g.Size; live {
			held = mapped
		}
	}
	if q.keeps(g) {
		p.keptApart += mapped - held
		held = mapped
	}
	p.kept += held
}

// offer notes a free block, if it is large enough. waited is 1 if pending frees were completed for it; k is its last part.
func (p *predictor) offer(waited, category int, b candidate, list []allocators.BlockInfo, k int, q *request) {
	if b.size < q.size || b.expandable && q.Kind != allocators.PromiseX {
		return // too small, or an expandable block while the option is off
	}
	if k+1 < len(list) && list[k+1].State == allocators.Unmapped {
		b.effective += list[k+1].Size
	}
	p.found[waited][category] = true
	if !q.oversize(b.size) {
		p.accepted[waited][category] = true
	}
	if category == 0 {
		if waited == 0 {
			p.candidates = append(p.candidates, b)
		} else {
			p.waited = append(p.waited, b)
		}
	}
}

// oversize tells whether the max_split_size rules keep a block from the request (specification 10, step 4).
func (q *request) oversize(block uint64) bool {
	return q.size < q.MaxSplitSize && block >= q.MaxSplitSize ||
		q.size >= q.MaxSplitSize && block >= q.size+q.MaxNonSplitRounding
}

// lookup returns the free block that serves the request as the state is.
func (p *predictor) lookup(q *request) *candidate { return choose(p.candidates, q) }

// choose is the lookup of specification section 10 over the blocks that are large enough: the smallest, among equals the
// lowest; among expandable ones in a row the one with the least effective size; and the oversize rules hold for that one.
func choose(list []candidate, q *request) *candidate {
	best := following(list, nil)
	if best == nil {
		return nil
	}
	for best.expandable {
		next := following(list, best)
		if next == nil || next.effective >= best.effective {
			break
		}
		best = next
	}
	if q.oversize(best.size) {
		return nil
	}
	return best
}

// following returns the first candidate behind another in the order of the free set, the first of all for nil.
func following(list []candidate, after *candidate) *candidate {
	var best *candidate
	for i := range list {
		c := &list[i]
		if (after == nil || after.before(c)) && (best == nil || c.before(best)) {
			best = c
		}
	}
	return best
}

// affords tells whether the device, after a flush, has the bytes and the limit admits the charge.
func (p *predictor) affords(q *request, need, charge uint64) bool {
	return need <= p.flushed && (!q.HasLimit || p.kept+charge <= q.Limit)
}

// purchase tells whether memory can be bought after a full flush, with some rules relaxed.
func (p *predictor) purchase(q *request, relaxed executor.Relaxation) bool {
	if relaxed&executor.RelaxPool != 0 { // pools give up what they keep apart
		apart := p.keptApart
		p.kept, p.flushed, p.keptApart = p.kept-apart, p.flushed+apart, 0
		defer func() { p.kept, p.flushed, p.keptApart = p.kept+apart, p.flushed-apart, apart }()
	}
	quantum := relaxed&executor.RelaxQuantum != 0
	need, charge := q.buy, q.buy
	if quantum { // the device gives granules all the same; the limit counts bytes
		need, charge = roundUp(q.size, granule), q.size
	}
	if q.Kind == allocators.PromiseN {
		return p.affords(q, need, charge)
	}
	unbounded := relaxed&executor.RelaxAddressSpace != 0
	afford := func(need uint64) bool {
		if relaxed&executor.RelaxLimit != 0 {
			return p.affords(q, need, need)
		}
		return p.affords(q, need, charge)
	}
	grain := 0
	page := q.page
	if quantum {
		grain, page = 1, granule
	}
	anywhere := false
	for i := range p.rooms {
		if !admits(relaxed, p.rooms[i].category) {
			continue
		}
		r := &p.rooms[i].by[grain][0]
		if unbounded {
			r = &p.rooms[i].by[grain][1]
		}
		if !r.found {
			continue
		}
		anywhere = true
		need := r.lowest
		if relaxed&executor.RelaxHole != 0 {
			need = r.least
		}
		if afford(need) {
			return true
		}
	}
	// A new segment is made only where no room is; if the choice of the place is relaxed it may be made all the same.
	if anywhere && relaxed&executor.RelaxHole == 0 {
		return false
	}
	return (unbounded || q.size <= q.reservation) && afford(roundUp(q.size, page))
}

const granule = 2 << 20

// admits tells whether blocks of a category may serve under the relaxed rules.
func admits(relaxed executor.Relaxation, category int) bool {
	return (category&otherStream == 0 || relaxed&executor.RelaxStream != 0) &&
		(category&otherPool == 0 || relaxed&executor.RelaxPool != 0)
}

// served tells whether the request is served from the state at entry with some rules relaxed.
func (p *predictor) served(q *request, relaxed executor.Relaxation) bool {
	waited := 0
	if relaxed&executor.RelaxEvents != 0 {
		waited = 1
	}
	for c := range categories {
		switch {
		case !admits(relaxed, c):
		case relaxed&executor.RelaxOversize != 0:
			if p.found[waited][c] {
				return true
			}
		case c == 0:
			list := p.candidates
			if waited == 1 {
				list = p.waited
			}
			if choose(list, q) != nil {
				return true
			}
		case p.accepted[waited][c]:
			return true
		}
	}
	return p.purchase(q, relaxed)
}

// relaxations returns all minimal sets of one or two rules whose relaxation serves the request.
func (p *predictor) relaxations(q *request) []executor.Relaxation {
	var sets []executor.Relaxation
	var single executor.Relaxation
	for i := range executor.Relaxations {
		if r := executor.Relaxation(1) << i; p.served(q, r) {
			sets = append(sets, r)
			single |= r
		}
	}
	for i := range executor.Relaxations {
		for k := i + 1; k < executor.Relaxations; k++ {
			r := executor.Relaxation(1)<<i | executor.Relaxation(1)<<k
			if r&single == 0 && p.served(q, r) {
				sets = append(sets, r)
			}
		}
	}
	return sets
}
