package adversary

import (
	"fmt"
	"math"
	"slices"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// classEdges allocates, at every edge, the size a granule below, at and above it, with a pin behind each, frees the three and asks
// for them in the order in which each is a granule too large for the hole of the one before.
func classEdges(g *game, p Params) {
	for range p.Rounds {
		for _, edge := range []uint64{granule, mib, smallSegment, ownSegment, largeSegment, 128 * mib} {
			var three []piece
			for _, n := range []uint64{max(edge-granule, 1), edge, edge + granule} {
				three = append(three, g.alloc(n))
				g.alloc(granule)
			}
			g.freeAll(three)
			for _, n := range []uint64{edge + granule + 1, edge + 1, max(edge-granule+1, 1)} {
				three = append(three, g.alloc(n))
			}
			g.freeAll(three[3:])
		}
	}
}

// ramp runs steps of four layers with activations n, 2n, 3n and 4n; n is the unit in the first step and grows by an eighth of it
// from step to step. Frees are in reverse, as in a backward pass; every fourth step leaves a block of an eighth behind.
func ramp(g *game, p Params) {
	for r := range uint64(p.Rounds) {
		n := p.Unit + r*(p.Unit/8)
		if 10*n > p.Capacity {
			return
		}
		var layers []piece
		for k := range uint64(4) {
			layers = append(layers, g.alloc(n*(k+1)))
		}
		for i := len(layers) - 1; i >= 0; i-- {
			g.free(layers[i])
		}
		if r%4 == 3 {
			g.alloc(p.Unit / 8)
		}
	}
}

// Phases are eight, four, two and one block of 1, 2, 4 and 8 units: the same bytes each.
var phases = [...]int{8, 4, 2, 1}

// order runs the phases from small to large.
func order(g *game, p Params) { inOrder(g, p.Unit, []int{0, 1, 2, 3}) }

func inOrder(g *game, unit uint64, order []int) {
	for _, k := range order {
		g.freeAll(g.several(phases[k], unit<<k))
	}
}

// pingPong runs a working set of three quarters of the device by the number of streams on one stream after the other, with a
// block left on each so that its segment is not whole.
func pingPong(g *game, p Params) {
	const streams = 4
	n := int(p.Capacity * 3 / 4 / streams / p.Unit)
	for r := range p.Rounds {
		s := device.Stream(r % streams)
		var set []piece
		for range n {
			set = append(set, g.allocOn(p.Unit, s))
		}
		g.freeAll(set)
		if r < streams {
			for range n {
				g.allocOn(p.Unit/32, s)
			}
		}
	}
	// All streams together have more than this free.
	g.allocOn(2*p.Unit, streams)
	for range n {
		g.allocOn(p.Unit, streams)
	}
}

// OrderSensitivity measures a run, for example its peak of reserved bytes, over all orders of the first n phases of adversary
// order: the largest and the smallest value. It is a figure to report, not a law: no policy promises that order does not matter.
func OrderSensitivity(measure func(*trace.Trace) uint64, unit uint64, n int) (most, least uint64) {
	least = math.MaxUint64
	n = min(n, len(phases))
	var permute func(done []int)
	permute = func(done []int) {
		if len(done) == n {
			g := &game{}
			inOrder(g, unit, done)
			m := measure(&trace.Trace{Name: fmt.Sprintf("order %v", done), Ops: g.ops, Header: []trace.Field{
				{Key: trace.KeyCapacity, Value: fmt.Sprint(unit * 8 * uint64(n+1))},
			}})
			most, least = max(most, m), min(least, m)
			return
		}
		for k := range n {
			if !slices.Contains(done, k) {
				permute(append(slices.Clone(done), k))
			}
		}
	}
	permute(nil)
	return most, least
}
