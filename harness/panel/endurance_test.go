//go:build unix

package panel_test

import (
	"flag"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var endurance = flag.Int("endurance", 100_000, "operations of TestEndurance; 10000000 for the figures of the report")

// layerOf70B is the bytes of a gathered layer of Llama 2 70B, from its published shapes.
const layerOf70B = 2 * (8192*(8192+2*1024) + 8192*8192 + 3*8192*28672 + 2*8192)

// trace70B is fully sharded training of a 70B model on 141 GiB: of the seeds from 1 on the first that draws such a model.
func trace70B(t testing.TB, ops int) *trace.Trace {
	w, err := gen.Find("sharded")
	require.NoError(t, err)
	for seed := uint64(1); ; seed++ {
		p := gen.Params{Ops: 1000, Capacity: 141 << 30}
		for _, op := range gen.Generate(w, seed, p).Ops {
			if op.Bytes == layerOf70B {
				p.Ops = ops
				t.Logf("sharded, seed %d, %d operations", seed, ops)
				return gen.Generate(w, seed, p)
			}
		}
	}
}

// Time for an operation and memory of the harness stay what they are from the first tenth to the last, all properties checked.
func TestEndurance(t *testing.T) {
	p := executor.Compile(trace70B(t, *endurance))
	for _, name := range []string{"classic", "expandable"} {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		dev, err := simdev.New(simdev.Options{Capacity: 141 << 30})
		require.NoError(t, err)
		r, err := executor.Start(p, executor.Target{Name: name, New: spec.New}, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
		require.NoError(t, err)
		var heap []uint64
		var spent []time.Duration
		for part := range 10 {
			start := processorTime()
			for r.More() && r.Position() < (part+1)*p.Len()/10 {
				require.NoError(t, r.Step())
			}
			spent = append(spent, processorTime()-start)
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			heap = append(heap, m.HeapAlloc)
			t.Logf("%-10s operations to %9d: %6.0f ns of processor time each, heap %7.2f MiB, %d refused", name, r.Position(),
				float64(spent[part].Nanoseconds())/float64(p.Len()/10), float64(m.HeapAlloc)/(1<<20), len(r.Result().OOMs))
		}
		require.Empty(t, r.Result().Findings)
		require.Less(t, heap[9], heap[0]+heap[0]/10+8<<20, "the heap grows")
		if *endurance >= 1_000_000 {
			require.Less(t, spent[9], 2*spent[1], "operations get slower")
		}
	}
}

func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
