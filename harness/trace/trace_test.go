package trace

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func mustParse(t testing.TB, text string) *Trace {
	t.Helper()
	tr, err := ParseString("t.trace", text)
	require.NoError(t, err)
	return tr
}

func TestHeaderAccess(t *testing.T) {
	tr := mustParse(t, "# capacity: 1.5GiB\n# conf: \n# expect: a\n# expect: b\n# fraction: 0.50\nalloc 0 1\n")
	capacity, ok, err := tr.Capacity()
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 1536*mib, capacity)
	conf, ok := tr.Settings()
	require.True(t, ok)
	require.Empty(t, conf)
	f, ok, err := tr.HeaderFraction()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 0.5, f)
	require.Equal(t, []string{"a", "b"}, tr.GetAll("expect"))
	_, ok = tr.Get("source")
	require.False(t, ok)

	empty := mustParse(t, "")
	_, ok, err = empty.Capacity()
	require.NoError(t, err)
	require.False(t, ok)
	_, ok = empty.Settings()
	require.False(t, ok)
	_, ok, err = empty.HeaderFraction()
	require.NoError(t, err)
	require.False(t, ok)
}

func TestSetReplacesTheFirstOrAppends(t *testing.T) {
	tr := mustParse(t, "# about\n# conf: a\n# conf: b\n\nalloc 0 1\n")
	shared := Trace{Header: tr.Header}
	tr.Set("conf", "  c\nd ")
	tr.Set("source", "x")
	require.Equal(t, "# about\n# conf: c d\n# conf: b\n# source: x\n\nalloc 0 1\n", string(tr.Format()))
	require.Equal(t, []string{"a", "b"}, shared.GetAll("conf"), "another trace's header must not change")
}

func TestHeaderErrorsNameTheLine(t *testing.T) {
	tr := mustParse(t, "# conf: \n# capacity: 1\n# fraction: 1\n")
	tr.Set(KeyCapacity, "lots")
	tr.Set(KeyFraction, "2")
	_, ok, err := tr.Capacity()
	require.True(t, ok)
	require.EqualError(t, err, `t.trace:2:13: header capacity: size "lots" is not a number (`+sizeHint+`)`)
	_, _, err = tr.HeaderFraction()
	require.EqualError(t, err, `t.trace:3:13: fraction "2" is outside 0..1 (write a number from 0 to 1 such as 0.8)`)
}

func TestLine(t *testing.T) {
	tr := mustParse(t, "# c\n\nalloc 0 1\n# c\nfree 0\n")
	require.Equal(t, 3, tr.Line(0))
	require.Equal(t, 5, tr.Line(1))
	for _, op := range []int{-1, 2, 99} {
		require.Zero(t, tr.Line(op))
	}
	require.Zero(t, (&Trace{Ops: tr.Ops}).Line(0))
}

func TestFormatOfEditedOpsDropsNotesThatFitNowhere(t *testing.T) {
	tr := mustParse(t, "# a\nalloc 0 1 # b\n# c\nfree 0 # d\n# e\n")
	tr.Ops = tr.Ops[:1]
	require.Equal(t, "# a\nalloc 0 1 # b\n# e\n", string(tr.Format()))
}

func TestHashIsOfWhatARunReads(t *testing.T) {
	base := mustParse(t, "# capacity: 2097152\nalloc 0 1024\n")
	same := []string{
		"# capacity: 2MiB\n# conf: \n# source: x\n\n# comment\nalloc 00 1KiB stream=0 # c\n",
		"# capacity: 2097152\n# capacity: 5\nalloc 0 1024",
	}
	for _, text := range same {
		require.Equal(t, base.ID(), mustParse(t, text).ID(), text)
	}
	spelt := &Trace{Header: []Field{{KeyCapacity, "2MiB"}}, Ops: base.Ops}
	require.Equal(t, base.Hash(), spelt.Hash())
	other := []string{
		"alloc 0 1024\n",
		"# capacity: 2097152\nalloc 0 1025\n",
		"# capacity: 2097152\nalloc 0 1024 stream=1\n",
		"# capacity: 2097152\nalloc 1 1024\n",
		"# capacity: 2097152\n# fraction: 1\nalloc 0 1024\n",
		"# capacity: 2097152\n# conf: expandable_segments:True\nalloc 0 1024\n",
		"# capacity: 2097152\nconf expandable_segments:True\nalloc 0 1024\n",
		"# capacity: 2097152\nalloc 0 1024\nfree 0\n",
	}
	ids := map[string]string{base.ID(): "base"}
	for _, text := range other {
		id := mustParse(t, text).ID()
		require.NotContains(t, ids, id, text)
		ids[id] = text
	}
	require.Regexp(t, `^[0-9a-f]{16}$`, base.ID())
}

