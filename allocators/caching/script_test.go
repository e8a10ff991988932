package caching

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/reference"
)

// A script is a table of cases in testdata/scripts, worked out by hand from the specification:
//
//	== name                        begins a case
//	C=100 conf:max_split_size_mb:30 fraction:0.5    the device (MiB; 80 GiB if not given) and settings before the first operation
//	+x=60 +y=1MiB-512B@1 -x        allocate x, y (on stream 1), free x; sizes are MiB, or have units and + and -
//	+w=60!                         an allocation that must be refused
//	rec:x@7 sync sync@7 empty_cache conf:... fraction:0.5 foreign:20
//	pool:1 pool:1@3 capture:1@3 end:1 release:1 empty_pool:1 empty_cache!    private pools (of stream 3); ! where it cannot be done
//	    block S0+0:1000            what must hold after the line above: the last block handed out,
//	    calls malloc S0:2097152    its device calls,
//	    free S0+0:512 S1+0:512     the free sets, small pool first, in set order, and of pool 1 (or 2), gone if it is forgotten,
//	    private1 S2+0:512
//	    unmapped E0+20MiB:100MiB   the unmapped blocks by address, and
//	    stats reserved=2MiB ...    figures
//
// S0, S1, ... are segments from cudaMalloc and E0, E1, ... expandable ones, in order of creation; figures without a unit are bytes.
// Text behind # is a comment. Every case also runs on the reference.
type script struct {
	*twins
	t      *testing.T
	blocks map[string]*reference.Block
	names  map[device.Addr]string
	bases  []device.Addr
	kinds  map[string]int
	last   *reference.Block
	did    []string
}

func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/scripts/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			cases := strings.Split("\n"+string(data), "\n== ")
			line := strings.Count(cases[0], "\n")
			require.Greater(t, len(cases), 1, "no case in it")
			for _, text := range cases[1:] {
				name, body, _ := strings.Cut(text, "\n")
				t.Run(name, func(t *testing.T) { runCase(t, filepath.Base(file), line+1, body) })
				line += strings.Count(text, "\n") + 1
			}
		})
	}
}

// runCase runs the lines of a case; the first of them stands in line first+1 of the file.
func runCase(t *testing.T, file string, first int, body string) {
	s := &script{t: t, blocks: map[string]*reference.Block{}, names: map[device.Addr]string{}, kinds: map[string]int{}}
	for i, line := range strings.Split(body, "\n") {
		text, _, _ := strings.Cut(line, "#")
		words := strings.Fields(text)
		if len(words) == 0 {
			continue
		}
		where := fmt.Sprintf("%s:%d: %s", file, first+i+1, strings.TrimSpace(text))
		if s.twins == nil {
			if s.begin(where, words) {
				continue
			}
		}
		s.name = where
		if !strings.HasPrefix(text, "    ") {
			s.did = nil
			for _, w := range words {
				require.True(t, s.do(w), "%s: %q is no operation", where, w)
				s.noteCalls()
			}
			continue
		}
		want := strings.Join(words[1:], " ")
		if words[0] == "stats" {
			s.checkStats(where, words[1:])
			continue
		}
		got := strings.Join(s.show(words[0]), " ")
		if got == "" {
			got = "-"
		}
		require.Equal(t, s.inBytes(want), got, where)
	}
}

// begin makes the allocator from the line of options, or with none if the first line is an operation already.
func (s *script) begin(where string, words []string) (options bool) {
	capacity, set := uint64(80<<30), DefaultSettings()
	for _, w := range words {
		key, value, _ := strings.Cut(w, ":")
		var err error
		switch {
		case strings.HasPrefix(w, "C="):
			capacity, options = s.size(w[2:], mib), true
		case key == "conf":
			fraction, has := set.Fraction, set.HasFraction
			set, _, err = ParseSettings(value)
			set.Fraction, set.HasFraction, options = fraction, has, true
		case key == "fraction":
			set.HasFraction, options = true, true
			set.Fraction, err = strconv.ParseFloat(value, 64)
		default:
			require.False(s.t, options, "%s: operations begin on a line of their own", where)
		}
		require.NoError(s.t, err, where)
	}
	s.twins = newTwins(s.t, where, capacity, set)
	return options
}

