package gen

import "github.com/shatter-gpu/shatter/allocators/device"

// use notes a use of a random block on another stream.
func (g *player) use() {
	from := &g.short
	if len(g.pins.blocks) > 0 && chance(g.src, 1, 4) {
		from = &g.pins
	}
	if len(from.blocks) > 0 {
		i := g.pick(from)
		g.record(from, i, g.otherStream(from.blocks[i].stream))
	}
}

// retire frees a block right after a use on another stream, and tells what it was.
func (g *player) retire() (b block, ok bool) {
	if len(g.short.blocks) == 0 {
		return block{}, false
	}
	i := g.younger(&g.short)
	b = g.short.blocks[i]
	g.record(&g.short, i, g.otherStream(b.stream))
	g.free(&g.short, i)
	return b, true
}

// replace retires a block and asks for its size again. On a full device the block that would serve is pending
// (pytorch#189504).
func (g *player) replace() {
	if b, ok := g.retire(); ok {
		g.alloc(&g.short, b.bytes, b.stream)
	}
}

// pingpong frees a block and asks for its size on another stream, which may not have it.
func (g *player) pingpong() {
	if len(g.short.blocks) == 0 {
		return
	}
	i := g.pick(&g.short)
	b := g.short.blocks[i]
	g.free(&g.short, i)
	g.alloc(&g.short, b.bytes, g.otherStream(b.stream))
}

// syncOne completes one stream. A round takes a random subset of the streams in random order, so that work ends in another
// order than it began (swizzled, as FoundationDB stalls and releases its links).
func (g *player) syncOne() {
	if len(g.unsynced) == 0 {
		for s := range device.Stream(g.streams) {
			if !chance(g.src, 1, 3) {
				g.unsynced = append(g.unsynced, s)
			}
		}
	}
	if len(g.unsynced) == 0 {
		return
	}
	i := g.src.Uint64n(uint64(len(g.unsynced)))
	last := len(g.unsynced) - 1
	s := g.unsynced[i]
	g.unsynced[i] = g.unsynced[last]
	g.unsynced = g.unsynced[:last]
	g.sync(s)
}

// room is how many blocks of a size fit below the crest, most at most.
func (g *player) room(bytes, most uint64) uint64 {
	if g.held() >= g.crest {
		return 0
	}
	return min((g.crest-g.held())/bytes, most)
}

// comb allocates a row of equal blocks and frees every other one; the request behind it fits in no gap. The rest of the row is
// short-lived.
func (g *player) comb() {
	bytes := logUniform(g.src, granule, max(g.capacity/64, granule))
	stream := g.stream()
	n := g.room(bytes, between(g.src, 6, 24)) &^ 1
	first := len(g.short.blocks)
	for range n {
		g.alloc(&g.short, bytes, stream)
	}
	// From the end, so that the blocks moved into the holes are ones that stay.
	for i := int(n) - 1; i > 0; i -= 2 {
		g.free(&g.short, first+i)
	}
	if n > 0 {
		g.alloc(&g.short, bytes+granule, stream)
	}
}

// sawtooth allocates pairs of a rising and of a constant small size, then frees the rising ones: gaps of many sizes, each
// with a pin at its end.
func (g *player) sawtooth() {
	step := logUniform(g.src, granule, max(g.capacity/1024, granule))
	stream := g.stream()
	n := between(g.src, 3, 8)
	if g.room(n*(n+1)/2*step, 1) == 0 {
		return
	}
	teeth := set{}
	for i := range n {
		g.alloc(&teeth, (i+1)*step, stream)
		g.alloc(&g.short, step, stream)
	}
	g.freeAll(&teeth)
}

// carve exchanges a free block for one a granule smaller and a pin in the rest, then frees the block: the gap that is
// left is just too small for the size it had (adversary of best fit).
func (g *player) carve() {
	bytes := logUniform(g.src, 4*granule, smallMost)
	stream := g.stream()
	row := set{}
	for range g.room(bytes, between(g.src, 2, 8)) {
		g.alloc(&row, bytes, stream)
		g.freeNewest(&row)
		g.alloc(&row, bytes-granule, stream)
		g.alloc(&g.pins, granule, stream)
	}
	g.freeAll(&row)
}

// triple is how three blocks fill a segment: one, one a granule smaller, and a pin. Once the two are free, the pin alone
// holds the segment.
type triple struct{ segment, bytes, pin uint64 }

var (
	// 512 bytes hold 2 MiB: 0.024 percent.
	smallTriple = triple{smallSegment, smallMost, granule}
	// 1 MiB and 512 bytes hold 20 MiB: 5 percent. A smaller pin would not be split off.
	largeTriple = triple{largeSegment, largeSegment/2 - mib/2, mib + granule}
)

// triple fills a segment if there is room for one; the two larger blocks go to pairs.
func (g *player) triple(pairs *set, t triple) {
	stream := g.stream()
	if g.room(t.segment, 1) == 0 {
		return
	}
	g.alloc(pairs, t.bytes, stream)
	g.alloc(pairs, t.bytes-granule, stream)
	g.alloc(&g.pins, t.pin, stream)
}
