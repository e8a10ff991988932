package trace

import (
	"bytes"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// maxLine is the longest line that is read, in bytes. Real traces have expectation lines of a few kilobytes; a longer line
// than this is another kind of file.
const maxLine = 1 << 20

// maxOpText is more than the canonical text of any operation but conf takes. A comment behind an operation leaves room for
// it, so that units written out as bytes never make a readable line unreadable.
const maxOpText = 160

// maxRoom bounds the operations that room is made for before they are seen, 200 MB.
const maxRoom = 1 << 22

// Parse reads a trace in the text format, plain or compressed with gzip (told by the first bytes). The name is
// shown in errors. An error is an *Error, except for one that r returned.
func Parse(name string, r io.Reader) (*Trace, error) {
	text, err := readText(name, r)
	if err != nil {
		return nil, err
	}
	return parseText(name, text)
}

// ParseString reads a trace from plain text.
func ParseString(name, text string) (*Trace, error) { return parseText(name, []byte(text)) }

// parser is the state of one parse.
type parser struct {
	t      *Trace
	live   liveSet
	starts starts
	pools  PoolSet
	line   int    // current line, from 1
	text   []byte // the current line's operation: no comment, no blanks behind it
	pos    int    // bytes of text consumed
	pend   []byte // comment and blank lines since the last header line or operation
}

func parseText(name string, text []byte) (*Trace, error) {
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	// Room for every line at once, but not for what a gigabyte of blank lines would ask.
	lines := min(bytes.Count(text, []byte{'\n'})+1, maxRoom)
	p := &parser{t: &Trace{Name: name}}
	p.t.Ops = make([]Op, 0, lines)
	p.t.layout.lines = make([]uint32, 0, lines)
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		p.line++
		if err := p.parseLine(line); err != nil {
			return nil, err
		}
	}
	p.t.layout.tail = string(p.pend)
	if len(p.t.Ops) == 0 {
		p.t.Ops, p.t.layout.lines = nil, nil
	}
	return p.t, nil
}

func (p *parser) parseLine(line []byte) error {
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	if len(line) > maxLine {
		return p.fail(1, "line is "+strconv.Itoa(len(line))+" bytes long, over the limit of "+strconv.Itoa(maxLine), notTextHint)
	}
	if col, f := notText(line); f.bad() {
		return p.fail(col, f.msg, f.hint)
	}
	start := 0
	for start < len(line) && isBlank(line[start]) {
		start++
	}
	if start == len(line) {
		p.pend = append(p.pend, '\n')
		return nil
	}
	if line[start] == '#' {
		return p.comment(line[start:], start)
	}
	end := opEnd(line, start)
	p.text, p.pos = line[:end], start
	return p.operation(line[end:])
}

// comment takes a header line or a comment, which begins behind indent blanks.
func (p *parser) comment(line []byte, indent int) error {
	key, value, col := "", "", 0
	if len(p.t.Ops) == 0 {
		key, value, col = splitHeader(string(line))
	}
	if key == "" {
		p.pend = append(append(p.pend, line...), '\n')
		return nil
	}
	// Only the first value of a key counts in a run, but a version that is not known may not hide behind another.
	if _, again := p.t.Get(key); !again || key == KeyVersion {
		canonical, f := canonicalValue(key, value)
		if f.bad() {
			return p.fail(indent+col, f.msg, f.hint)
		}
		value = canonical
	}
	p.note(&p.t.layout.fields, len(p.t.Header), "")
	p.t.Header = append(p.t.Header, Field{key, value})
	p.t.layout.heads = append(p.t.layout.heads, uint32(p.line))
	return nil
}

// splitHeader takes `# key: value` apart; key is empty if the line has another shape. col is where the value stands,
// counted from 1.
func splitHeader(line string) (key, value string, col int) {
	rest, ok := strings.CutPrefix(line, "# ")
	if !ok {
		return "", "", 0
	}
	n := 0
	for n < len(rest) && isKeyByte(rest[n]) {
		n++
	}
	if n == 0 || n == len(rest) || rest[n] != ':' {
		return "", "", 0
	}
	key, rest = rest[:n], rest[n+1:]
	if rest != "" && !isBlank(rest[0]) {
		return "", "", 0 // such as https://...
	}
	value = trimBlank(rest)
	col = len(line) - len(strings.TrimLeft(rest, " \t")) + 1
	return key, value, col
}

// operation parses p.text; suffix is the rest of the line: blanks and perhaps a comment.
func (p *parser) operation(suffix []byte) error {
	col, word := p.token()
	kind, ok := kindOf(word)
	if !ok {
		return p.unknown(col, string(word))
	}
	var op Op
	var err error
	if kind == PoolBegin {
		op, err = p.poolOp()
	} else {
		op, err = p.arguments(kind)
	}
	if err != nil {
		return err
	}
	if f := p.starts.step(&op); f.bad() {
		return p.fail(col, f.msg, f.hint)
	}
	if op.Kind == Segment {
		p.pools.step(&op)
	}
	kind = op.Kind
	after := ""
	if trimmed := bytes.TrimLeft(suffix, " \t"); len(trimmed) > 0 {
		if len(suffix) > maxLine-maxOpText && kind != Conf {
			return p.fail(len(p.text)+1, "comment is "+strconv.Itoa(len(suffix))+" bytes long, over the limit of "+
				strconv.Itoa(maxLine-maxOpText), "put it on lines of its own")
		}
		after = string(suffix)
	}
	p.note(&p.t.layout.ops, len(p.t.Ops), after)
	p.t.Ops = append(p.t.Ops, op)
	p.t.layout.lines = append(p.t.layout.lines, uint32(p.line))
	return nil
}

