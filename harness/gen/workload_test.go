package gen_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// levels are the requested live bytes after each operation.
func levels(tr *trace.Trace) []uint64 {
	var live uint64
	sizes := map[uint64]uint64{}
	out := make([]uint64, len(tr.Ops))
	for i, op := range tr.Ops {
		switch op.Kind {
		case trace.Alloc:
			sizes[op.ID] = op.Bytes
			live += op.Bytes
		case trace.Free:
			live -= sizes[op.ID]
		}
		out[i] = live
	}
	return out
}

// lifetimes are the operations from alloc to free; what is never freed lives to the end.
func lifetimes(tr *trace.Trace) []int {
	born := map[uint64]int{}
	var out []int
	for i, op := range tr.Ops {
		switch op.Kind {
		case trace.Alloc:
			born[op.ID] = i
		case trace.Free:
			out = append(out, i-born[op.ID])
			delete(born, op.ID)
		}
	}
	for _, i := range born {
		out = append(out, len(tr.Ops)-i)
	}
	return out
}

func TestMixedHasPhasesAndBothLifetimes(t *testing.T) {
	for _, tr := range several(t, "mixed", 10, gen.Params{}) {
		capacity, _, _ := tr.Capacity()
		require.Equal(t, uint64(80*gib), capacity)
		l := levels(tr)
		var low, high uint64 = capacity, 0
		for _, n := range l[2000:] {
			low, high = min(low, n), max(high, n)
		}
		require.Greater(t, high, low/10*11, "builds up and releases")
		long, short := 0, 0
		for _, n := range lifetimes(tr) {
			if n > 1000 {
				long++
			} else if n < 300 {
				short++
			}
		}
		require.Greater(t, long, 50)
		require.Greater(t, short, 500)
	}
}

func TestLongIsADial(t *testing.T) {
	// The share of the bytes live at operation 3,000 in blocks that live for 2,000 operations or more.
	lasting := func(dial float64) float64 {
		var long, all uint64
		for _, tr := range several(t, "mixed", 10, gen.Params{Long: dial}) {
			born, died := map[uint64]int{}, map[uint64]int{}
			for i, op := range tr.Ops {
				switch op.Kind {
				case trace.Alloc:
					born[op.ID], died[op.ID] = i, len(tr.Ops)
				case trace.Free:
					died[op.ID] = i
				}
			}
			for _, op := range tr.Ops {
				if from, to := born[op.ID], died[op.ID]; op.Kind == trace.Alloc && from <= 3000 && to > 3000 {
					all += op.Bytes
					if to-from >= 2000 {
						long += op.Bytes
					}
				}
			}
		}
		return float64(long) / float64(all)
	}
	require.InDelta(t, 0.2, lasting(0.2), 0.2)
	require.InDelta(t, 0.8, lasting(0.8), 0.2)
}

func TestStepTakesTensOfSteps(t *testing.T) {
	for _, tr := range several(t, "step", 10, gen.Params{}) {
		// A step ends where the gradients of at least six layers are freed in a row.
		steps, frees := 0, 0
		for _, op := range tr.Ops {
			frees++
			if op.Kind != trace.Free {
				frees = 0
			}
			if frees == 4*6 {
				steps++
			}
		}
		require.GreaterOrEqual(t, steps, 15)
		require.LessOrEqual(t, steps, 60)
		for _, l := range levels(tr) {
			require.Less(t, l, uint64(80*gib))
		}
	}
}

func TestEdgesHitsEveryEdge(t *testing.T) {
	seen := map[uint64]bool{}
	for _, tr := range several(t, "edges", 40, gen.Params{}) {
		for _, op := range tr.Ops {
			seen[op.Bytes] = true
		}
	}
	for _, edge := range []uint64{512, mib, 2 * mib, 10 * mib, 20 * mib} {
		for _, size := range []uint64{edge - 1, edge, edge + 1, edge + 511, edge + 512, edge + 513} {
			require.True(t, seen[size], "%d", size)
		}
		if edge > 512 {
			require.True(t, seen[edge-512], "%d", edge-512)
		}
	}
	for _, size := range []uint64{4 * mib, 4*mib + 1, 40*mib + 512, 1280 * kib, 1792*kib + 1} {
		require.True(t, seen[size], "page multiples and rounding steps: %d", size)
	}
}

func TestStreamsFreesBlocksInUse(t *testing.T) {
	for _, tr := range several(t, "streams", 20, gen.Params{}) {
		used, pending, single := map[uint64]bool{}, 0, 0
		for _, op := range tr.Ops {
			switch {
			case op.Kind == trace.Record:
				used[op.ID] = true
			case op.Kind == trace.Free && used[op.ID]:
				pending++
			case op.Kind == trace.Sync && op.Stream != trace.AllStreams:
				single++
			}
		}
		require.Greater(t, pending, 200)
		require.Greater(t, single, 100)
		require.Positive(t, kinds(tr)[trace.Sync]-single)
	}
}

