package caching

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// step is an operation of a small trace: what a word means depends on kind.
type step struct {
	kind   string
	id     int
	bytes  uint64
	stream device.Stream
	conf   string
	f      float64
}

func (s step) String() string {
	switch s.kind {
	case "alloc":
		return fmt.Sprintf("+%d=%v@%d", s.id, float64(s.bytes)/mib, s.stream)
	case "free":
		return fmt.Sprintf("-%d", s.id)
	case "record":
		return fmt.Sprintf("rec:%d@%d", s.id, s.stream)
	case "conf":
		return "conf:" + s.conf
	case "fraction":
		return fmt.Sprintf("fraction:%v", s.f)
	case "foreign":
		return fmt.Sprintf("foreign:%d", s.bytes/mib)
	}
	return s.kind
}

// decision is what an operation came to, without anything that must differ between capacities: addresses are a segment's
// ordinal and an offset, and of a failed mapping the calls are left out.
type decision struct {
	refused         bool
	segment         int
	offset, size    uint64
	reserved, calls uint64
}

// decide runs a trace at a capacity; next is the smallest larger one at which it may go otherwise.
func decide(t *testing.T, capacity uint64, set Settings, steps []step) (out []decision, next uint64) {
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	require.NoError(t, err)
	rec := &device.Recorder{Device: dev}
	a, err := New(rec, set)
	require.NoError(t, err)
	next = math.MaxUint64
	var bases []device.Addr
	live := map[int]device.Addr{}
	for _, s := range steps {
		rec.Reset()
		d := decision{segment: -1}
		switch s.kind {
		case "alloc":
			b, err := a.Alloc(s.bytes, s.stream)
			if d.refused = err != nil; !d.refused {
				live[s.id] = b.Addr
				d.size = b.Size
			}
		case "free":
			if addr, ok := live[s.id]; ok {
				require.NoError(t, a.Free(addr))
				delete(live, s.id)
			}
		case "record":
			if addr, ok := live[s.id]; ok {
				require.NoError(t, a.Record(addr, s.stream))
			}
		case "sync":
			require.NoError(t, dev.SyncAll())
		case "empty_cache":
			require.NoError(t, a.EmptyCache())
		case "conf":
			require.NoError(t, a.Configure(s.conf))
		case "fraction":
			require.NoError(t, a.SetFraction(s.f))
		case "foreign":
			if dev.SetForeign(s.bytes) != nil {
				d.refused = true
				next = min(next, a.reserved+s.bytes) // the allocator cannot know of it
			}
		}
		for _, c := range rec.Calls {
			switch c.Kind {
			case device.CallMalloc, device.CallReserve:
				bases = append(bases, c.Addr)
				d.calls++
			case device.CallFree, device.CallUnreserve, device.CallMap, device.CallUnmap:
				d.calls += 1000
			}
		}
		if d.size > 0 {
			for i, base := range bases {
				if base <= live[s.id] && (d.segment < 0 || base > bases[d.segment]) {
					d.segment, d.offset = i, uint64(live[s.id]-base)
				}
			}
		}
		d.reserved = a.reserved
		out = append(out, d)
	}
	return out, min(next, a.NextCapacity())
}

// horizonConfs are settings under which capacity enters decisions in different ways: through the device alone, the address space
// of expandable segments, the fraction limit, garbage collection.
var horizonConfs = []string{
	"", "expandable_segments:True", "expandable_segments:True", "max_split_size_mb:21", "x_memory_fraction:0.8",
	"x_memory_fraction:0.7,expandable_segments:True", "x_memory_fraction:0.9,garbage_collection_threshold:0.3",
	"x_memory_fraction:1,garbage_collection_threshold:0.6", "x_memory_fraction:0.33,max_split_size_mb:30",
	"x_lookup_after_flush:True,expandable_segments:True",
	"x_memory_fraction:0.9,garbage_collection_threshold:0.3,expandable_segments:True",
}

