package gen

import "github.com/shatter-gpu/shatter/harness/trace"

// findingsDefaults: device and streams are drawn with the trace.
var findingsDefaults = Params{Ops: 5000, Long: 0.3}

// wavesPreset hunts for broken refusals of all kinds. Live bytes rise and fall; one wave in four breaks at 90 to 105 percent of
// the device, the others a little below, and what is asked for at the crests would fill it or go just beyond. So every step of
// the ladder from the cache over garbage collection and flush to the refusal is taken many times.
var wavesPreset = preset{
	cards:    cardWeights{move: 60, record: 1, retire: 1, replace: 1, syncOne: 1, syncAll: 1, flush: 1, comb: 1, sawtooth: 1},
	sizes:    menuWeights{spread: 8, tensors: 6, small: 2, shared: 1, odd: 2, atEdge: 1, big: 1},
	capacity: [2]uint64{64 * mib, 4 * gib},
	streams:  [2]uint64{1, 2},
	crest:    [2]uint64{60, 90},
	spring:   2,
	trough:   [2]uint64{10, 60},
	probes:   2,
	ebb:      1,
	settled:  3,
}

func waves(cfg, ops Source, p Params) *trace.Trace {
	g := newPlayer(cfg, ops, p.or(findingsDefaults), wavesPreset)
	return g.play(g.turn)
}
