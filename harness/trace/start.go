package trace

import (
	"bytes"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// StartGrain is what sizes and offsets of the operations segment and block are a multiple of, in bytes: the quantum to which
// PyTorch rounds requests.
const StartGrain = 512

// segmentGrain is what the size of a segment is a multiple of: 2 MiB.
const segmentGrain = 2 << 20

// Starts tells whether the operation describes the state to start from: segment or block.
func (k Kind) Starts() bool { return k == Segment || k == Block }

// startSegment is a segment of the state to start from.
type startSegment struct {
	bytes, end  uint64 // end of the last block so far
	reach       uint64 // of an expandable segment that others go on: the end of the last one, from its start
	stream      device.Stream
	small, page bool
	goesOn      bool
	private     allocators.PoolID
}

// starts checks the operations that describe the state to start from.
type starts struct {
	segments map[uint64]*startSegment
	over     bool // another operation came
}

// step tells what is wrong with an operation in its place.
func (s *starts) step(op *Op) fault {
	switch op.Kind {
	case Segment:
		return s.segment(op)
	case Block:
		return s.block(op)
	}
	s.over = true
	return fault{}
}

func (s *starts) late(op *Op) fault {
	if !s.over {
		return fault{}
	}
	return fault{op.Kind.String() + " behind an operation of another kind",
		"segments and blocks are the state to start from: put them first"}
}

func (s *starts) segment(op *Op) fault {
	if f := s.late(op); f.bad() {
		return f
	}
	if s.segments[op.ID] != nil {
		return fault{"segment " + strconv.FormatUint(op.ID, 10) + " is there already", "take another number"}
	}
	g := &startSegment{bytes: op.Bytes, reach: op.Bytes, stream: op.Stream, small: op.Small, page: op.Expandable, goesOn: op.GoesOn, private: op.Pool}
	if op.GoesOn {
		base := s.segments[op.Base]
		switch {
		case base == nil || !base.page || base.goesOn:
			return fault{"there is no expandable segment " + strconv.FormatUint(op.Base, 10) + " to go on", "name the first one of its address range"}
		case base.stream != op.Stream || base.small != op.Small || base.private != op.Pool:
			return fault{"an address range belongs to one stream and pool", "give it those of segment " + strconv.FormatUint(op.Base, 10)}
		case op.Offset <= base.reach:
			return fault{"offset " + strconv.FormatUint(op.Offset, 10) + " does not lie behind what is mapped before it",
				"ranges of an address range stand in order, with a hole between them"}
		}
		base.reach = op.Offset + op.Bytes
	}
	if s.segments == nil {
		s.segments = map[uint64]*startSegment{}
	}
	s.segments[op.ID] = g
	return fault{}
}

func (s *starts) block(op *Op) fault {
	if f := s.late(op); f.bad() {
		return f
	}
	g := s.segments[op.Base]
	switch {
	case g == nil:
		return fault{"there is no segment " + strconv.FormatUint(op.Base, 10), "write it first: " + kindUsage[Segment]}
	case op.Offset < g.end:
		return fault{"the block begins before the end of the last one, at " + strconv.FormatUint(g.end, 10), "blocks of a segment stand in order and do not overlap"}
	case op.Offset > g.bytes || op.Bytes > g.bytes-op.Offset:
		return fault{"the block does not fit in its segment of " + strconv.FormatUint(g.bytes, 10) + " bytes", "check its offset and size"}
	}
	g.end = op.Offset + op.Bytes
	return fault{}
}

// checkStart tells whether a segment or block is legal by itself.
func checkStart(op *Op) fault {
	switch {
	case op.Bytes == 0 || op.Bytes%StartGrain != 0:
		return fault{op.Kind.String() + " of " + strconv.FormatUint(op.Bytes, 10) + " bytes", "write a positive multiple of 512"}
	case op.Kind == Segment && op.Bytes%segmentGrain != 0:
		return fault{"segment of " + strconv.FormatUint(op.Bytes, 10) + " bytes", "write a positive multiple of 2 MiB, which devices give memory in"}
	case op.Offset%StartGrain != 0:
		return fault{"offset " + strconv.FormatUint(op.Offset, 10) + " is no multiple of 512", ""}
	case op.Offset > MaxBytes:
		return fault{"offset " + strconv.FormatUint(op.Offset, 10) + " is over 2^60 bytes", ""}
	case op.Base > MaxID:
		return fault{"segment " + strconv.FormatUint(op.Base, 10) + " is over 2^63-1", ""}
	case op.Kind == Block && (op.Requested == 0 || op.Requested > op.Bytes):
		return fault{"a block of " + strconv.FormatUint(op.Bytes, 10) + " bytes for a request of " + strconv.FormatUint(op.Requested, 10),
			"the request lies between 1 and the block's size"}
	case op.GoesOn && !op.Expandable:
		return fault{"at= is for expandable segments", usage(Segment)}
	}
	return fault{}
}

// appendStart writes what stands behind the word of a segment or block.
func appendStart(dst []byte, op *Op) []byte {
	dst = appendUint(dst, op.ID)
	dst = appendUint(dst, op.Bytes)
	if op.Kind == Block {
		dst = strconv.AppendUint(append(dst, " requested="...), op.Requested, 10)
		return appendPlace(dst, op)
	}
	dst = append(appendStream(dst, op.Stream), " pool="...)
	if op.Small {
		dst = append(dst, "small"...)
	} else {
		dst = append(dst, "large"...)
	}
	if op.Expandable {
		dst = append(dst, " expandable"...)
	}
	if op.GoesOn {
		dst = appendPlace(dst, op)
	}
	if op.Pool != 0 {
		dst = appendPoolID(dst, " private=", op.Pool)
	}
	return dst
}

func appendPlace(dst []byte, op *Op) []byte {
	dst = strconv.AppendUint(append(dst, " at="...), op.Base, 10)
	return strconv.AppendUint(append(dst, '+'), op.Offset, 10)
}

// startOp parses what stands behind the word of a segment or block.
func (p *parser) startOp(kind Kind) (Op, error) {
	op := Op{Kind: kind}
	first, _ := p.rest()
	var err error
	if _, op.ID, err = p.id(kind); err != nil {
		return op, err
	}
	if op.Bytes, err = p.size(kind); err != nil {
		return op, err
	}
	given := map[string]bool{}
	for {
		col, word := p.token()
		if len(word) == 0 {
			break
		}
		key, value, hasValue := bytes.Cut(word, []byte{'='})
		k := string(key)
		if given[k] {
			return op, p.fail(col, "attribute "+k+" is given twice", "keep one of them")
		}
		given[k] = true
		at := col + len(k) + 1
		switch {
		case k == "stream" && hasValue && kind == Segment:
			op.Stream, err = p.stream(at, value)
		case k == "pool" && hasValue && kind == Segment:
			if op.Small = string(value) == "small"; !op.Small && string(value) != "large" {
				err = p.fail(at, "pool "+quote(string(value))+" is none", "write small or large")
			}
		case k == "private" && hasValue && kind == Segment:
			err = p.pool(at, value, &op)
		case k == "expandable" && !hasValue && kind == Segment:
			op.Expandable = true
		case k == "requested" && hasValue && kind == Block:
			var f fault
			if op.Requested, f = parseSize(string(value)); f.bad() {
				err = p.fail(at, f.msg, f.hint)
			}
		case k == "at" && hasValue:
			op.GoesOn = kind == Segment
			err = p.place(at, value, &op)
		default:
			err = p.fail(col, kind.String()+" has no argument "+quote(string(word)), usage(kind))
		}
		if err != nil {
			return op, err
		}
	}
	for _, need := range map[Kind][]string{Segment: {"pool"}, Block: {"requested", "at"}}[kind] {
		if !given[need] {
			return op, p.missing(kind, need+"=")
		}
	}
	if f := checkStart(&op); f.bad() {
		return op, p.fail(first, f.msg, f.hint)
	}
	if kind == Block && !p.live.step(op) {
		return op, p.liveError(first, op)
	}
	return op, nil
}

// place reads <segment>+<offset>.
func (p *parser) place(col int, value []byte, op *Op) error {
	base, offset, ok := bytes.Cut(value, []byte{'+'})
	n, isNumber := parseDigits(base)
	if !ok || !isNumber {
		return p.fail(col, "place "+quote(string(value))+" is none", "write <segment>+<offset> such as 0+2097152")
	}
	op.Base = n
	var f fault
	if op.Offset, f = parseSize(string(offset)); f.bad() {
		return p.fail(col+len(base)+1, f.msg, f.hint)
	}
	return nil
}

// Flags of leadSegment.
const (
	flagSmall = 1 << iota
	flagExpandable
	flagGoesOn
)

// start writes a segment or block. There are few of them, at the beginning, so every number has its long form.
func (e *encoder) start(op *Op) {
	if op.Kind == Block {
		e.lead(leadBlock)
		e.number(op.ID, idOperands)
		e.number(op.Base, idOperands)
		e.number(op.Bytes/StartGrain, sizeOperands)
		e.number(op.Bytes-op.Requested, sizeOperands)
		e.number(op.Offset/StartGrain, sizeOperands)
		return
	}
	e.lead(leadSegment)
	e.number(op.ID, idOperands)
	e.number(op.Bytes/StartGrain, sizeOperands)
	e.number(uint64(op.Stream), streamOperands)
	var flags byte
	if op.Small {
		flags |= flagSmall
	}
	if op.Expandable {
		flags |= flagExpandable
	}
	if op.GoesOn {
		flags |= flagGoesOn
	}
	e.operand(flags)
	e.number(op.Base, idOperands)
	e.number(op.Offset/StartGrain, sizeOperands)
	e.number(uint64(op.Pool), poolOperands)
}

// start reads what encoder.start wrote. It is dropped if it is not legal where it stands.
func (d *decoder) start(lead byte, o *operands) {
	op := Op{Kind: Block, ID: o.number(idOperands, MaxID)}
	if lead == leadBlock {
		op.Base = o.number(idOperands, MaxID)
		op.Bytes = o.number(sizeOperands, MaxBytes/StartGrain) * StartGrain
		op.Requested = op.Bytes - o.number(sizeOperands, max(op.Bytes, 1)-1)
		op.Offset = o.number(sizeOperands, MaxBytes/StartGrain) * StartGrain
	} else {
		op.Kind = Segment
		op.Bytes = o.number(sizeOperands, MaxBytes/StartGrain) * StartGrain
		op.Bytes = (op.Bytes + segmentGrain - 1) / segmentGrain * segmentGrain
		op.Stream = o.farStream()
		flags := o.next()
		op.Small, op.Expandable = flags&flagSmall != 0, flags&flagExpandable != 0
		op.GoesOn = flags&flagGoesOn != 0 && op.Expandable
		base, offset := o.number(idOperands, MaxID), o.number(sizeOperands, MaxBytes/StartGrain)*StartGrain
		if op.GoesOn {
			op.Base, op.Offset = base, offset
		}
		op.Pool = allocators.PoolID(o.number(poolOperands, uint64(MaxPool)))
	}
	if checkStart(&op).bad() || op.Kind == Block && d.live.has(op.ID) || d.starts.step(&op).bad() {
		return
	}
	if op.Kind == Block {
		d.live.add(op.ID)
	}
	d.pools.Step(&op)
	d.ops = append(d.ops, op)
}
