package snapshot

import (
	"bufio"
	"math/bits"
	"unicode/utf8"
)

// Bounds against files that are no snapshots. Real files nest six deep and have no string over a few kilobytes, but for the text
// of settings and metadata.
const (
	maxString = 16 << 20
	maxStack  = 1 << 26 // values waiting for their container; Python writes batches of 1000
)

// decoder reads the subset of pickle that memory snapshots take.
type decoder struct {
	name string
	in   *bufio.Reader
	at   int64 // offset of the next byte

	stack []value
	marks []int
	memo  []value
	wides []wide
	buf   []byte
	b     *builder
}

func (d *decoder) byte() (byte, error) {
	b, err := d.in.ReadByte()
	if err != nil {
		return 0, d.readErr(err)
	}
	d.at++
	return b, nil
}

// bytes returns the next n bytes; they are valid until the next read. n is at most the buffer of in.
func (d *decoder) bytes(n int) ([]byte, error) {
	b, err := d.in.Peek(n)
	if err != nil {
		return nil, d.readErr(err)
	}
	_, _ = d.in.Discard(n) // it was peeked at
	d.at += int64(n)
	return b, nil
}

// uint reads an unsigned integer of up to 8 bytes, least significant first.
func (d *decoder) uint(n uint8) (u uint64, err error) {
	switch n {
	case 0:
		return 0, nil
	case 1:
		b, err := d.byte()
		return uint64(b), err
	}
	b, err := d.bytes(int(n))
	for i, c := range b {
		u |= uint64(c) << (8 * i)
	}
	return u, err
}

// run decodes up to STOP and returns the value.
func (d *decoder) run() (value, error) {
	for {
		at := d.at
		op, err := d.byte()
		if err != nil {
			return 0, err
		}
		if at == 0 && op != 0x80 { // every protocol from 2 on begins so
			return 0, d.refuse(op, 0)
		}
		if op == '.' {
			if len(d.stack) != 1 || len(d.marks) > 0 {
				return 0, d.fail(at, damagedHint, "STOP with %d values left", len(d.stack))
			}
			return d.stack[0], nil
		}
		if err := d.step(op, at); err != nil {
			return 0, err
		}
	}
}

func (d *decoder) push(v value) { d.stack = append(d.stack, v) }

// argument is how many bytes stand behind an opcode and belong to it: a number, or the length of what follows.
var argument = [256]uint8{
	'h': 1, 'j': 4, 'q': 1, 'r': 4, 'K': 1, 'M': 2, 'J': 4, 0x8a: 1, 0x8b: 4, 'G': 8, 0x8c: 1, 'X': 4, 0x8d: 8, 0x80: 1, 0x95: 8,
}

// step executes one opcode.
func (d *decoder) step(op byte, at int64) error {
	if len(d.stack) > maxStack {
		return d.fail(at, damagedHint, "over %d values wait for their container", maxStack)
	}
	n, err := d.uint(argument[op])
	if err != nil {
		return err
	}
	switch op {
	case 'h', 'j': // BINGET, LONG_BINGET
		return d.get(n, at)
	case 'q', 'r': // BINPUT, LONG_BINPUT
		return d.put(n, at)
	case 0x94: // MEMOIZE
		return d.put(uint64(len(d.memo)), at)
	case 'K', 'M': // BININT1, BININT2
		d.push(makeValue(kindInt, n))
	case 'J': // BININT
		d.push(makeValue(kindInt, uint64(int64(int32(n)))))
	case 0x8a, 0x8b: // LONG1, LONG4
		return d.long(n, at)
	case 'G': // BINFLOAT, which alone has its most significant byte first
		d.pushWide(wide{bits: bits.ReverseBytes64(n), isFloat: true})
	case 0x8c, 'X', 0x8d: // SHORT_BINUNICODE, BINUNICODE, BINUNICODE8
		return d.text(n, at)
	case '(': // MARK
		d.marks = append(d.marks, len(d.stack))
		if len(d.marks) > maxDepth {
			return d.fail(at, damagedHint, "containers are nested over %d deep", maxDepth)
		}
	case '}': // EMPTY_DICT
		d.push(d.b.newDict())
	case ']', ')': // EMPTY_LIST, EMPTY_TUPLE
		d.push(d.b.newList())
	case 'N':
		d.push(makeValue(kindNone, 0))
	case 0x88: // NEWTRUE
		d.push(makeValue(kindBool, 1))
	case 0x89: // NEWFALSE
		d.push(makeValue(kindBool, 0))
	case 'u', 'd', 'e', 'l', 't': // SETITEMS, DICT, APPENDS, LIST, TUPLE
		return d.fromMark(op, at)
	case 's', 'a', 0x85, 0x86, 0x87: // SETITEM, APPEND, TUPLE1 to 3
		return d.fromTop(op, at)
	case 0x80: // PROTO
		if n < 2 || n > 5 {
			return d.fail(at, "write it with protocol 2, 4 or 5", "pickle protocol %d is not read", n)
		}
	case 0x95: // FRAME: a hint on buffering; the reader has its own
	default:
		return d.refuse(op, at)
	}
	return nil
}

func (d *decoder) get(n uint64, at int64) error {
	if n >= uint64(len(d.memo)) {
		return d.fail(at, damagedHint, "back reference %d, of %d so far", n, len(d.memo))
	}
	d.push(d.memo[n])
	return nil
}