// note keeps what stands around the line that is about to be appended at index at.
func (p *parser) note(notes *[]note, at int, after string) {
	if len(p.pend) == 0 && after == "" {
		return
	}
	*notes = append(*notes, note{at: at, before: string(p.pend), after: after})
	p.pend = p.pend[:0]
}

func (p *parser) arguments(kind Kind) (Op, error) {
	if kind.Starts() {
		return p.startOp(kind)
	}
	op := Op{Kind: kind}
	var err error
	switch kind {
	case Alloc, Free, Record, Use:
		var col int
		if col, op.ID, err = p.id(kind); err != nil {
			return op, err
		}
		if !p.live.step(op) {
			return op, p.liveError(col, op)
		}
	case Conf:
		_, rest := p.rest()
		if len(rest) == 0 {
			return op, p.missing(kind, "<settings>")
		}
		op.Conf = string(rest)
		return op, nil
	case Fraction:
		col, word := p.token()
		if len(word) == 0 {
			return op, p.missing(kind, "<f>")
		}
		var f fault
		if op.Fraction, f = parseFraction(string(word)); f.bad() {
			return op, p.fail(col, f.msg, f.hint)
		}
	}
	if kind == Alloc || kind == Foreign {
		if op.Bytes, err = p.size(kind); err != nil {
			return op, err
		}
	}
	if kind == Sync {
		op.Stream = AllStreams
	}
	given, err := p.attributes(kind, &op)
	if err == nil && (kind == Record || kind == Use) && !given {
		err = p.missing(kind, "stream=<n>")
	}
	return op, err
}

// attributes reads the rest of the line as key=value words and tells whether a stream was given.
func (p *parser) attributes(kind Kind, op *Op) (streamGiven bool, err error) {
	for {
		col, word := p.token()
		if len(word) == 0 {
			return streamGiven, nil
		}
		eq := bytes.IndexByte(word, '=')
		if eq < 0 {
			return false, p.fail(col, kind.String()+" has an argument too many: "+quote(string(word)), usage(kind))
		}
		switch key := string(word[:eq]); {
		case key == "pool" && kind == EmptyCache:
			if op.Pool != 0 {
				return false, p.fail(col, "attribute pool= is given twice", "keep one of them")
			}
			if err := p.pool(col+eq+1, word[eq+1:], op); err != nil {
				return false, err
			}
			if f := p.pools.step(op); f.bad() {
				return false, p.fail(col+eq+1, f.msg, f.hint)
			}
			continue
		case key == "pool" || key == "thread":
			return false, p.fail(col, "attribute "+key+"= is reserved for a later version", "take it out: this is format version "+Version)
		case key != "stream" || kind != Alloc && kind != Record && kind != Sync && kind != Use:
			return false, p.fail(col, kind.String()+" has no attribute "+quote(key+"="), usage(kind))
		case streamGiven:
			return false, p.fail(col, "attribute stream= is given twice", "keep one of them")
		}
		streamGiven = true
		if op.Stream, err = p.stream(col+eq+1, word[eq+1:]); err != nil {
			return false, err
		}
	}
}

func (p *parser) stream(col int, word []byte) (device.Stream, error) {
	const hint = "write a number from 0 to 2147483647"
	n, ok := parseDigits(word)
	switch s := string(word); {
	case ok && n <= uint64(MaxStream):
		return device.Stream(n), nil
	case ok || allDigits(s):
		return 0, p.fail(col, "stream "+quote(s)+" is over 2^31-1", hint)
	case strings.HasPrefix(s, "-"):
		return 0, p.fail(col, "stream "+quote(s)+" is negative", hint)
	default:
		return 0, p.fail(col, "stream "+quote(s)+" is not a number", hint)
	}
}

func (p *parser) id(kind Kind) (int, uint64, error) {
	const hint = "write a number from 0 to 9223372036854775807"
	col, word := p.token()
	n, ok := parseDigits(word)
	switch {
	case ok && n <= MaxID:
		return col, n, nil
	case len(word) == 0:
		return col, 0, p.missing(kind, "<id>")
	}
	switch s := string(word); {
	case ok || allDigits(s):
		return col, 0, p.fail(col, "id "+quote(s)+" is over 2^63-1", hint)
	case s[0] == '-':
		return col, 0, p.fail(col, "id "+quote(s)+" is negative", hint)
	default:
		return col, 0, p.fail(col, "id "+quote(s)+" is not a number", hint)
	}
}

