package gen_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func TestJobsAreLegal(t *testing.T) {
	campaign := testSeed(t)
	r := rand.New(rand.NewPCG(campaign, 5))
	for _, w := range gen.Jobs {
		t.Run(w.Name, func(t *testing.T) {
			for i := range uint64(6) {
				tr := gen.Generate(w, gen.Seed(campaign, w.Name, i), gen.Params{})
				require.NoError(t, tr.Validate())
				require.Len(t, tr.Ops, w.Defaults.Ops)
				p := gen.Params{Ops: 200 + r.IntN(3000), Capacity: 1 << r.IntN(50), Long: r.Float64() * 1.2, Streams: r.IntN(40)}
				tr = gen.Generate(w, r.Uint64(), p)
				require.NoError(t, tr.Validate(), "%s%s", w.Name, p)
				require.Len(t, tr.Ops, p.Ops)
			}
			long, short := gen.Generate(w, 3, gen.Params{Ops: 6000}), gen.Generate(w, 3, gen.Params{Ops: 500})
			require.Equal(t, long.Ops[:500], short.Ops, "the length decides nothing")
			require.Equal(t, long.Hash(), gen.Generate(w, 3, gen.Params{Ops: 6000}).Hash())
			require.NotEqual(t, long.Hash(), gen.Generate(w, 4, gen.Params{Ops: 6000}).Hash())
			src := gen.FromBytes(nil)
			require.NoError(t, w.Generate(src, src, gen.Params{Ops: 3000}).Validate())
		})
	}
}

// The peak of live bytes is near what real jobs have: it is most of the device and less than all of it, on 80 and on 141 GiB.
func TestJobsAreOfRealSize(t *testing.T) {
	campaign := testSeed(t)
	for _, w := range gen.Jobs {
		for _, capacity := range []uint64{80 * gib, 141 * gib} {
			var peaks, largest []int
			for i := range uint64(6) {
				tr := gen.Generate(w, gen.Seed(campaign, w.Name, i), gen.Params{Capacity: capacity})
				var peak, most uint64
				for _, n := range levels(tr) {
					peak = max(peak, n)
				}
				for _, op := range tr.Ops {
					if op.Kind == trace.Alloc {
						most = max(most, op.Bytes)
					}
				}
				peaks = append(peaks, int(100*peak/capacity))
				largest = append(largest, int(most/mib))
			}
			p, l := spread(peaks), spread(largest)
			t.Logf("%-9s %3d GiB: peak of live bytes, percent of the device: %v; largest block, MiB: %v", w.Name, capacity/gib, p, l)
			require.Greater(t, p[2], 25, "%s on %d GiB", w.Name, capacity/gib)
			require.Less(t, p[4], 100, "%s on %d GiB", w.Name, capacity/gib)
		}
	}
}
