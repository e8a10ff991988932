package properties_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/properties"
)

// TestBegunTracesAreClean: a trace that begins with a state, also on another stream, is no finding.
func TestBegunTracesAreClean(t *testing.T) {
	for _, text := range []string{
		"segment 0 20MiB stream=1 pool=large\nblock 5 5MiB requested=5MiB at=0+0\nalloc 1 100\nfree 5\nalloc 2 5MiB stream=1\n",
		"segment 0 20MiB stream=0 pool=large\nblock 0 20MiB requested=20MiB at=0+0\nfree 0\nalloc 1 100\nalloc 8 20MiB\n",
		"segment 0 40MiB pool=large\nblock 0 40MiB requested=40MiB at=0+0\nsegment 1 20MiB pool=large expandable\nblock 1 20MiB requested=20MiB at=1+0\n" +
			"segment 2 60MiB pool=large expandable at=1+40MiB\nblock 2 60MiB requested=60MiB at=2+0\nalloc 3 5MiB\nfree 0\nfree 1\nempty_cache\n", // no room for 2
		"segment 1 20MiB stream=2 pool=large expandable\nblock 1 5MiB requested=5MiB at=1+0\nsegment 2 20MiB stream=2 pool=large expandable at=1+40MiB\n" +
			"block 2 9MiB requested=9MiB at=2+1MiB\nalloc 3 30MiB stream=2\nfree 2\nfree 1\nalloc 4 1\nempty_cache\n",
	} {
		cleanFrom(t, text, "", 100<<20)
	}
}

// cleanFrom holds a trace against all properties and relations.
func cleanFrom(t *testing.T, text, conf string, capacity uint64) {
	t.Helper()
	q := caseOf(t, text, conf, capacity)
	q.Explore = false
	dev, err := simulated(capacity)
	require.NoError(t, err)
	res, err := executor.Execute(executor.Compile(q.Trace), q.Target, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
	require.NoError(t, err, text)
	for i := range res.Findings {
		require.NotEmpty(t, res.Findings[i].Known, "%s at %d, %+v:\n%s", conf, capacity, res.Findings[i], text)
	}
	f, err := executor.Relate(q, properties.Relations())
	require.NoError(t, err, text)
	require.True(t, f == nil || f.Known != "", "%s at %d, %+v:\n%s", conf, capacity, f, text)
}

// begunAtRandom is a trace that begins with a few segments of both pools and kinds on two streams, with blocks in them.
func begunAtRandom(rng *rand.Rand) string {
	var text strings.Builder
	var live []int
	id := 100
	// blocks fills a segment, leaving gaps.
	blocks := func(segment int, size uint64, small bool) {
		for at := uint64(0); ; {
			at += rng.Uint64N(2) * 512 * rng.Uint64N(size/1024)
			n := min(512*(1+rng.Uint64N(2048)), size-min(at, size))
			if !small {
				n = min(mib+512*(1+rng.Uint64N(30*2048)), size-min(at, size))
			}
			if n == 0 || rng.IntN(6) == 0 {
				return
			}
			fmt.Fprintf(&text, "block %d %d requested=%d at=%d+%d\n", id, n, n-rng.Uint64N(512), segment, at)
			live = append(live, id)
			id++
			at += n
		}
	}
	for k := range 1 + rng.IntN(4) {
		small, expandable := rng.IntN(3) == 0, rng.IntN(2) == 0
		pool, size := "large", 2*(5+rng.Uint64N(20))*mib
		switch {
		case small:
			pool, size = "small", 2*mib
		case expandable:
			size = 20 * mib * (1 + rng.Uint64N(3))
		}
		kind := fmt.Sprintf("stream=%d pool=%s", rng.IntN(2), pool)
		if expandable {
			kind += " expandable"
		}
		if rng.IntN(6) == 0 {
			kind += " private=3"
		}
		fmt.Fprintf(&text, "segment %d %d %s\n", 10*k, size, kind)
		blocks(10*k, size, small)
		if expandable && rng.IntN(2) == 0 { // a second range of it, behind a hole
			page := uint64(20 * mib)
			if small {
				page = 2 * mib
			}
			fmt.Fprintf(&text, "segment %d %d %s at=%d+%d\n", 10*k+1, page, kind, 10*k, size+page*(1+rng.Uint64N(2)))
			blocks(10*k+1, page, small)
		}
	}
	pools, open := rng.IntN(3) == 0, false
	for range 40 {
		switch n := rng.IntN(10); {
		case n < 5 && len(live) > 0:
			i := rng.IntN(len(live))
			fmt.Fprintf(&text, "free %d\n", live[i])
			live[i] = live[len(live)-1]
			live = live[:len(live)-1]
		case n == 5 && len(live) > 0:
			fmt.Fprintf(&text, "record %d stream=%d\n", live[rng.IntN(len(live))], rng.IntN(3))
		case n == 6:
			text.WriteString([]string{"sync\n", "empty_cache\n"}[rng.IntN(2)])
		case n == 7 && pools:
			text.WriteString(map[bool]string{false: "pool begin 3\n", true: "pool end 3\n"}[open])
			open = !open
		default:
			fmt.Fprintf(&text, "alloc %d %d stream=%d\n", id, 1+rng.Uint64N(1<<(8+rng.IntN(18))), rng.IntN(2))
			live = append(live, id)
			id++
		}
	}
	return text.String()
}

// TestBegunAtRandom: the same of random states, with room and without.
func TestBegunAtRandom(t *testing.T) {
	const seed = 17
	t.Logf("seed %d", seed)
	n := uint64(1000)
	if testing.Short() {
		n = 30
	}
	for i := range n {
		rng := rand.New(rand.NewPCG(seed, i))
		text := begunAtRandom(rng)
		conf := []string{"", "expandable_segments:True", "max_split_size_mb:21"}[rng.IntN(3)]
		cleanFrom(t, text, conf, (40+rng.Uint64N(200))*mib)
	}
}
