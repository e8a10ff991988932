package shrink_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// count counts the operations of a kind.
func count(t *trace.Trace, k trace.Kind) (n int) {
	for _, op := range t.Ops {
		if op.Kind == k {
			n++
		}
	}
	return n
}

// when answers Same at the last operation where a condition holds, else Passes.
func when(holds func(*trace.Trace) bool) shrink.Predicate {
	return func(t *trace.Trace) shrink.Answer {
		if holds(t) {
			return shrink.Answer{Kind: shrink.Same, Signature: "x", Op: len(t.Ops)}
		}
		return shrink.Answer{}
	}
}

// TestPredicates: conditions on the trace itself, with the smallest trace that meets each.
func TestPredicates(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 2000)
	for _, c := range []struct {
		name  string
		holds func(*trace.Trace) bool
		want  string
	}{
		{"anything", func(*trace.Trace) bool { return true }, ""},
		{"two records", func(t *trace.Trace) bool { return count(t, trace.Record) >= 2 }, "alloc 0 1\nrecord 0 stream=0\nrecord 0 stream=0\n"},
		{"more frees than syncs, and one", func(t *trace.Trace) bool {
			return count(t, trace.Sync) > 0 && count(t, trace.Free) > count(t, trace.Sync)
		}, "alloc 0 0\nalloc 1 1\nfree 0\nfree 1\nsync stream=0\n"}, // one of those that the trace has asks for nothing
		{"an even number of frees, and two", func(t *trace.Trace) bool {
			return count(t, trace.Free) >= 2 && count(t, trace.Free)%2 == 0
		}, "alloc 0 1\nalloc 1 1\nfree 0\nfree 1\n"},
		{"over 3 MiB", func(t *trace.Trace) bool {
			return has(t, func(op trace.Op) bool { return op.Kind == trace.Alloc && op.Bytes > 3<<20 })
		}, "alloc 0 3145729\n"},
		{"2 MiB", func(t *trace.Trace) bool {
			return has(t, func(op trace.Op) bool { return op.Kind == trace.Alloc && op.Bytes >= 2<<20 })
		}, "alloc 0 2097152\n"},
		{"two streams", func(t *trace.Trace) bool {
			zero := func(op trace.Op) bool { return op.Kind == trace.Alloc && op.Stream == 0 }
			return has(t, zero) && has(t, func(op trace.Op) bool { return op.Kind == trace.Alloc && !zero(op) })
		}, "alloc 0 1\nalloc 1 1 stream=1\n"},
	} {
		require.True(t, c.holds(in), "%s: the trace to shrink must meet it", c.name)
		r, err := shrink.Minimise(context.Background(), in, when(c.holds), shrink.Budget{})
		require.NoError(t, err, c.name)
		require.Equal(t, c.want, operations(r.Trace), c.name)
		require.True(t, r.Minimal)
		require.Equal(t, []int{len(in.Ops), len(r.Trace.Ops)}, []int{r.Before, r.After})
	}
}

func has(t *trace.Trace, f func(trace.Op) bool) bool {
	for _, op := range t.Ops {
		if f(op) {
			return true
		}
	}
	return false
}

// TestTail: what lies behind the failing operation goes first, so that nothing else runs for long.
func TestTail(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 5000)
	var lengths []int
	r, err := shrink.Minimise(context.Background(), in, func(t *trace.Trace) shrink.Answer {
		lengths = append(lengths, len(t.Ops))
		for i, op := range t.Ops {
			if op.Kind == trace.Free {
				return shrink.Answer{Kind: shrink.Same, Op: i}
			}
		}
		return shrink.Answer{}
	}, shrink.Budget{})
	require.NoError(t, err)
	require.Equal(t, "alloc 0 1\nfree 0\n", operations(r.Trace))
	require.Equal(t, 5000, lengths[0])
	require.Less(t, slices.Max(lengths[1:]), 100)
}

