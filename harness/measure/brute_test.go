package measure_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/direct"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
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

// sizes meet and miss the edges of pools and segments.
var sizes = []uint64{0, 700, 1 << 20, 1<<20 + 1, 2 * mib, 5 * mib, 9*mib + 3, 10 * mib, 12 * mib, 14 * mib, 20 * mib, 24 * mib, 30*mib + 7}

// small makes a trace of few blocks: about what fits by hand.
func small(seed uint64, ops int, foreign bool) *trace.Trace {
	rng := rand.New(rand.NewPCG(seed, 3))
	t := &trace.Trace{Name: fmt.Sprintf("small:%d", seed)}
	var live []uint64
	for id := uint64(0); len(t.Ops) < ops; {
		switch d := rng.IntN(20); {
		case d < 10 && len(live) < 6:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: sizes[rng.IntN(len(sizes))], Stream: device.Stream(rng.IntN(6) / 5)})
			live = append(live, id)
			id++
		case d < 16 && len(live) > 0:
			i := rng.IntN(len(live))
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Free, ID: live[i]})
			live = append(live[:i], live[i+1:]...)
		case d == 16 && len(live) > 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Record, ID: live[rng.IntN(len(live))], Stream: 2})
		case d == 17:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Sync, Stream: trace.AllStreams})
		case d == 18:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.EmptyCache})
		case d == 19 && foreign:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Foreign, Bytes: rng.Uint64N(12) * mib})
		}
	}
	return t
}

// passes runs the whole trace at one capacity.
func passes(t *testing.T, p *executor.Program, target executor.Target, capacity uint64) bool {
	dev, err := simulated(capacity)
	require.NoError(t, err)
	res, err := executor.Execute(p, target, executor.Options{Device: dev})
	require.NoError(t, err)
	return len(res.OOMs) == 0
}

// TestSpectrumAgainstEveryCapacity runs traces at all capacities in steps of 2 MiB, and at the edges of the intervals to the byte:
// the intervals must be exactly those that pass.
func TestSpectrumAgainstEveryCapacity(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	gaps, edges := 0, 0
	for _, name := range []string{
		"classic", "classic@max_split_size_mb:21", "classic@x_memory_fraction:0.7",
		"classic@roundup_power2_divisions:4", "classic@garbage_collection_threshold:0.5,x_memory_fraction:0.9",
		"expandable", "expandable@max_split_size_mb:21", "expandable@x_memory_fraction:0.7", "direct",
		"expandable@garbage_collection_threshold:0.5,x_memory_fraction:0.9",
	} {
		tg := target(t, name)
		for k := range uint64(8) {
			tr := small(seed*1000+k, 25, k%2 == 0)
			if k == 0 {
				var err error
				tr, err = trace.ParseString("seven", sevenOps) // on classic there is a gap
				require.NoError(t, err)
			}
			p := executor.Compile(tr)
			s, err := measure.Capacities(context.Background(), p, tg, simulated)
			require.NoError(t, err)
			within := func(c uint64) bool {
				for _, i := range s.Passes {
					if c >= i.From && c < i.To {
						return true
					}
				}
				return false
			}
			for c := uint64(2 * mib); c <= s.Safe()+40*mib; c += 2 * mib {
				require.Equal(t, passes(t, p, tg, c), within(c), "%s on %s at %d: %v", tr.Name, name, c, s.Passes)
			}
			for i, v := range s.Passes {
				edges++
				require.True(t, passes(t, p, tg, v.From), "%s on %s at %d", tr.Name, name, v.From)
				// Spectra begin at the first whole granule that holds the live bytes.
				if v.From > 2*mib && !(i == 0 && v.From == (s.PeakLive+2*mib-1)/(2*mib)*(2*mib)) {
					require.False(t, passes(t, p, tg, v.From-1), "%s on %s at %d", tr.Name, name, v.From-1)
				}
				if v.To != measure.Infinite {
					require.True(t, passes(t, p, tg, v.To-1), "%s on %s at %d", tr.Name, name, v.To-1)
				}
			}
			require.EqualValues(t, uint64(measure.Infinite), s.Passes[len(s.Passes)-1].To)
			require.Len(t, s.Gaps(), len(s.Passes)-1)
			require.GreaterOrEqual(t, s.Min(), s.PeakLive)
			gaps += len(s.Gaps())
		}
	}
	t.Logf("%d gaps, %d intervals", gaps, edges)
	require.Positive(t, gaps)
}

