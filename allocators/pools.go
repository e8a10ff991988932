package allocators

import "github.com/shatter-gpu/shatter/allocators/device"

// PoolID names a private pool. 0 is the default pool, which is always there.
type PoolID uint32

// AnyStream as a redirection's stream admits requests of every stream.
const AnyStream device.Stream = -1

// Redirection sends requests to a private pool from its begin to its end.
type Redirection struct {
	Pool PoolID
	// Stream is whose requests it admits, AnyStream for all. PyTorch asks a predicate: a graph's admits the streams that capture, a
	// user's pool every stream of the thread.
	Stream device.Stream
	// Capture says that a CUDA graph is being captured: work is recorded, not executed. Else it is a pool of the user's
	// (torch.cuda.use_mem_pool).
	Capture bool
}

// Admits tells whether a request on a stream goes to the pool.
func (r *Redirection) Admits(s device.Stream) bool { return r.Stream == AnyStream || r.Stream == s }

// PrivatePooler is an allocator with private pools (PyTorch's beginAllocateToPool, endAllocateToPool, releasePool; specification,
// section 18). A pool is made by the first begin, which counts as a use of it like each further one; each release ends one.
// While it is used nobody else gets its memory, and it is not given back. The caller keeps the order: no begin of an open or
// released pool, no end of one that is not open, no release without a use.
type PrivatePooler interface {
	// BeginPool opens a redirection.
	BeginPool(r Redirection) error
	// EndPool closes it. Blocks stay where they are.
	EndPool(p PoolID) error
	// ReleasePool ends a use; after the last one the pool's idle memory may be given back.
	ReleasePool(p PoolID) error
	// EmptyPool gives back what idle memory of this pool may be, as when the user's pool object is destroyed.
	EmptyPool(p PoolID) error
}

// PoolRules say what an allocator with private pools does while a redirection is open; they are what the harness needs to know
// which pool a request goes to, and when pending frees can complete.
type PoolRules struct {
	// NewestFirst: of several redirections that admit a request the one opened last takes it, not the first
	// (https://github.com/pytorch/pytorch/pull/168382).
	NewestFirst bool
	// CapturesOnly: only captures hold back frees with uses on other streams and the release of the cache, not pools of the user
	// (https://github.com/pytorch/pytorch/pull/181830).
	CapturesOnly bool
}

// Holds tells whether an open redirection holds frees and releases back.
func (r *PoolRules) Holds(d *Redirection) bool { return d.Capture || !r.CapturesOnly }

// PoolOf returns the pool that a request on a stream goes to, 0 for the default one; open are the redirections in the order in
// which they were opened.
func (r *PoolRules) PoolOf(open []Redirection, s device.Stream) PoolID {
	for i := range open {
		d := &open[i]
		if r.NewestFirst {
			d = &open[len(open)-1-i]
		}
		if d.Admits(s) {
			return d.Pool
		}
	}
	return 0
}
