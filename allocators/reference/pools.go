package reference

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// ---- private pools: section 18

// half is the small or the large part of a pool; private is 0 for the default pool.
type half struct {
	private allocators.PoolID
	small   bool
}

// half: section 7.
func (r *Allocator) half(size uint64, s device.Stream) half {
	h := half{small: size <= 1*mib}
	for _, o := range r.open {
		if o.Stream == s || o.Stream < 0 {
			h.private = o.Pool
			if !r.Set.Pools.NewestFirst {
				break
			}
		}
	}
	return h
}

// Holding tells whether frees of blocks that other streams use are held back: section 18.4.
func (r *Allocator) Holding() bool {
	return slices.ContainsFunc(r.open, func(o allocators.Redirection) bool { return o.Capture || !r.Set.Pools.CapturesOnly })
}

// BeginPool: section 18.2.
func (r *Allocator) BeginPool(o allocators.Redirection) {
	r.open = append(r.open, o)
	r.uses[o.Pool]++
}

// EndPool: section 18.2.
func (r *Allocator) EndPool(id allocators.PoolID) {
	r.open = slices.DeleteFunc(r.open, func(o allocators.Redirection) bool { return o.Pool == id })
}

// ReleasePool: section 18.2.
func (r *Allocator) ReleasePool(id allocators.PoolID) { r.uses[id]-- }

// resume takes up the frees that were held back: section 14.3.
func (r *Allocator) resume() {
	for _, b := range r.deferred {
		b.uses = slices.DeleteFunc(b.uses, func(s device.Stream) bool { return slices.Contains(b.captured, s) })
		r.wait(b)
	}
	r.deferred = nil
}

// releaseFreeable: section 15.2, step 2.
func (r *Allocator) releaseFreeable() {
	var ids []allocators.PoolID
	for id, uses := range r.uses {
		if uses == 0 && !r.gone[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		r.releasePrivate(id)
	}
}

// releasePrivate: a pool that is left without a segment is forgotten.
func (r *Allocator) releasePrivate(id allocators.PoolID) {
	r.releaseHalf(half{id, true})
	r.releaseHalf(half{id, false})
	r.gone[id] = true
	for _, g := range r.segments {
		if g.in.private == id {
			r.gone[id] = false
		}
	}
}

// EmptyPool: section 15.2 with a pool as the target. ok is false if it cannot be done now.
func (r *Allocator) EmptyPool(id allocators.PoolID) (ok bool) {
	if r.uses[id] > 0 || r.gone[id] {
		return true
	}
	r.Stats.NumSyncAllStreams++
	if r.Holding() {
		return false
	}
	r.resume()
	for _, s := range r.used {
		var others []use
		for _, u := range r.waiting[s] {
			if u.block.seg.in.private != id {
				others = append(others, u)
				continue
			}
			r.done[s] = max(r.done[s], u.number)
			u.block.events--
			r.completeIfIdle(u.block)
		}
		r.waiting[s] = others
	}
	r.releasePrivate(id)
	return true
}

// EmptyCache: section 15.2. ok is false if it cannot be done now.
func (r *Allocator) EmptyCache() (ok bool) {
	switch {
	case !r.Holding():
		r.flush()
	case r.Set.EmptiesInCapture:
		r.releaseFreeable()
	case !slices.ContainsFunc(r.open, func(o allocators.Redirection) bool { return !o.Capture }):
		r.Stats.NumSyncAllStreams++
		return false
	}
	return true
}
