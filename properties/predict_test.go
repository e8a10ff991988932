package properties

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
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

// crowded makes a trace on a device that is nearly always full: few sizes, so that blocks and holes nearly fit, three streams
// with uses across them, and flushes. confs, if any, are changed to in mid-run; their settings come and go with the limit
// and with what others hold.
func crowded(seed uint64, ops int, confs []string) (*trace.Trace, uint64) {
	rng := rand.New(rand.NewPCG(seed, 77))
	capacity := uint64(20+2*rng.IntN(90)) << 20
	sizes := []uint64{1, 512, 1000, 500 << 10, 1 << 20, 1<<20 + 1, 3 << 20, 5<<20 + 3, 7 << 20, 10 << 20, 10<<20 - 1, 12 << 20, 18 << 20, 20 << 20, 22<<20 + 1, 25 << 20, 35 << 20, 46 << 20}
	type held struct {
		id    uint64
		bytes uint64
	}
	var live []held
	var sum, id uint64
	t := &trace.Trace{Name: fmt.Sprintf("crowded:%d", seed)}
	for len(t.Ops) < ops {
		switch d := rng.IntN(100); {
		case d < 50:
			n := sizes[rng.IntN(len(sizes))]
			if rng.IntN(3) == 0 && capacity > sum {
				n = 1 + rng.Uint64N(capacity-sum) // about what is left
			}
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: n, Stream: device.Stream(max(0, rng.IntN(6)-3))})
			live = append(live, held{id, n})
			sum += n
			id++
		case d < 84:
			for range 1 + rng.IntN(2) {
				if len(live) == 0 {
					break
				}
				i := rng.IntN(len(live))
				t.Ops = append(t.Ops, trace.Op{Kind: trace.Free, ID: live[i].id})
				sum -= live[i].bytes
				live = append(live[:i], live[i+1:]...)
			}
		case d < 94 && len(live) > 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Record, ID: live[rng.IntN(len(live))].id, Stream: device.Stream(rng.IntN(3))})
		case d < 95:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Sync, Stream: device.Stream(rng.IntN(4)) - 1})
		case d < 96:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.EmptyCache})
		case d < 97 && len(confs) > 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Conf, Conf: confs[rng.IntN(len(confs))]})
		case d < 98 && len(confs) > 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Fraction, Fraction: float64(50+rng.IntN(51)) / 100})
		case d < 99 && len(confs) > 0:
			t.Ops = append(t.Ops, trace.Op{Kind: trace.Foreign, Bytes: rng.Uint64N(capacity / 8)})
		}
	}
	return t, capacity
}

// stepper runs a trace and shows the state before each allocation, finished events processed: what the judge calls the state
// at entry.
type stepper struct {
	*executor.Run
	state *executor.State
}

func newStepper(t testing.TB, tr *trace.Trace, alloc string, capacity uint64) (*stepper, *trace.Trace) {
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	// The state appears with the first operation, so there must be one before the first allocation.
	started := &trace.Trace{Name: tr.Name, Ops: append([]trace.Op{{Kind: trace.Sync, Stream: trace.AllStreams}}, tr.Ops...)}
	s := &stepper{}
	capture := executor.Property{ID: "capture", Op: func(st *executor.State) *executor.Violation {
		s.state = st
		return nil
	}}
	s.Run, err = executor.Start(executor.Compile(started), executor.Target{Name: alloc, New: spec.New},
		executor.Options{Device: dev, Properties: []executor.Property{capture}})
	require.NoError(t, err)
	require.NoError(t, s.Step())
	return s, started
}

// entry is the state as a request finds it.
func (s *stepper) entry(op *trace.Op) (*executor.State, *executor.View) {
	s.state.Heap.Poll()
	st := *s.state
	st.Operation = op
	return &st, s.View()
}

// rules are those of a purchase, in the state as it is: what is bought at once, what the limit is held against (0: what is really
// bought), whether the hole is chosen that needs least, and whether segments may grow past their reservation.
type rules struct {
	unit, charge   uint64
	least, endless bool
}

// buys tells whether a purchase succeeds in a state without a further flush (specification 11 and 17.3).
func buys(view *executor.View, deviceFree uint64, q *request, r rules) bool {
	afford := func(need uint64) bool {
		charge := r.charge
		if charge == 0 {
			charge = need
		}
		return need <= deviceFree && (!q.HasLimit || view.Reserved+charge <= q.Limit)
	}
	if q.Kind == allocators.PromiseN {
		if r.unit == granule {
			return afford(roundUp(q.size, granule))
		}
		return afford(r.charge)
	}
	var holes []uint64 // what must be mapped, by address of the hole
	for i := range view.Segments {
		g := &view.Segments[i]
		if !g.Expandable || g.Small != q.small || g.Stream != q.stream {
			continue
		}
		blocks := view.BlocksOf(i)
		for k := range blocks {
			if blocks[k].State != allocators.Unmapped {
				continue
			}
			from := k
			if k > 0 && blocks[k-1].State == allocators.Free {
				from--
			}
			var room, need uint64
			open := true // no live or pending block up to the segment's end
			for _, b := range blocks[from:] {
				if b.State == allocators.Live || b.State == allocators.Pending {
					open = false
					break
				}
				if room < q.size && b.State == allocators.Unmapped {
					need += min(roundUp(min(b.Size, q.size-room), r.unit), b.Size)
				}
				room += b.Size
			}
			switch {
			case room >= q.size:
				holes = append(holes, need)
			case open && r.endless:
				holes = append(holes, need+roundUp(q.size-room, r.unit))
			}
		}
	}
	fresh := (r.endless || q.size <= q.reservation) && afford(roundUp(q.size, r.unit))
	switch {
	case len(holes) == 0:
		return fresh
	case r.least:
		return fresh || afford(slices.Min(holes))
	}
	return afford(holes[0])
}

