package gen

import "github.com/shatter-gpu/shatter/harness/trace"

// streamsPreset hunts for broken event handling: reuse before the event, blocks that stay pending for ever, refusals while the
// fitting block is pending (pytorch#189504), one unfinished event that holds up all behind it (pytorch#71616). Sizes mostly
// share segments, so that a pending block's segment is held by a live neighbour and a flush does not return it.
var streamsPreset = preset{
	cards:    cardWeights{move: 36, record: 6, retire: 6, replace: 3, pingpong: 2, syncOne: 5, syncAll: 1},
	sizes:    menuWeights{spread: 3, tensors: 3, small: 3, shared: 10, odd: 1, big: 1},
	capacity: [2]uint64{64 * mib, 2 * gib},
	streams:  [2]uint64{2, 6},
	crest:    [2]uint64{45, 75},
	spring:   1,
	trough:   [2]uint64{20, 70},
	probes:   1,
	settled:  5,
}

func streams(cfg, ops Source, p Params) *trace.Trace {
	g := newPlayer(cfg, ops, p.or(findingsDefaults), streamsPreset)
	return g.play(g.turn)
}
