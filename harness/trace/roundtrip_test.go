package trace

import (
	"math/rand/v2"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/gen"
	"github.com/leanovate/gopter/prop"
	"github.com/stretchr/testify/require"
)

// requireSame compares what a run reads, header order aside: Decode writes capacity, conf and fraction in this order.
func requireSame(t testing.TB, want, got *Trace) {
	t.Helper()
	for _, key := range []string{KeyCapacity, KeyConf, KeyFraction} {
		w, wok := want.Get(key)
		g, gok := got.Get(key)
		require.Equal(t, wok, gok, "header %s", key)
		require.Equal(t, w, g, "header %s", key)
	}
	require.Len(t, got.Ops, len(want.Ops))
	for i := range want.Ops {
		if want.Ops[i] != got.Ops[i] {
			require.Equal(t, want.Ops[i], got.Ops[i], "operation %d", i)
		}
	}
}

func TestRandomTracesRoundTrip(t *testing.T) {
	seed := testSeed(t)
	kinds := map[Kind]int{}
	for i := range 10_000 {
		r := rand.New(rand.NewPCG(seed, uint64(i)))
		tr := wildTrace(r, 40)
		if i%100 == 0 {
			tr = wildTrace(r, MaxDecodedOps+300)
			tr.Ops = tr.Ops[:min(len(tr.Ops), MaxDecodedOps)]
		}
		for _, op := range tr.Ops {
			kinds[op.Kind]++
		}
		require.NoError(t, tr.Validate(), "trace %d of seed %d", i, seed)

		text := tr.Format()
		parsed, err := parseText("", text)
		require.NoError(t, err, "trace %d of seed %d", i, seed)
		requireSame(t, tr, parsed)
		require.Equal(t, string(text), string(parsed.Format()))

		b := Encode(tr)
		decoded := Decode(b)
		requireSame(t, tr, decoded)
		require.Equal(t, b, Encode(decoded))
		require.Equal(t, tr.Hash(), decoded.Hash())
	}
	require.Len(t, kinds, kindCount, "every kind must occur")
}

func TestEncodeCarriesNoMoreThanItSays(t *testing.T) {
	tr := typicalTrace(newRand(1), MaxDecodedOps+50)
	tr.Set("source", "x")
	got := Decode(Encode(tr))
	require.Equal(t, tr.Ops[:MaxDecodedOps], got.Ops)
	require.Equal(t, []Field{{KeyCapacity, "268435456"}}, got.Header)

	unreadable := &Trace{Header: []Field{{KeyCapacity, "lots"}, {KeyConf, "a\nb"}, {KeyFraction, "2"}}}
	require.Empty(t, Encode(unreadable))
}

// TestDecodeDropsTextThatIsNotLegal: the check operand alone does not make settings legal.
func TestDecodeDropsTextThatIsNotLegal(t *testing.T) {
	for lead, texts := range map[byte][]string{
		leadConfText:     {"", " a", "a #b", "#", "a\x02", "\xff", "a\xc3"},
		leadHeadConfText: {" a", "a\t", "\x02", "\xff"},
	} {
		for _, text := range texts {
			e := encoder{}
			e.lead(lead)
			e.text(text)
			require.Empty(t, Decode(e.out).Format(), "%q behind lead %#x", text, lead)
		}
	}
}

func TestDecodeIsBounded(t *testing.T) {
	b := make([]byte, 100_000)
	for i := range b {
		b[i] = leadSyncAll
	}
	require.Len(t, Decode(b).Ops, MaxDecodedOps)
}

func TestProperties(t *testing.T) {
	params := gopter.DefaultTestParametersWithSeed(int64(testSeed(t)))
	params.Workers = 1
	params.MinSuccessfulTests = 500
	props := gopter.NewProperties(params)

	props.Property("any bytes decode to a legal trace that text and bytes carry", prop.ForAll(func(b []byte) (bool, error) {
		return true, checkDecode(b)
	}, gen.SliceOf(gen.UInt8())))

	props.Property("a size reads back from its shortest form", prop.ForAll(func(n uint64, shift uint8) bool {
		n = n >> (shift % 64) << (shift % 41)
		back, err := ParseSize(FormatSize(n))
		return err == nil && back == n
	}, gen.UInt64(), gen.UInt8()))

	props.Property("the first edge pair of a size gives it", prop.ForAll(func(class, offset uint8) bool {
		size := applyDistance(classEdges[class%128], offset%128)
		c, o, ok := edgeOf(size)
		return ok && applyDistance(classEdges[c], o) == size && size <= MaxBytes
	}, gen.UInt8(), gen.UInt8()))

	props.Property("a header value comes back", prop.ForAll(func(value string) bool {
		tr := &Trace{}
		tr.Set("note", value)
		if tr.Validate() != nil {
			return true
		}
		back, err := parseText("", tr.Format())
		got, ok := back.Get("note")
		want, _ := tr.Get("note")
		return err == nil && ok && got == want
	}, gen.AnyString()))

	props.TestingRun(t)
}
