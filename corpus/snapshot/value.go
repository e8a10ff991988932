package snapshot

import "math"

// A value is 8 bytes, since a file has millions: the kind in the upper four bits, an index or a small integer below.
type value uint64

type kind uint8

const (
	kindNone kind = iota
	kindBool
	kindInt  // 60 bits, signed
	kindWide // an integer that does not fit, or a float: index in wide
	kindStr
	kindList
	kindDict
)

const (
	kindShift   = 60
	payloadMask = 1<<kindShift - 1
)

func makeValue(k kind, payload uint64) value {
	return value(uint64(k)<<kindShift | payload&payloadMask)
}

func (v value) kind() kind { return kind(v >> kindShift) }

func (v value) index() uint32 { return uint32(v) }

// small is the integer of a kindInt or kindBool.
func (v value) small() int64 { return int64(v<<(64-kindShift)) >> (64 - kindShift) }

// wide is a number that a value has no room for.
type wide struct {
	bits    uint64
	isFloat bool
}

// number returns a value as an integer. Addresses from 2^63 on come as negative ones from C++ and as large ones from Python; both
// are the same 64 bits.
func (d *decoder) number(v value) (uint64, bool) {
	switch v.kind() {
	case kindInt, kindBool:
		return uint64(v.small()), true
	case kindWide:
		w := d.wides[v.index()]
		if w.isFloat {
			f := math.Float64frombits(w.bits)
			if f != math.Trunc(f) || f < -(1<<62) || f > 1<<62 {
				return 0, false
			}
			return uint64(int64(f)), true
		}
		return w.bits, true
	}
	return 0, false
}

func (d *decoder) float(v value) float64 {
	switch v.kind() {
	case kindInt, kindBool:
		return float64(v.small())
	case kindWide:
		w := d.wides[v.index()]
		if w.isFloat {
			return math.Float64frombits(w.bits)
		}
		return float64(int64(w.bits))
	}
	return 0
}
