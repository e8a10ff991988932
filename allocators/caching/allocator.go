package caching

import (
	"errors"
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Allocator is PyTorch's caching allocator for one device. It is used by one goroutine at a time.
type Allocator struct {
	dev      device.Device
	set      Settings
	capacity uint64 // the device's total
	reserved uint64 // bytes obtained from the device and not returned
	hasLimit bool   // the fraction call was made
	fraction float64
	limit    uint64
	void     string // why the promise no longer holds

	small, large pool
	table        addrTable
	segments     []*segment // by address
	spares       spares

	queues      []eventQueue
	queueOf     map[device.Stream]int
	outstanding int // events not yet seen done, and frees held back

	open     []allocators.Redirection // to private pools, in the order in which they were opened
	privates []*privatePool           // by number
	holds    int                      // open ones that hold frees and releases back
	deferred []*block                 // frees that were held back, oldest first

	stats allocators.Stats
	oom   allocators.OOMError
	next  uint64 // see NextCapacity

	touched []*block
	scratch []*block // free blocks of a set, in order
	paged   []*block // expandable blocks to be unmapped
	// restored is the block that RestoreBlock made last.
	restored *block
	// What the device failed to take back: chunks that are not mapped, and events.
	owed       []device.Handle
	owedEvents []device.Event
}

var errTooLarge = fmt.Errorf("a request must be at most 2^60 bytes: %w", device.ErrInvalid)

// New makes an allocator on an empty device.
func New(dev device.Device, set Settings) (*Allocator, error) {
	_, total := dev.Info()
	a := &Allocator{
		dev: dev, set: set, capacity: total, next: math.MaxUint64, queueOf: map[device.Stream]int{},
		small: pool{small: true, page: set.Rules.PageSize(true)}, large: pool{page: set.Rules.PageSize(false)},
	}
	a.table.init()
	a.stats.MaxSplitSize = int64(set.MaxSplitSize) // Off becomes -1, as PyTorch prints it
	if set.HasFraction {
		if err := a.SetFraction(set.Fraction); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Settings returns the settings in force.
func (a *Allocator) Settings() Settings { return a.set }

// Configure changes the settings while blocks are out, as torch.cuda.memory._set_allocator_settings does.
func (a *Allocator) Configure(conf string) error {
	next, _, err := a.set.Apply(conf)
	if err != nil {
		return err
	}
	if next.HasFraction != a.set.HasFraction || next.Fraction != a.set.Fraction {
		return errors.New("x_memory_fraction holds from the start; in mid-run use the operation fraction")
	}
	if next.MaxSplitSize < a.set.MaxSplitSize {
		a.void = "max_split_size_mb was lowered in mid-run"
	}
	a.set = next
	a.holds = 0
	for i := range a.open {
		if next.Rules.Pools.Holds(&a.open[i]) {
			a.holds++
		}
	}
	return nil
}

// SetFraction limits the reserved bytes to a fraction, 0 to 1, of the device's memory. It stays set, even at 1
// (section 19).
func (a *Allocator) SetFraction(f float64) error {
	if !(f >= 0 && f <= 1) {
		return fmt.Errorf("a memory fraction lies between 0 and 1, not %v: %w", f, device.ErrInvalid)
	}
	a.hasLimit, a.fraction = !(a.set.Rules.fullIsUnlimited && f == 1), f
	a.limit = a.limitAt(a.capacity)
	return nil
}

// Stats returns the live counters.
func (a *Allocator) Stats() *allocators.Stats { return &a.stats }

// Alloc serves n bytes for stream s: the ladder of section 9.
func (a *Allocator) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	if n == 0 {
		return allocators.Block{}, nil
	}
	if n > allocators.MaxRequest {
		return allocators.Block{}, errTooLarge
	}
	a.touched = a.touched[:0]
	if a.outstanding > 0 && a.holds == 0 {
		if err := a.processEvents(); err != nil {
			return allocators.Block{}, err
		}
	}
	if len(a.owed)+len(a.owedEvents) > 0 {
		if err := a.releaseOwed(); err != nil {
			return allocators.Block{}, err
		}
	}
	size := a.set.Round(n)
	p := &a.large
	if size <= smallLimit && !a.set.Rules.OnePool {
		p = &a.small
	}
	if len(a.open) > 0 {
		if private := a.route(s); private != nil {
			p = private.half(p.small)
		}
	}
	set := p.at(s)
	b := a.lookup(p, set, size)
	if b == nil {
		var err error
		if b, err = a.purchase(p, set, size); err != nil {
			return allocators.Block{}, err
		}
		if b == nil {
			return allocators.Block{}, a.refuse(n, size, s)
		}
	}
	a.handOut(b, size, n)
	return allocators.Block{Addr: b.addr, Size: b.size}, nil
}

// lookup finds and removes the free block that serves a request, nil if none does (section 10).
func (a *Allocator) lookup(p *pool, set *streamSet, size uint64) *block {
	if a.collects() {
		p.lookups++
	}
	b := set.free.lowerBound(size)
	if b == nil {
		return nil
	}
	if b.expandable() {
		if b = a.settle(set, b); b == nil {
			return nil
		}
	}
	// The oversize rules hold for the chosen block only; a refusal is a miss.
	if limit := a.set.MaxSplitSize; limit != Off {
		if size < limit && b.size >= limit ||
			size >= limit && b.size >= size+a.set.MaxNonSplitRounding {
			return nil
		}
	}
	set.free.remove(b)
	return b
}

// settle chooses among blocks of expandable segments from b on: with the option on, a block that cannot grow is preferred
// to one that can; with the option off, none of them serves (section 10, step 3).
func (a *Allocator) settle(set *streamSet, b *block) *block {
	if !a.set.Expandable {
		for b != nil && b.expandable() {
			b = set.free.next(b)
		}
		return b
	}
	for b.expandable() {
		next := set.free.next(b)
		if next == nil {
			break
		}
		here, there := effective(b), effective(next)
		a.senseTails(b, next, here, there)
		if there >= here {
			break
		}
		b = next
	}
	return b
}

// effective is a block's size with the unmapped space behind it.
func effective(b *block) uint64 {
	if b.next != nil && !b.next.mapped {
		return b.size + b.next.size
	}
	return b.size
}

// purchase gets memory from the device: ladder steps 5 to 8. A nil block without an error means that there is none.
func (a *Allocator) purchase(p *pool, set *streamSet, size uint64) (*block, error) {
	if buy := a.set.Rules.SegmentSize(size); a.set.RefuseAtLimit && a.hasLimit && a.reserved+buy > a.limit {
		a.senseLimit(a.reserved + buy)
		return nil, nil
	}
	if a.collects() {
		if err := a.collectGarbage(); err != nil {
			return nil, err
		}
	}
	if b, err := a.obtain(p, set, size); b != nil || err != nil {
		return b, err
	}
	if a.set.MaxSplitSize != Off {
		released, err := a.releaseOversize(set, size)
		if err != nil {
			return nil, err
		}
		if released {
			if b, err := a.obtain(p, set, size); b != nil || err != nil {
				return b, err
			}
		}
	}
	if a.holds > 0 {
		return nil, nil // no release while frees are held back, and nothing that waits
	}
	if err := a.releaseAll(); err != nil {
		return nil, err
	}
	a.stats.NumAllocRetries++
	if b, err := a.obtain(p, set, size); b != nil || err != nil {
		return b, err
	}
	if a.set.LookupAfterFlush {
		return a.lookup(p, set, size), nil
	}
	return nil, nil
}

// obtain makes one attempt to buy (section 11).
func (a *Allocator) obtain(p *pool, set *streamSet, size uint64) (*block, error) {
	buy := a.set.Rules.SegmentSize(size)
	if a.hasLimit && a.reserved+buy > a.limit {
		a.senseLimit(a.reserved + buy)
		return nil, nil
	}
	if a.set.Expandable {
		return a.grow(p, set, size)
	}
	addr, err := a.dev.Malloc(buy)
	if err != nil {
		if errors.Is(err, device.ErrOutOfMemory) {
			a.senseDevice(buy)
			return nil, nil
		}
		return nil, err
	}
	b := a.newSegment(p, set, addr, buy)
	b.mapped = true
	a.reserved += buy
	a.stats.Segment.Add(p.small, 1)
	a.stats.ReservedBytes.Add(p.small, buy)
	if buy >= a.set.MaxSplitSize {
		a.stats.OversizeSegments.Add(1)
	}
	a.stats.NumDeviceAlloc++
	return b, nil
}

// newSegment enters a segment that is one block.
func (a *Allocator) newSegment(p *pool, set *streamSet, addr device.Addr, size uint64) *block {
	g := a.spares.segment()
	b := a.spares.block()
	g.addr, g.size, g.pool, g.stream, g.first = addr, size, p, set, b
	if p.private != nil {
		p.private.segments++
	}
	b.addr, b.size, b.seg = addr, size, g
	i := a.segmentIndex(addr)
	a.segments = append(a.segments, nil)
	copy(a.segments[i+1:], a.segments[i:])
	a.segments[i] = g
	return b
}

// dropSegment forgets a segment that is one block, and the block.
func (a *Allocator) dropSegment(g *segment) {
	if p := g.pool.private; p != nil {
		p.segments--
	}
	i := a.segmentIndex(g.addr)
	a.segments = append(a.segments[:i], a.segments[i+1:]...)
	a.spares.dropBlock(g.first)
	a.spares.dropSegment(g)
}

// segmentIndex returns the index of the first segment at addr or behind.
func (a *Allocator) segmentIndex(addr device.Addr) int {
	lo, hi := 0, len(a.segments)
	for lo < hi {
		if mid := (lo + hi) / 2; a.segments[mid].addr < addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// handOut splits the block if the split rule says so and marks it live (sections 12 and 13). The request gets the low end.
func (a *Allocator) handOut(b *block, size, n uint64) {
	small := b.seg.pool.small
	rest := b.size - size
	wasSplit := b.split()
	var cut bool
	if small || a.set.Expandable || a.set.Rules.OnePool {
		cut = rest >= minBlock
	} else {
		cut = size < a.set.MaxSplitSize && rest > smallLimit
	}
	if cut {
		r := a.spares.block()
		r.addr, r.size, r.seg, r.mapped = b.addr+device.Addr(size), rest, b.seg, true
		r.prev, r.next = b, b.next
		if r.next != nil {
			r.next.prev = r
		}
		b.next = r
		b.size = size
		a.putFree(r)
		if !b.expandable() {
			if wasSplit {
				a.stats.InactiveSplitBytes.Sub(small, size)
			} else {
				a.stats.InactiveSplitBytes.Add(small, rest)
				a.stats.InactiveSplit.Add(small, 1)
			}
		}
	} else if wasSplit && !b.expandable() {
		a.stats.InactiveSplitBytes.Sub(small, b.size)
		a.stats.InactiveSplit.Sub(small, 1)
	}
	b.allocated = true
	b.requested = n
	a.table.insert(b)
	a.touched = append(a.touched, b)
	a.stats.Allocation.Add(small, 1)
	a.stats.AllocatedBytes.Add(small, b.size)
	a.stats.Active.Add(small, 1)
	a.stats.ActiveBytes.Add(small, b.size)
	a.stats.RequestedBytes.Add(small, n)
	if b.size >= a.set.MaxSplitSize {
		a.stats.OversizeAllocations.Add(1)
	}
}

// putFree enters a block in the free set; its age starts anew.
func (a *Allocator) putFree(b *block) {
	b.born = b.seg.pool.lookups
	b.seg.stream.free.insert(b)
}

// refuse makes the error of section 21. The state stays as the ladder left it.
func (a *Allocator) refuse(n, size uint64, s device.Stream) error {
	free, total := a.dev.Info()
	a.stats.NumOOMs++
	a.oom = allocators.OOMError{
		Request: n, Rounded: size, SegmentSize: a.set.Rules.SegmentSize(size), Total: total, DeviceFree: free,
		HasLimit: a.hasLimit, Limit: a.limit, Allocated: a.stats.AllocatedBytes.All.Current, Reserved: a.reserved, Stream: s, Private: a.inPrivatePools(),
	}
	return &a.oom
}

// EmptyCache waits for all outstanding uses and returns what overlaps no live block (section 15.4).
func (a *Allocator) EmptyCache() error {
	a.touched = a.touched[:0]
	if a.holds > 0 {
		return a.flushHeld()
	}
	return a.releaseAll()
}
