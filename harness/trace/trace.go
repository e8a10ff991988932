package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
)

// Header keys that a run reads.
const (
	KeyVersion  = "shatter"
	KeyCapacity = "capacity"
	KeyConf     = "conf"
	KeyFraction = "fraction"
)

// Version is the format version that this package reads and writes.
const Version = "1"

// Field is one header line, `# key: value`. A key is [a-z0-9_-]+; a value is one line without spaces around it and may be
// empty.
type Field struct{ Key, Value string }

// Trace is a program for an allocator: header and operations, in order.
//
// A parsed trace also remembers comments, blank lines and line numbers by position. Code that changes Ops therefore
// builds a new Trace from Name, Header and the new Ops, and does not edit Ops in place.
type Trace struct {
	// Name is the file name, or empty; errors show it.
	Name   string
	Header []Field
	Ops    []Op

	layout layout
}

// layout is what the text holds beyond header and operations.
type layout struct {
	fields []note   // about header lines, by index
	ops    []note   // about operations, by index
	tail   string   // comment and blank lines behind the last operation
	lines  []uint32 // source line of each operation
	heads  []uint32 // source line of each header field
}

// note is the text around one line; only lines that have some get one.
type note struct {
	at     int
	before string // whole lines, each with its line end
	after  string // the comment behind an operation, with the spaces before it
}

// Line returns the source line of an operation, counted from 1; 0 if it is not known.
func (t *Trace) Line(op int) int {
	if op < 0 || op >= len(t.layout.lines) {
		return 0
	}
	return int(t.layout.lines[op])
}

// Get returns the first value of a header key, and whether there is one.
func (t *Trace) Get(key string) (string, bool) {
	if i := t.find(key); i >= 0 {
		return t.Header[i].Value, true
	}
	return "", false
}

// GetAll returns all values of a header key, in order.
func (t *Trace) GetAll(key string) []string {
	var values []string
	for _, f := range t.Header {
		if f.Key == key {
			values = append(values, f.Value)
		}
	}
	return values
}

// Set replaces the first value of a header key, or appends a line to the header. Line ends in the value become spaces;
// spaces around it are dropped. It does not change the header of traces that share this one's slice.
func (t *Trace) Set(key, value string) {
	value = trimBlank(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(value))
	header := make([]Field, len(t.Header), len(t.Header)+1)
	copy(header, t.Header)
	if i := t.find(key); i >= 0 {
		header[i].Value = value
	} else {
		header = append(header, Field{key, value})
	}
	t.Header = header
}

// First returns the trace with its first n operations only, or the trace itself if it has no more.
func (t *Trace) First(n int) *Trace {
	if len(t.Ops) <= n {
		return t
	}
	return &Trace{Name: t.Name, Header: t.Header, Ops: t.Ops[:n:n]}
}

// Capacity returns the device's bytes as the header says; ok is false if it does not. The value may carry a unit. An
// error is an *Error.
func (t *Trace) Capacity() (bytes uint64, ok bool, err error) {
	i := t.find(KeyCapacity)
	if i < 0 {
		return 0, false, nil
	}
	n, f := parseCapacity(t.Header[i].Value)
	if f.bad() {
		return 0, true, t.headerError(i, f)
	}
	return n, true, nil
}

// Settings returns the settings string of the header; ok is false if there is none. An empty string means the defaults.
func (t *Trace) Settings() (conf string, ok bool) { return t.Get(KeyConf) }

// HeaderFraction returns the memory fraction, 0 to 1, that is set before the first operation; ok is false if the header has
// none: then the fraction call is never made, which differs from 1. An error is an *Error.
func (t *Trace) HeaderFraction() (f float64, ok bool, err error) {
	i := t.find(KeyFraction)
	if i < 0 {
		return 0, false, nil
	}
	f, bad := parseFraction(t.Header[i].Value)
	if bad.bad() {
		return 0, true, t.headerError(i, bad)
	}
	return f, true, nil
}

