package gen_test

import (
	"bytes"
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestTracesAreLegal(t *testing.T) {
	campaign := testSeed(t)
	for _, w := range gen.Workloads {
		t.Run(w.Name, func(t *testing.T) {
			for i := range uint64(300) {
				tr := gen.Generate(w, gen.Seed(campaign, w.Name, i), gen.Params{Ops: 1 + int(i*i%4000)})
				require.NoError(t, tr.Validate())
				require.Len(t, tr.Ops, 1+int(i*i%4000))
			}
		})
	}
}

func TestTracesAreOrdinary(t *testing.T) {
	for _, w := range gen.Workloads {
		tr := gen.Generate(w, 7, gen.Params{})
		require.Len(t, tr.Ops, w.Defaults.Ops)
		text := tr.Format()
		again, err := trace.Parse("", bytes.NewReader(text))
		require.NoError(t, err)
		require.Equal(t, string(text), string(again.Format()))
		if w.Name == "swarm" {
			continue // takes ids again
		}
		next := uint64(0)
		for _, op := range tr.Ops {
			if op.Kind == trace.Alloc {
				require.Equal(t, next, op.ID, "ids count the allocations")
				next++
			}
		}
	}
}

func TestParamsOfAllKinds(t *testing.T) {
	r := rand.New(rand.NewPCG(testSeed(t), 0))
	for _, w := range gen.Workloads {
		for range 40 {
			p := gen.Params{
				Ops: 200 + r.IntN(800), Capacity: 1 << r.IntN(50), Long: r.Float64() * 1.2, Streams: r.IntN(40),
			}
			tr := gen.Generate(w, r.Uint64(), p)
			require.NoError(t, tr.Validate(), "%s%s", w.Name, p)
			require.Len(t, tr.Ops, p.Ops, "%s%s", w.Name, p)
		}
	}
}

func TestHeader(t *testing.T) {
	tr := gen.Generate(find(t, "waves"), 7, gen.Params{Ops: 10, Capacity: 64 << 20})
	require.Equal(t, trace.Field{Key: "shatter", Value: "1"}, tr.Header[0])
	require.Equal(t, trace.Field{Key: "source", Value: "gen waves seed=7 version=1 ops=10 capacity=67108864"}, tr.Header[1])
	require.Equal(t, trace.Field{Key: "capacity", Value: "67108864"}, tr.Header[2])
}

func TestSameSeedSameTrace(t *testing.T) {
	for _, w := range gen.Workloads {
		one, two := gen.Generate(w, 99, gen.Params{}), gen.Generate(w, 99, gen.Params{})
		require.Equal(t, one.Hash(), two.Hash(), w.Name)
		require.NotEqual(t, one.Hash(), gen.Generate(w, 100, gen.Params{}).Hash(), w.Name)
	}
}

// A longer trace begins like a shorter one: the length decides nothing.
func TestLengthDecidesNothing(t *testing.T) {
	for _, w := range gen.Workloads {
		long := gen.Generate(w, 3, gen.Params{Ops: 2000})
		short := gen.Generate(w, 3, gen.Params{Ops: 500})
		require.Equal(t, long.Ops[:500], short.Ops, w.Name)
	}
}

func TestFromBytesIsTotal(t *testing.T) {
	r := rand.New(rand.NewPCG(testSeed(t), 0))
	inputs := [][]byte{nil, {0}, {255}, []byte(strings.Repeat("\xff", 5000))}
	for range 60 {
		b := make([]byte, r.IntN(3000))
		for i := range b {
			b[i] = byte(r.Uint32()) >> r.IntN(8)
		}
		inputs = append(inputs, b)
	}
	for _, w := range gen.Workloads {
		for _, b := range inputs {
			src := gen.FromBytes(b)
			tr := w.Generate(src, src, gen.Params{Ops: 600})
			require.NoError(t, tr.Validate(), "%s of %q", w.Name, b)
			require.Len(t, tr.Ops, 600)
		}
	}
}

func TestSources(t *testing.T) {
	src := gen.FromBytes([]byte{7, 1, 2, 300 % 256})
	require.Equal(t, uint64(7), src.Uint64n(10))
	require.Equal(t, uint64(1<<8|2), src.Uint64n(1000))
	require.Equal(t, uint64(0), src.Uint64n(1), "one choice takes no byte")
	require.Equal(t, uint64(44), src.Uint64n(256))
	require.Equal(t, uint64(0), src.Uint64n(1<<60), "used up")

	config, ops := gen.NewSeeded(5, 0), gen.NewSeeded(5, 1)
	var counts [10]int
	equal := 0
	for range 10000 {
		n := config.Uint64n(10)
		counts[n]++
		if n == ops.Uint64n(10) {
			equal++
		}
	}
	for _, n := range counts {
		require.InDelta(t, 1000, n, 150)
	}
	require.InDelta(t, 1000, equal, 150, "streams are independent")
}

func TestSeed(t *testing.T) {
	seen := map[uint64]bool{}
	for campaign := range uint64(20) {
		for _, name := range []string{"mixed", "step", ""} {
			for index := range uint64(20) {
				seen[gen.Seed(campaign, name, index)] = true
			}
		}
	}
	require.Len(t, seen, 20*3*20)
	require.Equal(t, gen.Seed(1, "mixed", 2), gen.Seed(1, "mixed", 2))
}

func TestFind(t *testing.T) {
	_, err := gen.Find("wave")
	require.EqualError(t, err, `unknown workload "wave"; there are mixed, step, waves, edges, streams, pins, swarm, graphs, dense, sharded, moe, serve, paged, rl, finetune, vision (see shatter list workloads)`)
}

// A change of these files means that seeds mean other traces: Version must change with them.
func TestGolden(t *testing.T) {
	const lines = 60
	for _, w := range gen.Workloads {
		text := gen.Generate(w, 1, gen.Params{Ops: lines}).Format()
		path := filepath.Join("testdata", w.Name+".trace")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, text, 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err, "go test ./harness/gen -update writes it")
		require.Equal(t, string(want), string(text), "%s changed: change Version, then run with -update", w.Name)
	}
}

func BenchmarkGenerate(b *testing.B) {
	for _, w := range gen.Workloads {
		b.Run(w.Name, func(b *testing.B) {
			b.ReportAllocs()
			ops := 0
			for i := 0; b.Loop(); i++ {
				ops += len(gen.Generate(w, uint64(i), gen.Params{}).Ops)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(ops), "ns/traceop")
		})
	}
}