// size reads 60, 1.5, 1000B or 1MiB-512B.
func (s *script) size(text string, unit float64) uint64 {
	var total float64
	for _, term := range strings.FieldsFunc(strings.ReplaceAll(text, "-", " -"), func(r rune) bool { return r == '+' || r == ' ' }) {
		u := unit
		for suffix, bytes := range map[string]float64{"GiB": 1 << 30, "MiB": mib, "KiB": 1 << 10} {
			if strings.HasSuffix(term, suffix) {
				term, u = strings.TrimSuffix(term, suffix), bytes
			}
		}
		if strings.HasSuffix(term, "B") {
			term, u = strings.TrimSuffix(term, "B"), 1
		}
		v, err := strconv.ParseFloat(term, 64)
		require.NoError(s.t, err, text)
		total += v * u
	}
	return uint64(total)
}

// inBytes rewrites figures with units inside S0+20MiB:1.5MiB.
func (s *script) inBytes(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ' ' })
	for i, w := range words {
		parts := strings.SplitAfter(strings.ReplaceAll(strings.ReplaceAll(w, "+", "+\x00"), ":", ":\x00"), "\x00")
		for j, p := range parts {
			end := ""
			if k := strings.IndexAny(p, "+:"); k >= 0 {
				p, end = p[:k], p[k:k+1]
			}
			if strings.HasSuffix(p, "iB") {
				p = fmt.Sprint(s.size(p, 1))
			}
			parts[j] = p + end
		}
		words[i] = strings.Join(parts, "")
	}
	return strings.Join(words, " ")
}

// do performs one word of an operation line.
func (s *script) do(word string) bool {
	verb, rest, _ := strings.Cut(word, ":")
	on := device.Stream(-1)
	if at := strings.LastIndex(word, "@"); at >= 0 && verb != "conf" {
		n, err := strconv.Atoi(strings.TrimSuffix(word[at+1:], "!"))
		require.NoError(s.t, err, word)
		on = device.Stream(n)
		verb, _, _ = strings.Cut(strings.Replace(verb, word[at:], "", 1), "@")
		rest, _, _ = strings.Cut(rest, "@")
	}
	switch {
	case word[0] == '+':
		name, size, _ := strings.Cut(strings.TrimSuffix(verb[1:], "!"), "=")
		refused := strings.HasSuffix(word, "!")
		require.Nil(s.t, s.blocks[name], "%s is live", name)
		b := s.alloc(s.size(size, mib), max(on, 0))
		require.Equal(s.t, refused, b == nil, "%s: whether %s is refused", s.name, word)
		if b != nil {
			s.blocks[name], s.last = b, b
		}
	case word[0] == '-':
		b := s.blocks[word[1:]]
		require.NotNil(s.t, b, "%s: %s", s.name, word)
		delete(s.blocks, word[1:])
		s.free(slices.Index(s.live, b))
	case verb == "rec":
		s.record(slices.Index(s.live, s.blocks[rest]), on)
	case verb == "sync":
		s.sync(on)
	case word == "empty_cache", word == "empty_cache!":
		s.op("%s", word)
		err := s.a.EmptyCache()
		require.Equal(s.t, word == "empty_cache!", err != nil, "%s: whether it can be done: %v", s.name, err)
		s.same(err, s.r.EmptyCache())
		s.compare(true)
	case verb == "pool" || verb == "capture":
		s.beginPool(allocators.Redirection{Pool: s.poolID(rest), Stream: on, Capture: verb == "capture"})
	case verb == "end":
		s.endPool(s.poolID(rest))
	case verb == "release":
		s.releasePool(s.poolID(rest))
	case verb == "empty_pool":
		s.emptyPool(s.poolID(strings.TrimSuffix(rest, "!")))
	case verb == "conf":
		s.configure(rest)
	case verb == "fraction":
		f, err := strconv.ParseFloat(rest, 64)
		require.NoError(s.t, err, word)
		s.setFraction(f)
	case verb == "foreign":
		s.setForeign(s.size(rest, mib))
	default:
		return false
	}
	return true
}

func (s *script) poolID(text string) allocators.PoolID {
	n, err := strconv.Atoi(text)
	require.NoError(s.t, err, s.name)
	return allocators.PoolID(n)
}

