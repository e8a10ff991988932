package trace

import (
	"bytes"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
)

// MaxPool is the largest number of a private pool, 2^31-1. The smallest is 1.
const MaxPool allocators.PoolID = 1<<31 - 1

// OnPool tells whether the operation opens, closes or releases a private pool.
func (k Kind) OnPool() bool { return k == PoolBegin || k == PoolEnd || k == PoolRelease }

// PoolSet knows which private pools there are, and which operations on them are legal. The zero value knows none.
type PoolSet struct {
	state map[allocators.PoolID]poolState
}

type poolState struct {
	uses int // begins less releases; 0: it was released
	open bool
}

// Step tells whether an operation is legal as to pools where it stands, and if so keeps track of it. Operations that concern no
// pool are.
func (p *PoolSet) Step(op *Op) bool { return !p.step(op).bad() }

// Open returns whether the pool is open.
func (p *PoolSet) Open(id allocators.PoolID) bool { return p.state[id].open }

func (p *PoolSet) step(op *Op) fault {
	switch {
	case op.Kind.OnPool(), op.Kind == EmptyCache && op.Pool != 0, op.Kind == Segment && op.Pool != 0:
	default:
		return fault{}
	}
	s, known := p.state[op.Pool]
	name := "pool " + strconv.FormatUint(uint64(op.Pool), 10)
	switch op.Kind {
	case PoolBegin:
		switch {
		case s.open:
			return fault{name + " is open already", "end it first"}
		case known && s.uses == 0:
			return fault{name + " was released", "take another number: pools do not come back"}
		}
		s.uses++
		s.open = true
	case PoolEnd:
		if !s.open {
			return fault{name + " is not open", "begin it first"}
		}
		s.open = false
	case PoolRelease:
		switch {
		case !known:
			return fault{name + " is not there", "begin it first"}
		case s.uses == 0:
			return fault{name + " was released", "each begin is released once"}
		case s.open && s.uses == 1:
			return fault{name + " is open", "end it before its last release"}
		}
		s.uses--
	case EmptyCache:
		if !known {
			return fault{name + " is not there", "begin it first"}
		}
		return fault{}
	case Segment:
		s.uses = 1 // a pool of the state to start from is in use
	}
	if p.state == nil {
		p.state = map[allocators.PoolID]poolState{}
	}
	p.state[op.Pool] = s
	return fault{}
}

// checkPool tells whether the pool's number is legal where one must stand, or may.
func checkPool(op *Op) fault {
	switch {
	case op.Pool > MaxPool:
		return fault{"pool " + strconv.FormatUint(uint64(op.Pool), 10) + " is over 2^31-1", ""}
	case op.Pool == 0 && op.Kind.OnPool():
		return fault{"pool 0 is the default pool", "private pools are numbered from 1"}
	}
	return fault{}
}

func appendPoolID(dst []byte, key string, p allocators.PoolID) []byte {
	return strconv.AppendUint(append(dst, key...), uint64(p), 10)
}

// appendPool writes what stands behind the words of a pool operation.
func appendPool(dst []byte, op *Op) []byte {
	dst = appendPoolID(dst, " ", op.Pool)
	if op.Kind != PoolBegin {
		return dst
	}
	if op.Stream != AllStreams {
		dst = appendStream(dst, op.Stream)
	}
	if op.Capture {
		dst = append(dst, " capture"...)
	}
	return dst
}

