package properties

import (
	"cmp"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
)

// maxWitness is the largest set that the exact search looks for; beyond it, or with too many blocks, the choice is greedy.
const (
	maxWitness = 32
	maxTable   = 20_000_000
)

// tableFits tells whether the table for sets of up to most of so many keepers is small enough.
func tableFits(keepers, most int) bool { return keepers*(most+1)*2 <= maxTable }

// keeper is a live block with the units it lies in: whole classic segments, pages of expandable ones.
type keeper struct {
	block       int    // index in the view
	first, last uint64 // units, numbered within the segment
	unit        uint64 // bytes of a unit
	newSegment  bool   // the first live block of its segment
	fixed       bool   // may not be freed
}

// emptied returns the fewest live blocks whose absence empties enough segments and pages for the purchase, by dynamic
// programming over the live blocks in address order; exact is false if the choice was greedy.
//
// The table holds, for each number of freed blocks and for whether the last unit touched so far is clean (all its live
// blocks freed), the most bytes that are emptied.
func (f *finder) emptied() (set []int, exact bool) {
	deficit := f.deficit()
	keepers := f.keepers()
	if deficit == 0 {
		return nil, false
	}
	for k := 4; k <= maxWitness && tableFits(len(keepers), k); k *= 2 {
		if set := fewest(keepers, min(k, len(keepers)), deficit); set != nil {
			return set, true
		}
	}
	return f.greedy(keepers, deficit), false
}

func (f *finder) keepers() []keeper {
	var out []keeper
	for k := range f.view.Segments {
		g := &f.view.Segments[k]
		fresh := true
		for i := g.First; i < g.First+g.Count; i++ {
			b := &f.view.Blocks[i]
			if b.State != allocators.Live {
				continue
			}
			p := keeper{block: i, unit: g.Size, newSegment: fresh, fixed: !f.eligible[i] || f.request.keeps(g)}
			if g.Expandable {
				p.unit = f.request.PageSize(g.Small)
				p.first, p.last = uint64(b.Addr-g.Addr)/p.unit, (uint64(b.End()-g.Addr)-1)/p.unit
			}
			fresh = false
			out = append(out, p)
		}
	}
	return out
}

const impossible = -1

// fewest returns the smallest set of at most most keepers that empties the bytes, nil if there is none.
func fewest(keepers []keeper, most int, bytes uint64) []int {
	width := (most + 1) * 2
	// from[i][n*2+c]: the state before keeper i that led to the best way of (n, c) after it.
	from := make([]int16, len(keepers)*width)
	now, next := make([]int64, width), make([]int64, width)
	fill(now)
	now[0] = 0
	for i, p := range keepers {
		fill(next)
		moves := from[i*width : (i+1)*width]
		for s, got := range now {
			if got == impossible {
				continue
			}
			n, clean := s/2, s%2 == 1
			continues := !p.newSegment && keepers[i-1].last == p.first
			if !continues {
				if clean {
					got += int64(keepers[i-1].unit)
				}
				clean = true
			}
			ways := 2
			if n == most || p.fixed {
				ways = 1 // it stays
			}
			for free := range ways {
				sum, c := got, clean && free == 1
				if p.last != p.first {
					if c {
						sum += int64(p.unit)
					}
					if free == 1 {
						sum += int64(p.last-p.first-1) * int64(p.unit)
					}
					c = free == 1
				}
				to := (n + free) * 2
				if c {
					to++
				}
				if sum > next[to] {
					next[to] = sum
					moves[to] = int16(s)
				}
			}
		}
		now, next = next, now
	}
	for s, got := range now {
		if got == impossible {
			continue
		}
		if s%2 == 1 {
			got += int64(keepers[len(keepers)-1].unit)
		}
		if uint64(got) < bytes {
			continue
		}
		return backtrack(keepers, from, width, s)
	}
	return nil
}

func fill(list []int64) {
	for i := range list {
		list[i] = impossible
	}
}

// backtrack walks the moves back: a keeper was freed where the number of freed ones rises.
func backtrack(keepers []keeper, from []int16, width, state int) []int {
	var set []int
	for i := len(keepers) - 1; i >= 0; i-- {
		before := int(from[i*width+state])
		if state/2 > before/2 {
			set = append(set, keepers[i].block)
		}
		state = before
	}
	slices.Reverse(set)
	return set
}

// greedy frees whole segments, those with the most bytes for each live block first, until enough is emptied.
func (f *finder) greedy(keepers []keeper, bytes uint64) []int {
	type group struct {
		blocks []int
		bytes  uint64
		fixed  bool
	}
	var groups []group
	for _, p := range keepers {
		if p.newSegment {
			groups = append(groups, group{})
		}
		g := &groups[len(groups)-1]
		g.blocks = append(g.blocks, p.block)
		g.fixed = g.fixed || p.fixed
	}
	for i := range groups {
		for k := range f.view.Segments {
			if s := &f.view.Segments[k]; groups[i].blocks[0] >= s.First && groups[i].blocks[0] < s.First+s.Count {
				for _, b := range f.view.BlocksOf(k) {
					if b.State != allocators.Unmapped {
						groups[i].bytes += b.Size
					}
				}
			}
		}
	}
	slices.SortStableFunc(groups, func(a, b group) int {
		return cmp.Compare(b.bytes/uint64(len(b.blocks)), a.bytes/uint64(len(a.blocks)))
	})
	var set []int
	var sum uint64
	for _, g := range groups {
		if sum < bytes && !g.fixed {
			set = append(set, g.blocks...)
			sum += g.bytes
		}
	}
	if sum < bytes {
		return nil
	}
	slices.Sort(set)
	return set
}
