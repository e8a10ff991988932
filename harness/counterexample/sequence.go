package counterexample

import (
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	// combEvery is how often a comb is tried; the first combs are those of the list below.
	combEvery = 512
	maxUnits  = 4096
)

// comb fills the device with blocks in turn, frees those that are holes and asks for more than lies between two pins.
type comb struct {
	parts  []part
	stream device.Stream
}

type part struct {
	bytes uint64
	pin   bool
}

func hole(bytes uint64) part { return part{bytes: bytes} }
func pin(bytes uint64) part  { return part{bytes: bytes, pin: true} }

// The combs tried first: the three-call pin, which fills each segment exactly, in the small and in the large pool;
// the same with the smallest request as pin, and on another stream; the pin in the middle, so that not even 1 MiB is left beside
// it; and one behind each hole, which holds in a range that grows, too.
var combs = []comb{
	{parts: []part{hole(mib), hole(mib - 512), pin(512)}},
	{parts: []part{hole(19 * mib / 2), hole(19*mib/2 - 512), pin(mib + 512)}},
	{parts: []part{hole(mib), hole(mib - 512), pin(1)}},
	{parts: []part{hole(mib), hole(mib - 512), pin(1)}, stream: 1},
	{parts: []part{hole(mib - 512), pin(513), hole(mib - 512)}},
	{parts: []part{hole(mib - 512), pin(1)}},
	{parts: []part{hole(2 * mib), pin(mib + 1)}},
	{parts: []part{hole(19 * mib / 2), hole(19*mib/2 - 512), pin(mib + 1)}},
}

// sequence makes sequence i.
func (s *Search) sequence(i int) *trace.Trace {
	t := &trace.Trace{
		Name:   fmt.Sprintf("counterexample:%d:%d", s.Seed, i),
		Header: []trace.Field{{Key: trace.KeyCapacity, Value: fmt.Sprint(s.Capacity)}},
	}
	b := &builder{src: s.source(i), capacity: s.Capacity, least: s.Least}
	switch {
	case i < len(combs):
		b.comb(combs[i])
	case i%combEvery == 0:
		b.comb(b.randomComb())
	default:
		b.random(s.Ops)
	}
	t.Ops = b.ops
	return t
}

type builder struct {
	src             gen.Source
	capacity, least uint64
	ops             []trace.Op
	live            []liveBlock
	bytes           uint64
	id              uint64
}

type liveBlock struct{ id, bytes uint64 }

func (b *builder) alloc(bytes uint64, s device.Stream) uint64 {
	id := b.id
	b.id++
	b.ops = append(b.ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: bytes, Stream: s})
	b.live = append(b.live, liveBlock{id, bytes})
	b.bytes += bytes
	return id
}

func (b *builder) free(i int) {
	v := b.live[i]
	b.live = append(b.live[:i], b.live[i+1:]...)
	b.bytes -= v.bytes
	b.ops = append(b.ops, trace.Op{Kind: trace.Free, ID: v.id})
}

// rounded is what a block takes of its segment.
func rounded(n uint64) uint64 { return (n + 511) / 512 * 512 }

// comb fills the device with the parts, frees the holes and asks, on both streams, for sizes about as large.
func (b *builder) comb(c comb) {
	largest := b.pin(c)
	for _, stream := range []device.Stream{0, 1} {
		for _, n := range []uint64{b.least, b.least + 1, largest + 1, largest + 512, 2*largest + 1, 19 * mib, 20*mib + 1} {
			if n < b.capacity {
				b.ops = append(b.ops, trace.Op{Kind: trace.Alloc, ID: b.id, Bytes: n, Stream: stream}, trace.Op{Kind: trace.Free, ID: b.id})
				b.id++
			}
		}
	}
}

