package adversary

import (
	"errors"
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// piece is a live block of a game. Its place is known only if there is an opponent.
type piece struct {
	id    uint64
	bytes uint64
	at    uint64 // address less the first one handed out; may wrap around below it
	addr  device.Addr
}

// game is a trace under construction. With an opponent every operation is also made on it.
type game struct {
	opponent allocators.Allocator
	ops      []trace.Op
	serial   uint64
	live     uint64 // bytes asked for
	peak     uint64
	first    device.Addr
	low      device.Addr
	high     device.Addr
	// over says why the opponent ended the game: it refused. Later operations are dropped.
	over bool
	err  error
}

func (g *game) alloc(bytes uint64) piece { return g.allocOn(bytes, 0) }

func (g *game) allocOn(bytes uint64, s device.Stream) piece {
	p := piece{id: g.serial, bytes: bytes}
	if g.over {
		return p
	}
	g.serial++
	g.ops = append(g.ops, trace.Op{Kind: trace.Alloc, ID: p.id, Bytes: bytes, Stream: s})
	g.live += bytes
	g.peak = max(g.peak, g.live)
	if g.opponent == nil {
		return p
	}
	b, err := g.opponent.Alloc(bytes, s)
	if err != nil {
		g.over = true
		if !errors.Is(err, device.ErrOutOfMemory) {
			g.err = err
		}
		return p
	}
	if g.first == 0 {
		g.first, g.low = b.Addr, b.Addr
	}
	p.addr, p.at = b.Addr, uint64(b.Addr-g.first)
	g.low, g.high = min(g.low, b.Addr), max(g.high, b.Addr+device.Addr(max(b.Size, bytes)))
	return p
}

func (g *game) free(p piece) {
	if g.over {
		return
	}
	g.ops = append(g.ops, trace.Op{Kind: trace.Free, ID: p.id})
	g.live -= p.bytes
	if g.opponent != nil {
		g.fail(g.opponent.Free(p.addr))
	}
}

func (g *game) fail(err error) {
	if err != nil {
		g.over, g.err = true, err
	}
}

// several allocates n blocks of a size.
func (g *game) several(n int, bytes uint64) []piece {
	var out []piece
	for range n {
		out = append(out, g.alloc(bytes))
	}
	return out
}

func (g *game) freeAll(list []piece) {
	for _, p := range list {
		g.free(p)
	}
}

// every frees the pieces whose index leaves rest when divided by n.
func (g *game) every(list []piece, n, rest int) {
	for i, p := range list {
		if i%n == rest {
			g.free(p)
		}
	}
}

// add appends an operation that no adaptive adversary makes.
func (g *game) add(op trace.Op) { g.ops = append(g.ops, op) }

func (g *game) record(p piece, s device.Stream) {
	g.add(trace.Op{Kind: trace.Record, ID: p.id, Stream: s})
}

func (g *game) sync(s device.Stream) { g.add(trace.Op{Kind: trace.Sync, Stream: s}) }

// Played is what a game came to.
type Played struct {
	Trace *trace.Trace
	// Reached is the distance from the lowest to the highest address of blocks, in bytes: N. Adaptive adversaries only.
	Reached uint64
	// Peak is the most bytes asked for and live at once: M.
	Peak uint64
	// Refused says that the opponent refused a request; the trace ends with it.
	Refused bool
}

// Play makes the trace. An adaptive adversary needs a fresh opponent, which is left as the game ended; others take none. The
// error says what the opponent did that an allocator must not do.
func (a *Adversary) Play(opponent allocators.Allocator, p Params) (*Played, error) {
	p = p.or(a.Defaults)
	g := &game{}
	if a.Adaptive {
		if opponent == nil {
			return nil, fmt.Errorf("adversary %s looks at addresses: it needs an allocator to play against", a.Name)
		}
		g.opponent = opponent
	}
	a.play(g, p)
	if g.err != nil {
		return nil, fmt.Errorf("adversary %s, operation %d: %w", a.Name, len(g.ops)-1, g.err)
	}
	t := &trace.Trace{Name: a.Name, Ops: slices.Clip(g.ops), Header: []trace.Field{
		{Key: trace.KeyVersion, Value: trace.Version},
		{Key: "source", Value: fmt.Sprintf("adversary %s%s: %s", a.Name, p, a.Source)},
		{Key: trace.KeyCapacity, Value: fmt.Sprint(p.Capacity)},
	}}
	if a.Conf != "" {
		t.Header = append(t.Header, trace.Field{Key: trace.KeyConf, Value: a.Conf})
	}
	if a.Fraction != 0 {
		t.Header = append(t.Header, trace.Field{Key: trace.KeyFraction, Value: fmt.Sprint(a.Fraction)})
	}
	return &Played{Trace: t, Reached: uint64(g.high - g.low), Peak: g.peak, Refused: g.over}, nil
}
