package shrink_test

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// testSeed returns the seed of random tests, SHATTER_SEED or 1, and prints it.
func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SHATTER_SEED")
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

// runs executes traces on the allocator of their header, with a bug planted in it if one is given.
func runs(b *bug) shrink.Runs {
	return shrink.Runs{
		NewDevice: func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) },
		Options: func() executor.Options {
			o := executor.Options{Properties: properties.All(), Judge: properties.NewJudge()}
			if b != nil {
				o.Properties = []executor.Property{properties.NoOverlap, b.sees}
			}
			return o
		},
		Target: func(t *trace.Trace) (executor.Target, error) {
			conf, _ := t.Settings()
			spec, err := catalog.FromSettings(conf, nil)
			if b == nil || err != nil {
				return executor.Target{Name: spec.Name, New: spec.New}, err
			}
			return executor.Target{Name: "planted", New: func(d device.Device) (allocators.Allocator, error) {
				a, err := caching.New(d, *spec.Settings)
				return &planted{Allocator: a, bug: b, streams: map[device.Stream]bool{}, moved: map[device.Addr]device.Addr{}}, err
			}}, nil
		},
	}
}

// generated makes trace k of a workload.
func generated(t testing.TB, seed uint64, workload string, k uint64, ops int) *trace.Trace {
	w, err := gen.Find(workload)
	require.NoError(t, err)
	out := gen.Generate(w, gen.Seed(seed, workload, k), gen.Params{Ops: ops})
	out.Name = "gen:" + workload
	return out
}

// operations is the text of a trace without its header.
func operations(t *trace.Trace) string {
	return string((&trace.Trace{Ops: t.Ops}).Format())
}

// smallest reads testdata/planted.txt: the operations of the smallest trace by bug and signature. Where several are smallest it
// says how many operations they have.
func smallest(t *testing.T) map[string]string {
	data, err := os.ReadFile("testdata/planted.txt")
	require.NoError(t, err)
	out := map[string]string{}
	for _, section := range strings.Split(string(data), "\n== ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		out[title] = strings.TrimSpace(text) + "\n"
	}
	return out
}

// TestPlanted: whatever the trace in which a planted bug shows, what is left of it is the smallest trace that shows it.
func TestPlanted(t *testing.T) {
	seed := testSeed(t)
	want := smallest(t)
	met := map[string]bool{}
	for i := range bugs {
		r := runs(&bugs[i])
		for _, workload := range []string{"swarm", "streams", "pins", "edges"} {
			for k, ops := range []int{200, 1000, 5000} {
				if ops > 200 && testing.Short() {
					break
				}
				tr := generated(t, seed, workload, uint64(k), ops)
				res, _, err := r.Execute(tr)
				require.NoError(t, err)
				if len(res.Findings) == 0 {
					continue
				}
				signature := res.Findings[0].Signature()
				title := bugs[i].name + " " + signature
				start := time.Now()
				got, err := shrink.Minimise(context.Background(), tr, r.Finding(signature), shrink.Budget{})
				require.NoError(t, err)
				t.Logf("%-25s %-8s %4d to %2d operations, %4d runs, %s", bugs[i].name, workload, got.Before, got.After, got.Runs,
					time.Since(start).Round(time.Millisecond))
				require.True(t, got.Minimal)
				require.NoError(t, got.Trace.Validate())
				require.Zero(t, got.Broken, "%v", got.FirstBroken)
				text, known := want[title]
				if !known && seed != 1 {
					continue // another seed may show a bug in a way that the table does not have
				}
				require.True(t, known, "testdata/planted.txt lacks %s:\n%s", title, got.Trace.Format())
				met[title] = true
				if n, ok := strings.CutSuffix(text, " operations\n"); ok {
					require.Equal(t, n, strconv.Itoa(got.After), "%s\n%s", title, got.Trace.Format())
				} else {
					require.Equal(t, text, operations(got.Trace), title)
				}
			}
		}
	}
	for title := range want {
		require.True(t, met[title] || seed != 1 || testing.Short(), "no trace showed %s", title)
	}
}
