package textbook

// hole is a free range of the arena, a node of a tree.
type hole struct {
	addr, size  uint64 // bytes, from the arena's start
	most        uint64 // the largest size in the subtree
	priority    uint32
	left, right *hole
}

// tree is a treap of holes, by address or by (size, address). Each node knows the largest hole below it, so the lowest hole
// that is large enough is found on one way down.
type tree struct {
	root   *hole
	bySize bool
	seed   uint32
	spare  *hole // dropped nodes, linked by right
}

// before is the order of the tree.
func (t *tree) before(a, b *hole) bool {
	if t.bySize && a.size != b.size {
		return a.size < b.size
	}
	return a.addr < b.addr
}

func (h *hole) largest() uint64 {
	if h == nil {
		return 0
	}
	return h.most
}

func (h *hole) update() { h.most = max(h.size, h.left.largest(), h.right.largest()) }

// insert adds a hole.
func (t *tree) insert(addr, size uint64) *hole {
	h := t.spare
	if h == nil {
		h = &hole{}
	} else {
		t.spare = h.right
	}
	// xorshift: the shape is the same in every run.
	t.seed ^= t.seed << 13
	t.seed ^= t.seed >> 17
	t.seed ^= t.seed << 5
	*h = hole{addr: addr, size: size, most: size, priority: t.seed}
	t.root = t.put(t.root, h)
	return h
}

func (t *tree) put(at, h *hole) *hole {
	if at == nil {
		return h
	}
	if h.priority > at.priority {
		h.left, h.right = t.split(at, h)
		h.update()
		return h
	}
	if t.before(h, at) {
		at.left = t.put(at.left, h)
	} else {
		at.right = t.put(at.right, h)
	}
	at.update()
	return at
}

// split parts a subtree into what is before h and what is behind.
func (t *tree) split(at, h *hole) (l, r *hole) {
	if at == nil {
		return nil, nil
	}
	if t.before(at, h) {
		at.right, r = t.split(at.right, h)
		at.update()
		return at, r
	}
	l, at.left = t.split(at.left, h)
	at.update()
	return l, at
}

// remove drops a hole that is in the tree.
func (t *tree) remove(h *hole) {
	t.root = t.cut(t.root, h)
	h.left, h.right = nil, t.spare
	t.spare = h
}

func (t *tree) cut(at, h *hole) *hole {
	if at == h {
		return join(h.left, h.right)
	}
	if t.before(h, at) {
		at.left = t.cut(at.left, h)
	} else {
		at.right = t.cut(at.right, h)
	}
	at.update()
	return at
}

func join(l, r *hole) *hole {
	switch {
	case l == nil:
		return r
	case r == nil:
		return l
	case l.priority > r.priority:
		l.right = join(l.right, r)
		l.update()
		return l
	}
	r.left = join(l, r.left)
	r.update()
	return r
}

// first returns the first hole of the tree's order that has this size at least and lies at from or behind; nil if there is none.
// In a tree by size, from must be 0.
func (t *tree) first(size, from uint64) *hole { return first(t.root, size, from) }

func first(at *hole, size, from uint64) *hole {
	if at == nil || at.most < size {
		return nil
	}
	if at.addr < from {
		return first(at.right, size, from)
	}
	if h := first(at.left, size, from); h != nil {
		return h
	}
	if at.size >= size {
		return at
	}
	return first(at.right, size, from)
}

// visit calls f with all holes in the tree's order.
func (t *tree) visit(f func(*hole)) { visit(t.root, f) }

func visit(at *hole, f func(*hole)) {
	if at != nil {
		visit(at.left, f)
		f(at)
		visit(at.right, f)
	}
}
