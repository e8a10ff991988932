package whatif

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// Group is live blocks that together keep memory which nobody uses: the free (and pending) bytes of a segment, or of pages, that a
// release would return if all of them were gone. A block that keeps a segment alone is a group of one.
type Group struct {
	// Ops are the operations that allocated the blocks, in address order.
	Ops   []int  `json:"ops"`
	Bytes uint64 `json:"bytes"`
	Small bool   `json:"small"` // of the small pool
	// Stream is the segment's.
	Stream int `json:"stream"`
	// Live is the bytes of the blocks, in block sizes.
	Live uint64 `json:"live"`
}

// Groups charges the memory that live blocks pin to them. Their bytes sum up to the pinned bytes of the view; page is the size of
// the pages of expandable segments.
func Groups(v *executor.View, page func(small bool) uint64) []Group {
	var out []Group
	for i := range v.Segments {
		g := &v.Segments[i]
		if g.Expandable {
			out = append(out, pageGroups(v, g, page(g.Small))...)
			continue
		}
		p := Group{Small: g.Small, Stream: int(g.Stream)}
		for k := g.First; k < g.First+g.Count; k++ {
			if b := &v.Blocks[k]; b.State == allocators.Live {
				p.Ops = append(p.Ops, int(v.Entries[k].Op))
				p.Live += b.Size
			} else {
				p.Bytes += b.Size
			}
		}
		if len(p.Ops) > 0 && p.Bytes > 0 {
			out = append(out, p)
		}
	}
	slices.SortStableFunc(out, func(a, b Group) int { return cmp.Compare(b.Bytes, a.Bytes) })
	return out
}

// pageGroups is Groups for an expandable segment. Only pages at the ends of a stretch of idle memory can have live blocks in them.
func pageGroups(v *executor.View, g *allocators.SegmentInfo, page uint64) []Group {
	type held struct {
		bytes uint64
		live  []int // blocks of the view
	}
	pages := map[uint64]*held{}
	idle := func(k int) bool {
		s := v.Blocks[k].State
		return s == allocators.Free || s == allocators.Pending
	}
	for k := g.First; k < g.First+g.Count; k++ {
		if !idle(k) {
			continue
		}
		b := &v.Blocks[k]
		start, end := uint64(b.Addr-g.Addr), uint64(b.End()-g.Addr)
		for _, n := range []uint64{start / page, (end - 1) / page} {
			if pages[n] == nil {
				pages[n] = &held{}
			}
		}
	}
	// Now that the pages are known, count in them: a page may hold ends of several stretches.
	for k := g.First; k < g.First+g.Count; k++ {
		b := &v.Blocks[k]
		start, end := uint64(b.Addr-g.Addr), uint64(b.End()-g.Addr)
		first, last := start/page, (end-1)/page
		for _, n := range []uint64{first, last} {
			h := pages[n]
			if h == nil {
				continue
			}
			switch {
			case b.State == allocators.Live:
				if len(h.live) == 0 || h.live[len(h.live)-1] != k {
					h.live = append(h.live, k)
				}
			case idle(k):
				h.bytes += min(end, (n+1)*page) - max(start, n*page)
			}
			if first == last {
				break
			}
		}
	}
	// Pages that the same blocks keep are one group.
	groups := map[string]*Group{}
	var order []uint64
	for n := range pages {
		order = append(order, n)
	}
	slices.Sort(order)
	var out []*Group
	for _, n := range order {
		h := pages[n]
		if len(h.live) == 0 || h.bytes == 0 {
			continue
		}
		key := fmt.Sprint(h.live)
		p := groups[key]
		if p == nil {
			p = &Group{Small: g.Small, Stream: int(g.Stream)}
			for _, k := range h.live {
				p.Ops = append(p.Ops, int(v.Entries[k].Op))
				p.Live += v.Blocks[k].Size
			}
			groups[key] = p
			out = append(out, p)
		}
		p.Bytes += h.bytes
	}
	list := make([]Group, len(out))
	for i, p := range out {
		list[i] = *p
	}
	return list
}

// SitePins is what the blocks of one call site pin, or those of several that keep memory only together.
type SitePins struct {
	Sites []string `json:"sites"`
	Bytes uint64   `json:"bytes"`
	// Blocks is how many there are, Alone how many of them keep a segment or pages by themselves.
	Blocks int `json:"blocks"`
	Alone  int `json:"alone"`
	Groups int `json:"groups"`
	// Live is the bytes of the blocks, Smallest and Largest their requests.
	Live     uint64 `json:"live"`
	Smallest uint64 `json:"smallest_request"`
	Largest  uint64 `json:"largest_request"`
	// Oldest and Youngest are their ages: in microseconds if the recording has times, else in operations.
	Oldest   int64 `json:"oldest"`
	Youngest int64 `json:"youngest"`
	Streams  []int `json:"streams"`
	Small    bool  `json:"small_pool"`
	Large    bool  `json:"large_pool"`
	// Ops are the operations that allocated the blocks.
	Ops []int `json:"-"`
}

// bySite joins groups whose blocks come from the same call sites.
func (c *Case) bySite(groups []Group, at int) []SitePins {
	rows := map[string]*SitePins{}
	seen := map[string]map[int]bool{}
	var out []*SitePins
	for i := range groups {
		g := &groups[i]
		var sites []string
		for _, op := range g.Ops {
			sites = append(sites, c.site(op))
		}
		slices.Sort(sites)
		sites = slices.Compact(sites)
		key := strings.Join(sites, "\n")
		r := rows[key]
		if r == nil {
			r = &SitePins{Sites: sites, Smallest: ^uint64(0), Youngest: 1<<63 - 1}
			rows[key], seen[key] = r, map[int]bool{}
			out = append(out, r)
		}
		r.Bytes += g.Bytes
		r.Groups++
		r.Small, r.Large = r.Small || g.Small, r.Large || !g.Small
		if !slices.Contains(r.Streams, g.Stream) {
			r.Streams = append(r.Streams, g.Stream)
		}
		if len(g.Ops) == 1 {
			r.Alone++
		}
		for _, op := range g.Ops {
			if seen[key][op] {
				continue
			}
			seen[key][op] = true
			r.Blocks++
			r.Ops = append(r.Ops, op)
			n := c.requested(op)
			r.Live += n
			r.Smallest, r.Largest = min(r.Smallest, n), max(r.Largest, n)
			age := c.age(op, at)
			r.Oldest, r.Youngest = max(r.Oldest, age), min(r.Youngest, age)
		}
	}
	slices.SortStableFunc(out, func(a, b *SitePins) int { return cmp.Compare(b.Bytes, a.Bytes) })
	list := make([]SitePins, len(out))
	for i, r := range out {
		slices.Sort(r.Ops)
		list[i] = *r
	}
	return list
}
