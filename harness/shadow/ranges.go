package shadow

import "github.com/shatter-gpu/shatter/allocators/device"

// ranges holds disjoint entries by address, in chunks of sorted arrays: two binary searches find a place, and an insertion
// moves at most one chunk.
type ranges struct {
	chunks []*chunk
	firsts []device.Addr // chunks[i].starts[0], packed for the search
	spare  []*chunk
}

const chunkCap = 64

type chunk struct {
	n       int
	starts  [chunkCap]device.Addr
	entries [chunkCap]*Entry
}

// find returns the chunk and the place in it of the last entry that starts at or before addr; place -1 if there is none.
func (r *ranges) find(addr device.Addr) (c, i int) {
	lo, hi := 0, len(r.firsts)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); r.firsts[mid] <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return 0, -1
	}
	c = lo - 1
	k := r.chunks[c]
	lo, hi = 0, k.n
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); k.starts[mid] <= addr {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return c, lo - 1
}

// insert adds e, or returns an entry that e overlaps.
func (r *ranges) insert(e *Entry) *Entry {
	if len(r.chunks) == 0 {
		r.addChunk(0)
		r.put(0, 0, e)
		return nil
	}
	c, i := r.find(e.Addr)
	if i >= 0 {
		if before := r.chunks[c].entries[i]; before.End() > e.Addr {
			return before
		}
	}
	if after := r.at(c, i+1); after != nil && after.Addr < e.End() {
		return after
	}
	i++
	if r.chunks[c].n == chunkCap {
		r.splitChunk(c)
		if half := r.chunks[c].n; i > half {
			c, i = c+1, i-half
		}
	}
	r.put(c, i, e)
	return nil
}

// at returns the entry at a place that may lie one behind the chunk's end.
func (r *ranges) at(c, i int) *Entry {
	if i < r.chunks[c].n {
		return r.chunks[c].entries[i]
	}
	if c+1 < len(r.chunks) {
		return r.chunks[c+1].entries[0]
	}
	return nil
}

func (r *ranges) put(c, i int, e *Entry) {
	k := r.chunks[c]
	copy(k.starts[i+1:k.n+1], k.starts[i:k.n])
	copy(k.entries[i+1:k.n+1], k.entries[i:k.n])
	k.starts[i], k.entries[i] = e.Addr, e
	k.n++
	if i == 0 {
		r.firsts[c] = e.Addr
	}
}

func (r *ranges) addChunk(c int) {
	var k *chunk
	if n := len(r.spare); n > 0 {
		k, r.spare = r.spare[n-1], r.spare[:n-1]
	} else {
		k = &chunk{}
	}
	r.chunks = append(r.chunks, nil)
	copy(r.chunks[c+1:], r.chunks[c:])
	r.chunks[c] = k
	r.firsts = append(r.firsts, 0)
	copy(r.firsts[c+1:], r.firsts[c:])
}

func (r *ranges) splitChunk(c int) {
	r.addChunk(c + 1)
	k, next := r.chunks[c], r.chunks[c+1]
	const half = chunkCap / 2
	copy(next.starts[:], k.starts[half:])
	copy(next.entries[:], k.entries[half:])
	clear(k.entries[half:])
	k.n, next.n = half, chunkCap-half
	r.firsts[c+1] = next.starts[0]
}

// remove takes out e, which is in.
func (r *ranges) remove(e *Entry) {
	c, i := r.find(e.Addr)
	k := r.chunks[c]
	copy(k.starts[i:], k.starts[i+1:k.n])
	copy(k.entries[i:], k.entries[i+1:k.n])
	k.n--
	k.entries[k.n] = nil
	switch {
	case k.n == 0:
		r.dropChunk(c)
	case i == 0:
		r.firsts[c] = k.starts[0]
	}
	if k.n > 0 && k.n < chunkCap/4 && c+1 < len(r.chunks) && k.n+r.chunks[c+1].n <= chunkCap/2 {
		next := r.chunks[c+1]
		copy(k.starts[k.n:], next.starts[:next.n])
		copy(k.entries[k.n:], next.entries[:next.n])
		k.n += next.n
		r.dropChunk(c + 1)
	}
}

func (r *ranges) dropChunk(c int) {
	k := r.chunks[c]
	clear(k.entries[:k.n])
	k.n = 0
	r.spare = append(r.spare, k)
	r.chunks = append(r.chunks[:c], r.chunks[c+1:]...)
	r.firsts = append(r.firsts[:c], r.firsts[c+1:]...)
}

func (r *ranges) each(visit func(*Entry) bool) {
	for _, k := range r.chunks {
		for _, e := range k.entries[:k.n] {
			if !visit(e) {
				return
			}
		}
	}
}
