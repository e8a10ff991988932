package trace

import (
	"testing"
)

// millionOps is a trace of a million operations as text, 22 MB.
func millionOps() []byte { return typicalTrace(newRand(1), 1_000_000).Format() }

func BenchmarkParse(b *testing.B) {
	text := millionOps()
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := parseText("", text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFormat(b *testing.B) {
	tr, err := parseText("", millionOps())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		tr.Format()
	}
}

func BenchmarkHash(b *testing.B) {
	tr := typicalTrace(newRand(1), 1000)
	b.ReportAllocs()
	for b.Loop() {
		tr.Hash()
	}
}

func BenchmarkEncode(b *testing.B) {
	tr := typicalTrace(newRand(1), 1000)
	b.ReportAllocs()
	for b.Loop() {
		Encode(tr)
	}
}

func BenchmarkDecode(b *testing.B) {
	data := Encode(typicalTrace(newRand(1), 1000))
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		Decode(data)
	}
}

// TestParseAllocatesPerTraceNotPerOperation: parsing has to keep up with traces of millions of operations.
func TestParseAllocatesPerTraceNotPerOperation(t *testing.T) {
	allocs := func(ops int) float64 {
		text := typicalTrace(newRand(1), ops).Format()
		return testing.AllocsPerRun(5, func() {
			if _, err := parseText("", text); err != nil {
				t.Fatal(err)
			}
		})
	}
	few, many := allocs(100), allocs(20_000)
	if many > few+20 {
		t.Fatalf("%.0f allocations for 100 operations, %.0f for 20,000", few, many)
	}
}