// poolOp parses what stands behind the word pool.
func (p *parser) poolOp() (Op, error) {
	col, word := p.token()
	var op Op
	switch string(word) {
	case "begin":
		op.Kind, op.Stream = PoolBegin, AllStreams
	case "end":
		op.Kind = PoolEnd
	case "release":
		op.Kind = PoolRelease
	case "":
		return op, p.fail(col, "pool lacks begin, end or release", usage(PoolBegin))
	default:
		return op, p.fail(col, "pool has no operation "+quote(string(word)), "one of begin, end, release")
	}
	at, word := p.token()
	if len(word) == 0 {
		return op, p.missing(op.Kind, "<pool>")
	}
	if err := p.pool(at, word, &op); err != nil {
		return op, err
	}
	streamGiven := false
	for {
		col, word := p.token()
		if len(word) == 0 {
			break
		}
		value, isStream := bytes.CutPrefix(word, []byte("stream="))
		var err error
		switch {
		case op.Kind == PoolBegin && isStream && streamGiven, op.Kind == PoolBegin && string(word) == "capture" && op.Capture:
			err = p.fail(col, "attribute "+quote(string(word))+" is given twice", "keep one of them")
		case op.Kind == PoolBegin && isStream:
			streamGiven = true
			op.Stream, err = p.stream(col+len("stream="), value)
		case op.Kind == PoolBegin && string(word) == "capture":
			op.Capture = true
		default:
			err = p.fail(col, op.Kind.String()+" has an argument too many: "+quote(string(word)), usage(op.Kind))
		}
		if err != nil {
			return op, err
		}
	}
	if f := p.pools.step(&op); f.bad() {
		return op, p.fail(at, f.msg, f.hint)
	}
	return op, nil
}

// pool reads a pool's number.
func (p *parser) pool(col int, word []byte, op *Op) error {
	n, ok := parseDigits(word)
	if !ok || n == 0 || n > uint64(MaxPool) {
		return p.fail(col, "pool "+quote(string(word))+" is none", "write a number from 1 to 2147483647")
	}
	op.Pool = allocators.PoolID(n)
	return nil
}

// Flags of leadPoolBegin and leadPoolFar.
const (
	flagCapture = 1 << iota
	flagOneStream
)

// pool writes an operation on a pool, or the cache of one emptied.
func (e *encoder) pool(op *Op) {
	far := uint64(op.Pool) > 128 || op.Stream > 127
	action := byte(0)
	switch op.Kind {
	case EmptyCache:
		e.lead(leadEmptyPool)
		e.number(uint64(op.Pool)-1, poolOperands)
		return
	case PoolBegin:
		action = leadPoolBegin
	case PoolEnd:
		action = leadPoolEnd
	case PoolRelease:
		action = leadPoolRelease
	}
	var flags byte
	if op.Capture {
		flags |= flagCapture
	}
	if op.Kind == PoolBegin && op.Stream != AllStreams {
		flags |= flagOneStream
	}
	if !far {
		e.lead(action)
		e.operand(byte(op.Pool - 1))
		if op.Kind == PoolBegin {
			e.operand(flags)
			e.operand(byte(max(op.Stream, 0)))
		}
		return
	}
	e.lead(leadPoolFar)
	e.operand(action - leadPoolBegin)
	e.number(uint64(op.Pool)-1, poolOperands)
	if op.Kind == PoolBegin {
		e.operand(flags)
		e.number(uint64(max(op.Stream, 0)), streamOperands)
	}
}

// poolID reads the long form of a pool's number.
func (o *operands) poolID() allocators.PoolID {
	return allocators.PoolID(o.number(poolOperands, uint64(MaxPool)-1) + 1)
}

// pool reads what encoder.pool wrote. It is dropped if it is not legal where it stands.
func (d *decoder) pool(lead byte, o *operands) {
	op := Op{Kind: EmptyCache}
	far := lead == leadPoolFar
	if far {
		lead = leadPoolBegin + o.next()%3
	}
	switch {
	case far, lead == leadEmptyPool:
		op.Pool = o.poolID()
	default:
		op.Pool = allocators.PoolID(o.next()) + 1
	}
	switch lead {
	case leadPoolBegin:
		op.Kind = PoolBegin
		flags := o.next()
		op.Capture = flags&flagCapture != 0
		stream := o.stream
		if far {
			stream = o.farStream
		}
		if op.Stream = stream(); flags&flagOneStream == 0 {
			op.Stream = AllStreams
		}
	case leadPoolEnd:
		op.Kind = PoolEnd
	case leadPoolRelease:
		op.Kind = PoolRelease
	}
	if d.pools.Step(&op) {
		d.add(op)
	}
}
