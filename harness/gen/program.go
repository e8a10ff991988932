package gen

import (
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// maxStreams is how many streams a generator tells apart: the uses of a block are a bit mask.
const maxStreams = 32

// Sizes in bytes.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// program is the trace under construction and the generator's model of the device. It never looks at an allocator: what
// it knows is what was asked for and not freed.
type program struct {
	src Source
	// ops has room for exactly the operations wanted. What does not fit is dropped, so patterns may run over the end.
	ops []trace.Op

	live   uint64 // requested bytes of live blocks
	serial uint64 // allocations so far
	reuse  bool   // take the id of the last block freed, if there is one
	spare  []uint64

	// pending are blocks freed while other streams still used them.
	pending      []pendingBlock
	pendingBytes uint64
}

// block is a live allocation.
type block struct {
	id, bytes, serial uint64
	stream            device.Stream
	uses              uint32 // recorded streams, a bit each
}

type pendingBlock struct {
	bytes uint64
	uses  uint32
}

// set is a group of live blocks with a common fate. Removal fills the hole with the last block, so order means nothing.
type set struct {
	blocks []block
	bytes  uint64
}

func newProgram(src Source, ops int) program {
	return program{src: src, ops: make([]trace.Op, 0, ops)}
}

func (p *program) full() bool { return len(p.ops) == cap(p.ops) }

// held is the requested bytes that are live or pending.
func (p *program) held() uint64 { return p.live + p.pendingBytes }

func (p *program) emit(op trace.Op) {
	if !p.full() {
		p.ops = append(p.ops, op)
	}
}

func (p *program) alloc(s *set, bytes uint64, stream device.Stream) {
	id := p.serial
	if n := len(p.spare); p.reuse && n > 0 {
		id = p.spare[n-1]
		p.spare = p.spare[:n-1]
	}
	p.emit(trace.Op{Kind: trace.Alloc, ID: id, Bytes: bytes, Stream: stream})
	s.blocks = append(s.blocks, block{id: id, bytes: bytes, serial: p.serial, stream: stream})
	s.bytes += bytes
	p.live += bytes
	p.serial++
}

// free frees block i of a set.
func (p *program) free(s *set, i int) {
	b := s.blocks[i]
	last := len(s.blocks) - 1
	s.blocks[i] = s.blocks[last]
	s.blocks = s.blocks[:last]
	s.bytes -= b.bytes
	p.live -= b.bytes
	if b.uses != 0 {
		p.pending = append(p.pending, pendingBlock{b.bytes, b.uses})
		p.pendingBytes += b.bytes
	}
	if p.reuse {
		p.spare = append(p.spare, b.id)
	}
	p.emit(trace.Op{Kind: trace.Free, ID: b.id})
}

// freeNewest frees the last block of a set that only ever loses its last block.
func (p *program) freeNewest(s *set) { p.free(s, len(s.blocks)-1) }

// freeAll frees a set from its end.
func (p *program) freeAll(s *set) {
	for len(s.blocks) > 0 {
		p.freeNewest(s)
	}
}

// record notes a use of block i on another stream.
func (p *program) record(s *set, i int, stream device.Stream) {
	b := &s.blocks[i]
	if stream != b.stream {
		b.uses |= 1 << stream
	}
	p.emit(trace.Op{Kind: trace.Record, ID: b.id, Stream: stream})
}

// sync completes the work of one stream, or of trace.AllStreams.
func (p *program) sync(stream device.Stream) {
	done := ^uint32(0)
	if stream != trace.AllStreams {
		done = 1 << stream
	}
	left := p.pending[:0]
	p.pendingBytes = 0
	for _, b := range p.pending {
		if b.uses &^= done; b.uses != 0 {
			left = append(left, b)
			p.pendingBytes += b.bytes
		}
	}
	p.pending = left
	p.emit(trace.Op{Kind: trace.Sync, Stream: stream})
}

// pick is a random block of a set, which is not empty.
func (p *program) pick(s *set) int { return int(p.src.Uint64n(uint64(len(s.blocks)))) }

// older and younger pick the older and the younger of two random blocks: lifetimes lean one way without becoming a queue or
// a stack.
func (p *program) older(s *set) int {
	i, j := p.pick(s), p.pick(s)
	if s.blocks[j].serial < s.blocks[i].serial {
		return j
	}
	return i
}

func (p *program) younger(s *set) int {
	i, j := p.pick(s), p.pick(s)
	if s.blocks[j].serial > s.blocks[i].serial {
		return j
	}
	return i
}

// between draws from lo to hi, both included.
func between(src Source, lo, hi uint64) uint64 {
	if hi <= lo {
		return lo
	}
	return lo + src.Uint64n(hi-lo+1)
}

// chance is true in n of m cases.
func chance(src Source, n, m uint64) bool { return src.Uint64n(m) >= m-n }

// share is a part of n bytes, exact enough for any n of the format.
func share(n uint64, part float64) uint64 { return uint64(part * float64(n)) }

// percent of n bytes.
func percent(n, p uint64) uint64 { return n / 100 * p }

// finish makes the trace; the header has the capacity.
func (p *program) finish(capacity uint64) *trace.Trace {
	return &trace.Trace{
		Header: []trace.Field{{Key: trace.KeyCapacity, Value: strconv.FormatUint(capacity, 10)}},
		Ops:    p.ops,
	}
}
