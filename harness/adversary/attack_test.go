package adversary_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// execute plays an adversary that is not adaptive and runs its trace.
func execute(t testing.TB, name, target string, p adversary.Params) *executor.Result {
	t.Helper()
	got, err := find(t, name).Play(nil, p)
	require.NoError(t, err)
	return executeTrace(t, got.Trace, target)
}

func executeTrace(t testing.TB, tr *trace.Trace, target string) *executor.Result {
	t.Helper()
	require.NoError(t, tr.Validate())
	spec, err := catalog.Parse(target)
	require.NoError(t, err)
	capacity, _, err := tr.Capacity()
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: target, New: spec.New},
		executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
	require.NoError(t, err)
	require.Empty(t, res.Findings)
	return res
}

func TestAllPlay(t *testing.T) {
	for i := range adversary.All {
		a := &adversary.All[i]
		if a.Adaptive {
			_, err := a.Play(nil, adversary.Params{})
			require.ErrorContains(t, err, "needs an allocator")
			continue
		}
		one, err := a.Play(nil, adversary.Params{})
		require.NoError(t, err)
		two, err := a.Play(nil, adversary.Params{})
		require.NoError(t, err)
		require.Equal(t, one.Trace.Hash(), two.Trace.Hash())
		for _, target := range []string{"classic", "expandable"} {
			executeTrace(t, one.Trace, target)
		}
	}
	_, err := adversary.Find("nobody")
	require.ErrorContains(t, err, "robson")
}

// The three-call pin on a device of 200 MiB: 0.049 and 10 MiB live refuse what is one size larger than the holes, on both segment
// sources, and the verdict is fragmentation or policy, not false.
func TestThreeCallPin(t *testing.T) {
	for _, target := range []string{"classic", "expandable"} {
		for name, live := range map[string]uint64{"pin-small": 100 * 512, "pin-large": 10 * (mib + 512)} {
			res := execute(t, name, target, adversary.Params{Capacity: 200 * mib})
			require.Len(t, res.OOMs, 1, "%s on %s", name, target)
			require.Equal(t, res.Ops-2, res.OOMs[0], "%s on %s: the next size is served", name, target)
			require.Equal(t, live, res.Judgements[0].Live)
			require.Contains(t, []executor.Verdict{executor.Fragmentation, executor.Policy}, res.Judgements[0].Verdict)
		}
	}
}

// Each of the two settings alone holds what one cycle needs; both together hold every cycle's 136.5 MiB.
func TestFence(t *testing.T) {
	grown := execute(t, "fence", "expandable@max_split_size_mb:128", adversary.Params{})
	require.Greater(t, grown.PeakReserved, uint64(13*gib))
	for _, target := range []string{"expandable", "classic@max_split_size_mb:128"} {
		require.Less(t, execute(t, "fence", target, adversary.Params{}).PeakReserved, uint64(500*mib), target)
	}
}

// Pages hold 10 % of the device and refuse a page.
func TestPagePins(t *testing.T) {
	res := execute(t, "page-pins", "expandable", adversary.Params{})
	require.Len(t, res.OOMs, 2)
	require.Equal(t, uint64(4096*2*mib), res.Judgements[0].Live)
	require.Equal(t, executor.Fragmentation, res.Judgements[0].Verdict)
}

func TestPending(t *testing.T) {
	for _, target := range []string{"classic", "classic@x_lookup_after_flush:True"} {
		p, err := find(t, "pending").Play(nil, adversary.Params{})
		require.NoError(t, err)
		spec, err := catalog.Parse(target)
		require.NoError(t, err)
		dev, err := simdev.New(simdev.Options{Capacity: 80 * gib})
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(p.Trace), executor.Target{Name: target, New: spec.New}, executor.Options{Device: dev, Judge: properties.NewJudge()})
		require.NoError(t, err)
		if target == "classic" {
			require.Equal(t, []int{6}, res.OOMs)
			require.Equal(t, properties.Known189504, res.Judgements[0].Known)
		} else {
			require.Equal(t, []int{7}, res.OOMs, "mended: the first of the two is served, and only the second is too much")
		}
	}
}

// The devlog's example, two phases: 256 MiB upwards and 128 MiB downwards; and its worst order of four.
func TestOrder(t *testing.T) {
	most, least := adversary.OrderSensitivity(func(tr *trace.Trace) uint64 { return executeTrace(t, tr, "classic").PeakReserved }, 16*mib, 2)
	require.EqualValues(t, 256*mib, most)
	require.EqualValues(t, 128*mib, least)
	most, least = adversary.OrderSensitivity(func(tr *trace.Trace) uint64 { return executeTrace(t, tr, "classic").PeakReserved }, 16*mib, 4)
	require.EqualValues(t, 512*mib, most)
	require.EqualValues(t, 128*mib, least)
}
