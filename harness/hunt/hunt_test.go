package hunt_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/hunt"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/properties"
)

const seed = 3

func config(t testing.TB, name string) hunt.Config {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return hunt.Config{
		Seed: seed, NewJudge: properties.NewJudge,
		NewDevice: func(c uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: c}) },
		Target: func(*trace.Trace) (executor.Target, error) {
			return executor.Target{Name: name, New: spec.New}, nil
		},
		Random: func(r *rand.Rand) *trace.Trace {
			w, err := gen.Find("waves")
			require.NoError(t, err)
			return gen.Generate(w, r.Uint64(), gen.Params{Ops: hunt.MaxOps - 1, Capacity: hunt.Capacity})
		},
	}
}

func tries(t testing.TB, h *hunt.Hunter, n int) {
	end := h.Evaluations + n
	require.NoError(t, h.Run(context.Background(), func() bool { return h.Evaluations < end }))
}

// The same seed finds the same, every kept trace is legal and short, and what is said of its refusal is what a replay shows.
func TestHunt(t *testing.T) {
	t.Logf("seed %d", seed)
	start := func() *hunt.Hunter {
		h, err := hunt.Start(config(t, "classic"))
		require.NoError(t, err)
		tries(t, h, 1500)
		return h
	}
	one, two := start(), start()
	require.Equal(t, one.Score(), two.Score())
	require.Less(t, one.Score(), -2.0)
	for i, k := range one.Population() {
		require.NoError(t, k.Trace.Validate())
		require.LessOrEqual(t, len(k.Trace.Ops), hunt.MaxOps-1)
		require.Equal(t, k.Trace.Hash(), two.Population()[i].Trace.Hash())
	}
	for c := range hunt.Classes {
		k := one.Best(c)
		require.NotNil(t, k, hunt.FigureNames[c])
		cfg := config(t, "classic")
		fill, err := hunt.Fill(hunt.With(k.Trace, c), cfg.Target, cfg.NewDevice, cfg.NewJudge())
		require.NoError(t, err)
		require.InDelta(t, one.Fill(c), fill, 1e-12)
		small, least, err := one.Shrink(context.Background(), c, shrink.Budget{Runs: 300})
		require.NoError(t, err)
		require.LessOrEqual(t, least, fill)
		require.LessOrEqual(t, len(small.Ops), len(k.Trace.Ops)+1)
	}
}

// A stored hunt goes on where it was, and refuses to go on as another one.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	h, err := hunt.Start(config(t, "expandable"))
	require.NoError(t, err)
	tries(t, h, 800)
	require.NoError(t, h.Save(dir))
	seeds, n, err := hunt.Load(dir, seed, tracefile.Read)
	require.NoError(t, err)
	require.Equal(t, h.Evaluations, n)
	cfg := config(t, "expandable")
	cfg.Seeds, cfg.Evaluations = seeds, n
	again, err := hunt.Start(cfg)
	require.NoError(t, err)
	require.InDelta(t, h.Score(), again.Score(), 1e-12)
	require.Greater(t, again.Evaluations, n)
	_, _, err = hunt.Load(dir, seed+1, tracefile.Read)
	require.ErrorContains(t, err, "--seed 3")
	_, n, err = hunt.Load(t.TempDir(), seed, tracefile.Read)
	require.NoError(t, err)
	require.Zero(t, n)
}

// Growth counts where two settings show it and neither alone does: the cycle of pytorch#193400 has it, half of it has not.
func TestGrowth(t *testing.T) {
	pair := "max_split_size_mb:128,expandable_segments:True"
	for text, grows := range map[string]bool{
		"alloc 0 91MiB\nalloc 1 45.5MiB\nalloc 2 2MiB\nfree 0\nfree 1\n": true,
		"alloc 0 91MiB\nalloc 1 45.5MiB\nfree 0\nfree 1\n":               false,
	} {
		cfg := config(t, "classic")
		cfg.Settings = []string{pair}
		cfg.Alone = func(conf string) []string { return strings.Split(conf, ",") }
		cfg.Target = func(t *trace.Trace) (executor.Target, error) {
			conf, _ := t.Settings()
			s, err := catalog.FromSettings(conf, nil)
			return executor.Target{Name: s.Name, New: s.New}, err
		}
		tr, err := trace.ParseString("cycle", "# conf: "+pair+"\n"+text)
		require.NoError(t, err)
		cfg.Seeds = []*trace.Trace{tr}
		h, err := hunt.Start(cfg)
		require.NoError(t, err)
		require.Equal(t, grows, len(h.Growing()) == 1, text)
		if grows {
			require.Greater(t, h.Growing()[0].Figures[hunt.Growth], 100.0*(1<<20))
		}
	}
}
