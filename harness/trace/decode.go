package trace

import (
	"math"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// MaxDecodedOps is the most operations that Decode gives and that Encode carries.
const MaxDecodedOps = 1024

// Decode returns the trace that the bytes mean. It is total: every byte string gives a legal trace, in time linear in its
// length, of at most MaxDecodedOps operations.
func Decode(b []byte) *Trace {
	d := decoder{}
	for len(b) > 0 && len(d.ops) < MaxDecodedOps {
		lead := b[0]
		end := 1
		for end < len(b) && b[end] < 0x80 {
			end++
		}
		if lead >= 0x80 { // operands before the first lead belong to nothing
			args := operands{b[1:end]}
			if (lead == leadSegment || lead == leadBlock) && !d.starts.over {
				d.start(lead, &args)
			} else if lead < firstAlias {
				d.canonical(lead, &args)
			} else {
				d.alias(lead, &args)
			}
		}
		b = b[end:]
	}
	return &Trace{Header: d.header(), Ops: d.ops}
}

// operands are the 7-bit bytes behind a lead byte.
type operands struct{ left []byte }

func (o *operands) more() bool { return len(o.left) > 0 }

// next returns the next operand, zero if there is none.
func (o *operands) next() byte {
	if len(o.left) == 0 {
		return 0
	}
	b := o.left[0]
	o.left = o.left[1:]
	return b
}

// number reads what encoder.number wrote; a number over most is folded below it.
func (o *operands) number(operands int, most uint64) uint64 {
	var n uint64
	for i := range operands {
		n |= uint64(o.next()) << (7 * i)
	}
	if n > most {
		n %= most + 1
	}
	return n
}

func (o *operands) id() uint64 {
	first := uint64(o.next())
	if first < idDirect {
		return first
	}
	return idDirect + (first-idDirect)<<7 + uint64(o.next())
}

func (o *operands) stream() device.Stream { return device.Stream(o.next()) }

func (o *operands) farStream() device.Stream {
	return device.Stream(o.number(streamOperands, uint64(MaxStream)))
}

// edge reads a class and an offset.
func (o *operands) edge() uint64 {
	edge := classEdges[o.next()]
	return applyDistance(edge, o.next())
}

func (o *operands) fraction() float64 { return fractionBelow(o.number(1, 100)) }

func (o *operands) fractionExact() float64 {
	one := math.Float64bits(1)
	return math.Float64frombits(one - o.number(bitsOperands, one))
}

// text reads checked text; ok is false if the check fails.
func (o *operands) text() (s string, ok bool) {
	check := o.next()
	s = unescape(o)
	return s, textCheck(s) == check
}

// decoder collects operations. It resolves every handle to an id, and drops what cannot apply, so a later change to the
// list of operations renames nothing.
type decoder struct {
	ops    []Op
	live   liveSet
	starts starts
	pools  PoolSet

	capacity, conf, fraction *string // the header; the first one given wins
}

// add appends an operation unless it is an alloc of a live id, or a free, record or use of one that is not.
func (d *decoder) add(op Op) {
	if d.live.step(op) {
		d.starts.over = true
		d.ops = append(d.ops, op)
	}
}

func (d *decoder) canonical(lead byte, o *operands) {
	switch lead {
	case leadAllocEdge:
		op := Op{Kind: Alloc, ID: o.id(), Bytes: o.edge()}
		op.Stream = o.stream()
		d.add(op)
	case leadAllocMiB:
		op := Op{Kind: Alloc, ID: o.id(), Stream: o.stream()}
		op.Bytes = o.number(mibOperands, MaxBytes/mib) * mib
		d.add(op)
	case leadAllocExact:
		op := Op{Kind: Alloc, ID: o.id(), Stream: o.stream()}
		op.Bytes = o.number(sizeOperands, MaxBytes)
		d.add(op)
	case leadAllocFar:
		op := Op{Kind: Alloc, ID: o.number(idOperands, MaxID), Stream: o.farStream()}
		op.Bytes = o.number(sizeOperands, MaxBytes)
		d.add(op)
	case leadFree:
		d.add(Op{Kind: Free, ID: o.id()})
	case leadFreeFar:
		d.add(Op{Kind: Free, ID: o.number(idOperands, MaxID)})
	case leadRecord:
		d.add(Op{Kind: Record, ID: o.id(), Stream: o.stream()})
	case leadRecordFar:
		d.add(Op{Kind: Record, ID: o.number(idOperands, MaxID), Stream: o.farStream()})
	case leadSyncAll:
		d.add(Op{Kind: Sync, Stream: AllStreams})
	case leadSync:
		d.add(Op{Kind: Sync, Stream: o.stream()})
	case leadSyncFar:
		d.add(Op{Kind: Sync, Stream: o.farStream()})
	case leadEmptyCache:
		d.add(Op{Kind: EmptyCache})
	case leadConf:
		d.add(Op{Kind: Conf, Conf: commonConf[int(o.next())%len(commonConf)]})
	case leadConfText:
		if s, ok := o.text(); ok && !checkConf(s).bad() {
			d.add(Op{Kind: Conf, Conf: s})
		}
	case leadFraction:
		d.add(Op{Kind: Fraction, Fraction: o.fraction()})
	case leadFractionExact:
		d.add(Op{Kind: Fraction, Fraction: o.fractionExact()})
	case leadForeignEdge:
		d.add(Op{Kind: Foreign, Bytes: o.edge()})
	case leadForeignExact:
		d.add(Op{Kind: Foreign, Bytes: o.number(sizeOperands, MaxBytes)})
	default:
		d.head(lead, o)
	}
}

// head takes a lead that sets the header.
func (d *decoder) head(lead byte, o *operands) {
	switch lead {
	case leadCapacity:
		pages := (o.number(pageOperands, capacityModulus-1) + capacityBase) % capacityModulus
		d.setCapacity(pages, o.number(inPageOperands, pageBytes-1))
	case leadHeadConf:
		if n := int(o.next()); n == 0 {
			setOnce(&d.conf, "")
		} else {
			setOnce(&d.conf, commonConf[(n-1)%len(commonConf)])
		}
	case leadHeadConfText:
		if s, ok := o.text(); ok && !checkField(Field{KeyConf, s}).bad() {
			setOnce(&d.conf, s)
		}
	case leadHeadFraction:
		setOnce(&d.fraction, string(appendFraction(nil, o.fraction())))
	case leadHeadFractExact:
		setOnce(&d.fraction, string(appendFraction(nil, o.fractionExact())))
	}
}

// alias takes the leads that Encode never writes, and those that were taken over. Arbitrary bytes have about one operand a lead, so these make something
// of the lead alone: a few slots that are soon used again, on a few streams.
func (d *decoder) alias(lead byte, o *operands) {
	switch s := lead - firstAlias; {
	case lead == leadUse:
		d.add(Op{Kind: Use, ID: o.id(), Stream: o.stream()})
	case lead == leadUseFar:
		d.add(Op{Kind: Use, ID: o.number(idOperands, MaxID), Stream: o.farStream()})
	case lead >= leadPoolBegin && lead <= leadEmptyPool:
		d.pool(lead, o)
	case lead >= aliasToggle:
		d.toggle(lead-aliasToggle, o)
	case lead >= aliasFree:
		d.add(Op{Kind: Free, ID: (uint64(o.next()) + uint64(lead-aliasFree)*aliasSlots/4) % aliasSlots})
	case lead >= aliasCapacity:
		d.setCapacity(aliasCapacityPages[lead-aliasCapacity]+uint64(o.next()), 0)
	case lead >= aliasEmptyCache:
		d.add(Op{Kind: EmptyCache})
	case lead >= aliasSync:
		d.add(Op{Kind: Sync, Stream: aliasSyncStream[lead-aliasSync]})
	default:
		id := (uint64(o.next()) + uint64(s)*aliasSlots/16) % aliasSlots
		d.add(Op{Kind: Record, ID: id, Stream: device.Stream((s + o.next()) % aliasStreams)})
	}
}

// toggle frees a slot that is live and allocates one that is not.
func (d *decoder) toggle(s byte, o *operands) {
	id := uint64(s % aliasSlots)
	if d.live.has(id) {
		d.add(Op{Kind: Free, ID: id})
		return
	}
	op := Op{Kind: Alloc, ID: id, Bytes: aliasToggleEdge[s%16]}
	if o.more() {
		op.Bytes = o.edge()
	}
	op.Stream = device.Stream((s/16 + o.next()) % aliasStreams)
	d.add(op)
}

func (d *decoder) setCapacity(pages, rest uint64) {
	setOnce(&d.capacity, strconv.FormatUint(min(pages*pageBytes+rest, MaxBytes), 10))
}

// header returns the header lines in the order capacity, conf, fraction.
func (d *decoder) header() []Field {
	var header []Field
	for _, f := range []struct {
		key   string
		value *string
	}{{KeyCapacity, d.capacity}, {KeyConf, d.conf}, {KeyFraction, d.fraction}} {
		if f.value != nil {
			header = append(header, Field{f.key, *f.value})
		}
	}
	return header
}

func setOnce(place **string, value string) {
	if *place == nil {
		*place = &value
	}
}