// predicted are the settings under which predictions are compared with outcomes.
var predicted = []string{
	"classic", "classic@max_split_size_mb:21", "classic@max_split_size_mb:25,max_non_split_rounding_mb:21",
	"classic@roundup_power2_divisions:4", "classic@x_memory_fraction:0.8",
	"classic@garbage_collection_threshold:0.5,x_memory_fraction:0.9", "classic@x_lookup_after_flush:True",
	"expandable", "expandable@max_split_size_mb:21", "expandable@roundup_power2_divisions:[1:2,4:4,>:1]",
	"expandable@x_memory_fraction:0.8", "expandable@garbage_collection_threshold:0.5,x_memory_fraction:0.9",
	"expandable@x_lookup_after_flush:True",
}

// inMidRun are settings that traces change to, expandable segments on and off among them.
var inMidRun = []string{
	"max_split_size_mb:21", "max_split_size_mb:40", "roundup_power2_divisions:2", "garbage_collection_threshold:0.6",
	"expandable_segments:True", "expandable_segments:False", "expandable_segments:True,max_split_size_mb:21",
}

// TestPredictionsOfEveryRequest holds the predictor against the outcome of every request, of served ones too: on classic the
// promise N is an equivalence, on expandable segments X is sufficient, and the finer prediction with the chosen hole is an
// equivalence again.
func TestPredictionsOfEveryRequest(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	requests := map[string]int{}
	refused := map[string]int{}
	check := func(tr *trace.Trace, alloc string, capacity uint64) {
		s, started := newStepper(t, tr, alloc, capacity)
		p := &predictor{}
		for s.More() {
			op := &started.Ops[s.Position()]
			if op.Kind != trace.Alloc || op.Bytes == 0 {
				require.NoError(t, s.Step())
				continue
			}
			st, view := s.entry(op)
			q := newRequest(st)
			p.load(view, &q)
			// A purchase is tried before the flush too, which can take it away: a pending block that it makes free can open a
			// lower hole that needs more pages.
			var found candidate
			if b := p.lookup(&q); b != nil {
				found = *b
			}
			sufficient := found.size > 0 || buys(view, st.DeviceFree, &q, rules{unit: q.page, charge: q.buy}) || p.purchase(&q, 0)
			rule, _ := p.promised(&q, &repeat{})
			refusals := len(s.Result().OOMs)
			require.NoError(t, s.Step())
			served := len(s.Result().OOMs) == refusals
			where := fmt.Sprintf("%s, %s, capacity %d, operation %d: %s", alloc, tr.Name, capacity, s.Position()-2, op)
			if q.Void != "" {
				requests["void"]++
				continue
			}
			kind := map[allocators.PromiseKind]string{allocators.PromiseN: "N", allocators.PromiseX: "X"}[q.Kind]
			requests[kind]++
			if !served {
				refused[kind]++
			} else if found.size > 0 {
				require.Equal(t, found.addr, s.state.Block.Addr, where)
			}
			if rule != "" {
				require.True(t, served, "%s is refused, but %s", where, rule)
			} else if kind == "N" && !q.LookupAfterFlush {
				require.False(t, served, "%s is served, the promise does not say so", where)
			}
			if !q.LookupAfterFlush {
				require.Equal(t, served, sufficient, where)
			}
		}
	}
	for i, alloc := range predicted {
		for k := range uint64(8) {
			tr, capacity := crowded(seed*1000+uint64(i)*100+k, 1000, nil)
			check(tr, alloc, capacity)
		}
	}
	// Here a flush takes the last page of a segment, which must not count as room any more.
	tr, capacity := crowded(2702, 1000, nil)
	check(tr, "expandable", capacity)
	for k := range uint64(20) {
		tr, capacity := crowded(seed*1000+2000+k, 1000, inMidRun)
		check(tr, []string{"classic", "expandable"}[k%2], capacity)
	}
	for _, name := range []string{"waves", "edges", "streams", "pins", "swarm"} {
		w, err := gen.Find(name)
		require.NoError(t, err)
		for k := range uint64(4) {
			tr := gen.Generate(w, gen.Seed(seed, name, k), gen.Params{Ops: 600})
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			conf, _ := tr.Settings()
			alloc := []string{"classic", "expandable"}[k%2]
			if conf != "" {
				alloc += "@" + conf
			}
			check(tr, alloc, capacity)
		}
	}
	t.Logf("requests %v, refused %v", requests, refused)
	for _, kind := range []string{"N", "X"} {
		require.GreaterOrEqual(t, requests[kind], 20_000, kind)
		require.GreaterOrEqual(t, refused[kind], 1000, kind)
	}
}
