package properties_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// replayed is what a trace comes to: which operations are refused, and the bytes reserved after each.
func replayed(t *testing.T, alloc, capacity, text string) (refused []int, reserved []uint64, segments int) {
	t.Helper()
	tr, err := trace.ParseString("not-promised", text)
	require.NoError(t, err)
	bytes, err := trace.ParseSize(capacity)
	require.NoError(t, err)
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	dev, err := simulated(bytes)
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: alloc, New: spec.New}, executor.Options{
		Device: dev, Properties: properties.All(), Judge: properties.NewJudge(),
		OnRow: func(w *executor.Row) { reserved = append(reserved, w.Stats.ReservedBytes.All.Current) },
	})
	require.NoError(t, err)
	require.Empty(t, res.Findings)
	return res.OOMs, reserved, res.Segments
}

// TestNotPromisedIsReachable: what is listed as not promised does not hold, each on its own trace.
func TestNotPromisedIsReachable(t *testing.T) {
	shown := map[string]bool{}
	for _, n := range properties.NotInvariants {
		t.Run(n.ID, func(t *testing.T) {
			refused, reserved, segments := replayed(t, n.Alloc, n.Capacity, n.Trace)
			last := reserved[len(reserved)-1]
			shown[n.ID] = true
			switch n.ID {
			case "smaller-fits-too":
				require.Equal(t, []int{0}, refused, "5 MiB is refused, 10 MiB are served")
			case "more-memory-helps":
				require.NotEmpty(t, refused)
				refused, _, _ = replayed(t, n.Alloc, "50MiB", n.Trace)
				require.Empty(t, refused)
			case "repeats-are-stable":
				require.Equal(t, []uint64{22 * mib, 34 * mib}, []uint64{reserved[len(reserved)/2-1], last})
			case "emptying-is-neutral":
				require.Equal(t, []int{4}, refused)
				refused, _, _ = replayed(t, n.Alloc, n.Capacity, strings.Replace(n.Trace, "empty_cache\n", "", 1))
				require.Empty(t, refused, "it hurts")
				larger := properties.NotInvariants[slices.IndexFunc(properties.NotInvariants, func(n properties.NotPromised) bool { return n.ID == "more-memory-helps" })]
				refused, _, _ = replayed(t, larger.Alloc, larger.Capacity, strings.Replace(larger.Trace, "free 0\n", "free 0\nempty_cache\n", 1))
				require.Empty(t, refused, "and helps")
			case "loops-are-bounded":
				require.Equal(t, []uint64{22 * mib, 44 * mib, 66 * mib}, []uint64{reserved[1], reserved[3], reserved[5]})
			case "refused-again":
				require.Equal(t, []int{6}, refused)
			case "refusal-changes-nothing":
				require.Equal(t, []int{2}, refused)
				require.Equal(t, []uint64{40 * mib, 0}, reserved[1:])
			case "malloc-keeps-reserved":
				require.Equal(t, []uint64{50 * mib, 50 * mib, 2 * mib}, reserved)
			case "empty-cache-leaves-live-only":
				require.EqualValues(t, 2*mib, last)
			case "one-segment-a-pool-and-stream":
				require.Equal(t, 2, segments)
			case "limit-bounds-expandable":
				require.EqualValues(t, 102*mib, last)
			case "doubling-doubles":
				require.EqualValues(t, 20*mib, reserved[0])
				_, doubled, _ := replayed(t, n.Alloc, n.Capacity, "alloc 0 10MiB\nalloc 1 20MiB\n")
				require.NotEqual(t, 2*last, doubled[1])
			default:
				require.Fail(t, "nothing shows it")
			}
		})
	}
	require.Len(t, shown, len(properties.NotInvariants))
}
