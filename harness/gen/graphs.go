package gen

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// grapher is a swarm that captures CUDA graphs and uses pools of its own: private pools open, close and are released while
// everything else goes on, and work is queued that uses blocks. It hunts for memory of one pool in another, for memory of a graph that
// is given back while the graph lives, and for reuse or unmapping under queued work.
type grapher struct {
	*player
	pools []graphPool
	next  allocators.PoolID
}

// graphPool is a private pool that is in use.
type graphPool struct {
	id   allocators.PoolID
	uses int
	left int // turns until it closes; 0: it is closed
}

const (
	maxPools = 3  // in use at once: each keeps its memory from all else
	bodies   = 40 // turns of a capture, at most: nothing is released meanwhile
)

func graphs(cfg, ops Source, p Params) *trace.Trace {
	s := swarmPreset
	s.capacity, s.crest = [2]uint64{gib, 8 * gib}, [2]uint64{20, 45}
	thin(cfg, s.cards[move+1:])
	thin(cfg, s.sizes[:])
	p = p.or(findingsDefaults)
	g := &grapher{player: newPlayer(cfg, ops, p, s)}
	return g.play(g.turn)
}

// turn deals a card, and now and then does something with pools or queues work.
func (g *grapher) turn() {
	for i := range g.pools {
		if q := &g.pools[i]; q.left > 0 {
			if q.left--; q.left == 0 {
				g.emit(trace.Op{Kind: trace.PoolEnd, Pool: q.id})
			}
		}
	}
	switch g.src.Uint64n(48) {
	case 0:
		g.begin()
	case 1, 2, 3:
		g.retirePool()
	case 4, 5, 6, 7, 8:
		g.work()
	default:
		g.player.turn()
	}
}

// begin opens a new pool, or one in use: graphs share a pool, and a pool of the user's is entered again.
func (g *grapher) begin() {
	open := 0
	for i := range g.pools {
		if g.pools[i].left > 0 {
			open++
		}
	}
	if open > 1 || open == 1 && !chance(g.src, 1, 4) {
		return
	}
	at := -1
	if n := len(g.pools); n == maxPools || n > 0 && chance(g.src, 1, 2) {
		if i := int(g.src.Uint64n(uint64(n))); g.pools[i].left == 0 {
			at = i
		}
	}
	if at < 0 {
		if len(g.pools) == maxPools {
			return
		}
		g.next++
		g.pools = append(g.pools, graphPool{id: g.next})
		at = len(g.pools) - 1
	}
	q := &g.pools[at]
	q.uses++
	q.left = int(between(g.src, 2, bodies))
	op := trace.Op{Kind: trace.PoolBegin, Pool: q.id, Stream: trace.AllStreams, Capture: chance(g.src, 1, 2)}
	if op.Capture && chance(g.src, 2, 3) {
		op.Stream = g.stream()
	}
	g.emit(op)
}

// retirePool ends a use of a closed pool: a graph is destroyed, a pool object deleted, which empties it.
func (g *grapher) retirePool() {
	if len(g.pools) == 0 {
		return
	}
	i := int(g.src.Uint64n(uint64(len(g.pools))))
	q := &g.pools[i]
	if q.left > 0 && q.uses == 1 {
		return
	}
	q.uses--
	g.emit(trace.Op{Kind: trace.PoolRelease, Pool: q.id})
	if chance(g.src, 1, 2) {
		g.emit(trace.Op{Kind: trace.EmptyCache, Pool: q.id})
	}
	if q.uses == 0 {
		g.pools[i] = g.pools[len(g.pools)-1]
		g.pools = g.pools[:len(g.pools)-1]
	}
}

// work queues work that uses a block: on its own stream, or on another one that is recorded for it, as programs must.
func (g *grapher) work() {
	if len(g.short.blocks) == 0 {
		return
	}
	i := g.younger(&g.short)
	b := g.short.blocks[i]
	stream := b.stream
	if chance(g.src, 1, 3) {
		stream = g.otherStream(b.stream)
		g.record(&g.short, i, stream)
	}
	g.use(b.id, stream)
	if chance(g.src, 1, 2) {
		g.free(&g.short, i)
	}
}

func (g *grapher) use(id uint64, s device.Stream) {
	g.emit(trace.Op{Kind: trace.Use, ID: id, Stream: s})
}