// TestHeader: what the original's header says is kept, but for what holds for its operations only.
func TestHeader(t *testing.T) {
	in, err := trace.ParseString("some/folder/x.trace", `# shatter: 1
# source: by hand
# conf: max_split_size_mb:32,roundup_power2_divisions:[256:1,>:4],garbage_collection_threshold:0.8
# capacity: 1GiB
# fraction: 0.5
# expect: {"conf":""}
# right: {"oom_ops":[]}
# bites: classic
# hash: 65bbf5a0cdd79741
# hunt: growth 3
# note: kept
alloc 7 100  # a comment
conf max_split_size_mb:64,expandable_segments:True
alloc 8 100
free 7
`)
	require.NoError(t, err)
	before := string(in.Format())
	r, err := shrink.Minimise(context.Background(), in, when(func(t *trace.Trace) bool {
		conf, _ := t.Settings()
		c, _, _ := t.Capacity()
		return c >= 77<<20 && strings.Contains(conf, "roundup") &&
			has(t, func(op trace.Op) bool { return strings.Contains(op.Conf, "expandable") })
	}), shrink.Budget{})
	require.NoError(t, err)
	require.Equal(t, before, string(in.Format()), "the original stays as it is")
	require.Equal(t, fmt.Sprintf(`# shatter: 1
# source: by hand
# conf: roundup_power2_divisions:[256:1,>:4]
# capacity: 81788928
# note: kept
# shrunk-from: x.trace, %s, 4 operations
conf expandable_segments:True
`, in.ID()), string(r.Trace.Format()))
}

// TestFits: where the failure needs a device that is just too small, the device shrinks along with what fills it.
func TestFits(t *testing.T) {
	in := parse(t, "# capacity: 1198MiB\nalloc 0 300MiB\nalloc 1 300MiB\nalloc 2 300MiB\nalloc 3 300MiB\n")
	r := minimise(t, in, func(t *trace.Trace) shrink.Answer {
		capacity, _, _ := t.Capacity()
		var sum uint64
		for i, op := range t.Ops {
			if sum += op.Bytes; op.Bytes == 300<<20 && sum > capacity {
				if sum-capacity <= 2<<20 {
					return shrink.Answer{Kind: shrink.Same, Op: i}
				}
				return shrink.Answer{Kind: shrink.Different, Signature: "far too small"}
			}
		}
		return shrink.Answer{Used: sum}
	})
	require.Equal(t, "alloc 0 314572800\n", operations(r.Trace))
	capacity, _, _ := r.Trace.Capacity()
	require.EqualValues(t, 298<<20, capacity)
}

// TestTogether: what must change together is found where one by one leads nowhere.
func TestTogether(t *testing.T) {
	bytes := func(t *trace.Trace, i int) uint64 {
		if i >= len(t.Ops) {
			return 0
		}
		return t.Ops[i].Bytes
	}
	const mib = 1 << 20
	for _, c := range []struct {
		name, in string
		holds    func(*trace.Trace) bool
		want     string
	}{
		{"syncs at both ends, or none", "sync\nalloc 0 1\nalloc 1 1\nsync\n", func(t *trace.Trace) bool {
			n := len(t.Ops)
			return count(t, trace.Alloc) == 2 && (n == 2 || n == 4 && t.Ops[0].Kind == trace.Sync && t.Ops[3].Kind == trace.Sync)
		}, "alloc 0 1\nalloc 1 1\n"},
		{"one small and one large, or two large", "alloc 0 3MiB\nalloc 1 18MiB\n", func(t *trace.Trace) bool {
			return bytes(t, 0) == 1 && bytes(t, 1) == 10*mib || bytes(t, 0) > mib && bytes(t, 1) > 17*mib
		}, "alloc 0 1\nalloc 1 10485760\n"},
		{"waste", "alloc 0 102760449\n", func(t *trace.Trace) bool { // 98 MiB and a byte
			return bytes(t, 0) > 3*mib && bytes(t, 0)%(2*mib) == 1
		}, "alloc 0 4194305\n"},
		{"a sum, rather in one than in two", "alloc 0 2MiB\nalloc 1 512\nalloc 2 3MiB\n", func(t *trace.Trace) bool {
			var sum uint64
			for _, op := range t.Ops {
				sum += op.Bytes
			}
			return sum >= 5*mib
		}, "alloc 0 5242880\n"},
	} {
		r := minimise(t, parse(t, c.in), when(c.holds))
		require.Equal(t, c.want, operations(r.Trace), c.name)
	}
}

