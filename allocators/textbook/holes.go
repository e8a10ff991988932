package textbook

// placer decides where in the arena a block lies. Offsets and sizes are bytes, multiples of the granule.
type placer interface {
	// place chooses and takes a place for size bytes. extend makes the arena reach up to an offset, false if the device has not
	// the memory; then nothing is taken.
	place(size uint64, extend func(end uint64) bool) (at uint64, ok bool)
	// round is the size that is set aside for n > 0 bytes.
	round(n uint64) uint64
	// release gives a place back, with its rounded size.
	release(at, size uint64)
	// top is the offset behind which nothing is placed: the open end.
	top() uint64
	// free visits the free ranges below top, in address order, neighbours joined.
	free(visit func(at, size uint64))
}

// Policy is a rule for choosing among holes.
type Policy uint8

// The policies of Knuth, The Art of Computer Programming, volume 1, section 2.5. Among equals the lowest address wins.
const (
	First Policy = iota // the lowest hole that is large enough
	Best                // the smallest such hole
	Worst               // the largest hole
	Next                // the first such hole behind the last block placed, then from the start
)

// list keeps holes between blocks and joins neighbours.
type list struct {
	policy Policy
	holes  tree
	starts map[uint64]*hole // by first byte
	ends   map[uint64]*hole // by the byte behind
	end    uint64           // where the open end begins
	rover  uint64           // behind the last block placed (Next)
}

func newList(p Policy) *list {
	l := &list{policy: p, starts: map[uint64]*hole{}, ends: map[uint64]*hole{}}
	l.holes.seed, l.holes.bySize = 0x9e3779b9, p == Best
	return l
}

func (l *list) round(n uint64) uint64 { return (n + granule - 1) &^ (granule - 1) }

func (l *list) top() uint64 { return l.end }

// choose returns the hole for a size, nil if none is large enough.
func (l *list) choose(size uint64) *hole {
	switch l.policy {
	case Worst:
		if most := l.holes.root.largest(); most >= size {
			return l.holes.first(most, 0)
		}
		return nil
	case Next:
		if h := l.holes.first(size, l.rover); h != nil {
			return h
		}
	}
	return l.holes.first(size, 0)
}

func (l *list) place(size uint64, extend func(uint64) bool) (uint64, bool) {
	h := l.choose(size)
	if h == nil {
		if !extend(l.end + size) {
			return 0, false
		}
		at := l.end
		l.end += size
		l.rover = l.end
		return at, true
	}
	at, rest := h.addr, h.size-size
	l.drop(h)
	if rest > 0 {
		l.add(at+size, rest)
	}
	l.rover = at + size
	return at, true
}

func (l *list) add(addr, size uint64) {
	h := l.holes.insert(addr, size)
	l.starts[addr], l.ends[addr+size] = h, h
}

func (l *list) drop(h *hole) {
	delete(l.starts, h.addr)
	delete(l.ends, h.addr+h.size)
	l.holes.remove(h)
}

func (l *list) release(at, size uint64) {
	if h := l.ends[at]; h != nil {
		at, size = h.addr, size+h.size
		l.drop(h)
	}
	if h := l.starts[at+size]; h != nil {
		size += h.size
		l.drop(h)
	}
	if at+size == l.end {
		l.end = at
		return
	}
	l.add(at, size)
}

func (l *list) free(f func(at, size uint64)) {
	if l.policy != Best {
		l.holes.visit(func(h *hole) { f(h.addr, h.size) })
		return
	}
	sorted := tree{seed: 1}
	l.holes.visit(func(h *hole) { sorted.insert(h.addr, h.size) })
	sorted.visit(func(h *hole) { f(h.addr, h.size) })
}
