package caching

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
func (r *reference) half(size uint64, s device.Stream) half {
	h := half{small: size <= 1*mib}
	for _, o := range r.open {
		if o.Stream == s || o.Stream < 0 {
			h.private = o.Pool
			if !r.set.Rules.Pools.NewestFirst {
				break
			}
		}
	}
	return h
}

// holding: section 18.4.
func (r *reference) holding() bool {
	return slices.ContainsFunc(r.open, func(o allocators.Redirection) bool { return o.Capture || !r.set.Rules.Pools.CapturesOnly })
}

// beginPool: section 18.2.
func (r *reference) beginPool(o allocators.Redirection) {
	r.open = append(r.open, o)
	r.uses[o.Pool]++
}

// endPool: section 18.2.
func (r *reference) endPool(id allocators.PoolID) {
	r.open = slices.DeleteFunc(r.open, func(o allocators.Redirection) bool { return o.Pool == id })
}

// releasePool: section 18.2.
func (r *reference) releasePool(id allocators.PoolID) { r.uses[id]-- }

// resume takes up the frees that were held back: section 14.3.
func (r *reference) resume() {
	for _, b := range r.deferred {
		b.uses = slices.DeleteFunc(b.uses, func(s device.Stream) bool { return slices.Contains(b.captured, s) })
		r.wait(b)
	}
	r.deferred = nil
}

// releaseFreeable: section 15.2, step 2.
func (r *reference) releaseFreeable() {
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
func (r *reference) releasePrivate(id allocators.PoolID) {
	r.releaseHalf(half{id, true})
	r.releaseHalf(half{id, false})
	r.gone[id] = true
	for _, g := range r.segments {
		if g.in.private == id {
			r.gone[id] = false
		}
	}
}

// emptyPool: section 15.2 with a pool as the target. ok is false if it cannot be done now.
func (r *reference) emptyPool(id allocators.PoolID) (ok bool) {
	if r.uses[id] > 0 || r.gone[id] {
		return true
	}
	r.syncs++
	if r.holding() {
		return false
	}
	r.resume()
	for s := range r.waiting {
		var others []refUse
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

// emptyCache: section 15.2. ok is false if it cannot be done now.
func (r *reference) emptyCache() (ok bool) {
	switch {
	case !r.holding():
		r.releaseAll()
	case r.set.Rules.emptiesInCapture:
		r.releaseFreeable()
	case !slices.ContainsFunc(r.open, func(o allocators.Redirection) bool { return !o.Capture }):
		r.syncs++
		return false
	}
	return true
}

// inPrivatePools: section 21, Q.
func (r *reference) inPrivatePools() (bytes uint64) {
	for _, g := range r.segments {
		for _, b := range g.blocks {
			if g.in.private != 0 && b.free() {
				bytes += b.size
			}
		}
	}
	return bytes
}
