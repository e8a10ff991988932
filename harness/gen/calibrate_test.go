package gen_test

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var sequences = flag.Int("seqs", 24, "traces of each workload in TestRefusals")

// refusals is what the traces of a workload came to on a target.
type refusals struct {
	counts   []int // refusals of each trace
	live     []int // peak of requested bytes, percent of the capacity
	all      int
	genuine  int // limit - requested bytes < request: nothing could serve it
	rounding int // of the others, limit - block sizes < request
	again    int // the same request again succeeds (pytorch#189504)
	traces   int // that have one of those
}

// run executes a trace under the header's settings and repeats each refused request.
func (r *refusals) run(t *testing.T, tr *trace.Trace, expandable bool) {
	t.Helper()
	capacity, _, err := tr.Capacity()
	require.NoError(t, err)
	conf, _ := tr.Settings()
	if expandable {
		conf = strings.TrimPrefix(conf+",expandable_segments:True", ",")
	}
	limit := capacity
	var fraction *float64
	if f, ok, err := tr.HeaderFraction(); ok {
		require.NoError(t, err)
		fraction, limit = &f, uint64(f*float64(capacity))
	}
	spec, err := catalog.FromSettings(conf, fraction)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	run, err := executor.Start(executor.Compile(tr), executor.Target{Name: spec.Name, New: spec.New}, executor.Options{Device: dev})
	require.NoError(t, err)

	var requested, peak uint64
	served := map[uint64]uint64{}
	result, again := run.Result(), r.again
	for run.More() {
		before := len(result.OOMs)
		require.NoError(t, run.Step())
		op := tr.Ops[run.Position()-1]
		switch {
		case len(result.OOMs) > before:
			alloc := run.Allocator()
			switch blocks := alloc.(allocators.StatsReader).Stats().AllocatedBytes.All.Current; {
			case requested+op.Bytes > limit:
				r.genuine++
			case blocks+op.Bytes > limit:
				r.rounding++
			}
			if b, err := alloc.Alloc(op.Bytes, op.Stream); err == nil {
				r.again++
				require.NoError(t, alloc.Free(b.Addr))
			}
		case op.Kind == trace.Alloc:
			served[op.ID] = op.Bytes
			requested += op.Bytes
			peak = max(peak, requested)
		case op.Kind == trace.Free:
			requested -= served[op.ID]
			delete(served, op.ID)
		}
	}
	r.counts = append(r.counts, len(result.OOMs))
	r.live = append(r.live, int(100*peak/capacity))
	r.all += len(result.OOMs)
	if r.again > again {
		r.traces++
	}
}

// with is the share of traces with a refusal, in percent.
func (r *refusals) with() int {
	n := 0
	for _, c := range r.counts {
		n += min(c, 1)
	}
	return percentOf(n, len(r.counts))
}

func percentOf(n, all int) int { return 100 * n / max(all, 1) }

// spread is the minimum, the quartiles and the maximum.
func spread(n []int) []int {
	slices.Sort(n)
	return []int{n[0], n[len(n)/4], n[len(n)/2], n[len(n)*3/4], n[len(n)-1]}
}

// The workloads do what they are for on both segment sources: distributions pass on their device, findings are refused often
// enough to judge refusals of every kind, and seldom enough that the allocator still runs. -v -seqs 200 prints the table.
func TestRefusals(t *testing.T) {
	t.Logf("%-8s %-10s %5s %7s %8s %9s %6s  %s; %s", "workload", "target", "with%", "OOMs", "genuine%", "rounding%", "again%",
		"OOMs, quartiles", "peak live %, quartiles")
	for _, w := range gen.Workloads {
		for _, target := range []string{"classic", "expandable"} {
			var r refusals
			for i := range *sequences {
				r.run(t, gen.Generate(w, gen.Seed(1, w.Name, uint64(i)), gen.Params{}), target == "expandable")
			}
			mean := float64(r.all) / float64(len(r.counts))
			live := spread(r.live)
			t.Logf("%-8s %-10s %5d %7.1f %8d %9d %6d  %v; %v", w.Name, target, r.with(), mean, percentOf(r.genuine, r.all),
				percentOf(r.rounding, r.all), percentOf(r.traces, len(r.counts)), spread(r.counts), live)
			if w.Kind == gen.Distribution {
				require.LessOrEqual(t, mean, 1.0, "%s on %s", w.Name, target)
				require.Less(t, live[4], 85, "%s: the peak stays some way below the device", w.Name)
				continue
			}
			require.GreaterOrEqual(t, r.with(), 85, "%s on %s", w.Name, target)
			require.Greater(t, mean, 2.0, "%s on %s", w.Name, target)
			require.Less(t, mean, 60.0, "%s on %s", w.Name, target)
			require.Positive(t, r.genuine, "%s on %s", w.Name, target)
			require.Positive(t, r.rounding, "%s on %s", w.Name, target)
			require.Greater(t, r.all, r.genuine+r.rounding, "%s on %s: fragmentation or policy", w.Name, target)
			if w.Name == "streams" && target == "classic" {
				require.GreaterOrEqual(t, percentOf(r.traces, len(r.counts)), 5, "pytorch#189504 occurs")
			}
		}
	}
}
