package snapshot

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// enter opens the private pool that a request lies in, and closes another one. When pools were open is not recorded; they are taken
// to be so from the first request of a pool to what would not go on in one: a request of another pool, a free that waits for another
// stream, an empty_cache.
func (f *forward) enter(pool uint16) {
	id := allocators.PoolID(pool)
	if id == f.open {
		return
	}
	f.leave()
	if id == 0 {
		return
	}
	begin := trace.Op{Kind: trace.PoolBegin, Pool: id, Stream: trace.AllStreams, Capture: f.p.pools[id-1].Graph != 0}
	if !f.pools.Step(&begin) {
		return // it was released: what comes now is left to the default pool
	}
	f.stats.openings++
	f.emit(-1, begin)
	f.open = id
	if f.uses[id]++; f.uses[id] > 1 { // only the first one counts as a use that lasts
		f.endUse(id)
	}
}

// endUse releases a pool once, unless that is no legal operation now.
func (f *forward) endUse(id allocators.PoolID) bool {
	op := trace.Op{Kind: trace.PoolRelease, Pool: id}
	if !f.pools.Step(&op) {
		return false
	}
	f.emit(-1, op)
	f.uses[id]--
	return true
}

// leave closes the open private pool.
func (f *forward) leave() {
	if f.open == 0 {
		return
	}
	op := trace.Op{Kind: trace.PoolEnd, Pool: f.open}
	f.pools.Step(&op)
	f.emit(-1, op)
	f.open = 0
}

// releasePool releases a pool whose memory is given back next.
func (f *forward) releasePool(id allocators.PoolID) {
	for id != 0 && f.uses[id] > 0 && f.endUse(id) {
	}
}
