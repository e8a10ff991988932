package caching

import (
	"errors"
	"sync"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Locked is an Allocator for several goroutines at once, with the scope of PyTorch's lock (section 22): one lock around each
// public operation, so that operations are serial and their order in the lock is the order of the history. With
// ReleaseLockOnMalloc the lock is dropped around each Malloc of the device, as release_lock_on_cudamalloc:True does: others
// may then change the state between the choice to buy and the purchase, and the promise holds only if none of them takes
// memory meanwhile (contracts 3.1). The setting of that name in a settings string is read and has no effect here: an Allocator
// alone has no lock to drop, and who makes a Locked says it there.
//
// An Allocator by itself has no lock and pays for none.
type Locked struct {
	mu    sync.Mutex
	alloc *Allocator
	// observe is called inside the lock, at the end of each operation.
	observe func(Call)
}

// CallKind is what an operation on a Locked was.
type CallKind uint8

// The operations that an observer is told of.
const (
	CallAlloc CallKind = iota
	CallFree
	CallRecord
	CallEmptyCache
)

// Call is an operation on a Locked, in the order of the lock. Addr is what Alloc returned, or what it was called with.
type Call struct {
	Kind   CallKind
	Bytes  uint64 // of an Alloc: asked for
	Size   uint64 // of an Alloc: set aside
	Stream device.Stream
	Addr   device.Addr
	Err    error
}

// LockedOptions say how a Locked locks.
type LockedOptions struct {
	ReleaseLockOnMalloc bool
	// Observe, if not nil, is called inside the lock, so that its calls are the history; it must not call the allocator.
	Observe func(Call)
}

// NewLocked makes an allocator for several goroutines on an empty device, which must be safe for them too if the lock is
// dropped around Malloc.
func NewLocked(dev device.Device, set Settings, o LockedOptions) (*Locked, error) {
	l := &Locked{observe: o.Observe}
	if o.ReleaseLockOnMalloc {
		dev = unlocking{dev, &l.mu}
	}
	var err error
	l.alloc, err = New(dev, set)
	return l, err
}

// unlocking drops a lock that is held around Malloc.
type unlocking struct {
	device.Device
	mu *sync.Mutex
}

func (u unlocking) Malloc(size uint64) (device.Addr, error) {
	u.mu.Unlock()
	defer u.mu.Lock()
	return u.Device.Malloc(size)
}

func (l *Locked) note(c Call) {
	if l.observe != nil {
		l.observe(c)
	}
}

// Alloc implements allocators.Allocator. An *allocators.OOMError is the caller's own.
func (l *Locked) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, err := l.alloc.Alloc(n, s)
	var oom *allocators.OOMError
	if errors.As(err, &oom) {
		mine := *oom // the allocator uses its own again
		err = &mine
	}
	l.note(Call{Kind: CallAlloc, Bytes: n, Size: b.Size, Stream: s, Addr: b.Addr, Err: err})
	return b, err
}

// Free implements allocators.Allocator.
func (l *Locked) Free(addr device.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.alloc.Free(addr)
	l.note(Call{Kind: CallFree, Addr: addr, Err: err})
	return err
}

// Record implements allocators.StreamRecorder.
func (l *Locked) Record(addr device.Addr, s device.Stream) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.alloc.Record(addr, s)
	l.note(Call{Kind: CallRecord, Addr: addr, Stream: s, Err: err})
	return err
}

// EmptyCache implements allocators.CacheEmptier.
func (l *Locked) EmptyCache() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.alloc.EmptyCache()
	l.note(Call{Kind: CallEmptyCache, Err: err})
	return err
}

// Stats returns the counters as they are now.
func (l *Locked) Stats() allocators.Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.alloc.stats
}

// Snapshot implements allocators.Snapshotter.
func (l *Locked) Snapshot(into *allocators.Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.alloc.Snapshot(into)
}