func (d *decoder) put(n uint64, at int64) error {
	if len(d.stack) == 0 {
		return d.fail(at, damagedHint, "there is no value to remember")
	}
	// Picklers number their values in order, so a number beyond what the bytes so far can hold is a lie.
	if n > uint64(at) {
		return d.fail(at, damagedHint, "memo number %d is larger than the file so far", n)
	}
	for uint64(len(d.memo)) <= n {
		d.memo = append(d.memo, makeValue(kindNone, 0))
	}
	d.memo[n] = d.stack[len(d.stack)-1]
	return nil
}

func (d *decoder) pushWide(w wide) {
	d.push(makeValue(kindWide, uint64(len(d.wides))))
	d.wides = append(d.wides, w)
}

// long reads an integer of n bytes, least significant first, signed.
func (d *decoder) long(n uint64, at int64) error {
	if n > 9 {
		return d.fail(at, damagedHint, "an integer of %d bytes; addresses and sizes have at most 8", n)
	}
	b, err := d.bytes(int(n))
	if err != nil {
		return err
	}
	var u uint64
	for i, c := range b[:min(n, 8)] {
		u |= uint64(c) << (8 * i)
	}
	switch {
	case n == 9 && b[8] != 0:
		return d.fail(at, damagedHint, "an integer over 2^64")
	case n > 0 && n < 8 && b[n-1]&0x80 != 0:
		u |= ^uint64(0) << (8 * n)
	}
	if s := int64(u); n < 9 && s >= -(1<<(kindShift-1)) && s < 1<<(kindShift-1) {
		d.push(makeValue(kindInt, u))
		return nil
	}
	d.pushWide(wide{bits: u})
	return nil
}

// text reads a string of n bytes.
func (d *decoder) text(n uint64, at int64) error {
	if n > maxString {
		return d.fail(at, damagedHint, "a string of %d bytes, over the limit of %d", n, maxString)
	}
	var b []byte
	var err error
	if n <= 4096 {
		if b, err = d.bytes(int(n)); err != nil {
			return err
		}
	} else if b, err = d.longText(int(n)); err != nil {
		return err
	}
	// Python writes lone surrogates as they are ("surrogatepass"); what else is no UTF-8 is damage.
	if !utf8.Valid(b) && !onlySurrogates(b) {
		return d.fail(at, damagedHint, "a string that is not UTF-8")
	}
	d.push(makeValue(kindStr, uint64(d.b.intern(b))))
	return nil
}

// longText grows with what really comes, so that a claim of 16 MB costs nothing by itself.
func (d *decoder) longText(n int) ([]byte, error) {
	d.buf = d.buf[:0]
	for len(d.buf) < n {
		b, err := d.bytes(min(n-len(d.buf), 4096))
		if err != nil {
			return nil, err
		}
		d.buf = append(d.buf, b...)
	}
	return d.buf, nil
}

// onlySurrogates tells whether the bytes are UTF-8 but for surrogates in three bytes.
func onlySurrogates(b []byte) bool {
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n <= 1 {
			if len(b) < 3 || b[0] != 0xed || b[1] < 0xa0 || b[1] > 0xbf || b[2]&0xc0 != 0x80 {
				return false
			}
			n = 3
		}
		b = b[n:]
	}
	return true
}

// fromMark executes an opcode that takes all values back to the last mark.
func (d *decoder) fromMark(op byte, at int64) error {
	if len(d.marks) == 0 {
		return d.fail(at, damagedHint, "there is no mark")
	}
	mark := d.marks[len(d.marks)-1]
	d.marks = d.marks[:len(d.marks)-1]
	items := d.stack[mark:]
	var target value
	switch op {
	case 'd':
		target = d.b.newDict()
	case 'l', 't':
		target = d.b.newList()
	default:
		if mark == 0 || len(d.marks) > 0 && d.marks[len(d.marks)-1] >= mark {
			return d.fail(at, damagedHint, "there is no container before the mark")
		}
		target = d.stack[mark-1]
	}
	if err := d.fill(target, items, op == 'u' || op == 'd', at); err != nil {
		return err
	}
	d.stack = d.stack[:mark]
	if op == 'd' || op == 'l' || op == 't' {
		d.push(target)
	}
	return nil
}

// fromTop executes an opcode that takes a fixed number of values.
func (d *decoder) fromTop(op byte, at int64) error {
	n := 1
	switch op {
	case 's', 0x86:
		n = 2
	case 0x87:
		n = 3
	}
	floor := 0
	if len(d.marks) > 0 {
		floor = d.marks[len(d.marks)-1]
	}
	need := n
	if op == 's' || op == 'a' {
		need++
	}
	if len(d.stack)-floor < need {
		return d.fail(at, damagedHint, "%d values are needed, there are %d", need, len(d.stack)-floor)
	}
	first := len(d.stack) - n
	target := d.stack[len(d.stack)-need]
	if need == n {
		target = d.b.newList()
	}
	if err := d.fill(target, d.stack[first:], op == 's', at); err != nil {
		return err
	}
	d.stack = d.stack[:first]
	if need == n {
		d.push(target)
	}
	return nil
}

func (d *decoder) fill(target value, items []value, pairs bool, at int64) error {
	var msg string
	switch {
	case pairs && target.kind() != kindDict:
		msg = "items are set in what is no dict"
	case pairs && len(items)%2 != 0:
		msg = "a key without a value"
	case pairs:
		msg = d.b.setItems(target.index(), items)
	case target.kind() != kindList:
		msg = "values are appended to what is no list"
	default:
		msg = d.b.appendItems(target.index(), items)
	}
	if msg != "" {
		return d.fail(at, damagedHint, "%s", msg)
	}
	return nil
}