// TestClosure: what has to do with the failing operation is tried early on: its stream, then the streams that blocks of it are
// recorded on.
func TestClosure(t *testing.T) {
	in := parse(t, `alloc 0 1
alloc 1 1 stream=1
alloc 2 1 stream=2
record 2 stream=3
alloc 3 1 stream=3
sync stream=1
sync
free 0
free 3
alloc 4 1 stream=2
`)
	var asked []string
	minimise(t, in, func(t *trace.Trace) shrink.Answer {
		asked = append(asked, operations(t))
		if count(t, trace.Alloc) >= 3 {
			return shrink.Answer{Kind: shrink.Same, Op: len(t.Ops) - 1}
		}
		return shrink.Answer{}
	})
	require.Equal(t, []string{
		"alloc 0 1 stream=2\nrecord 0 stream=3\nsync\nalloc 1 1 stream=2\n",
		"alloc 0 1 stream=2\nrecord 0 stream=3\nalloc 1 1 stream=3\nsync\nfree 1\nalloc 2 1 stream=2\n",
	}, asked[1:3])
}

// TestAsked: every trace that is tried is legal, and none is tried twice.
func TestAsked(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 2000)
	seen := map[[32]byte]bool{}
	minimise(t, in, func(tr *trace.Trace) shrink.Answer {
		require.NoError(t, tr.Validate())
		require.False(t, seen[tr.Hash()], "%s", tr.Format())
		seen[tr.Hash()] = true
		return when(func(t *trace.Trace) bool { return count(t, trace.Record) >= 2 && count(t, trace.Sync) >= 1 })(tr)
	})
}

// TestLess: operations count before streams, streams before bytes, bytes before settings, settings before the capacity.
func TestLess(t *testing.T) {
	ascending := []string{
		"",
		"# capacity: 2MiB\nalloc 0 1\n",
		"# capacity: 4MiB\nalloc 0 1\n",
		"# conf: a:1\nalloc 0 1\n",
		"# conf: b:1\nalloc 0 1\n",
		"# conf: a:1\n# fraction: 0\nalloc 0 1\n",
		"# conf: a:1\n# fraction: 1\nalloc 0 1\n",
		"alloc 0 2\n",
		"alloc 0 1\nsync\n",
		"alloc 0 1\nsync stream=0\n",
		"alloc 0 1\nfraction 0.5\n",
		"alloc 0 1\nfraction 0.75\n",
		"alloc 0 1\nconf a:1\n",
		"alloc 0 1\nconf b:1\n",
		"alloc 0 1\nalloc 1 9\n",
		"alloc 0 9\nalloc 1 1\n",
		"segment 0 2097152 stream=0 pool=small\nblock 0 512 requested=1 at=0+0\n",
		"segment 0 2097152 stream=0 pool=small\nblock 0 512 requested=1 at=0+512\n",
		"segment 0 2097152 stream=1 pool=small\nblock 0 512 requested=1 at=0+0\n",
		"alloc 0 1\nalloc 1 1 stream=1\n",
		"alloc 0 1\nalloc 1 1 stream=2\n",
	}
	for i, a := range ascending {
		for k, b := range ascending {
			require.Equal(t, i < k, shrink.Less(parse(t, a), parse(t, b)), "%q < %q", a, b)
		}
	}
}

func parse(t testing.TB, text string) *trace.Trace {
	out, err := trace.ParseString("", text)
	require.NoError(t, err)
	return out
}