// TestHashNeverChanges: names in stored corpora and reports are hashes.
func TestHashNeverChanges(t *testing.T) {
	tr := mustParse(t, "# capacity: 2MiB\n# conf: a:1\n# fraction: 0.5\nalloc 0 1KiB\nsync\nfree 0\n")
	require.Equal(t, "8cce6bcdcde0c6bd", tr.ID())
}

func TestKindWords(t *testing.T) {
	for k := range Kind(kindCount) {
		word, rest, _ := strings.Cut(k.String(), " ")
		got, ok := kindOf([]byte(word))
		require.True(t, ok)
		if rest != "" { // begin, end or release of a pool
			require.True(t, k.OnPool())
			k = PoolBegin
		}
		require.Equal(t, k, got)
	}
	require.Equal(t, "kind(200)", Kind(200).String())
}

func TestValidate(t *testing.T) {
	alloc := Op{Kind: Alloc, ID: 1, Bytes: 1}
	begin := Op{Kind: PoolBegin, Pool: 1, Stream: AllStreams}
	for name, c := range map[string]struct {
		ops  []Op
		want string
	}{
		"legal":               {[]Op{alloc, {Kind: Record, ID: 1}, {Kind: Free, ID: 1}, alloc, {Kind: Sync, Stream: AllStreams}}, ""},
		"kind":                {[]Op{{Kind: 99}}, "trace: operation 0: unknown operation kind(99)"},
		"size":                {[]Op{{Kind: Alloc, Bytes: MaxBytes + 1}}, "trace: operation 0: size 1152921504606846977 is over 2^60 bytes"},
		"foreign":             {[]Op{{Kind: Foreign, Bytes: MaxBytes + 1}}, "trace: operation 0: size 1152921504606846977 is over 2^60 bytes"},
		"id":                  {[]Op{{Kind: Alloc, ID: MaxID + 1}}, "trace: operation 0: id 9223372036854775808 is over 2^63-1"},
		"stream":              {[]Op{{Kind: Alloc, Stream: -1}}, "trace: operation 0: stream -1 is negative"},
		"sync stream":         {[]Op{{Kind: Sync, Stream: -2}}, "trace: operation 0: stream -2 is negative"},
		"live":                {[]Op{alloc, alloc}, "trace: operation 1: alloc of id 1, which is live (free it first, or take another id)"},
		"free":                {[]Op{{Kind: Free, ID: 1}}, "trace: operation 0: free of id 1, which is not live (alloc it first)"},
		"record far":          {[]Op{{Kind: Record, ID: MaxID}}, "trace: operation 0: record of id 9223372036854775807, which is not live (alloc it first)"},
		"nan":                 {[]Op{{Kind: Fraction, Fraction: math.NaN()}}, "trace: operation 0: fraction NaN is outside 0..1 (write a number from 0 to 1 such as 0.8)"},
		"minus zero":          {[]Op{{Kind: Fraction, Fraction: math.Copysign(0, -1)}}, "trace: operation 0: fraction -0 is outside 0..1 (write a number from 0 to 1 such as 0.8)"},
		"fraction":            {[]Op{{Kind: Fraction, Fraction: 1.5}}, "trace: operation 0: fraction 1.5 is outside 0..1 (write a number from 0 to 1 such as 0.8)"},
		"conf empty":          {[]Op{{Kind: Conf}}, "trace: operation 0: conf has no settings (write conf <settings>)"},
		"conf blanks":         {[]Op{{Kind: Conf, Conf: " a"}}, `trace: operation 0: conf has blanks around its value " a" (trim it)`},
		"conf comment":        {[]Op{{Kind: Conf, Conf: "a #b"}}, `trace: operation 0: conf has a comment in its settings: "a #b" (leave the comment out)`},
		"conf line":           {[]Op{{Kind: Conf, Conf: "a\nb"}}, "trace: operation 0: conf: byte 0x0a is not text, at byte 2 (use one line of UTF-8 text)"},
		"conf utf8":           {[]Op{{Kind: Conf, Conf: "\xff"}}, "trace: operation 0: conf: byte 0xff is not UTF-8 text, at byte 1 (use one line of UTF-8 text)"},
		"unused bytes":        {[]Op{alloc, {Kind: Free, ID: 1, Bytes: 1}}, "trace: operation 1: free has a field set that it does not use (leave it zero: free <id>)"},
		"unused stream":       {[]Op{{Kind: EmptyCache, Stream: AllStreams}}, "trace: operation 0: empty_cache has a field set that it does not use (leave it zero: empty_cache [pool=<pool>])"},
		"unused fraction":     {[]Op{{Kind: EmptyCache, Fraction: math.NaN()}}, "trace: operation 0: empty_cache has a field set that it does not use (leave it zero: empty_cache [pool=<pool>])"},
		"pools":               {[]Op{begin, {Kind: PoolEnd, Pool: 1}, {Kind: EmptyCache, Pool: 1}, {Kind: PoolRelease, Pool: 1}}, ""},
		"pool zero":           {[]Op{{Kind: PoolBegin}}, "trace: operation 0: pool 0 is the default pool (private pools are numbered from 1)"},
		"pool too large":      {[]Op{{Kind: PoolBegin, Pool: MaxPool + 1}}, "trace: operation 0: pool 2147483648 is over 2^31-1"},
		"pool stream":         {[]Op{{Kind: PoolBegin, Pool: 1, Stream: -2}}, "trace: operation 0: stream -2 is negative"},
		"pool twice":          {[]Op{begin, begin}, "trace: operation 1: pool 1 is open already (end it first)"},
		"pool unused field":   {[]Op{begin, {Kind: PoolEnd, Pool: 1, Capture: true}}, "trace: operation 1: pool end has a field set that it does not use (leave it zero: pool end <pool>)"},
		"use":                 {[]Op{{Kind: Use, ID: 1}}, "trace: operation 0: use of id 1, which is not live (alloc it first)"},
		"unused settings":     {[]Op{{Kind: Sync, Conf: "a"}}, "trace: operation 0: sync has a field set that it does not use (leave it zero: sync [stream=<n>])"},
		"negative zero field": {[]Op{{Kind: EmptyCache, Fraction: math.Copysign(0, -1)}}, "trace: operation 0: empty_cache has a field set that it does not use (leave it zero: empty_cache [pool=<pool>])"},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Trace{Ops: c.ops}).Validate()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}

func TestValidateHeader(t *testing.T) {
	for name, c := range map[string]struct {
		field Field
		want  string
	}{
		"legal":    {Field{"x-1_y", "v"}, ""},
		"key":      {Field{"Key", "v"}, `trace: header key "Key" has a character that keys cannot have (use a-z, 0-9, _ and -)`},
		"no key":   {Field{"", "v"}, "trace: a header key is empty (use a-z, 0-9, _ and -)"},
		"line end": {Field{"k", "a\nb"}, "trace: header k: byte 0x0a is not text, at byte 2 (use one line of UTF-8 text)"},
		"blanks":   {Field{"k", "a "}, `trace: header k has blanks around its value "a " (trim it)`},
		"version":  {Field{"shatter", "2"}, `trace: trace format version "2" is not known (this program reads version 1: update shatter)`},
		"fraction": {Field{"fraction", "7"}, `trace: fraction "7" is outside 0..1 (write a number from 0 to 1 such as 0.8)`},
	} {
		t.Run(name, func(t *testing.T) {
			err := (&Trace{Header: []Field{c.field}}).Validate()
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.want)
		})
	}
}
