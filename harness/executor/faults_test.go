package executor_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// drawPlan draws one to three faults of the calls that the allocator is likely to make.
func drawPlan(rng *rand.Rand, expandable bool) faultdev.Plan {
	calls := []faultdev.Call{faultdev.Malloc, faultdev.Free, faultdev.Record, faultdev.Done, faultdev.Wait, faultdev.Destroy}
	memory := faultdev.Malloc
	if expandable {
		calls = append(calls[2:], faultdev.Reserve, faultdev.Unreserve, faultdev.Create, faultdev.Release, faultdev.Map, faultdev.Map,
			faultdev.Unmap, faultdev.Unmap, faultdev.Sync)
		memory = faultdev.Create
	}
	var p faultdev.Plan
	for range 1 + rng.IntN(3) {
		nth := 1 + rng.Uint64N(1<<rng.IntN(7))
		switch rng.IntN(8) {
		case 0:
			call := memory
			if expandable && rng.IntN(2) == 0 {
				call = faultdev.Map
			}
			p = append(p, faultdev.Rule{Kind: faultdev.OOM, Call: call, Nth: nth, Times: 1 + rng.Uint64N(3)})
		case 1:
			p = append(p, faultdev.Rule{Kind: faultdev.OOM, Call: memory, Bytes: nth * 20 << 20})
		case 2:
			p = append(p, faultdev.Rule{Kind: faultdev.Foreign, Nth: nth * 4, Bytes: nth << 27})
		default:
			p = append(p, faultdev.Rule{Kind: faultdev.Fail, Call: calls[rng.IntN(len(calls))], Nth: nth, Times: 1 + rng.Uint64N(3)})
		}
	}
	return p
}

// underFaults runs a trace on an allocator whose device fails by a plan.
func underFaults(t *testing.T, tr *trace.Trace, alloc string, capacity uint64, plan faultdev.Plan,
	wrap func(device.Device) device.Device,
) *executor.Result {
	t.Helper()
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	target := executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) { return spec.New(wrap(d)) }}
	r, err := executor.Execute(executor.Compile(tr), target, executor.Options{
		Device: dev, Properties: properties.All(), Judge: properties.NewJudge(), Faults: plan,
	})
	require.NoError(t, err, "%s under %s", tr.Name, plan)
	return r
}

func plain(d device.Device) device.Device { return d }

// TestFaultRecovery: whatever call fails at whatever place, the allocator stays consistent, nothing leaks, and the request
// succeeds once the fault is gone. Half of the traces run on a device that has always room, half on a full one.
func TestFaultRecovery(t *testing.T) {
	const perAllocator = 200 // pairs of a trace and a plan of which at least one call failed
	for _, alloc := range []string{"classic", "expandable"} {
		pairs, faults, tries := 0, 0, 0
		for pairs < perAllocator {
			w := gen.Workloads[tries%len(gen.Workloads)]
			seed := uint64(tries)
			tr := gen.Generate(w, seed, gen.Params{Ops: 300})
			tr.Name = fmt.Sprintf("gen:%s:%d:ops=300", w.Name, seed)
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			if tries%2 == 0 {
				capacity = 1 << 40
			}
			plan := drawPlan(rand.New(rand.NewPCG(seed, 11)), alloc == "expandable")
			r := underFaults(t, tr, alloc, capacity, plan, plain)
			for _, f := range r.Findings {
				require.Fail(t, "finding", "%s --capacity %d --fault '%s' on %s: %s", tr.Name, capacity, plan, alloc, &f)
			}
			tries++
			faults += r.Faults
			if r.Faults > 0 {
				pairs++
			}
			require.Less(t, tries, 10*perAllocator, "the plans hit too seldom")
		}
		t.Logf("%s: %d pairs with faults of %d, %d calls failed", alloc, pairs, tries, faults)
	}
}

// forgetsCreated is a device seen through an allocator's mistake: what a failed mapping leaves is never released, as if the
// rollback were missing.
type forgetsCreated struct {
	device.Device
	failed bool
}

func (d *forgetsCreated) Map(a device.Addr, size uint64, h device.Handle) error {
	err := d.Device.Map(a, size, h)
	d.failed = err != nil
	return err
}

func (d *forgetsCreated) Release(h device.Handle) error {
	if d.failed {
		return nil
	}
	return d.Device.Release(h)
}

// TestPlantedLeakFound: a leak in the path of a partial mapping is found, where it happens.
func TestPlantedLeakFound(t *testing.T) {
	tr, err := trace.ParseString("leak", "alloc 1 100MiB\nfree 1\n")
	require.NoError(t, err)
	plan, err := faultdev.Parse("fail map nth 3", trace.ParseSize)
	require.NoError(t, err)
	require.Empty(t, underFaults(t, tr, "expandable", 1<<30, plan, plain).Findings)
	r := underFaults(t, tr, "expandable", 1<<30, plan, func(d device.Device) device.Device { return &forgetsCreated{Device: d} })
	require.Len(t, r.Findings, 1)
	require.Equal(t, 0, r.Findings[0].Op)
	require.Equal(t, "device-conservation", r.Findings[0].Property)
	require.Contains(t, r.Findings[0].Detail, "bytes")
}