func TestPinsLeavesRemainders(t *testing.T) {
	for _, tr := range several(t, "pins", 20, gen.Params{}) {
		small, large := 0, 0
		for i := 2; i < len(tr.Ops); i++ {
			a, b, c := tr.Ops[i-2], tr.Ops[i-1], tr.Ops[i]
			if a.Kind == trace.Alloc && b.Kind == trace.Alloc && c.Kind == trace.Alloc && a.Bytes == b.Bytes+512 {
				switch a.Bytes + b.Bytes + c.Bytes {
				case 2 * mib:
					small++
				case 20 * mib:
					large++
				}
			}
		}
		require.Greater(t, small+large, 20)
		require.Positive(t, kinds(tr)[trace.EmptyCache])
	}
}

func TestSwarmLeavesKindsOut(t *testing.T) {
	const n = 200
	without, again := map[trace.Kind]int{}, 0
	for _, tr := range several(t, "swarm", n, gen.Params{Ops: 2000}) {
		count := kinds(tr)
		for k := trace.Alloc; k <= trace.Foreign; k++ {
			if count[k] == 0 {
				without[k]++
			}
		}
		ids := map[uint64]bool{}
		for _, op := range tr.Ops {
			if op.Kind == trace.Alloc && ids[op.ID] {
				again++
				break
			}
			ids[op.ID] = true
		}
	}
	require.Zero(t, without[trace.Alloc])
	require.Zero(t, without[trace.Free])
	for k := trace.Record; k <= trace.Foreign; k++ {
		require.Greater(t, without[k], n/10, "%v is left out", k)
		require.Less(t, without[k], n*9/10, "%v is not always left out", k)
	}
	require.InDelta(t, n/2, again, n/5, "ids are taken again in half of the traces")
}

// Drawn settings are PyTorch's, without warning, each of them occurs, and none says whether segments are expandable.
func TestSettingsAreValid(t *testing.T) {
	var split, rounding, scalar, list, gc, fraction int
	check := func(conf string) {
		s, warnings, err := caching.ParseSettings(conf)
		require.NoError(t, err)
		require.Empty(t, warnings)
		require.NotContains(t, conf, "expandable")
		if s.MaxSplitSize != caching.Off {
			split++
			require.LessOrEqual(t, s.MaxSplitSize, uint64(512*mib))
		}
		if s.MaxNonSplitRounding != caching.DefaultSettings().MaxNonSplitRounding {
			rounding++
		}
		if d := s.RoundupDivisions; d[0] > 1 && d[0] == d[15] {
			scalar++
		} else if d != (caching.DefaultSettings().RoundupDivisions) {
			list++
		}
		if s.GCThreshold > 0 {
			gc++
		}
	}
	for _, tr := range several(t, "swarm", 300, gen.Params{Ops: 500}) {
		conf, ok := tr.Settings()
		if ok {
			check(conf)
		}
		_, limited, err := tr.HeaderFraction()
		require.NoError(t, err)
		if limited {
			fraction++
		}
		for _, op := range tr.Ops {
			if op.Kind == trace.Conf {
				check(op.Conf)
			}
		}
	}
	for _, n := range []int{split, rounding, scalar, list, gc, fraction} {
		require.Greater(t, n, 10)
	}
}

// graphs opens pools in every way that there is, keeps to what is legal, and queues work on streams of its own and on recorded ones.
func TestGraphsUsesPools(t *testing.T) {
	var begins, captures, oneStream, again, ends, releases, empties, own, other, nested int
	for _, tr := range several(t, "graphs", 30, gen.Params{Ops: 3000}) {
		require.NoError(t, tr.Validate())
		uses := map[uint64]int{}
		recorded := map[[2]uint64]bool{}
		home := map[uint64]int64{}
		open := 0
		for _, op := range tr.Ops {
			switch op.Kind {
			case trace.PoolBegin:
				begins++
				if op.Capture {
					captures++
				}
				if op.Stream != trace.AllStreams {
					oneStream++
				}
				if uses[uint64(op.Pool)]++; uses[uint64(op.Pool)] > 1 {
					again++
				}
				if open++; open > 1 {
					nested++
				}
			case trace.PoolEnd:
				ends++
				open--
			case trace.PoolRelease:
				releases++
				uses[uint64(op.Pool)]--
			case trace.EmptyCache:
				if op.Pool != 0 {
					empties++
				}
			case trace.Alloc:
				home[op.ID] = int64(op.Stream)
			case trace.Record:
				recorded[[2]uint64{op.ID, uint64(op.Stream)}] = true
			case trace.Use:
				if home[op.ID] == int64(op.Stream) {
					own++
				} else {
					other++
					require.True(t, recorded[[2]uint64{op.ID, uint64(op.Stream)}], "a use on another stream is recorded, as programs must")
				}
			}
		}
	}
	for name, n := range map[string]int{
		"begins": begins, "captures": captures, "of one stream": oneStream, "again": again, "ends": ends, "releases": releases,
		"emptied": empties, "own": own, "other": other, "nested": nested,
	} {
		require.Greater(t, n, 50, name)
	}
}
