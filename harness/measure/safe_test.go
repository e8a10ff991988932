package measure_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
)

// Safe agrees with the whole spectrum wherever it calls itself exact, and is no more than it elsewhere.
func TestSafeAgainstSpectrum(t *testing.T) {
	t.Log("seed 17")
	exact := 0
	for i := range uint64(24) {
		w, err := gen.Find([]string{"waves", "mixed", "edges", "rl"}[i%4])
		require.NoError(t, err)
		tr := gen.Generate(w, gen.Seed(17, w.Name, i), gen.Params{Ops: 500})
		p := executor.Compile(tr)
		for _, name := range []string{"classic", "expandable", "classic@garbage_collection_threshold:0.8,x_memory_fraction:0.7"} {
			all, err := measure.Capacities(context.Background(), p, target(t, name), simulated)
			require.NoError(t, err)
			for _, budget := range []int{0, 40, 1 << 20} {
				s, err := measure.Safe(context.Background(), p, target(t, name), simulated, budget)
				require.NoError(t, err)
				up := func(n uint64) uint64 { return (n + 2*mib - 1) / (2 * mib) } // a limit that is a share of the device lies between
				require.LessOrEqual(t, up(s.Bytes), up(all.Safe()))
				require.GreaterOrEqual(t, up(s.Bytes), up(all.Min()))
				if s.Exact {
					exact++
					require.Equal(t, up(all.Safe()), up(s.Bytes), "%s on %s", w.Name, name)
				} else {
					require.NotEqual(t, 1<<20, budget)
				}
			}
		}
	}
	require.Greater(t, exact, 100)
}
