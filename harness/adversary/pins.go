package adversary

// pinSmall fills each 2 MiB segment of the small pool with 1 MiB, 1 MiB less a granule and a granule, and frees all but the
// granule once the device is full. What is then asked is one byte more than the small pool serves.
func pinSmall(g *game, p Params) {
	triples(g, int(p.Capacity/smallSegment), mib, mib-granule, granule)
	g.alloc(mib + 1)
	g.alloc(mib)
}

// pinLarge does the same to segments of 20 MiB: 9.5 MiB, 9.5 MiB less a granule, and the rest, which is just too large for the
// small pool. 19 MiB are refused, 18 MiB fit into a hole.
func pinLarge(g *game, p Params) {
	triples(g, int(p.Capacity/largeSegment), 19*mib/2, 19*mib/2-granule, mib+granule)
	g.alloc(19 * mib)
	g.alloc(18 * mib)
}

func triples(g *game, n int, a, b, pin uint64) {
	var free []piece
	for range n {
		free = append(free, g.alloc(a), g.alloc(b))
		g.alloc(pin)
	}
	g.freeAll(free)
}

// pagePins fills pages of 20 MiB with 18 and 2 MiB and frees the 18: every page keeps 2 MiB.
func pagePins(g *game, p Params) {
	var free []piece
	for range p.Capacity / largeSegment {
		free = append(free, g.alloc(18*mib))
		g.alloc(2 * mib)
	}
	g.freeAll(free)
	g.alloc(largeSegment)
	g.alloc(gib)
}

// comb carves long- and short-lived blocks in turn from one segment of three quarters of the device, frees the short-lived ones
// and asks for a granule more than they had, as often as they were.
func comb(g *game, p Params) {
	whole := p.Capacity / 4 * 3 / (2 * p.Unit) * (2 * p.Unit)
	g.free(g.alloc(whole))
	teeth := g.several(int(whole/p.Unit), p.Unit)
	g.every(teeth, 2, 1)
	for range len(teeth) / 2 {
		g.alloc(p.Unit + granule)
	}
}

// sawtooth runs phases in which sizes rise from the unit on; at its end a phase frees all blocks, and a small one is carved from
// each cached segment and kept, so that the segment is neither whole nor free again. Every second phase is shifted by half a
// step, so that its sizes are new ones.
func sawtooth(g *game, p Params) {
	for r := range p.Rounds {
		var tooth []piece
		shift := uint64(r%2) * p.Unit / 2
		for k := range uint64(12) {
			tooth = append(tooth, g.alloc(p.Unit*(k+1)+shift))
		}
		g.freeAll(tooth)
		for range tooth {
			g.alloc(p.Unit / 4)
		}
	}
}