func randomSteps(rng *rand.Rand, set *Settings) []step {
	var steps []step
	var live []int
	streams := 1 + rng.IntN(2)
	grain := []uint64{5 * mib, 2 * mib, 1 * mib, 512 << 10}[rng.IntN(4)]
	changes := rng.IntN(4) == 0
	for id := range 12 + rng.IntN(30) {
		s := step{kind: "alloc", id: id, bytes: grain * (1 + rng.Uint64N(1+rng.Uint64N(60*mib)/grain)), stream: device.Stream(rng.IntN(streams))}
		switch k := rng.IntN(20); {
		case k < 7 && len(live) > 0:
			i := rng.IntN(len(live))
			s = step{kind: "free", id: live[i]}
			live = slices.Delete(live, i, i+1)
		case k == 7 && len(live) > 0:
			s = step{kind: "record", id: live[rng.IntN(len(live))], stream: 1}
		case k == 8:
			s = step{kind: []string{"sync", "empty_cache"}[rng.IntN(2)]}
		case k == 9:
			s = step{kind: "empty_cache"}
		case k == 10 && changes:
			conf := horizonConfs[rng.IntN(4)]
			s = step{kind: "conf", conf: conf}
		case k == 11 && changes:
			s = step{kind: "fraction", f: []float64{1, 0.77, 0.5, 0.31}[rng.IntN(4)]}
		case k == 12 && changes:
			s = step{kind: "foreign", bytes: rng.Uint64N(40) * 2 * mib}
		default:
			live = append(live, id)
		}
		steps = append(steps, s)
	}
	return steps
}

// TestNextCapacity runs small random traces at all capacities from 2 to 200 MiB in steps of 2 MiB. From each, the run must be the
// same at every capacity below the one that NextCapacity names, also at the last byte below it.
func TestNextCapacity(t *testing.T) {
	t.Parallel()
	const seed, traces, most = 5, 350, 200 * mib
	t.Logf("seed %d", seed)
	var horizons, tight int
	for i := range traces {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		set, _, err := ParseSettings(horizonConfs[rng.IntN(len(horizonConfs))])
		require.NoError(t, err)
		steps := randomSteps(rng, &set)
		type result struct {
			d    []decision
			next uint64
		}
		var runs []result // by capacity / 2 MiB - 1
		for c := uint64(2 * mib); c <= most; c += 2 * mib {
			d, next := decide(t, c, set, steps)
			require.Greater(t, next, c)
			runs = append(runs, result{d, next})
		}
		explain := func(c, other, next uint64, a, b []decision) string {
			k := 0
			for k < len(a) && a[k] == b[k] {
				k++
			}
			var words []string
			for _, s := range steps {
				words = append(words, s.String())
			}
			return fmt.Sprintf("trace %d, %q: at %d and %d MiB (%d bytes), of which NextCapacity (%d) says they are alike, operation %d "+
				"(%s) came to %+v and %+v\n%s", i, set.Text, c/mib, other/mib, other, next, k, steps[k], a[k], b[k], strings.Join(words, " "))
		}
		for j := range runs {
			c, next := uint64(j+1)*2*mib, runs[j].next
			k := j + 1
			for ; k < len(runs) && uint64(k+1)*2*mib < next; k++ {
				if !slices.Equal(runs[j].d, runs[k].d) {
					t.Fatal(explain(c, uint64(k+1)*2*mib, next, runs[j].d, runs[k].d))
				}
			}
			if j > 0 && runs[j-1].next == next {
				continue // this horizon has been looked at
			}
			if next != math.MaxUint64 && next <= simdev.MaxCapacity {
				horizons++
				if d, _ := decide(t, next-1, set, steps); !slices.Equal(runs[j].d, d) {
					t.Fatal(explain(c, next-1, next, runs[j].d, d))
				}
				if d, _ := decide(t, next, set, steps); !slices.Equal(runs[j].d, d) {
					tight++
				}
			}
		}
	}
	t.Logf("%d traces, %d horizons, at %d of them the run differs", traces, horizons, tight)
	require.Greater(t, tight, horizons*3/5, "a horizon that is often too near costs runs")
}

