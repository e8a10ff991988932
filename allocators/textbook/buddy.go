package textbook

import "math/bits"

// buddy is the binary buddy system (Knowlton, A Fast Storage Allocator, CACM 8(10), 1965; Knuth volume 1, section 2.5): sizes
// are powers of two, a block starts at a multiple of its size, and a free block joins its buddy. Of the free blocks the
// smallest that is large enough is split, at its low end; among equals the lowest address wins.
type buddy struct {
	byOrder [64]tree // by log2 of the size, holes of that size
	at      [64]map[uint64]*hole
	live    tree
	spans   map[uint64]*hole // live blocks, so that top is known
}

// root is log2 of the whole space, far more than any device has: what does not fit on the device is not placed there.
const root = 61

func newBuddy() *buddy {
	b := &buddy{spans: map[uint64]*hole{}}
	for i := range b.byOrder {
		b.byOrder[i].seed = uint32(i)*2 + 1
		b.at[i] = map[uint64]*hole{}
	}
	b.live.seed = 0x9e3779b9
	b.add(root, 0)
	return b
}

func (b *buddy) round(n uint64) uint64 { return max(granule, uint64(1)<<bits.Len64(n-1)) }

func (b *buddy) add(order int, at uint64) { b.at[order][at] = b.byOrder[order].insert(at, 1<<order) }

func (b *buddy) drop(order int, h *hole) {
	delete(b.at[order], h.addr)
	b.byOrder[order].remove(h)
}

func (b *buddy) place(size uint64, extend func(uint64) bool) (uint64, bool) {
	want := bits.Len64(size - 1)
	for order := want; order <= root; order++ {
		h := b.byOrder[order].first(0, 0)
		if h == nil {
			continue
		}
		at := h.addr
		if !extend(at + size) {
			continue // a larger free block may lie lower
		}
		b.drop(order, h)
		for order > want {
			order--
			b.add(order, at+1<<order)
		}
		b.spans[at] = b.live.insert(at, size)
		return at, true
	}
	return 0, false
}

func (b *buddy) release(at, size uint64) {
	b.live.remove(b.spans[at])
	delete(b.spans, at)
	order := bits.Len64(size - 1)
	for order < root {
		h := b.at[order][at^1<<order]
		if h == nil {
			break
		}
		b.drop(order, h)
		at &^= 1 << order
		order++
	}
	b.add(order, at)
}

func (b *buddy) top() uint64 {
	h := b.live.root
	if h == nil {
		return 0
	}
	for h.right != nil {
		h = h.right
	}
	return h.addr + h.size
}

func (b *buddy) free(f func(at, size uint64)) {
	at := uint64(0)
	b.live.visit(func(h *hole) {
		if at < h.addr {
			f(at, h.addr-at)
		}
		at = h.addr + h.size
	})
}
