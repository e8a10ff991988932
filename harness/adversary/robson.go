package adversary

import "math/bits"

// RobsonBound is N = M(1 + log2(n)/2) - n + 1 in units: what Robson's adversary takes from any allocator that cannot move
// blocks, with M units live at most and blocks of up to n units, n a power of two.
func RobsonBound(m, n int) int { return m + m*log2(n)/2 - n + 1 }

// AlignedBound is M(1 + log2(n)/2) in units: the same from an allocator that places blocks at multiples of their size, as
// the buddy system does.
func AlignedBound(m, n int) int { return m + m*log2(n)/2 }

func log2(n int) int { return bits.Len(uint(n)) - 1 }

// robson keeps, for a window size P that doubles, one block in every window of P units: the one over the window's place f. All
// blocks over no such place are freed and as many of P units allocated as M allows, of which none fits between two that
// were kept.
func robson(g *game, p Params) {
	live := g.several(p.Live, p.Unit)
	f := uint64(0)
	for i := 1; i <= log2(p.Largest) && !g.over; i++ {
		window := uint64(1) << i
		other := f + window/2
		if weight(live, p.Unit, window, other) > weight(live, p.Unit, window, f) {
			f = other
		}
		kept := live[:0]
		for _, b := range live {
			if covers(b, p.Unit, window, f) {
				kept = append(kept, b)
			} else {
				g.free(b)
			}
		}
		live = kept
		used := uint64(0)
		for _, b := range live {
			used += b.bytes / p.Unit
		}
		live = append(live, g.several(int((uint64(p.Live)-used)/window), window*p.Unit)...)
	}
}

// covers tells whether a block lies over an address that is f modulo the window, in units.
func covers(b piece, unit, window, f uint64) bool {
	return (f-b.at/unit)&(window-1) < b.bytes/unit
}

// weight is what the blocks over place f leave free in their windows.
func weight(live []piece, unit, window, f uint64) uint64 {
	var sum uint64
	for _, b := range live {
		if covers(b, unit, window, f) {
			sum += window - b.bytes/unit
		}
	}
	return sum
}

// robsonIndex allocates in cycle i as many blocks of 2^i units as M allows; of the blocks of cycle j <= i it frees those whose
// number, from 1, is no multiple of 2^(i-j+1).
func robsonIndex(g *game, p Params) {
	var cycles [][]piece // freed ones have no bytes
	live := 0
	for i := 0; i <= log2(p.Largest); i++ {
		n := (p.Live - live) >> i
		cycles = append(cycles, g.several(n, p.Unit<<i))
		live += n << i
		if i == log2(p.Largest) {
			return
		}
		for j, c := range cycles {
			for k := range c {
				if c[k].bytes > 0 && (k+1)%(1<<(i-j+1)) != 0 {
					g.free(c[k])
					live -= 1 << j
					c[k].bytes = 0
				}
			}
		}
	}
}
