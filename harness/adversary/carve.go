package adversary

import "slices"

// carve attacks best fit: for each size c, as many blocks of c units as M allows are placed at the end, since every gap is too
// small for them; then each is freed and its hole filled with c-1 units and a pin of one unit, and at last what has c-1 units
// is freed. That leaves gaps of c-1 units, too small for c+1. Before each size, pins are freed where the gaps on their two
// sides together stay too small (thinning): they are missing elsewhere.
func carve(g *game, p Params) {
	var pins []piece
	first := max(p.Largest/carveFrom, 3)
	for c := first; c <= p.Largest && !g.over; c++ {
		pins = thin(g, pins, p.Unit, uint64(c-2)*p.Unit)
		blocks := g.several((p.Live-len(pins))/c, uint64(c)*p.Unit)
		var rest []piece
		for _, b := range blocks {
			g.free(b)
			rest = append(rest, g.alloc(uint64(c-1)*p.Unit))
			pins = append(pins, g.alloc(p.Unit))
		}
		g.freeAll(rest)
	}
}

// carveFrom: the first size is the largest by this. Without thinning m/e is best; with it smaller sizes pay too, and below a
// twelfth nothing more is gained: 3, 4, 6, 8 and 12 give 0.395, 0.405, 0.413, 0.413 and 0.415 m M at M = 4096, m = 64.
const carveFrom = 12

// thin frees pins while the merged gap, in bytes, is at most that large.
func thin(g *game, pins []piece, unit, gap uint64) []piece {
	slices.SortFunc(pins, func(a, b piece) int { return int(int64(a.at - b.at)) })
	kept := pins[:0]
	behind := uint64(0) // end of the last pin that was kept
	for i, pin := range pins {
		if i+1 < len(pins) && pins[i+1].at-behind <= gap {
			g.free(pin)
			continue
		}
		kept = append(kept, pin)
		behind = pin.at + unit
	}
	return kept
}
