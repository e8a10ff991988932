package trace

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

// sizeUnits are the units of sizes, largest first, with their power of two.
var sizeUnits = [...]struct {
	name  string
	shift uint
}{{"TiB", 40}, {"GiB", 30}, {"MiB", 20}, {"KiB", 10}}

const sizeHint = "write bytes such as 2097152, or a number with KiB, MiB, GiB or TiB such as 2MiB or 1.5GiB"

// maxSizeDigits bounds the digits of a size with a decimal point; 2^-40, one byte in TiB, has 40 behind the point.
const maxSizeDigits = 64

// ParseSize reads a size in bytes: digits, or a decimal number followed by KiB, MiB, GiB or TiB without a space. It is an
// error if that is not a whole number of bytes or not below 2^64; the error's text says what to write.
func ParseSize(s string) (uint64, error) {
	n, f := parseSize(s)
	return n, f.err()
}

// FormatSize returns the shortest exact form that ParseSize reads: 2MiB, 1536MiB, 80GiB, else plain bytes.
func FormatSize(n uint64) string {
	if n > 0 {
		for _, u := range sizeUnits {
			if n&(1<<u.shift-1) == 0 {
				return strconv.FormatUint(n>>u.shift, 10) + u.name
			}
		}
	}
	return strconv.FormatUint(n, 10)
}

func parseSize(s string) (uint64, fault) {
	bad := func(what string) (uint64, fault) { return 0, fault{"size " + quote(s) + " " + what, sizeHint} }
	if s == "" {
		return 0, fault{"size is empty", sizeHint}
	}
	if n, ok := parseDigits(s); ok {
		return n, fault{}
	}
	if s[0] == '-' {
		return bad("is negative")
	}
	end := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
	if end < 0 {
		end = len(s)
	}
	number, unit := s[:end], s[end:]
	whole, rest, point := strings.Cut(number, ".")
	if whole == "" || point && (rest == "" || strings.Contains(rest, ".")) {
		return bad("is not a number")
	}
	shift, ok := unitShift(unit)
	if !ok {
		return bad("has an unknown unit")
	}
	if !point {
		n, ok := parseDigits(whole)
		if !ok || n > math.MaxUint64>>shift {
			return bad("is too large")
		}
		return n << shift, fault{}
	}
	if len(number) > maxSizeDigits {
		return bad("has too many digits")
	}
	exact, ok := new(big.Rat).SetString(number)
	if !ok {
		return bad("is not a number")
	}
	exact.Mul(exact, new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), shift)))
	if !exact.IsInt() {
		return bad("is not a whole number of bytes")
	}
	if !exact.Num().IsUint64() {
		return bad("is too large")
	}
	return exact.Num().Uint64(), fault{}
}

// unitShift returns the power of two of a unit; the empty unit is bytes.
func unitShift(unit string) (uint, bool) {
	if unit == "" {
		return 0, true
	}
	for _, u := range sizeUnits {
		if u.name == unit {
			return u.shift, true
		}
	}
	return 0, false
}

// parseDigits reads decimal digits, nothing else: no sign, no underscore. It is generic so that the parser need not make a
// string of every number.
func parseDigits[T string | []byte](s T) (uint64, bool) {
	if len(s) == 0 {
		return 0, false
	}
	var n uint64
	for i := 0; i < len(s); i++ {
		d := uint64(s[i] - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	return n, true
}

// allDigits tells whether s is a decimal number of any length, to tell "too large" from "not a number".
func allDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
