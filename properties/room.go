package properties

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// room is where the expandable segments of a pool and stream could grow for a request after a full flush: the bytes to map at the
// lowest place and at the place that needs fewest. by[0] counts whole pages, by[1] granules of 2 MiB; by[.][1] lets the
// last run of a segment grow past the reservation.
type room struct {
	by [2][2]places
}

// streamRoom is the room of a stream: under relaxed rules each stream may serve, at the lowest place of its own segments.
type streamRoom struct {
	category int
	stream   device.Stream
	room
}

// roomOf returns the room that a segment counts for.
func (p *predictor) roomOf(g *allocators.SegmentInfo, q *request) *room {
	c := q.category(g)
	for i := range p.rooms {
		if r := &p.rooms[i]; r.category == c && r.stream == g.Stream {
			return &r.room
		}
	}
	p.rooms = append(p.rooms, streamRoom{category: c, stream: g.Stream})
	return &p.rooms[len(p.rooms)-1].room
}

type places struct {
	found         bool
	lowest, least uint64
}

func (r *places) add(need uint64) {
	if !r.found {
		*r = places{true, need, need}
		return
	}
	r.least = min(r.least, need)
}

// item is a stretch of an expandable segment after a flush: live, free (mapped) or unmapped.
type item struct {
	state allocators.State
	size  uint64
}

// measureRooms applies specification section 17.3 to a segment, address by address.
func (p *predictor) measureRooms(g *allocators.SegmentInfo, list []allocators.BlockInfo, q *request) {
	page := q.PageSize(g.Small)
	if q.keeps(g) {
		p.keepSegment(list, !q.held)
	} else if p.flushSegment(g, list, page); len(p.items) == 1 && p.items[0].state == allocators.Unmapped && (len(list) > 1 || list[0].State != allocators.Unmapped) {
		return // the flush takes its last page, so it is given back (17.5); one with nothing mapped before stays
	}
	room := p.roomOf(g, q)
	for i := range p.items {
		if p.items[i].state != allocators.Unmapped {
			continue
		}
		start := i
		if i > 0 && p.items[i-1].state == allocators.Free {
			start = i - 1
		}
		for grain, unit := range [...]uint64{page, granule} {
			need, short := p.need(start, q.size, unit)
			if short == 0 {
				room.by[grain][0].add(need)
				room.by[grain][1].add(need)
			} else if p.reachesEnd(start) {
				room.by[grain][1].add(need + roundUp(short, unit))
			}
		}
	}
}

// need is what must be mapped to get size bytes from item start on (specification 17.4); short is what the run lacks.
func (p *predictor) need(start int, size, unit uint64) (need, short uint64) {
	short = size
	for k := start; k < len(p.items) && short != 0; k++ {
		it := &p.items[k]
		if it.state == allocators.Live {
			break
		}
		got := it.size
		if it.state == allocators.Unmapped {
			got = min(roundUp(min(it.size, short), unit), it.size)
			need += got
		}
		short -= min(short, got)
	}
	return need, short
}

func (p *predictor) reachesEnd(start int) bool {
	for _, it := range p.items[start:] {
		if it.state == allocators.Live {
			return false
		}
	}
	return true
}

// flushSegment lists the segment as a flush leaves it: pending blocks are free, whole free pages unmapped.
func (p *predictor) flushSegment(g *allocators.SegmentInfo, list []allocators.BlockInfo, page uint64) {
	p.items = p.items[:0]
	for k := 0; k < len(list); {
		b := &list[k]
		if b.State == allocators.Live || b.State == allocators.Unmapped {
			p.addItem(b.State, b.Size)
			k++
			continue
		}
		begin := uint64(b.Addr - g.Addr)
		end := begin
		for ; k < len(list) && (list[k].State == allocators.Free || list[k].State == allocators.Pending); k++ {
			end += list[k].Size
		}
		first := min(roundUp(begin, page), end)
		last := max(end/page*page, first) // first to last: whole pages, if any
		p.addItem(allocators.Free, first-begin)
		p.addItem(allocators.Unmapped, last-first)
		p.addItem(allocators.Free, end-last)
	}
}

// keepSegment lists the segment as it is. A pending block is free if it was waited for, else it ends a run.
func (p *predictor) keepSegment(list []allocators.BlockInfo, waited bool) {
	p.items = p.items[:0]
	for k := range list {
		state := list[k].State
		switch {
		case state == allocators.Pending && waited:
			state = allocators.Free
		case state == allocators.Pending:
			state = allocators.Live
		}
		p.addItem(state, list[k].Size)
	}
}

func (p *predictor) addItem(state allocators.State, size uint64) {
	if size == 0 {
		return
	}
	if n := len(p.items); n > 0 && state != allocators.Live && p.items[n-1].state == state {
		p.items[n-1].size += size
		return
	}
	p.items = append(p.items, item{state, size})
}