// noteCalls names new segments and keeps the calls of the last operation, equal neighbours joined as in decision logs.
func (s *script) noteCalls() {
	joined, end := -1, device.Addr(0)
	add := func(format string, args ...any) {
		s.did = append(s.did, fmt.Sprintf(format, args...))
	}
	var size uint64
	for i, c := range s.calls {
		switch c.Kind {
		case device.CallMalloc, device.CallReserve:
			kind, word := "S", "malloc"
			if c.Kind == device.CallReserve {
				kind, word = "E", "reserve"
			}
			s.names[c.Addr] = fmt.Sprintf("%s%d", kind, s.kinds[kind])
			s.kinds[kind]++
			s.bases = append(s.bases, c.Addr)
			add("%s %s:%d", word, s.names[c.Addr], c.Size)
		case device.CallMallocFail:
			add("mallocfail:%d", c.Size)
		case device.CallCreateFail:
			n := 0
			for j := i - 1; j >= 0 && s.calls[j].Kind == device.CallCreate; j-- {
				n++
			}
			add("createfail:%d@%d", c.Size, n)
		case device.CallFree:
			add("free %s", s.names[c.Addr])
		case device.CallUnreserve:
			add("unreserve %s", s.names[c.Addr])
		case device.CallMap, device.CallUnmap:
			word := map[bool]string{true: "map", false: "unmap"}[c.Kind == device.CallMap]
			if joined >= 0 && end == c.Addr && strings.HasPrefix(s.did[joined], word) {
				size += c.Size
				head, _, _ := strings.Cut(s.did[joined], ":")
				s.did[joined] = fmt.Sprintf("%s:%d", head, size)
			} else {
				size = c.Size
				add("%s %s:%d", word, s.place(c.Addr), size)
			}
			joined, end = len(s.did)-1, c.Addr+device.Addr(c.Size)
		}
	}
	s.calls = s.calls[:0]
}

// place writes S0+1024.
func (s *script) place(addr device.Addr) string {
	var base device.Addr
	for _, b := range s.bases {
		if b <= addr && b > base {
			base = b
		}
	}
	return fmt.Sprintf("%s+%d", s.names[base], uint64(addr-base))
}

func (s *script) show(what string) []string {
	var out []string
	switch what {
	case "calls":
		return s.did
	case "block":
		return []string{fmt.Sprintf("%s:%d", s.place(s.last.Addr()), s.last.Size())}
	case "free", "private1", "private2":
		// From the allocator's own sets, not from a list that was sorted here.
		pools := []*pool{&s.a.small, &s.a.large}
		if id, ok := strings.CutPrefix(what, "private"); ok {
			p := s.a.private(s.poolID(id))
			if p == nil {
				return []string{"gone"}
			}
			pools = []*pool{&p.small, &p.large}
		}
		for _, p := range pools {
			for _, set := range p.streams {
				for b := set.free.first(); b != nil; b = set.free.next(b) {
					out = append(out, fmt.Sprintf("%s:%d", s.place(b.addr), b.size))
				}
			}
		}
	case "unmapped":
		for _, b := range s.sa.Blocks {
			if b.State == allocators.Unmapped {
				out = append(out, fmt.Sprintf("%s:%d", s.place(b.Addr), b.Size))
			}
		}
	default:
		require.Fail(s.t, "no such check", what)
	}
	return out
}

func (s *script) checkStats(where string, pairs []string) {
	st := s.a.Stats()
	free, _ := s.dev.Info()
	got := map[string]uint64{
		"reserved": st.ReservedBytes.All.Current, "allocated": st.AllocatedBytes.All.Current, "active": st.ActiveBytes.All.Current,
		"requested": st.RequestedBytes.All.Current, "inactive_split": st.InactiveSplitBytes.All.Current,
		"segments": st.Segment.All.Current, "syncs": st.NumSyncAllStreams, "retries": st.NumAllocRetries, "ooms": st.NumOOMs, "device_free": free,
		"peak_reserved": st.ReservedBytes.All.Peak, "limit": s.a.limit,
	}
	for _, p := range pairs {
		key, value, _ := strings.Cut(p, "=")
		v, ok := got[key]
		require.True(s.t, ok, "%s: no figure is called %q", where, key)
		require.Equal(s.t, s.size(value, 1), v, "%s: %s", where, key)
	}
}
