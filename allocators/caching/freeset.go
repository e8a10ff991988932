package caching

import "math/bits"

// freeSet holds the free blocks of one pool and stream, ordered by size and among equals by address (section 4).
//
// PyTorch uses a red-black tree. Here sizes are cut into bins, 16 to a power of two, so that a bin spans sizes that differ
// by less than 1/16; a bitmap of the bins in use leads to the next one at once. Within a bin the blocks are a treap. Nearly
// all bins hold one or two blocks, so most operations touch no tree; the treap keeps the rest logarithmic.
type freeSet struct {
	words [binWords]uint64
	bins  [binWords * 64]*block
	count int
}

const (
	binsPerDoubling = 16
	// Sizes are multiples of 512 up to 2^60: 16 exact bins and 48 doublings of 16.
	binWords = 13
)

// binOf is monotone in the size, a positive multiple of 512.
func binOf(size uint64) int {
	g := size >> 9
	if g < binsPerDoubling {
		return int(g)
	}
	e := bits.Len64(g) - 5 // g>>e lies in [16, 32)
	return e*binsPerDoubling + int(g>>uint(e))
}

// before is the order of the set.
func (b *block) before(c *block) bool {
	return b.size < c.size || b.size == c.size && b.addr < c.addr
}

func (f *freeSet) insert(b *block) {
	b.inSet = true
	f.count++
	i := binOf(b.size)
	p := &f.bins[i]
	if *p == nil {
		*p = b
		f.words[i>>6] |= 1 << (i & 63)
		return
	}
	for *p != nil && (*p).priority >= b.priority {
		if b.before(*p) {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	// What is below goes to b's two sides.
	t := *p
	*p = b
	l, r := &b.left, &b.right
	for t != nil {
		if t.before(b) {
			*l = t
			l = &t.right
			t = t.right
		} else {
			*r = t
			r = &t.left
			t = t.left
		}
	}
	*l, *r = nil, nil
}

func (f *freeSet) remove(b *block) {
	b.inSet = false
	f.count--
	i := binOf(b.size)
	p := &f.bins[i]
	for *p != b {
		if b.before(*p) {
			p = &(*p).left
		} else {
			p = &(*p).right
		}
	}
	l, r := b.left, b.right
	for l != nil && r != nil {
		if l.priority > r.priority {
			*p = l
			p = &l.right
			l = l.right
		} else {
			*p = r
			p = &r.left
			r = r.left
		}
	}
	if l == nil {
		l = r
	}
	*p = l
	b.left, b.right = nil, nil
	if f.bins[i] == nil {
		f.words[i>>6] &^= 1 << (i & 63)
	}
}

// lowerBound returns the first block of at least this size, nil if there is none.
func (f *freeSet) lowerBound(size uint64) *block {
	if f.count == 0 || size > 1<<60 {
		return nil
	}
	i := binOf(size)
	var best *block
	for t := f.bins[i]; t != nil; {
		if t.size >= size {
			best = t
			t = t.left
		} else {
			t = t.right
		}
	}
	if best != nil {
		return best
	}
	return f.firstFrom(i + 1)
}

// firstFrom returns the first block in bin i or later; i is at most one more than the bin of 2^60, since no device is larger.
func (f *freeSet) firstFrom(i int) *block {
	w := i >> 6
	word := f.words[w] >> (i & 63) << (i & 63)
	for word == 0 {
		if w++; w == binWords {
			return nil
		}
		word = f.words[w]
	}
	t := f.bins[w<<6+bits.TrailingZeros64(word)]
	for t.left != nil {
		t = t.left
	}
	return t
}

// lastUpTo returns the last block in bin i or earlier.
func (f *freeSet) lastUpTo(i int) *block {
	if i < 0 {
		return nil
	}
	w := i >> 6
	word := f.words[w] << (63 - i&63) >> (63 - i&63)
	for word == 0 {
		if w--; w < 0 {
			return nil
		}
		word = f.words[w]
	}
	t := f.bins[w<<6+63-bits.LeadingZeros64(word)]
	for t.right != nil {
		t = t.right
	}
	return t
}

// first returns the set's first block.
func (f *freeSet) first() *block {
	if f.count == 0 {
		return nil
	}
	return f.firstFrom(0)
}

// next returns the block behind b, which is in the set.
func (f *freeSet) next(b *block) *block {
	i := binOf(b.size)
	var best *block
	for t := f.bins[i]; t != nil; {
		if b.before(t) {
			best = t
			t = t.left
		} else {
			t = t.right
		}
	}
	if best != nil {
		return best
	}
	return f.firstFrom(i + 1)
}

// lastBelow returns the last block that is smaller than size, nil if there is none.
func (f *freeSet) lastBelow(size uint64) *block {
	if f.count == 0 {
		return nil
	}
	i := binOf(min(size, 1<<60))
	var best *block
	for t := f.bins[i]; t != nil; {
		if t.size < size {
			best = t
			t = t.right
		} else {
			t = t.left
		}
	}
	if best != nil {
		return best
	}
	return f.lastUpTo(i - 1)
}

// previous returns the block before b, which is in the set.
func (f *freeSet) previous(b *block) *block {
	i := binOf(b.size)
	var best *block
	for t := f.bins[i]; t != nil; {
		if t.before(b) {
			best = t
			t = t.right
		} else {
			t = t.left
		}
	}
	if best != nil {
		return best
	}
	return f.lastUpTo(i - 1)
}

// appendFrom appends, in order, all blocks of at least size bytes, and perhaps some that are a little smaller.
func (f *freeSet) appendFrom(list []*block, size uint64) []*block {
	first := binOf(size)
	for w := first >> 6; w < binWords; w++ {
		word := f.words[w]
		if w == first>>6 {
			word = word >> (first & 63) << (first & 63)
		}
		for ; word != 0; word &= word - 1 {
			t := f.bins[w<<6+bits.TrailingZeros64(word)]
			if t.left == nil && t.right == nil {
				list = append(list, t)
			} else {
				list = t.appendTo(list)
			}
		}
	}
	return list
}

func (b *block) appendTo(list []*block) []*block {
	if b == nil {
		return list
	}
	return b.right.appendTo(append(b.left.appendTo(list), b))
}