func (p *parser) size(kind Kind) (uint64, error) {
	col, word := p.token()
	n, ok := parseDigits(word)
	if ok && n <= MaxBytes {
		return n, nil
	}
	if len(word) == 0 || bytes.IndexByte(word, '=') >= 0 {
		return 0, p.missing(kind, "<bytes>")
	}
	n, f := parseSize(string(word))
	if f.bad() {
		return 0, p.fail(col, f.msg, f.hint)
	}
	if n > MaxBytes {
		return 0, p.fail(col, "size "+quote(string(word))+" is over 2^60 bytes", "write at most "+strconv.FormatUint(MaxBytes, 10))
	}
	return n, nil
}

// token returns the next word and its column; the word is empty at the end.
func (p *parser) token() (col int, word []byte) {
	for p.pos < len(p.text) && isBlank(p.text[p.pos]) {
		p.pos++
	}
	start := p.pos
	for p.pos < len(p.text) && !isBlank(p.text[p.pos]) {
		p.pos++
	}
	return start + 1, p.text[start:p.pos]
}

// rest returns all that is left and its column.
func (p *parser) rest() (col int, text []byte) {
	for p.pos < len(p.text) && isBlank(p.text[p.pos]) {
		p.pos++
	}
	return p.pos + 1, p.text[p.pos:]
}

// fail makes an error at a column of the current line.
func (p *parser) fail(col int, msg, hint string) *Error {
	return &Error{Name: p.t.Name, Line: p.line, Column: col, Op: len(p.t.Ops), Msg: msg, Hint: hint}
}

// missing says that the line ends, or goes on, where an argument must stand.
func (p *parser) missing(kind Kind, what string) *Error {
	return p.fail(len(p.text)+1, kind.String()+" lacks "+what, usage(kind))
}

func (p *parser) unknown(col int, word string) *Error {
	return p.fail(col, "unknown operation "+quote(word), "one of "+operationNames)
}

// liveError says what breaks liveness, and which line made the id live or freed it.
func (p *parser) liveError(col int, op Op) *Error {
	f := liveFault(op)
	for i := len(p.t.Ops) - 1; i >= 0; i-- {
		if o := p.t.Ops[i]; o.ID == op.ID && (o.Kind == Alloc || o.Kind == Block || o.Kind == Free) {
			how := " since line "
			if o.Kind == Free {
				how = ": freed on line "
			}
			f.msg += how + strconv.Itoa(p.t.Line(i))
			break
		}
	}
	return p.fail(col, f.msg, f.hint)
}

// operationNames are the first words of operations.
var operationNames = strings.Join(kindWords[:PoolBegin], ", ") + ", pool, use"

func usage(kind Kind) string { return "write " + kindUsage[kind] }

// kindOf is a switch, not a map, since it runs once a line and the compiler compares without making a string.
func kindOf(word []byte) (Kind, bool) {
	switch string(word) {
	case "alloc":
		return Alloc, true
	case "free":
		return Free, true
	case "record":
		return Record, true
	case "sync":
		return Sync, true
	case "empty_cache":
		return EmptyCache, true
	case "conf":
		return Conf, true
	case "fraction":
		return Fraction, true
	case "foreign":
		return Foreign, true
	case "segment":
		return Segment, true
	case "block":
		return Block, true
	case "pool":
		return PoolBegin, true // or another operation on a pool
	case "use":
		return Use, true
	}
	return 0, false
}

// opEnd returns where the operation that begins at start ends: before a comment and the blanks in front of it. In settings
// only a # behind a blank begins a comment, since settings may hold any character.
func opEnd(line []byte, start int) int {
	settings := isConfLine(line[start:])
	end := len(line)
	for i := start; i < len(line); i++ {
		if line[i] == '#' && (!settings || isBlank(line[i-1])) {
			end = i
			break
		}
	}
	for end > start && isBlank(line[end-1]) {
		end--
	}
	return end
}

func isConfLine(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, []byte("conf"))
	return ok && len(rest) > 0 && isBlank(rest[0])
}

func isBlank(b byte) bool { return b == ' ' || b == '\t' }

func isKeyByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= '0' && b <= '9' || b == '_' || b == '-'
}

const notTextHint = "a trace is plain text, or text in a .gz or .zst file; a memory snapshot must be imported first"

// notText finds the first byte that text may not hold, and its column. Tabs are text.
func notText(line []byte) (col int, f fault) {
	plain := true
	for i, b := range line {
		if b < ' ' && b != '\t' || b == 0x7f {
			return i + 1, fault{"byte 0x" + hexByte(b) + " is not text", notTextHint}
		}
		plain = plain && b < utf8.RuneSelf
	}
	if plain || utf8.Valid(line) {
		return 0, fault{}
	}
	for i := 0; ; {
		r, n := utf8.DecodeRune(line[i:])
		if r == utf8.RuneError && n <= 1 {
			return i + 1, fault{"byte 0x" + hexByte(line[i]) + " is not UTF-8 text", notTextHint}
		}
		i += n
	}
}

func hexByte(b byte) string {
	const digits = "0123456789abcdef"
	return string([]byte{digits[b>>4], digits[b&15]})
}