// minimise shrinks without a bound.
func minimise(t testing.TB, in *trace.Trace, p shrink.Predicate) *shrink.Result {
	r, err := shrink.Minimise(context.Background(), in, p, shrink.Budget{})
	require.NoError(t, err)
	require.True(t, r.Minimal)
	return r
}

// TestOthers: failures of another kind, and runs that broke, guide nothing; the former are handed out with their smallest trace.
func TestOthers(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 500)
	broken := errors.New("the harness fell over")
	r, err := shrink.Minimise(context.Background(), in, func(t *trace.Trace) shrink.Answer {
		switch f, s := count(t, trace.Free), count(t, trace.Sync); {
		case f >= 4 && s >= 1:
			return shrink.Answer{Kind: shrink.Same, Signature: "same", Op: len(t.Ops)}
		case f >= 4:
			return shrink.Answer{Kind: shrink.Different, Signature: "no-sync", Op: len(t.Ops)}
		case s >= 1:
			return shrink.Answer{Kind: shrink.Broken, Err: broken}
		}
		return shrink.Answer{}
	}, shrink.Budget{})
	require.NoError(t, err)
	require.Equal(t, "same", r.Signature)
	require.Equal(t, 9, r.After)
	require.Len(t, r.Others, 1)
	o := r.Others[0]
	require.Equal(t, "no-sync", o.Signature)
	require.Positive(t, o.Count)
	require.Equal(t, 8, len(o.Trace.Ops))
	require.NoError(t, o.Trace.Validate())
	require.Positive(t, r.Broken)
	require.Equal(t, broken, r.FirstBroken)
}

// TestOthersOnALargeDevice: a failure that is met only when the capacity is lifted is handed out too. No header of the original
// speaks for another failure's trace.
func TestOthersOnALargeDevice(t *testing.T) {
	in := parse(t, "# capacity: 1073741824\n# expect: {}\n# finding: same on classic\n# allocator: classic\n# note: kept\nalloc 0 1\n")
	r := minimise(t, in, func(t *trace.Trace) shrink.Answer {
		if c, _, _ := t.Capacity(); c > 1<<30 {
			return shrink.Answer{Kind: shrink.Different, Signature: "large", Op: 0}
		}
		return shrink.Answer{Kind: shrink.Same, Signature: "same", Op: len(t.Ops)}
	})
	require.Len(t, r.Others, 1)
	require.Equal(t, "large", r.Others[0].Signature)
	require.Equal(t, fmt.Sprintf("# capacity: 8796093022208\n# note: kept\n# shrunk-from: %s, 1 operations\nalloc 0 1\n", in.ID()),
		string(r.Others[0].Trace.Format()))
}

// TestErrors: what cannot be shrunk.
func TestErrors(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 50)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range []struct {
		ctx    context.Context
		answer shrink.Answer
		want   string
		fault  bool
	}{
		{context.Background(), shrink.Answer{}, "gen:swarm does not fail in the way that is to be kept: it passes", false},
		{context.Background(), shrink.Answer{Kind: shrink.Different, Signature: "y"},
			"gen:swarm does not fail in the way that is to be kept: it fails as y", false},
		{context.Background(), shrink.Answer{Kind: shrink.Broken, Err: errors.New("oh")}, "harness fault: gen:swarm cannot be shrunk: oh", true},
		{ctx, shrink.Answer{Kind: shrink.Same}, "gen:swarm was not shrunk: interrupted before the first run", false},
	} {
		_, err := shrink.Minimise(c.ctx, in, func(*trace.Trace) shrink.Answer { return c.answer }, shrink.Budget{})
		require.EqualError(t, err, c.want)
		require.Equal(t, c.fault, errors.Is(err, executor.ErrHarness))
	}
}