// TestExactHorizons: the run is the same at the last byte below the capacity that NextCapacity names, and differs at it. Expandable
// segments have pages of 20 MiB: 100 MiB of address space on a device of 80 MiB, 120 on one of 100, 140 on one of 110.
func TestExactHorizons(t *testing.T) {
	const expandable = "expandable_segments:True"
	alloc := func(id int, mibs uint64) step { return step{kind: "alloc", id: id, bytes: mibs * mib} }
	free := func(id int) step { return step{kind: "free", id: id} }
	emptyCache := step{kind: "empty_cache"}
	for _, c := range []struct {
		name, conf string
		capacity   uint64 // MiB
		steps      []step
	}{
		{"a purchase that the device refuses", "", 80, []step{alloc(0, 60), alloc(1, 30)}},
		{"a purchase over the limit", "x_memory_fraction:0.5", 100, []step{alloc(0, 40), alloc(1, 20)}},
		{
			"memory over the threshold of garbage collection", "x_memory_fraction:1,garbage_collection_threshold:0.6", 100,
			[]step{alloc(0, 40), alloc(1, 30), free(0), alloc(2, 46)},
		},
		{
			"memory just at the threshold is not collected, then a purchase that is refused", "x_memory_fraction:1,garbage_collection_threshold:0.5", 200,
			[]step{alloc(0, 60), alloc(1, 40), alloc(2, 50), alloc(3, 60)},
		},
		{
			"all that is idle is collected, and what is left is over the threshold", "x_memory_fraction:1", 200,
			[]step{alloc(0, 60), alloc(1, 40), free(1), {kind: "conf", conf: "garbage_collection_threshold:0.05"}, alloc(2, 50)},
		},
		{"a run at the end that is too short", expandable, 80, []step{alloc(0, 20), alloc(1, 100)}},
		{"a reservation that is smaller than the request", expandable, 80, []step{alloc(0, 120)}},
		{
			// The excess wraps round, so lookup takes no oversize block: not the last of the segment either, which is as large as the
			// request. A run begins at it once anything is behind it.
			"a run that lacks nothing but a hole behind it", expandable + ",max_split_size_mb:21,max_non_split_rounding_mb:-1", 80,
			[]step{alloc(0, 20), alloc(1, 40), free(0), emptyCache, alloc(2, 40), free(2), alloc(3, 40)},
		},
		{
			"a run that ends with a block smaller than the request", expandable, 80,
			[]step{alloc(0, 20), alloc(1, 40), free(0), emptyCache, alloc(2, 25), alloc(3, 30)},
		},
		{
			"a run that ends with a block in use", expandable, 80,
			[]step{alloc(0, 20), alloc(1, 40), free(0), emptyCache, alloc(2, 40), alloc(3, 21)},
		},
		// Lookup goes from a block to the next larger one that has less unmapped space behind it.
		{
			"5 MiB before 40 of unmapped space, 5 before the end's 20: the end is chosen", expandable, 80,
			[]step{alloc(0, 15), alloc(1, 45), alloc(2, 15), free(1), emptyCache, alloc(3, 4)},
		},
		{
			"5 MiB at the end, 25 before a block: 5 against 25", expandable, 100,
			[]step{alloc(0, 20), alloc(1, 5), alloc(2, 25), free(0), emptyCache, alloc(3, 65), free(2), alloc(4, 4)},
		},
		{
			"5 MiB before the end's 20, 25 before a block: 25 against 25", expandable, 100,
			[]step{alloc(0, 20), alloc(1, 5), alloc(2, 25), free(0), emptyCache, alloc(3, 45), free(2), alloc(4, 4)},
		},
		{
			"5 MiB before a block, 5 before the end: decided, whatever the end is; then a purchase that is refused", expandable, 80,
			[]step{alloc(0, 5), alloc(1, 5), alloc(2, 5), free(1), alloc(3, 4), alloc(4, 82)},
		},
		{
			"5 MiB before the end's 20, a plain segment of 26", expandable, 110,
			[]step{
				alloc(0, 40), alloc(1, 5), free(0), emptyCache, alloc(2, 70), {kind: "conf"}, alloc(3, 25), free(3),
				{kind: "conf", conf: expandable}, alloc(4, 4),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			set, _, err := ParseSettings(c.conf)
			require.NoError(t, err)
			at, next := decide(t, c.capacity*mib, set, c.steps)
			require.Less(t, next, uint64(simdev.MaxCapacity), "nothing depends on the capacity")
			below, _ := decide(t, next-1, set, c.steps)
			require.Equal(t, at, below, "at %d bytes, one less than NextCapacity", next-1)
			then, _ := decide(t, next, set, c.steps)
			require.NotEqual(t, at, then, "at %d bytes, NextCapacity", next)
		})
	}
}

var _ allocators.CapacitySensor = (*Allocator)(nil)
