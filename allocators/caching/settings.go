package caching

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Off is MaxSplitSize when it is not set.
const Off = math.MaxUint64

// Buckets is the number of size classes of roundup_power2_divisions (section 6.1).
const Buckets = 16

// Settings are what PYTORCH_CUDA_ALLOC_CONF sets, and a few of our own that begin with x_.
type Settings struct {
	// MaxSplitSize in bytes; Off if not set.
	MaxSplitSize uint64
	// MaxNonSplitRounding in bytes: the largest excess, exclusive, of an oversize block over an oversize request.
	MaxNonSplitRounding uint64
	// GCThreshold is garbage_collection_threshold, between 0 and 1; 0 is off.
	GCThreshold float64
	// RoundupDivisions by bucket; 0 and 1 mean plain rounding to 512 bytes.
	RoundupDivisions [Buckets]uint64
	// Expandable is expandable_segments.
	Expandable bool

	// Text is the last string parsed.
	Text string
	// Rules are the PyTorch version's (x_rules).
	Rules Rules
	// HasFraction: the memory-fraction call is made once, with Fraction, before the first operation (x_memory_fraction).
	// Never called differs from called with 1.
	HasFraction bool
	Fraction    float64
	// LookupAfterFlush looks for a free block once more after the last purchase failed (x_lookup_after_flush). PyTorch does
	// not (pytorch#189504).
	LookupAfterFlush bool
	// RefuseAtLimit refuses a request that would exceed the memory fraction before anything is released for it
	// (throw_on_cudamalloc_oom, PyTorch 2.12).
	RefuseAtLimit bool
	// OtherDeviceCurrent: another device is the calling thread's current one (x_other_device_current). Stream 0 is the same handle on
	// every device, so before it unmaps pages PyTorch then waits for the wrong stream
	// (https://github.com/pytorch/pytorch/issues/196258), unless UnmapOnOwnDevice (x_unmap_on_own_device) makes the segment's
	// device current meanwhile, as https://github.com/pytorch/pytorch/pull/197159 does.
	OtherDeviceCurrent, UnmapOnOwnDevice bool
}

// waitsElsewhere tells whether a wait for a stream before pages are unmapped goes to another device's.
func (s *Settings) waitsElsewhere(stream device.Stream) bool {
	return stream == 0 && s.OtherDeviceCurrent && !s.UnmapOnOwnDevice
}

// DefaultSettings are those of an empty string.
func DefaultSettings() Settings {
	return Settings{MaxSplitSize: Off, MaxNonSplitRounding: rules26.LargeSegment, Rules: rules26}
}

// ParseSettings parses a whole settings string from the defaults. Warnings name what PyTorch ignores in silence.
func ParseSettings(text string) (Settings, []string, error) {
	return DefaultSettings().Apply(text)
}

// Apply parses a settings string over s, as PyTorch 2.6.0 does at run time: max_split_size_mb, roundup_power2_divisions
// and garbage_collection_threshold fall back to their defaults first, all other settings keep their values. On an error s
// is returned unchanged. The error says what is wrong and what to write.
func (s Settings) Apply(text string) (Settings, []string, error) {
	next := s
	next.MaxSplitSize, next.GCThreshold, next.RoundupDivisions = Off, 0, [Buckets]uint64{}
	next.Text = text
	p := parser{tokens: lex(text, false), out: &next}
	if err := p.readFirst("x_rules"); err != nil {
		return s, nil, fmt.Errorf("settings %q: %w", text, err)
	}
	if next.Rules.generic {
		p.tokens = lex(text, true)
		if key := "large_segment_size_mb"; next.Rules.minor >= keySince[key] {
			if err := p.readFirst(key); err != nil {
				return s, nil, fmt.Errorf("settings %q: %w", text, err)
			}
		}
		if next.Rules.resetsNonSplit {
			next.MaxNonSplitRounding = next.Rules.LargeSegment
		}
	}
	if err := p.parse(); err != nil {
		return s, nil, fmt.Errorf("settings %q: %w", text, err)
	}
	return next, p.warnings, nil
}