// TestPeakLive sums live bytes anew after every operation.
func TestPeakLive(t *testing.T) {
	seed := testSeed(t)
	for k := range uint64(200) {
		tr := small(seed*1000+k, 40, true)
		var peak uint64
		at := -1
		for end := range tr.Ops {
			live := map[uint64]uint64{}
			var sum uint64
			for _, op := range tr.Ops[:end+1] {
				switch op.Kind {
				case trace.Alloc:
					live[op.ID] = op.Bytes
				case trace.Free:
					delete(live, op.ID)
				}
			}
			for _, n := range live {
				sum += n
			}
			if sum > peak {
				peak, at = sum, end
			}
		}
		bytes, op := measure.PeakLive(tr)
		require.Equal(t, []any{peak, at}, []any{bytes, op}, tr.Name)
	}
	bytes, op := measure.PeakLive(&trace.Trace{})
	require.Equal(t, []any{uint64(0), -1}, []any{bytes, op})
}

// TestReleasable asks for what a full release returns, then makes one.
func TestReleasable(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	pinned := 0
	for _, name := range []string{"classic", "expandable", "classic@max_split_size_mb:21", "expandable@roundup_power2_divisions:2"} {
		for k := range uint64(8) {
			tr := small(seed*1000+500+k, 40, false)
			for end := 1; end < len(tr.Ops); end += 3 {
				dev, err := simulated(200 * mib)
				require.NoError(t, err)
				r, err := executor.Start(executor.Compile(&trace.Trace{Ops: tr.Ops[:end]}), target(t, name), executor.Options{Device: dev})
				require.NoError(t, err)
				for r.More() {
					require.NoError(t, r.Step())
				}
				h, err := measure.HeldBy(r.Allocator(), end)
				require.NoError(t, err)
				before, _ := dev.Info()
				require.NoError(t, dev.SyncAll())
				require.NoError(t, r.Allocator().(allocators.CacheEmptier).EmptyCache())
				after, _ := dev.Info()
				require.Equal(t, after-before, h.Releasable, "%s on %s after %d operations", tr.Name, name, end)
				require.Equal(t, h.Reserved, h.Allocated+h.Releasable+h.Pinned)
				require.GreaterOrEqual(t, h.Active, h.Allocated)
				require.InDelta(t, float64(h.Reserved-h.Allocated), h.IdleCache()*float64(h.Reserved), 1)
				require.InDelta(t, float64(h.Pinned), h.PinnedShare()*float64(h.Reserved), 1)
				if h.Pinned > 0 {
					pinned++
				}
			}
		}
	}
	require.Greater(t, pinned, 50)
}

// TestRefusalCurve: what is served is what a run can get, and no more than the free bytes hold.
func TestRefusalCurve(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	ask := []uint64{64 << 10, 1 << 20, 1<<20 + 1, 5 * mib, 20 * mib, 64 * mib, 1 << 30}
	for _, name := range []string{"classic", "expandable", "direct"} {
		for k := range uint64(10) {
			tr := small(seed*1000+700+k, 30, false)
			const capacity = 130 * mib
			at := len(tr.Ops) / 2
			curve, err := measure.RefusalCurve(executor.Compile(tr), target(t, name), simulated, capacity, at, ask)
			require.NoError(t, err)
			require.Len(t, curve, len(ask))
			for i, c := range curve {
				require.Equal(t, ask[i], c.Bytes)
				require.GreaterOrEqual(t, *c.Refused, 0.0, "%s on %s: more was served than is free", tr.Name, name)
				require.LessOrEqual(t, *c.Refused, 1.0)
				if c.Served == 0 {
					require.EqualValues(t, 1, *c.Refused)
				}
				// The same, with the requests in the trace: so many are served, one more is not.
				ops := append([]trace.Op{}, tr.Ops[:at+1]...)
				before := 0
				for n := range c.Served + 1 {
					ops = append(ops, trace.Op{Kind: trace.Alloc, ID: 1000 + uint64(n), Bytes: c.Bytes})
				}
				if c.Served > 300 {
					continue
				}
				dev, err := simulated(capacity)
				require.NoError(t, err)
				res, err := executor.Execute(executor.Compile(&trace.Trace{Ops: ops}), target(t, name), executor.Options{Device: dev})
				require.NoError(t, err)
				for _, o := range res.OOMs {
					if o <= at {
						before++
					}
				}
				require.Equal(t, len(ops)-1, res.OOMs[before], "%s on %s, %d bytes", tr.Name, name, c.Bytes)
			}
			// 1 GiB fits nowhere here.
			require.Zero(t, curve[len(curve)-1].Served)
		}
	}
}

