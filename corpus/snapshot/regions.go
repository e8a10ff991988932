package snapshot

import "sort"

// region is memory of the device: a segment of cudaMalloc or a mapped range.
type region struct {
	addr, size uint64
	stream     uint64
	small      bool
	expandable bool
	pool       Pool
}

func (r *region) end() uint64 { return r.addr + r.size }

// regions are kept by address.
type regions struct{ list []region }

// at returns the index of the first region that begins at addr or behind.
func (r *regions) at(addr uint64) int {
	return sort.Search(len(r.list), func(i int) bool { return r.list[i].addr >= addr })
}

// holding returns the region that holds all of [addr, addr+size), nil if none does.
func (r *regions) holding(addr, size uint64) *region {
	i := sort.Search(len(r.list), func(i int) bool { return r.list[i].addr > addr }) - 1
	if i < 0 {
		return nil
	}
	g := &r.list[i]
	if addr-g.addr > g.size || size > g.size-(addr-g.addr) {
		return nil
	}
	return g
}

// overlaps tells whether a range overlaps a region.
func (r *regions) overlaps(addr, size uint64) bool {
	i := r.at(addr)
	return i < len(r.list) && r.list[i].addr < addr+size || i > 0 && r.list[i-1].end() > addr
}

func (r *regions) insert(g region) {
	i := r.at(g.addr)
	r.list = append(r.list, region{})
	copy(r.list[i+1:], r.list[i:])
	r.list[i] = g
}

// remove takes out the region that begins at addr.
func (r *regions) remove(addr uint64) bool {
	i := r.at(addr)
	if i == len(r.list) || r.list[i].addr != addr {
		return false
	}
	r.list = append(r.list[:i], r.list[i+1:]...)
	return true
}

// cut takes a range out of the region that holds it.
func (r *regions) cut(addr, size uint64) bool {
	g := r.holding(addr, size)
	if g == nil || !g.expandable {
		return false
	}
	upper := *g
	upper.addr, upper.size = addr+size, g.end()-addr-size
	switch {
	case g.addr == addr && upper.size == 0:
		return r.remove(addr)
	case g.addr == addr:
		*g = upper
		return true
	}
	g.size = addr - g.addr
	if upper.size > 0 {
		r.insert(upper)
	}
	return true
}

// join adds a range of an expandable segment and joins it with ranges that it touches.
func (r *regions) join(g region) {
	i := r.at(g.addr)
	if i > 0 {
		if p := &r.list[i-1]; p.expandable && p.end() == g.addr && p.stream == g.stream && p.small == g.small && p.pool == g.pool {
			g.addr, g.size = p.addr, p.size+g.size
			r.remove(p.addr)
			i--
		}
	}
	if i < len(r.list) {
		if n := &r.list[i]; n.expandable && g.end() == n.addr && n.stream == g.stream && n.small == g.small && n.pool == g.pool {
			g.size += n.size
			r.remove(n.addr)
		}
	}
	r.insert(g)
}
