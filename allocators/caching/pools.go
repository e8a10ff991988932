package caching

import (
	"fmt"
	"sort"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// privatePool is a pool that only the requests sent to it get memory from (section 18).
type privatePool struct {
	id           allocators.PoolID
	uses         int // begins less releases; at 0 its idle memory may be given back
	segments     int
	small, large pool
}

// half returns the small or the large pool of a private one.
func (p *privatePool) half(small bool) *pool {
	if small {
		return &p.small
	}
	return &p.large
}

// errCapturing: what must not be done while a CUDA graph is captured; PyTorch stops with an internal assertion.
var errCapturing = fmt.Errorf("a pool is open that frees wait for, and PyTorch %w", allocators.ErrUnsupported)

// private returns a pool by its number, nil if there is none.
func (a *Allocator) private(id allocators.PoolID) *privatePool {
	i := a.privateIndex(id)
	if i < len(a.privates) && a.privates[i].id == id {
		return a.privates[i]
	}
	return nil
}

func (a *Allocator) privateIndex(id allocators.PoolID) int {
	return sort.Search(len(a.privates), func(i int) bool { return a.privates[i].id >= id })
}

// makePrivate returns a pool by its number, which is made if there is none.
func (a *Allocator) makePrivate(id allocators.PoolID) *privatePool {
	if p := a.private(id); p != nil {
		return p
	}
	p := &privatePool{id: id}
	p.small = pool{small: true, page: a.small.page, private: p}
	p.large = pool{page: a.large.page, private: p}
	i := a.privateIndex(id)
	a.privates = append(a.privates, nil)
	copy(a.privates[i+1:], a.privates[i:])
	a.privates[i] = p
	return p
}

// BeginPool implements allocators.PrivatePooler.
func (a *Allocator) BeginPool(r allocators.Redirection) error {
	for i := range a.open {
		if a.open[i].Pool == r.Pool {
			return fmt.Errorf("pool %d is open already: %w", r.Pool, device.ErrInvalid)
		}
	}
	if p := a.private(r.Pool); r.Pool == 0 || p != nil && p.uses == 0 {
		return fmt.Errorf("pool %d is the default pool or was released: %w", r.Pool, device.ErrInvalid)
	}
	a.makePrivate(r.Pool).uses++
	a.open = append(a.open, r)
	if a.set.Rules.Pools.Holds(&r) {
		a.holds++
	}
	return nil
}

// EndPool implements allocators.PrivatePooler.
func (a *Allocator) EndPool(id allocators.PoolID) error {
	for i := range a.open {
		if a.open[i].Pool != id {
			continue
		}
		if a.set.Rules.Pools.Holds(&a.open[i]) {
			a.holds--
		}
		a.open = append(a.open[:i], a.open[i+1:]...)
		return nil
	}
	return fmt.Errorf("pool %d is not open: %w", id, device.ErrInvalid)
}

// ReleasePool implements allocators.PrivatePooler.
func (a *Allocator) ReleasePool(id allocators.PoolID) error {
	p := a.private(id)
	if p == nil || p.uses == 0 {
		return fmt.Errorf("pool %d is not in use: %w", id, device.ErrInvalid)
	}
	p.uses--
	return nil
}

// EmptyPool implements allocators.PrivatePooler: a pool in use keeps all it has (section 15.2, with a pool as the target).
func (a *Allocator) EmptyPool(id allocators.PoolID) error {
	a.touched = a.touched[:0]
	p := a.private(id)
	if p == nil || p.uses > 0 {
		return nil
	}
	a.stats.NumSyncAllStreams++
	if a.holds > 0 {
		return errCapturing
	}
	if err := a.insertDeferred(); err != nil {
		return err
	}
	if err := a.waitForPool(p); err != nil {
		return err
	}
	if err := a.releaseOwed(); err != nil {
		return err
	}
	return a.releasePrivate(p)
}

// route returns the pool that requests of a stream go to, nil for the default one (section 7).
func (a *Allocator) route(s device.Stream) *privatePool {
	if id := a.set.Rules.Pools.PoolOf(a.open, s); id != 0 {
		return a.private(id)
	}
	return nil
}

// flushHeld is empty_cache while a pool is open that holds releases back. PyTorch 2.6 asserts in a capture and, since Python's
// use_mem_pool makes the pool the target, does nothing in a pool of the user's; later versions leave out the default pools
// (https://github.com/pytorch/pytorch/pull/158152).
func (a *Allocator) flushHeld() error {
	if a.set.Rules.emptiesInCapture {
		return a.releaseFreeable()
	}
	for i := range a.open {
		if !a.open[i].Capture {
			return nil
		}
	}
	a.stats.NumSyncAllStreams++
	return errCapturing
}

// releaseFreeable gives back what can be of the pools that are not in use any more, in order of their numbers: PyTorch's order is
// that of a hash table.
func (a *Allocator) releaseFreeable() error {
	for i := 0; i < len(a.privates); i++ {
		p := a.privates[i]
		if p.uses > 0 {
			continue
		}
		if err := a.releasePrivate(p); err != nil {
			return err
		}
		if p.segments == 0 {
			i--
		}
	}
	return nil
}

// releasePrivate gives back what can be of a pool that is not in use; without a segment left the pool is forgotten.
func (a *Allocator) releasePrivate(p *privatePool) error {
	if err := a.releasePool(&p.small); err != nil {
		return err
	}
	if err := a.releasePool(&p.large); err != nil {
		return err
	}
	if p.segments == 0 {
		i := a.privateIndex(p.id)
		a.privates = append(a.privates[:i], a.privates[i+1:]...)
	}
	return nil
}

// A use that was recorded while frees were held back is kept as its complement: it counts as part of the graph, and is dropped
// when the free is taken up again.
func captured(u device.Stream) bool { return u < 0 }

// home is the stream of a recorded use.
func home(u device.Stream) device.Stream {
	if captured(u) {
		return ^u
	}
	return u
}

// insertDeferred takes up the frees that were held back: what was recorded meanwhile is taken for part of the graph, whose work is
// done, and forgotten; on each other stream an event is put now (section 14.3). PyTorch up to 2.12 does so behind a user's
// pool too, where the work is real (https://github.com/pytorch/pytorch/issues/175015).
func (a *Allocator) insertDeferred() error {
	for len(a.deferred) > 0 {
		b := a.deferred[0]
		kept := b.uses[:0]
		for _, u := range b.uses {
			if !captured(u) {
				kept = append(kept, u)
			}
		}
		b.uses = kept
		if err := a.recordUses(b); err != nil {
			return err
		}
		b.uses = b.uses[:0]
		a.deferred = append(a.deferred[:0], a.deferred[1:]...)
		a.outstanding--
		if b.events == 0 {
			a.completeFree(b)
		}
	}
	return nil
}

// waitForPool waits for the outstanding events of a pool's blocks.
func (a *Allocator) waitForPool(p *privatePool) error {
	for i := range a.queues {
		q := &a.queues[i]
		for k := q.head; k < len(q.items); {
			if q.items[k].block.seg.pool.private != p {
				k++
				continue
			}
			if err := a.dev.Wait(q.items[k].event); err != nil {
				return err
			}
			u := q.items[k]
			if err := a.dev.Destroy(u.event); err != nil {
				return err
			}
			copy(q.items[k:], q.items[k+1:])
			q.items[len(q.items)-1] = pendingUse{}
			q.items = q.items[:len(q.items)-1]
			a.useDone(u.block)
		}
	}
	return nil
}

// inPrivatePools is the free bytes of all private pools, which PyTorch's message calls allocated in them (section 21).
func (a *Allocator) inPrivatePools() (bytes uint64) {
	for _, p := range a.privates {
		for _, half := range [...]*pool{&p.small, &p.large} {
			for _, set := range half.streams {
				for b := set.free.first(); b != nil; b = set.free.next(b) {
					bytes += b.size
				}
			}
		}
	}
	return bytes
}
