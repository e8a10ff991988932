package gen

import "github.com/shatter-gpu/shatter/harness/trace"

// pinsDefaults: pins are what this is about, so churn adds few long-lived blocks of its own.
var pinsDefaults = Params{Ops: 5000, Long: 0.05}

// pinsPreset hunts for wrong releases and for fragmentation: a segment or page that a small block pins must not be returned,
// one that none pins must be. What is refused while little but the pins is live is refused by them.
var pinsPreset = preset{
	cards:    cardWeights{move: 30, comb: 1, sawtooth: 2, carve: 2, flush: 1},
	sizes:    menuWeights{spread: 4, tensors: 4, small: 3, shared: 6, big: 1},
	capacity: [2]uint64{64 * mib, 320 * mib},
	streams:  [2]uint64{1, 2},
	crest:    [2]uint64{40, 70},
	trough:   [2]uint64{5, 40},
	probes:   1,
	settled:  4,
}

func pins(cfg, ops Source, p Params) *trace.Trace {
	g := newPlayer(cfg, ops, p.or(pinsDefaults), pinsPreset)
	return g.play(g.pinning)
}

// pinning is one episode: pins are set over a part of the device with churn between them, and what lay beside them is freed.
// Larger requests follow, first among all pins, then among about half of them; then the pins go, and churn has the device.
func (g *player) pinning() {
	t := smallTriple
	if chance(g.src, 1, 2) {
		t = largeTriple
	}
	var pairs set
	g.turn()
	for len(g.short.blocks) > 0 {
		g.free(&g.short, g.pick(&g.short))
	}
	g.crest = g.budget()
	for n := percent(g.crest, between(g.src, 20, 80)) / t.segment; n > 0 && !g.full(); n-- {
		g.triple(&pairs, t)
		if chance(g.src, 1, 8) {
			g.move()
		}
	}
	for len(pairs.blocks) > 0 {
		g.free(&pairs, g.pick(&pairs))
		g.pinned += t.segment / 2
	}
	g.larger(t)
	g.among(between(g.src, 10, 60))
	g.unpin()
	g.pinned /= 2
	g.larger(t)
	g.among(between(g.src, 10, 60))
	g.freeAll(&g.pins)
	g.pinned = 0
	g.draw()
	g.larger(t)
	g.turns(between(g.src, 50, 200))
}

// among takes n turns among the pins, if they leave enough of the device for a few segments.
func (g *player) among(n uint64) {
	g.draw()
	if g.budget() >= 4*largeSegment {
		g.turns(n)
	}
}

// larger asks, once to three times, for a size for which the gaps of a triple are too small although there are many,
// sometimes after the cache was emptied in the middle of it all.
func (g *player) larger(t triple) {
	for range between(g.src, 1, 3) {
		if chance(g.src, 1, 3) {
			g.emit(trace.Op{Kind: trace.EmptyCache})
		}
		left := g.capacity - min(g.held(), g.capacity)
		bytes := between(g.src, t.segment-t.bytes/8, 4*t.segment)
		if chance(g.src, 1, 2) {
			bytes = percent(left, between(g.src, 20, 90))
		}
		g.alloc(&g.short, max(min(bytes, left), 1), g.stream())
		g.freeNewest(&g.short)
	}
}
