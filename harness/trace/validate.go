package trace

import (
	"math"
	"strconv"
	"strings"
)

// Validate tells whether the trace is legal: every operation in range, liveness kept, the header readable. A trace that
// Parse or Decode gave is legal; this is for traces built in a program. An error is an *Error.
func (t *Trace) Validate() error {
	for i, field := range t.Header {
		if f := checkField(field); f.bad() {
			return t.headerError(i, f)
		}
		if _, f := canonicalValue(field.Key, field.Value); f.bad() && (t.find(field.Key) == i || field.Key == KeyVersion) {
			return t.headerError(i, f)
		}
	}
	var live liveSet
	var starts starts
	var pools PoolSet
	for i, op := range t.Ops {
		f := checkOp(op)
		if !f.bad() && !live.step(op) {
			f = liveFault(op)
		}
		if !f.bad() {
			f = starts.step(&op)
		}
		if !f.bad() {
			f = pools.step(&op)
		}
		if f.bad() {
			return &Error{Name: t.Name, Line: t.Line(i), Op: i, Msg: f.msg, Hint: f.hint}
		}
	}
	return nil
}

// checkField tells whether a header line can be written so that it reads back the same.
func checkField(field Field) fault {
	for i := 0; i < len(field.Key); i++ {
		if !isKeyByte(field.Key[i]) {
			return fault{"header key " + quote(field.Key) + " has a character that keys cannot have", "use a-z, 0-9, _ and -"}
		}
	}
	switch {
	case field.Key == "":
		return fault{"a header key is empty", "use a-z, 0-9, _ and -"}
	case len(field.Key)+len(field.Value) > maxLine-len("# : "):
		return fault{"header " + quote(field.Key) + " is over the line limit of " + strconv.Itoa(maxLine) + " bytes", "shorten it"}
	}
	return checkLine("header "+field.Key, field.Value)
}

// checkLine tells whether a value fits on its line: text without line ends and without blanks around it.
func checkLine(what, value string) fault {
	if col, f := notText([]byte(value)); f.bad() {
		return fault{what + ": " + f.msg + ", at byte " + strconv.Itoa(col), "use one line of UTF-8 text"}
	}
	if trimBlank(value) != value {
		return fault{what + " has blanks around its value " + quote(value), "trim it"}
	}
	return fault{}
}

// checkOp tells whether the operation is legal by itself: its fields in range, those its kind does not use zero.
func checkOp(op Op) fault {
	if int(op.Kind) >= kindCount {
		return fault{"unknown operation " + op.Kind.String(), ""}
	}
	used := Op{Kind: op.Kind}
	switch op.Kind {
	case Alloc:
		used.ID, used.Bytes, used.Stream = op.ID, op.Bytes, op.Stream
	case Free:
		used.ID = op.ID
	case Record, Use:
		used.ID, used.Stream = op.ID, op.Stream
	case EmptyCache, PoolEnd, PoolRelease:
		used.Pool = op.Pool
	case PoolBegin:
		used.Pool, used.Stream, used.Capture = op.Pool, op.Stream, op.Capture
	case Sync:
		used.Stream = op.Stream
	case Conf:
		used.Conf = op.Conf
		if f := checkConf(op.Conf); f.bad() {
			return f
		}
	case Fraction:
		if !fractionInRange(op.Fraction) {
			return fault{"fraction " + string(appendFraction(nil, op.Fraction)) + " is outside 0..1", fractionHint}
		}
		used.Fraction = op.Fraction
	case Foreign:
		used.Bytes = op.Bytes
	case Segment:
		used.ID, used.Bytes, used.Stream, used.Small, used.Expandable, used.GoesOn = op.ID, op.Bytes, op.Stream, op.Small, op.Expandable, op.GoesOn
		used.Pool = op.Pool
		if op.GoesOn {
			used.Base, used.Offset = op.Base, op.Offset
		}
	case Block:
		used.ID, used.Bytes, used.Requested, used.Base, used.Offset = op.ID, op.Bytes, op.Requested, op.Base, op.Offset
	}
	switch {
	case used != op || math.Float64bits(used.Fraction) != math.Float64bits(op.Fraction):
		return fault{op.Kind.String() + " has a field set that it does not use", "leave it zero: " + kindUsage[op.Kind]}
	case op.Bytes > MaxBytes:
		return fault{"size " + strconv.FormatUint(op.Bytes, 10) + " is over 2^60 bytes", ""}
	case op.ID > MaxID:
		return fault{"id " + strconv.FormatUint(op.ID, 10) + " is over 2^63-1", ""}
	case op.Stream < 0 && !((op.Kind == Sync || op.Kind == PoolBegin) && op.Stream == AllStreams):
		return fault{"stream " + strconv.Itoa(int(op.Stream)) + " is negative", ""}
	case op.Kind.Starts():
		if f := checkStart(&op); f.bad() {
			return f
		}
	}
	return checkPool(&op)
}

// checkConf tells whether settings can stand behind the word conf and read back the same.
func checkConf(conf string) fault {
	switch {
	case conf == "":
		return fault{"conf has no settings", usage(Conf)}
	case len(conf) > maxLine-len("conf "):
		return fault{"conf is over the line limit of " + strconv.Itoa(maxLine) + " bytes", "shorten it"}
	case conf[0] == '#' || strings.Contains(conf, " #") || strings.Contains(conf, "\t#"):
		return fault{"conf has a comment in its settings: " + quote(conf), "leave the comment out"}
	}
	return checkLine("conf", conf)
}

// liveSet is the set of live ids. Small ids, which is nearly all, are bits; the rest is a map.
type liveSet struct {
	low  []uint64
	high map[uint64]struct{}
}

// lowIDs bounds the bit set at 128 KiB.
const lowIDs = 1 << 20

func (l *liveSet) has(id uint64) bool {
	if id >= lowIDs {
		_, ok := l.high[id]
		return ok
	}
	return id/64 < uint64(len(l.low)) && l.low[id/64]>>(id%64)&1 == 1
}

func (l *liveSet) add(id uint64) {
	if id >= lowIDs {
		if l.high == nil {
			l.high = map[uint64]struct{}{}
		}
		l.high[id] = struct{}{}
		return
	}
	if word := int(id / 64); word >= len(l.low) {
		grown := make([]uint64, max(2*len(l.low), word+1, 8))
		copy(grown, l.low)
		l.low = grown
	}
	l.low[id/64] |= 1 << (id % 64)
}

func (l *liveSet) remove(id uint64) {
	if id >= lowIDs {
		delete(l.high, id)
		return
	}
	l.low[id/64] &^= 1 << (id % 64)
}

// step tells whether the operation keeps liveness, and if so keeps track of it.
func (l *liveSet) step(op Op) bool {
	switch op.Kind {
	case Alloc, Block:
		if l.has(op.ID) {
			return false
		}
		l.add(op.ID)
	case Free, Record, Use:
		if !l.has(op.ID) {
			return false
		}
		if op.Kind == Free {
			l.remove(op.ID)
		}
	}
	return true
}

// liveFault says what is wrong with an operation that step refused.
func liveFault(op Op) fault {
	what := op.Kind.String() + " of id " + strconv.FormatUint(op.ID, 10)
	if op.Kind == Alloc || op.Kind == Block {
		return fault{what + ", which is live", "free it first, or take another id"}
	}
	return fault{what + ", which is not live", "alloc it first"}
}