// TestProfile: the peak is the state at the operation at which live bytes are at their peak, on a device that refuses nothing.
func TestProfile(t *testing.T) {
	tr, err := trace.ParseString("profile", "alloc 0 10MiB\nalloc 1 30MiB\nfree 1\nalloc 2 12MiB\nfree 0\nfree 2\n")
	require.NoError(t, err)
	p, err := measure.ProfileOf(executor.Compile(tr), target(t, "classic"), simulated)
	require.NoError(t, err)
	require.Equal(t, measure.Held{Op: 1, Requested: 40 * mib, Allocated: 40 * mib, Active: 40 * mib, Reserved: 40 * mib}, p.Peak)
	require.EqualValues(t, 40*mib, p.PeakReserved)
	// Reserved 10, 40, 40, 40, 40, 40; allocated 10, 40, 10, 22, 12, 0.
	require.InDelta(t, float64(210-94)/210, p.MeanIdleCache, 1e-9)
}

// mute is an allocator that tells nothing.
type mute struct{ allocators.Allocator }

func TestWhatCannotBeMeasured(t *testing.T) {
	tr, err := trace.ParseString("one", "alloc 0 10MiB\n")
	require.NoError(t, err)
	p := executor.Compile(tr)
	_, err = measure.HeldBy(mute{}, 0)
	require.ErrorIs(t, err, measure.ErrUncounted)
	hidden := executor.Target{Name: "mute", New: func(d device.Device) (allocators.Allocator, error) { return mute{direct.New(d)}, nil }}
	profile, err := measure.ProfileOf(p, hidden, simulated)
	require.NoError(t, err)
	require.Equal(t, measure.Profile{Uncounted: true}, profile)
	curve, err := measure.RefusalCurve(p, hidden, simulated, 64*mib, 0, []uint64{20 * mib})
	require.NoError(t, err)
	require.Equal(t, []measure.Refusal{{Bytes: 20 * mib, Served: 2}}, curve)
	// One that counts and does not list: what is pinned is unknown.
	type counting struct {
		allocators.Allocator
		allocators.StatsReader
	}
	dev, err := simulated(64 * mib)
	require.NoError(t, err)
	a := direct.New(dev)
	held, err := measure.HeldBy(counting{a, a}, 3)
	require.NoError(t, err)
	require.Equal(t, measure.Held{Op: 3, Unlisted: true}, held)
	// Neither the allocator nor the device tells at which capacity they would decide otherwise.
	silent := func(c uint64) (device.Device, error) {
		d, err := simulated(c)
		return struct{ device.Device }{d}, err
	}
	_, err = measure.Capacities(context.Background(), p, target(t, "direct"), silent)
	require.ErrorContains(t, err, "does not tell")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err = measure.Capacities(ctx, p, target(t, "classic"), simulated)
	require.ErrorIs(t, err, context.Canceled)
	broken := errors.New("no device")
	_, err = measure.Capacities(context.Background(), p, target(t, "classic"), func(uint64) (device.Device, error) { return nil, broken })
	require.ErrorIs(t, err, broken)
	// A trace that asks for nothing passes everywhere.
	s, err := measure.Capacities(context.Background(), executor.Compile(&trace.Trace{}), target(t, "classic"), simulated)
	require.NoError(t, err)
	require.Equal(t, []measure.Interval{{From: 2 * mib, To: measure.Infinite}}, s.Passes)
	require.EqualValues(t, 1, s.Kappa())
	// What is larger than every device passes nowhere.
	tr, err = trace.ParseString("huge", "alloc 0 10MiB\nforeign 5MiB\n")
	require.NoError(t, err)
	s, err = measure.Capacities(context.Background(), executor.Compile(tr), target(t, "classic"), simulated)
	require.NoError(t, err)
	require.EqualValues(t, 10*mib, s.Min())
	require.EqualValues(t, 1, s.Kappa())
	require.Zero(t, s.Lost())
}
