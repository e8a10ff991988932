package trace

import (
	"math"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Encode returns the bytes of a trace: its capacity, conf and fraction header, then its operations. Name, other header
// lines, comments and layout are not carried, nor is a header value that does not read, nor operations after the first
// MaxDecodedOps. Decode(Encode(t)) has the header and operations of every legal trace of at most MaxDecodedOps operations.
func Encode(t *Trace) []byte {
	e := encoder{out: make([]byte, 0, 16+5*len(t.Ops))}
	if capacity, ok, err := t.Capacity(); ok && err == nil {
		e.lead(leadCapacity)
		e.number((capacity/pageBytes+capacityModulus-capacityBase)%capacityModulus, pageOperands)
		e.number(capacity%pageBytes, inPageOperands)
	}
	if conf, ok := t.Settings(); ok && !checkField(Field{KeyConf, conf}).bad() {
		if conf == "" {
			e.lead(leadHeadConf)
		} else if n := slices.Index(commonConf, conf); n >= 0 {
			e.lead(leadHeadConf)
			e.operand(byte(n + 1))
		} else {
			e.lead(leadHeadConfText)
			e.text(conf)
		}
	}
	if f, ok, err := t.HeaderFraction(); ok && err == nil {
		e.fraction(f, leadHeadFraction, leadHeadFractExact)
	}
	for _, op := range t.Ops[:min(len(t.Ops), MaxDecodedOps)] {
		e.op(op)
	}
	e.trim()
	return e.out
}

// encoder appends one lead byte and its operands after another.
type encoder struct{ out []byte }

// lead begins an operation. The zero operands at the end of the one before are taken off, since missing ones mean zero.
func (e *encoder) lead(b byte) {
	e.trim()
	e.out = append(e.out, b)
}

func (e *encoder) trim() {
	for n := len(e.out); n > 0 && e.out[n-1] == 0; n-- {
		e.out = e.out[:n-1]
	}
}

func (e *encoder) operand(b byte) { e.out = append(e.out, b) }

// number writes n as operands, the lowest seven bits first: small numbers stay short.
func (e *encoder) number(n uint64, operands int) {
	for range operands {
		e.out = append(e.out, byte(n&0x7f))
		n >>= 7
	}
}

// id writes the short form of an id below idShort.
func (e *encoder) id(id uint64) {
	if id < idDirect {
		e.operand(byte(id))
		return
	}
	e.operand(byte(idDirect + (id-idDirect)>>7))
	e.operand(byte((id - idDirect) & 0x7f))
}

// text writes a check operand and one line of text: ASCII as itself, other bytes behind an escape. Control characters do not
// occur in it, so the escape is free, and no text ends with a zero operand that counts.
func (e *encoder) text(s string) {
	e.operand(textCheck(s))
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			e.operand(textEscape)
		}
		e.operand(s[i] & 0x7f)
	}
}

func (e *encoder) fraction(f float64, near, exact byte) {
	hundredths := math.Round((1 - f) * 100)
	if fractionBelow(uint64(hundredths)) == f {
		e.lead(near)
		e.operand(byte(hundredths))
		return
	}
	e.lead(exact)
	e.number(math.Float64bits(1)-math.Float64bits(f), bitsOperands)
}

func (e *encoder) op(op Op) {
	shortID, shortStream := op.ID < idShort, op.Stream < 128
	switch op.Kind {
	case Alloc:
		e.alloc(op, shortID && shortStream)
	case Free:
		if shortID {
			e.lead(leadFree)
			e.id(op.ID)
		} else {
			e.lead(leadFreeFar)
			e.number(op.ID, idOperands)
		}
	case Record:
		if shortID && shortStream {
			e.lead(leadRecord)
			e.id(op.ID)
			e.operand(byte(op.Stream))
		} else {
			e.lead(leadRecordFar)
			e.number(op.ID, idOperands)
			e.number(uint64(op.Stream), streamOperands)
		}
	case Use:
		if shortID && shortStream {
			e.lead(leadUse)
			e.id(op.ID)
			e.operand(byte(op.Stream))
		} else {
			e.lead(leadUseFar)
			e.number(op.ID, idOperands)
			e.number(uint64(op.Stream), streamOperands)
		}
	case Sync:
		e.sync(op.Stream)
	case PoolBegin, PoolEnd, PoolRelease:
		e.pool(&op)
	case EmptyCache:
		if op.Pool != 0 {
			e.pool(&op)
			return
		}
		e.lead(leadEmptyCache)
	case Conf:
		if n := slices.Index(commonConf, op.Conf); n >= 0 {
			e.lead(leadConf)
			e.operand(byte(n))
		} else {
			e.lead(leadConfText)
			e.text(op.Conf)
		}
	case Fraction:
		e.fraction(op.Fraction, leadFraction, leadFractionExact)
	case Foreign:
		if class, offset, ok := edgeOf(op.Bytes); ok {
			e.lead(leadForeignEdge)
			e.operand(class)
			e.operand(offset)
		} else {
			e.lead(leadForeignExact)
			e.number(op.Bytes, sizeOperands)
		}
	case Segment, Block:
		e.start(&op)
	}
}

// alloc takes the first form that can say the operation.
func (e *encoder) alloc(op Op, short bool) {
	if !short {
		e.lead(leadAllocFar)
		e.number(op.ID, idOperands)
		e.number(uint64(op.Stream), streamOperands)
		e.number(op.Bytes, sizeOperands)
		return
	}
	if class, offset, ok := edgeOf(op.Bytes); ok {
		e.lead(leadAllocEdge)
		e.id(op.ID)
		e.operand(class)
		e.operand(offset)
		e.operand(byte(op.Stream))
		return
	}
	if op.Bytes%mib == 0 {
		e.lead(leadAllocMiB)
		e.id(op.ID)
		e.operand(byte(op.Stream))
		e.number(op.Bytes/mib, mibOperands)
		return
	}
	e.lead(leadAllocExact)
	e.id(op.ID)
	e.operand(byte(op.Stream))
	e.number(op.Bytes, sizeOperands)
}

func (e *encoder) sync(s device.Stream) {
	switch {
	case s == AllStreams:
		e.lead(leadSyncAll)
	case s < 128:
		e.lead(leadSync)
		e.operand(byte(s))
	default:
		e.lead(leadSyncFar)
		e.number(uint64(s), streamOperands)
	}
}

const (
	// textEscape stands before an operand that means a byte from 0x80 on.
	textEscape = 0x01
	// pageBytes is what capacities are counted in.
	pageBytes = 2 * mib
	// capacityModulus is one more than the pages of the largest capacity.
	capacityModulus = 1<<60/pageBytes + 1
)

// textCheck is an operand that text must come with. Settings damaged by a mutation would nearly always be refused by the
// allocator under test and teach nothing, so damaged text is dropped instead.
func textCheck(s string) byte {
	sum := uint32(1)
	for i := 0; i < len(s); i++ {
		sum = sum*31 + uint32(s[i])
	}
	return byte(1 + sum%127)
}

// fractionBelow is the fraction that is n hundredths below 1, n from 0 to 100.
func fractionBelow(n uint64) float64 { return float64(100-n) / 100 }

// unescape reads the operands that text wrote.
func unescape(operands *operands) string {
	var s strings.Builder
	for operands.more() {
		c := operands.next()
		if c == textEscape {
			c = operands.next() | 0x80
		}
		s.WriteByte(c)
	}
	return s.String()
}
