package shrink_test

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/properties"
)

// planted is the caching allocator with a bug around it. A bug is a few lines of misbehaviour, so the fewest operations that show
// it can be told by thinking; testdata/planted.txt has them.
type planted struct {
	*caching.Allocator
	bug *bug

	live    []allocators.Block // in order of allocation
	streams map[device.Stream]bool
	frees   int
	empties int
	moved   map[device.Addr]device.Addr // address that was handed out instead: the real one
	apart   []allocators.Neighbourhood  // what Touched says instead
}

// bug has the hooks that a planted fault needs; a hook that is nil does nothing.
type bug struct {
	name string
	// alloc may change a block that was handed out.
	alloc func(p *planted, n uint64, s device.Stream, b allocators.Block) (allocators.Block, error)
	// noRecord makes Record do nothing, noEmpty makes EmptyCache do nothing; record is called before Record.
	noRecord, noEmpty bool
	record            func(p *planted, addr device.Addr) error
	// free is called before a block goes back; index is its place among the live ones.
	free func(p *planted, index int)
	// loosePrevious makes free blocks look as if they were never joined with the one before.
	loosePrevious bool
	// sees is the property that must see it. Beside it only overlaps are looked for, behind which the harness cannot go on, so
	// what is found does not change with the catalogue.
	sees executor.Property
}

func (p *planted) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	p.apart = nil
	b, err := p.Allocator.Alloc(n, s)
	if n > 0 {
		p.streams[s] = true
	}
	if err != nil || n == 0 {
		return b, err
	}
	real := b.Addr
	if p.bug.alloc != nil {
		if b, err = p.bug.alloc(p, n, s, b); err != nil {
			return b, err
		}
	}
	if b.Addr != real {
		p.moved[b.Addr] = real
	}
	p.live = append(p.live, b)
	return b, nil
}

func (p *planted) Free(addr device.Addr) error {
	p.apart = nil
	for i, b := range p.live {
		if b.Addr == addr {
			if p.bug.free != nil {
				p.bug.free(p, i)
			}
			p.live = slices.Delete(p.live, i, i+1)
			p.frees++
			break
		}
	}
	if real, ok := p.moved[addr]; ok {
		delete(p.moved, addr)
		addr = real
	}
	err := p.Allocator.Free(addr)
	if p.bug.loosePrevious {
		p.split(addr)
	}
	return err
}

// split lets the block that was just freed at addr look as if it had not been joined with free memory before it.
func (p *planted) split(addr device.Addr) {
	for _, n := range p.Allocator.Touched(nil) {
		if b := n.Block; b.State == allocators.Free && b.Addr < addr {
			first := b
			first.Size = uint64(addr - b.Addr)
			n.Block.Addr, n.Block.Size = addr, b.Size-first.Size
			n.Prev, n.HasPrev = first, true
			p.apart = append(p.apart, n)
		}
	}
}

func (p *planted) Touched(into []allocators.Neighbourhood) []allocators.Neighbourhood {
	if p.apart != nil {
		return append(into, p.apart...)
	}
	return p.Allocator.Touched(into)
}

func (p *planted) Record(addr device.Addr, s device.Stream) error {
	if p.bug.noRecord {
		return nil
	}
	if real, ok := p.moved[addr]; ok {
		addr = real
	}
	if p.bug.record != nil {
		if err := p.bug.record(p, addr); err != nil {
			return err
		}
	}
	return p.Allocator.Record(addr, s)
}

func (p *planted) EmptyCache() error {
	p.empties++
	if p.bug.noEmpty {
		return nil
	}
	return p.Allocator.EmptyCache()
}

// overlap hands out the oldest live block that is large enough instead of the new one.
func overlap(p *planted, n uint64, b allocators.Block) (allocators.Block, error) {
	for _, old := range p.live {
		if old.Size >= n {
			return old, nil
		}
	}
	return b, nil
}

func unaligned(b allocators.Block) (allocators.Block, error) {
	b.Addr++
	return b, nil
}

var bugs = []bug{
	{name: "overlap-after-1-free", sees: properties.NoOverlap, alloc: overlapAfter(1)},
	{name: "overlap-after-3-frees", sees: properties.NoOverlap, alloc: overlapAfter(3)},
	{name: "overlap-after-20-frees", sees: properties.NoOverlap, alloc: overlapAfter(20)},
	{name: "coalescing-left", sees: properties.Coalescing, loosePrevious: true},
	{name: "record-ignored", sees: properties.Accounting, noRecord: true},
	{name: "record-ignored-seen-late", sees: properties.ReuseBeforeEvent, noRecord: true},
	{name: "wait-for-a-stranger", sees: properties.Accounting, record: func(p *planted, addr device.Addr) error { return p.Allocator.Record(addr, 99) }},
	{name: "unaligned-own-segment", sees: properties.Bounds, alloc: func(p *planted, n uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if n >= 10<<20 && len(p.live) >= 2 {
			return unaligned(b)
		}
		return b, nil
	}},
	{name: "cache-kept", sees: properties.EverythingReturned, noEmpty: true},
	{name: "third-stream", sees: properties.Bounds, alloc: func(p *planted, _ uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if len(p.streams) >= 3 {
			return unaligned(b)
		}
		return b, nil
	}},
	{name: "refused-with-a-hit", sees: properties.Bounds, alloc: func(p *planted, n uint64, s device.Stream, b allocators.Block) (allocators.Block, error) {
		if p.frees > 0 && p.Stats().NumDeviceAlloc == 1 {
			if err := p.Allocator.Free(b.Addr); err != nil {
				return b, err
			}
			return allocators.Block{}, &allocators.OOMError{Request: n}
		}
		return b, nil
	}},
	{name: "after-a-flush", sees: properties.NoOverlap, alloc: func(p *planted, n uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if p.Stats().NumAllocRetries > 0 {
			return overlap(p, n, b)
		}
		return b, nil
	}},
	{name: "with-a-split-limit", sees: properties.Bounds, alloc: func(p *planted, n uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if p.Settings().MaxSplitSize != caching.Off && p.frees > 0 {
			return unaligned(b)
		}
		return b, nil
	}},
	{name: "panic-out-of-order", sees: properties.Bounds, free: outOfOrder},
	{name: "even-flushes", sees: properties.Bounds, alloc: func(p *planted, _ uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if len(p.live) >= 2 && p.empties%2 == 0 && p.frees%2 == 0 {
			return unaligned(b)
		}
		return b, nil
	}},
}

// outOfOrder panics when the last of three live blocks is freed.
func outOfOrder(p *planted, index int) { _ = p.live[index+len(p.live)/3] }

func overlapAfter(frees int) func(*planted, uint64, device.Stream, allocators.Block) (allocators.Block, error) {
	return func(p *planted, n uint64, _ device.Stream, b allocators.Block) (allocators.Block, error) {
		if p.frees >= frees {
			return overlap(p, n, b)
		}
		return b, nil
	}
}