// TestBudget: a shrink that ends early has the best trace so far, and says so.
func TestBudget(t *testing.T) {
	in := generated(t, 1, "swarm", 3, 1000)
	four := when(func(t *trace.Trace) bool { return count(t, trace.Free) >= 4 })
	whole, err := shrink.Minimise(context.Background(), in, four, shrink.Budget{})
	require.NoError(t, err)
	require.True(t, whole.Minimal)
	for _, runs := range []int{1, 2, 10, whole.Runs - 1} {
		r, err := shrink.Minimise(context.Background(), in, four, shrink.Budget{Runs: runs})
		require.NoError(t, err)
		require.Equal(t, []any{runs, false, shrink.OutOfRuns}, []any{r.Runs, r.Minimal, r.Stopped})
		require.True(t, four(r.Trace).Kind == shrink.Same)
		require.LessOrEqual(t, r.After, r.Before)
	}
	r, err := shrink.Minimise(context.Background(), in, four, shrink.Budget{Runs: whole.Runs})
	require.NoError(t, err)
	require.True(t, r.Minimal)

	slow := func(t *trace.Trace) shrink.Answer { time.Sleep(time.Millisecond); return four(t) }
	r, err = shrink.Minimise(context.Background(), in, slow, shrink.Budget{Time: 10 * time.Millisecond})
	require.NoError(t, err)
	require.Equal(t, shrink.OutOfTime, r.Stopped)

	ctx, cancel := context.WithCancel(context.Background())
	n := 0
	r, err = shrink.Minimise(ctx, in, func(t *trace.Trace) shrink.Answer {
		if n++; n == 20 {
			cancel()
		}
		return four(t)
	}, shrink.Budget{})
	require.NoError(t, err)
	require.Equal(t, []any{20, shrink.Interrupted}, []any{r.Runs, r.Stopped})
}

// TestMinimal: of random conditions on how many operations there are, none of the result can go, nor an allocation or a stream
// with all that belongs to it. It is the same result each time.
func TestMinimal(t *testing.T) {
	seed := testSeed(t)
	for k := range uint64(30) {
		in := generated(t, seed, "swarm", k, 300)
		frees, syncs, records := int(k%5), int(k%3), int(k%4)
		holds := func(t *trace.Trace) bool {
			return count(t, trace.Free) >= frees && count(t, trace.Sync) >= syncs && count(t, trace.Record) >= records
		}
		if !holds(in) {
			continue
		}
		r, err := shrink.Minimise(context.Background(), in, when(holds), shrink.Budget{})
		require.NoError(t, err)
		require.Equal(t, []int{frees, syncs, records},
			[]int{count(r.Trace, trace.Free), count(r.Trace, trace.Sync), count(r.Trace, trace.Record)})
		for i, op := range r.Trace.Ops {
			require.False(t, holds(dropped(r.Trace, func(k int, other trace.Op) bool {
				return k == i || op.Kind == trace.Alloc && other.ID == op.ID && other.Kind <= trace.Record
			})), "operation %d of\n%s", i, operations(r.Trace))
			onStream := map[uint64]bool{}
			require.False(t, holds(dropped(r.Trace, func(_ int, other trace.Op) bool {
				if other.Kind == trace.Alloc && other.Stream == op.Stream {
					onStream[other.ID] = true
				}
				return other.Stream == op.Stream && other.Kind != trace.Free || other.Kind <= trace.Record && onStream[other.ID]
			})), "stream %d of\n%s", op.Stream, operations(r.Trace))
		}
		again, err := shrink.Minimise(context.Background(), in, when(holds), shrink.Budget{})
		require.NoError(t, err)
		require.Equal(t, string(r.Trace.Format()), string(again.Trace.Format()))
		require.Equal(t, r.Runs, again.Runs)
	}
}

// dropped is a trace without some operations, legal or not.
func dropped(t *trace.Trace, drop func(int, trace.Op) bool) *trace.Trace {
	out := &trace.Trace{}
	for i, op := range t.Ops {
		if !drop(i, op) {
			out.Ops = append(out.Ops, op)
		}
	}
	return out
}