// readFirst applies a setting before all others, since it decides how they are read.
func (p *parser) readFirst(key string) error {
	for i := 0; i+2 < len(p.tokens); i++ {
		if p.tokens[i] == key && p.tokens[i+1] == ":" {
			p.at = i + 2
			err := keys[key](p, key)
			p.at, p.warnings = 0, nil // it is read again in its place
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// lex cuts the text into the tokens `,` `:` `[` `]` and what stands between them; the space character, or all white space, is
// dropped everywhere, inside tokens too.
func lex(text string, allSpace bool) []string {
	var tokens []string
	var word strings.Builder
	flush := func() {
		if word.Len() > 0 {
			tokens = append(tokens, word.String())
			word.Reset()
		}
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case ' ':
		case '\t', '\n', '\v', '\f', '\r':
			if !allSpace {
				word.WriteByte(c)
			}
		case ',', ':', '[', ']':
			flush()
			tokens = append(tokens, string(c))
		default:
			word.WriteByte(c)
		}
	}
	flush()
	return tokens
}

// parser reads `key:value,key:value`, as the grammar of PyTorch 2.6.0 has it.
type parser struct {
	tokens   []string
	at       int
	out      *Settings
	warnings []string
}

// next returns the next token, empty at the end.
func (p *parser) next() string {
	if p.at == len(p.tokens) {
		return ""
	}
	p.at++
	return p.tokens[p.at-1]
}

func (p *parser) done() bool { return p.at == len(p.tokens) }

func (p *parser) expect(want, after string) error {
	if got := p.next(); got != want {
		if got == "" {
			return fmt.Errorf("%q expected after %q, found the end", want, after)
		}
		return fmt.Errorf("%q expected after %q, found %q", want, after, got)
	}
	return nil
}

func (p *parser) parse() error {
	for !p.done() {
		key := p.next()
		set, ok := keys[key]
		if since := keySince[key]; ok && since > p.out.Rules.minor {
			return fmt.Errorf("setting %q came with PyTorch 2.%d; these are the rules of %s (x_rules chooses others)", key, since, p.out.Rules.Version)
		}
		if !ok {
			return fmt.Errorf("unknown setting %q (known: %s)", key, strings.Join(keyNames, ", "))
		}
		if err := p.expect(":", key); err != nil {
			return err
		}
		if p.done() {
			return fmt.Errorf("%s has no value", key)
		}
		if err := set(p, key); err != nil {
			return err
		}
		if !p.done() {
			if err := p.expect(",", key); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyNames are the settings in the order in which messages name them.
var keyNames = []string{
	"max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold", "roundup_power2_divisions",
	"expandable_segments", "release_lock_on_cudamalloc", "pinned_use_cuda_host_register", "pinned_num_register_threads",
	"pinned_use_background_threads", "backend", "x_memory_fraction", "x_lookup_after_flush", "x_rules",
	"x_other_device_current", "x_unmap_on_own_device",
}

var keys map[string]func(p *parser, key string) error

// keySince has the minor version of PyTorch 2 with which a setting came, if that was after 2.6.
var keySince = map[string]int{
	"graph_capture_record_stream_reuse": 9, "pinned_reserve_segment_size_mb": 10, "per_process_memory_fraction": 10,
	"large_segment_size_mb": 11, "pinned_free_catch_all": 12, "throw_on_cudamalloc_oom": 12,
}

func init() {
	keys = map[string]func(p *parser, key string) error{
		"max_split_size_mb": func(p *parser, key string) (err error) {
			p.out.MaxSplitSize, err = p.limit(key)
			return err
		},
		"max_non_split_rounding_mb": func(p *parser, key string) (err error) {
			p.out.MaxNonSplitRounding, err = p.limit(key)
			return err
		},
		"garbage_collection_threshold": func(p *parser, key string) error {
			v, err := p.real(key)
			if err != nil {
				return err
			}
			if !(v > 0 && v < 1) {
				return fmt.Errorf("%s:%v: must lie between 0 and 1, both excluded", key, v)
			}
			p.out.GCThreshold = v
			return nil
		},
		"roundup_power2_divisions": (*parser).divisions,
		"expandable_segments": func(p *parser, key string) (err error) {
			p.out.Expandable, err = p.boolean(key)
			return err
		},
		// These hold for host memory or for several threads only: checked as PyTorch does, without effect here.
		"release_lock_on_cudamalloc":    (*parser).ignoredBoolean,
		"release_lock_on_hipmalloc":     (*parser).ignoredBoolean,
		"pinned_use_cuda_host_register": (*parser).ignoredBoolean,
		"pinned_use_hip_host_register":  (*parser).ignoredBoolean,
		"pinned_use_background_threads": (*parser).ignoredBoolean,
		"pinned_num_register_threads": func(p *parser, key string) error {
			v, err := p.integer(key)
			if err != nil {
				return err
			}
			if v > 128 || bits.OnesCount64(uint64(v)) != 1 {
				return fmt.Errorf("%s:%d: must be a power of two from 1 to 128", key, v)
			}
			return nil
		},
		"backend": func(p *parser, key string) error {
			switch v := p.next(); v {
			case "native":
				return nil
			case "cudaMallocAsync":
				return fmt.Errorf("backend:%s is another allocator, which is not modelled here; drop it or write backend:native", v)
			default:
				return fmt.Errorf("backend:%s: must be native or cudaMallocAsync", v)
			}
		},
		"graph_capture_record_stream_reuse": (*parser).ignoredBoolean,
		"pinned_free_catch_all":             (*parser).ignoredBoolean,
		"pinned_reserve_segment_size_mb": func(p *parser, key string) error {
			v, err := p.integer(key)
			if err == nil && v <= 0 {
				err = fmt.Errorf("%s:%d: must be over 0", key, v)
			}
			return err
		},
		"throw_on_cudamalloc_oom": func(p *parser, key string) (err error) {
			p.out.RefuseAtLimit, err = p.boolean(key)
			return err
		},
		"large_segment_size_mb": func(p *parser, key string) error {
			v, err := p.integer(key)
			if err != nil {
				return err
			}
			// PyTorch takes odd numbers too; here pages of expandable segments are whole granules of 2 MiB.
			if v <= 10 || v > 1<<20 || v%2 != 0 {
				return fmt.Errorf("%s:%d: must be an even number from 12 to 1048576 (odd ones, which PyTorch takes, are not modelled)", key, v)
			}
			p.out.Rules.LargeSegment, p.out.Rules.MinLimitMB = uint64(v)<<20, uint64(v)
			return nil
		},
		"per_process_memory_fraction": (*parser).fraction,
		"x_memory_fraction":           (*parser).fraction,
		"x_lookup_after_flush": func(p *parser, key string) (err error) {
			p.out.LookupAfterFlush, err = p.boolean(key)
			return err
		},
		"x_other_device_current": func(p *parser, key string) (err error) {
			p.out.OtherDeviceCurrent, err = p.boolean(key)
			return err
		},
		"x_unmap_on_own_device": func(p *parser, key string) (err error) {
			p.out.UnmapOnOwnDevice, err = p.boolean(key)
			return err
		},
		"x_rules": func(p *parser, key string) error {
			r, err := RulesFor(p.next())
			if err == nil && r.Version != p.out.Rules.Version {
				p.out.Rules = r
			}
			return err
		},
	}
}

func (p *parser) warn(format string, args ...any) {
	p.warnings = append(p.warnings, fmt.Sprintf(format, args...))
}

// number is the longest prefix of a token that parses, as C's stoi and stod take it.
func number[T any](p *parser, key, kind string, parse func(string) (T, error)) (T, error) {
	tok := p.next()
	text := strings.TrimLeft(tok, "\t\n\v\f\r")
	for n := len(text); n > 0; n-- {
		v, err := parse(text[:n])
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			continue
		}
		if err != nil {
			return v, fmt.Errorf("%s:%s: out of range", key, tok)
		}
		if n < len(text) {
			p.warn("%s:%s: read as %v; PyTorch ignores %q in silence", key, tok, v, text[n:])
		}
		return v, nil
	}
	var zero T
	return zero, fmt.Errorf("%s:%s: must be %s", key, tok, kind)
}

// integer reads as C's stoi: 32 bits, junk behind the digits ignored.
func (p *parser) integer(key string) (int64, error) {
	return number(p, key, "an integer", func(s string) (int64, error) {
		if strings.Contains(s, "_") {
			return 0, strconv.ErrSyntax
		}
		return strconv.ParseInt(s, 10, 32)
	})
}

// real reads as C's stod: exponents, hexadecimal, nan and inf, junk behind the number ignored.
func (p *parser) real(key string) (float64, error) {
	return number(p, key, "a number", func(s string) (float64, error) {
		if strings.Contains(s, "_") {
			return 0, strconv.ErrSyntax
		}
		if l := strings.ToLower(strings.TrimLeft(s, "+-")); strings.HasPrefix(l, "0x") && !strings.Contains(l, "p") {
			s += "p0" // C takes hexadecimal without an exponent, Go does not
		}
		return strconv.ParseFloat(s, 64)
	})
}

func (p *parser) fraction(key string) error {
	v, err := p.real(key)
	if err != nil {
		return err
	}
	if !(v >= 0 && v <= 1) {
		return fmt.Errorf("%s:%v: must lie between 0 and 1", key, v)
	}
	p.out.HasFraction, p.out.Fraction = true, v
	return nil
}

func (p *parser) boolean(key string) (bool, error) {
	switch v := p.next(); v {
	case "True":
		return true, nil
	case "False":
		return false, nil
	default:
		return false, fmt.Errorf("%s:%s: must be True or False", key, v)
	}
}

func (p *parser) ignoredBoolean(key string) error {
	_, err := p.boolean(key)
	return err
}

// limit reads a size in MiB over the version's bound. A negative number becomes a huge one, as in PyTorch.
func (p *parser) limit(key string) (uint64, error) {
	v, err := p.integer(key)
	if err != nil {
		return 0, err
	}
	if uint64(v) < p.out.Rules.MinLimitMB {
		return 0, fmt.Errorf("%s:%d: must be at least %d (PyTorch %s)", key, v, p.out.Rules.MinLimitMB, p.out.Rules.Version)
	}
	if v < 0 {
		p.warn("%s:%d: PyTorch reads a negative number as a huge one; leave the setting out instead", key, v)
	}
	return min(uint64(v), math.MaxUint64>>20) << 20, nil
}

// divisions reads roundup_power2_divisions: one power of two for all buckets, or a list `[k:d,...,>:d]` with k in MiB.
// Buckets that a list does not name are 0, except that the first numeric key also fills all below it.
func (p *parser) divisions(key string) error {
	if p.tokens[p.at] != "[" {
		d, err := p.integer(key)
		if err != nil {
			return err
		}
		if !powerOfTwo(d) {
			return fmt.Errorf("%s:%d: must be a power of two, or a list like [256:1,512:2,>:8]", key, d)
		}
		for i := range p.out.RoundupDivisions {
			p.out.RoundupDivisions[i] = uint64(d)
		}
		return nil
	}
	p.next()
	p.out.RoundupDivisions = [Buckets]uint64{}
	last, first := 0, true
	for {
		greater := !p.done() && p.tokens[p.at] == ">"
		var k int64
		var err error
		if greater {
			p.next()
		} else if k, err = p.integer(key); err != nil {
			return err
		} else if !powerOfTwo(k) {
			return fmt.Errorf("%s: the interval %d must be a power of two, in MiB", key, k)
		}
		if err := p.expect(":", key); err != nil {
			return err
		}
		d, err := p.integer(key)
		if err != nil {
			return err
		}
		if d != 0 && !powerOfTwo(d) {
			return fmt.Errorf("%s: the divisions %d must be 0 or a power of two", key, d)
		}
		switch {
		case greater:
			from := last
			if !p.out.Rules.GreaterFillsLast {
				from++
			}
			for i := from; i < Buckets; i++ {
				p.out.RoundupDivisions[i] = uint64(d)
			}
		default:
			last = min(bits.Len64(uint64(k))-1, Buckets-1)
			p.out.RoundupDivisions[last] = uint64(d)
			if first {
				for i := range last {
					p.out.RoundupDivisions[i] = uint64(d)
				}
				first = false
			}
		}
		switch sep := p.next(); sep {
		case "]":
			return nil
		case ",":
		case "":
			return fmt.Errorf("%s: the list is not closed, ] is missing", key)
		default:
			return fmt.Errorf("%s: , or ] expected in the list, found %q", key, sep)
		}
	}
}

func powerOfTwo(v int64) bool { return v > 0 && v&(v-1) == 0 }
