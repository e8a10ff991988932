package adversary

import "github.com/shatter-gpu/shatter/harness/trace"

// pendingTrap: one segment of the whole device, split in 60 and 40 percent; the first part is used on another stream too and
// freed. A flush waits for the stream, the block becomes free, its segment stays pinned, and no lookup follows.
func pendingTrap(g *game, p Params) {
	total := p.Capacity / p.Unit
	x := total * 6 / 10
	g.free(g.alloc(total * p.Unit))
	block := g.alloc(x * p.Unit)
	g.alloc((total - x) * p.Unit)
	g.record(block, 7)
	g.free(block)
	g.alloc(x * p.Unit)
	g.alloc(x * p.Unit)
}

// slowStream: blocks are used on stream 1, which never gets done, and freed; the job goes on allocating on stream 0.
func slowStream(g *game, p Params) {
	for range p.Rounds {
		a, b := g.alloc(p.Unit), g.alloc(p.Unit)
		g.alloc(p.Unit / 16)
		g.record(a, 1)
		g.record(b, 2)
		g.free(a)
		g.free(b)
		g.sync(2)
	}
	g.alloc(16 * p.Unit)
}

// fence repeats the cycle of pytorch#193400.
func fence(g *game, p Params) {
	for range p.Rounds {
		a, b := g.alloc(91*mib), g.alloc(91*mib/2)
		g.alloc(2 * mib)
		g.free(a)
		g.free(b)
	}
}

// fractionEdge fills up to the limit of half the device but for one page of 20 MiB, then asks for what one page would do for
// and a whole segment would not, and moves the limit to either side.
func fractionEdge(g *game, p Params) {
	limit := p.Capacity / 2
	page := uint64(largeSegment)
	g.alloc(limit/page*page - 3*page/2 - page)
	g.alloc(5 * mib)
	tail := g.alloc(30 * mib)
	g.alloc(30 * mib)
	g.free(tail)
	for _, f := range []float64{0.499, 0.5, 0.501, 1} {
		g.add(trace.Op{Kind: trace.Fraction, Fraction: f})
		for _, n := range []uint64{mib, ownSegment - granule, ownSegment, 30 * mib} {
			g.free(g.alloc(n))
		}
	}
	g.alloc(limit)
}

// collectionEdge cycles through sizes that together are a little over the threshold of 80 percent, none of which another's segment
// serves well, each held for a while. Half a segment stays pinned now and then.
func collectionEdge(g *game, p Params) {
	sizes := []uint64{19, 17, 13, 11, 7, 5, 3} // percent of the device
	var held []piece
	for r := range p.Rounds {
		for _, s := range sizes {
			held = append(held, g.alloc(p.Capacity/100*s))
			if len(held) > 3 {
				g.free(held[0])
				held = held[1:]
			}
		}
		if r%8 == 7 {
			g.alloc(12 * mib)
		}
	}
}