// pin fills the device with the parts and frees the holes; it returns the largest of them.
func (b *builder) pin(c comb) (largest uint64) {
	var unit uint64
	for _, p := range c.parts {
		unit += rounded(p.bytes)
		if !p.pin {
			largest = max(largest, p.bytes)
		}
	}
	var holes []uint64
	for n := min(b.capacity/unit, maxUnits); n > 0; n-- {
		for _, p := range c.parts {
			if id := b.alloc(p.bytes, c.stream); !p.pin {
				holes = append(holes, id)
			}
		}
	}
	for _, id := range holes {
		b.ops = append(b.ops, trace.Op{Kind: trace.Free, ID: id})
	}
	return largest
}

// randomComb draws a comb.
func (b *builder) randomComb() comb {
	pins := []uint64{1, 512, 513, 64 * kib, mib, mib + 1, 2 * mib}
	sizes := []uint64{mib - 512, mib, mib + 1, 2 * mib, 9 * mib, 10 * mib, 19 * mib, 20 * mib}
	c := comb{stream: device.Stream(b.src.Uint64n(2))}
	for range 1 + b.src.Uint64n(2) {
		n := sizes[b.src.Uint64n(uint64(len(sizes)))]
		c.parts = append(c.parts, hole(rounded(n-512*b.src.Uint64n(3))))
	}
	at := b.src.Uint64n(uint64(len(c.parts))) + 1
	c.parts = slices.Insert(c.parts, int(at), pin(pins[b.src.Uint64n(uint64(len(pins)))]))
	return c
}

// random draws a short sequence of blocks that are large beside the device, so that it is full soon.
func (b *builder) random(ops int) {
	ops = 2 + int(b.src.Uint64n(uint64(max(ops-1, 1))))
	streams := uint64(1)
	if b.src.Uint64n(3) == 0 {
		streams = 2
	}
	var menu []uint64
	for range 2 + b.src.Uint64n(4) {
		menu = append(menu, b.size())
	}
	for len(b.ops) < ops {
		switch d := b.src.Uint64n(100); {
		case d < 55:
			n := menu[b.src.Uint64n(uint64(len(menu)))]
			left := b.capacity - min(b.capacity, b.bytes)
			switch b.src.Uint64n(6) {
			case 0: // about what is left
				if n = left; n > 64*mib && b.src.Uint64n(2) == 0 {
					n -= b.src.Uint64n(64 * mib)
				}
			case 1: // a share of it
				n = left / (1 + b.src.Uint64n(8))
			case 2:
				n = b.least + b.src.Uint64n(2)
			}
			b.alloc(max(n, 1), device.Stream(b.src.Uint64n(streams)))
		case d < 92 && len(b.live) > 0:
			b.free(int(b.src.Uint64n(uint64(len(b.live)))))
		case d < 95 && len(b.live) > 0:
			b.ops = append(b.ops, trace.Op{Kind: trace.Record, ID: b.live[b.src.Uint64n(uint64(len(b.live)))].id, Stream: device.Stream(1 + b.src.Uint64n(2))})
		case d < 96:
			b.ops = append(b.ops, trace.Op{Kind: trace.Sync, Stream: trace.AllStreams})
		case d < 97:
			b.ops = append(b.ops, trace.Op{Kind: trace.EmptyCache})
		}
	}
}

// size draws a class edge, a multiple of a page or a share of the device, or a little beside one.
func (b *builder) size() uint64 {
	var n uint64
	switch b.src.Uint64n(4) {
	case 0:
		edges := []uint64{512, 512 * kib, mib, mib + 1, 2 * mib, 10 * mib, 20 * mib}
		n = edges[b.src.Uint64n(uint64(len(edges)))]
	case 1:
		n = 20 * mib * (1 + b.src.Uint64n(12))
	case 2:
		n = 2 * mib * (1 + b.src.Uint64n(128))
	default:
		n = b.capacity / (1 + b.src.Uint64n(16))
	}
	switch b.src.Uint64n(4) {
	case 0:
		n -= min(n-1, 512)
	case 1:
		n++
	case 2:
		n -= min(n-1, b.src.Uint64n(20*mib))
	}
	return n
}
