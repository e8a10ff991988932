package snapshot

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// releaseMode is how a release before a request came about.
type releaseMode uint8

const (
	retried          releaseMode = iota // a purchase failed; the flush waited for pending frees
	syncedAndRetried                    // the work that pending frees waited for was done before
	emptied                             // the program called empty_cache
	atOnce                              // a free waited for nothing
	heldBack                            // a free waited, and was completed by the next flush
)

// doubt is a place where the recording can be read in several ways, the likeliest first.
type doubt struct {
	entry, op int
	modes     []releaseMode
}

// doubtAt is the last place up to an operation with a reading that was not tried yet.
func (f *forward) doubtAt(op int, tried map[int]int) *doubt {
	for i := len(f.doubtful) - 1; i >= 0; i-- {
		if d := &f.doubtful[i]; d.op <= op && tried[d.entry]+1 < len(d.modes) {
			return d
		}
	}
	return nil
}

// settle takes what was recorded since the last request and belongs to none: an empty_cache.
func (f *forward) settle() {
	if len(f.segments) > 0 || len(f.completed) > 0 {
		f.emptyCache(len(f.segments))
	}
}

// emptyCache writes one, with the first n of the segments' entries as what it did.
func (f *forward) emptyCache(n int) {
	f.stats.emptied++
	f.leave()
	for _, k := range f.segments[:n] {
		f.releasePool(allocators.PoolID(f.p.poolOf(int(k))))
	}
	op := f.emit(-1, trace.Op{Kind: trace.EmptyCache})
	f.complete(true)
	for _, k := range f.segments[:n] {
		f.decision(op, &f.events[k])
	}
	f.segments = append(f.segments[:0], f.segments[n:]...)
}

// request takes what was recorded since the last request and belongs to this one, or to an empty_cache before it.
func (f *forward) request(i int, e *Event) {
	g := f.group(f.segments)
	if g.returned == 0 && e.Action != OOM {
		f.complete(false)
		return
	}
	// What was recorded can be read in several ways; see resolve.
	modes := []releaseMode{retried}
	if len(f.completed) > 0 {
		modes = append(modes, syncedAndRetried)
	}
	if g.returned > 0 && !g.boughtFirst {
		modes = append(modes, emptied)
		if e.Action != OOM && !f.isRetry(g) {
			modes[0], modes[len(modes)-1] = emptied, retried
		}
		if g.bought == 0 && e.Action != OOM {
			modes = modes[:1] // there is no lookup after a flush, so a request that buys nothing did not flush
		}
	}
	mode := modes[0]
	if m, ok := f.modes[i]; ok {
		mode = m
	}
	if len(modes) > 1 {
		f.doubtful = append(f.doubtful, doubt{entry: i, op: len(f.m.Trace.Ops), modes: modes})
	}
	if mode == emptied {
		f.emptyCache(g.last + 1)
		return
	}
	f.stats.retries++
	for _, k := range f.segments {
		if f.events[k].Action.returns() {
			f.leave()
			f.releasePool(allocators.PoolID(f.p.poolOf(int(k))))
		}
	}
	f.complete(mode == retried)
}

// returns tells whether an entry gives memory back to the device.
func (a Action) returns() bool { return a == SegmentFree || a == SegmentUnmap }

// group is what the entries of segments before a request come to.
type group struct {
	returned, last int    // entries that give memory back, and the last one of them
	bought         uint64 // bytes bought behind the last of these
	boughtFirst    bool   // something was mapped before memory was given back
	before         uint64 // bytes reserved before all of them
}

func (f *forward) group(entries []int32) group {
	g := group{last: -1, before: f.reserved}
	for k, i := range entries {
		e := &f.events[i]
		if !e.Action.returns() {
			g.bought += e.Size
			continue
		}
		g.boughtFirst = g.boughtFirst || g.bought > 0
		g.returned++
		g.last, g.bought = k, 0
	}
	return g
}

// isRetry tells whether memory was likely given back because a purchase had failed, as against by an empty_cache before the request.
// The recording does not say; at least what was bought must not have fitted before.
func (f *forward) isRetry(g group) bool {
	if g.bought == 0 {
		return false
	}
	limit := f.m.recorded
	if f.fraction != nil && limit > 0 {
		limit = uint64(*f.fraction * float64(limit))
		if f.set.GCThreshold > 0 && f.reserved > uint64(f.set.GCThreshold*float64(limit)) {
			return true
		}
	}
	return limit > 0 && g.before+g.bought > limit
}

// complete notes that the frees seen completed. If nothing waited for them, their work was done before: a sync says so.
func (f *forward) complete(waited bool) {
	for _, addr := range f.completed {
		p := f.pending[addr]
		delete(f.pending, addr)
		f.idle = append(f.idle, p.stream)
		if !waited {
			f.leave()
			f.emit(-1, trace.Op{Kind: trace.Sync, Stream: p.stream})
		}
	}
	f.completed = f.completed[:0]
}