// Hash identifies what matters to a run: the header's capacity, settings and fraction, and the operations. The same
// capacity or fraction in another spelling hashes alike, absent settings like empty ones; comments, layout, name and other
// header lines do not count.
func (t *Trace) Hash() [32]byte {
	h := sha256.New()
	buf := make([]byte, 0, 1<<13)
	for _, key := range [...]string{KeyCapacity, KeyConf, KeyFraction} {
		value, ok := t.Get(key)
		if !ok || key == KeyConf && value == "" {
			continue
		}
		if canonical, f := canonicalValue(key, value); !f.bad() {
			value = canonical
		}
		buf = append(buf, key+": "+value+"\n"...)
	}
	for _, op := range t.Ops {
		if len(buf) > 1<<12 {
			h.Write(buf)
			buf = buf[:0]
		}
		buf = append(Append(buf, op), '\n')
	}
	h.Write(buf)
	return [32]byte(h.Sum(nil))
}

// ID returns the first 16 hexadecimal digits of Hash.
func (t *Trace) ID() string {
	h := t.Hash()
	return hex.EncodeToString(h[:8])
}

// find returns the index of the first header field with the key, or -1.
func (t *Trace) find(key string) int {
	for i := range t.Header {
		if t.Header[i].Key == key {
			return i
		}
	}
	return -1
}

// headerError places a fault at header field i. The source line is known while the field is where Parse put it.
func (t *Trace) headerError(i int, f fault) *Error {
	e := &Error{Name: t.Name, Op: -1, Msg: f.msg, Hint: f.hint}
	if i < len(t.layout.heads) {
		e.Line, e.Column = int(t.layout.heads[i]), len("# : ")+len(t.Header[i].Key)+1
	}
	return e
}

// canonicalValue returns the canonical form of a header value: capacity as plain bytes, fraction as its shortest decimal,
// any other value unchanged.
func canonicalValue(key, value string) (string, fault) {
	switch key {
	case KeyVersion:
		if value == Version {
			return value, fault{}
		}
		hint := "write " + Version
		if allDigits(value) && value != "0" {
			hint = "this program reads version " + Version + ": update shatter"
		}
		return value, fault{"trace format version " + quote(value) + " is not known", hint}
	case KeyCapacity:
		n, f := parseCapacity(value)
		return strconv.FormatUint(n, 10), f
	case KeyFraction:
		x, f := parseFraction(value)
		return string(appendFraction(nil, x)), f
	}
	return value, fault{}
}

func parseCapacity(s string) (uint64, fault) {
	n, f := parseSize(s)
	if f.bad() {
		return 0, fault{"header capacity: " + f.msg, f.hint}
	}
	if n > MaxBytes {
		return 0, fault{"header capacity: size " + quote(s) + " is over 2^60 bytes", "write at most " + strconv.FormatUint(MaxBytes, 10)}
	}
	return n, fault{}
}

const fractionHint = "write a number from 0 to 1 such as 0.8"

// parseFraction reads a decimal number from 0 to 1; unlike strconv.ParseFloat it takes no hexadecimal, infinity or NaN.
func parseFraction(s string) (float64, fault) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c == '.', c == 'e', c == 'E', c == '+', c == '-':
		default:
			return 0, fault{"fraction " + quote(s) + " is not a number", fractionHint}
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, fault{"fraction " + quote(s) + " is not a number", fractionHint}
	}
	if !fractionInRange(f) {
		return 0, fault{"fraction " + quote(s) + " is outside 0..1", fractionHint}
	}
	return f, fault{}
}

// fractionInRange also refuses NaN, and -0, which would print differently from 0.
func fractionInRange(f float64) bool { return f >= 0 && f <= 1 && !math.Signbit(f) }

// trimBlank drops spaces and tabs around s, the only blanks of the format.
func trimBlank(s string) string { return strings.Trim(s, " \t") }
