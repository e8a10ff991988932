package gen

import "github.com/shatter-gpu/shatter/harness/trace"

// swarmPreset is what the swarm draws from. It hunts for bugs that need two rare things together, or something common left
// out: every weight is the most that a trace may give. Moves are never left out, else nothing would happen.
var swarmPreset = preset{
	cards: cardWeights{
		move: 60, probe: 1, record: 8, retire: 6, replace: 3, pingpong: 4, syncOne: 6, syncAll: 2, flush: 2, comb: 2, sawtooth: 2,
		carve: 2, pinSmall: 2, pinLarge: 1, nothing: 2, conf: 1, limit: 1, crowd: 1,
	},
	sizes:    menuWeights{spread: 8, tensors: 8, small: 8, shared: 8, odd: 4, atEdge: 8, big: 2},
	capacity: [2]uint64{64 * mib, 4 * gib},
	streams:  [2]uint64{1, 6},
	crest:    [2]uint64{40, 85},
	spring:   1,
	trough:   [2]uint64{5, 60},
	probes:   2,
	ebb:      1,
	settled:  1,
}

// swarm switches off a random half of the cards but move, and of the sizes, and draws unequal weights for the rest.
func swarm(cfg, ops Source, p Params) *trace.Trace {
	s := swarmPreset
	thin(cfg, s.cards[move+1:])
	thin(cfg, s.sizes[:])
	g := newPlayer(cfg, ops, p.or(findingsDefaults), s)
	g.reuse = chance(cfg, 1, 2)
	return g.play(g.turn)
}

// thin switches each weight off with a chance of one half, and draws what is left up to its value.
func thin(cfg Source, weights []uint8) {
	for i, w := range weights {
		if chance(cfg, 1, 2) {
			weights[i] = uint8(between(cfg, 1, uint64(w)))
		} else {
			weights[i] = 0
		}
	}
}
