package properties

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// LevelInfo says what a level means.
type LevelInfo struct {
	Level executor.Level
	// Contract is the level's name in the contracts, F0 to F7.
	Contract string
	// Free is what counts as free, Ignores what such a count does not see.
	Free, Ignores string
	// Needed is what the free memory is held against.
	Needed string
}

// Levels explain `--promise LEVEL` (contracts, section 2).
var Levels = [executor.LevelCount]LevelInfo{
	{executor.LevelBytes, "F0", "capacity - bytes asked for by live blocks", "everything", "the request"},
	{executor.LevelRounded, "F1", "capacity - sizes of live blocks", "pending frees", "the request"},
	{executor.LevelSettled, "F2", "capacity - sizes of live and pending blocks", "whose and where the free bytes are", "the request"},
	{executor.LevelStream, "F3", "bytes at the device + free blocks of the request's pool and stream",
		"that a request needs one range", "the request"},
	{executor.LevelContiguous, "F4", "the larger of: bytes at the device, the largest free block of the request's pool and stream",
		"how much must be bought", "the request"},
	{executor.LevelFlushed, "F5", "bytes at the device after all work is done and the cache is emptied", "how much must be bought", "the request"},
	{executor.LevelPurchase, "F6", "as flushed", "nothing that can be bought", "the segment, or the pages, that must be bought"},
	{executor.LevelLookup, "F7", "the free block that lookup accepts at entry", "nothing that is in the cache", "the rounded request"},
}

// LevelChains are the partial order of the free bytes: along a chain they only fall, between the chains nothing is said. The
// demand of an earlier level is the stronger. purchase and lookup are conditions of their own; either of them suffices
// to be served, and that is what is promised.
var LevelChains = []string{
	"bytes >= rounded >= settled >= stream >= contiguous",
	"bytes >= rounded >= flushed",
}

// LevelNamed returns the level of a name, as bytes or F0. The error lists the names.
func LevelNamed(name string) (executor.Level, error) {
	var names []string
	for _, l := range Levels {
		if name == l.Level.String() || strings.EqualFold(name, l.Contract) {
			return l.Level, nil
		}
		names = append(names, l.Level.String())
	}
	return 0, fmt.Errorf("%q is no level; there are %s (see shatter list properties)", name, strings.Join(names, ", "))
}

// demands holds a refusal against every level. It is computed from the state at entry, in which finished work was noticed:
// the allocator could have served the request then.
func (p *predictor) demands(s *executor.State, q *request) executor.Demands {
	v := s.Entered
	var d executor.Demands
	capacity := q.available
	if q.HasLimit {
		capacity = min(capacity, q.Limit)
	}
	var requested, live, pending, category, largest, kept uint64
	for i := range v.Segments {
		g := &v.Segments[i]
		list := v.BlocksOf(i)
		mine := q.Kind != allocators.PromiseNone && q.category(g) == 0
		var page, next uint64
		if q.Kind != allocators.PromiseNone {
			page = q.PageSize(g.Small)
		}
		used, keeps := false, q.keeps(g)
		for k := range list {
			b := &list[k]
			if keeps && g.Expandable && b.State != allocators.Unmapped {
				kept += b.Size
			}
			switch b.State {
			case allocators.Live:
				requested += b.Requested
				live += b.Size
				used = true
				if g.Expandable && page != 0 && !keeps {
					first, last := uint64(b.Addr-g.Addr)/page, (uint64(b.End()-g.Addr)-1)/page
					kept += (last + 1 - max(first, next)) * page
					next = last + 1
				}
			case allocators.Pending:
				pending += b.Size
			case allocators.Free:
				if mine {
					category += b.Size
					largest = max(largest, b.Size)
				}
			}
		}
		if (used || keeps) && !g.Expandable {
			kept += g.Size
		}
	}
	less := func(used uint64) uint64 { return capacity - min(capacity, used) }
	d.Free[executor.LevelBytes] = less(requested)
	d.Free[executor.LevelRounded] = less(live)
	d.Free[executor.LevelSettled] = less(live + pending)
	d.Known = 1 << executor.LevelBytes
	if !s.Unsized {
		d.Known |= 1<<executor.LevelRounded | 1<<executor.LevelSettled
	}
	if capacity > 0 {
		d.Fill = float64(requested) / float64(capacity)
	}
	need := [executor.LevelCount]uint64{q.n, q.n, q.n, q.n, q.n, q.n, q.buy, q.size}
	if q.Kind != allocators.PromiseNone {
		d.Known = 1<<executor.LevelCount - 1
		d.Free[executor.LevelStream] = less(v.Reserved) + category
		d.Free[executor.LevelContiguous] = max(less(v.Reserved), largest)
		d.Free[executor.LevelFlushed] = less(kept)
		d.Free[executor.LevelPurchase] = less(kept)
		if q.Kind == allocators.PromiseX {
			need[executor.LevelPurchase] = roundUp(q.size, q.page)
		}
		if b := p.lookup(q); b != nil {
			d.Free[executor.LevelLookup] = b.size
		}
	}
	for l, free := range d.Free {
		if d.Known>>l&1 != 0 && free >= need[l] {
			d.Broken |= 1 << l
		}
	}
	return d
}

// Asking makes findings of refusals that break the literal promise at a level: no request is refused while the free memory,
// counted so, is at least what it needs. What a level does not see breaks it, so at most levels no allocator keeps it; the
// promises that are kept are lookup and purchase (contracts 3.1).
func Asking(j executor.Judge, level executor.Level) executor.Judge {
	info := &Levels[level]
	return func(s *executor.State, oom *oomError) executor.Judgement {
		v := j(s, oom)
		if v.Demands.Broken.Has(level) {
			v.Asked = &executor.Asked{Level: level, Reason: fmt.Sprintf(
				"%d bytes were refused with %d free at level %s (%s), at a fill of %.4g %%",
				v.Request, v.Demands.Free[level], level, info.Free, 100*v.Demands.Fill)}
		}
		return v
	}
}
