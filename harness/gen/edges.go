package gen

import "github.com/shatter-gpu/shatter/harness/trace"

// edgesPreset hunts for off-by-one errors: in the rounding, in the choice of pool, segment and split, in the remainder that
// is kept or not, and in coalescing, since what is split at an edge is joined at it again.
var edgesPreset = preset{
	cards:    cardWeights{move: 60, pingpong: 1, syncAll: 1, flush: 1, comb: 1, sawtooth: 1, carve: 1},
	sizes:    menuWeights{atEdge: 16, odd: 1, small: 1},
	capacity: [2]uint64{48 * mib, 512 * mib},
	streams:  [2]uint64{1, 2},
	crest:    [2]uint64{35, 80},
	trough:   [2]uint64{5, 60},
	probes:   1,
	settled:  3,
}

func edges(cfg, ops Source, p Params) *trace.Trace {
	g := newPlayer(cfg, ops, p.or(findingsDefaults), edgesPreset)
	return g.play(g.turn)
}
