package executor

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
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

// plainRegion is a region with a bool a granule.
type plainRegion struct {
	addr       device.Addr
	size       uint64
	expandable bool
	ordinal    int
	mapped     []bool
}

// TestLedgerTwin holds the ledger against plain lists of bools under random device calls.
func TestLedgerTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(testSeed(t), 11))
	var l ledger
	var twin []plainRegion // by address
	made := 0
	for step := range 3000 {
		var calls []device.Call
		for range 1 + rng.IntN(3) {
			switch d := rng.IntN(10); {
			case d < 3 || len(twin) == 0:
				// A free place on a grid that leaves gaps between regions.
				p := plainRegion{addr: device.Addr(1+rng.IntN(40)) << 32, size: uint64(1+rng.IntN(300)) * granule, expandable: d != 1, ordinal: made}
				if slices.ContainsFunc(twin, func(q plainRegion) bool { return q.addr == p.addr }) {
					continue
				}
				p.mapped = make([]bool, p.size/granule)
				kind := device.CallMalloc
				if p.expandable {
					kind = device.CallReserve
				}
				made++
				calls = append(calls, device.Call{Kind: kind, Addr: p.addr, Size: p.size})
				twin = append(twin, p)
				slices.SortFunc(twin, func(a, b plainRegion) int { return int(int64(a.addr) - int64(b.addr)) })
			case d < 4:
				i := rng.IntN(len(twin))
				kind := device.CallFree
				if twin[i].expandable {
					kind = device.CallUnreserve
				}
				calls = append(calls, device.Call{Kind: kind, Addr: twin[i].addr})
				twin = slices.Delete(twin, i, i+1)
			default:
				p := &twin[rng.IntN(len(twin))]
				if !p.expandable {
					continue
				}
				first := rng.IntN(len(p.mapped))
				n := 1 + rng.IntN(min(len(p.mapped)-first, 1+rng.IntN(100)))
				to := rng.IntN(5) < 3
				kind := device.CallUnmap
				if to {
					kind = device.CallMap
				}
				calls = append(calls, device.Call{Kind: kind, Addr: p.addr + device.Addr(first*granule), Size: uint64(n) * granule})
				for i := first; i < first+n; i++ {
					p.mapped[i] = to
				}
			}
		}
		l.apply(calls, device.Stream(step), step%2 == 0, 0)
		require.Len(t, l.regions, len(twin), step)
		for i := range twin {
			compareRegion(t, rng, l.regions[i], &twin[i])
			r := l.regions[i]
			require.Same(t, r, l.find(r.Addr))
			require.Same(t, r, l.find(r.Addr+device.Addr(rng.Uint64N(r.Size))))
			require.Nil(t, l.find(r.End()))
			require.Nil(t, l.find(r.Addr-1))
		}
	}
}

func compareRegion(t *testing.T, rng *rand.Rand, r *Region, p *plainRegion) {
	require.Equal(t, []any{p.addr, p.size, p.expandable, p.ordinal}, []any{r.Addr, r.Size, r.Expandable, r.Ordinal})
	if p.expandable {
		i := rng.IntN(len(p.mapped))
		end := i
		for end < len(p.mapped) && p.mapped[end] == p.mapped[i] {
			end++
		}
		mapped, got := r.run(uint64(i))
		require.Equal(t, p.mapped[i], mapped)
		require.EqualValues(t, end, got, "the run from granule %d", i)
	}
	// A range anywhere about the region, with its edges at and beside granules.
	from := int64(rng.Uint64N(p.size+2*granule)) - granule
	size := int64(rng.Uint64N(8 * granule))
	if rng.IntN(2) == 0 {
		from -= from % granule
		size -= size % granule
	}
	want := from >= 0 && uint64(from+size) <= p.size
	for at := from; want && p.expandable && at < from+size; at += granule - at%granule {
		want = p.mapped[at/granule]
	}
	if !want || size > 0 {
		require.Equal(t, want, r.covers(p.addr+device.Addr(from), uint64(size)), "%d bytes at %d of %d", size, from, p.size)
	}
}

// TestLedgerForgets: a dropped region answers to its old addresses until the next operation, for the rows of this one.
func TestLedgerForgets(t *testing.T) {
	var l ledger
	l.apply([]device.Call{{Kind: device.CallMalloc, Addr: 4096, Size: granule}, {Kind: device.CallMalloc, Addr: 8 * granule, Size: granule}}, 0, false, 0)
	require.NotNil(t, l.find(8*granule)) // which it remembers
	l.apply([]device.Call{{Kind: device.CallFree, Addr: 8 * granule}, {Kind: device.CallFree, Addr: 12345}}, 0, false, 0)
	require.Nil(t, l.find(8*granule))
	ordinal, base := l.gone(8*granule + 5)
	require.Equal(t, 1, ordinal)
	require.EqualValues(t, 8*granule, base)
	ordinal, _ = l.gone(4096)
	require.Equal(t, -1, ordinal)
	l.apply(nil, 0, false, 0)
	ordinal, _ = l.gone(8 * granule)
	require.Equal(t, -1, ordinal)
	// The next region may live in the memory of the dropped one, with nothing mapped.
	l.apply([]device.Call{{Kind: device.CallReserve, Addr: 8 * granule, Size: 4 * granule}}, 3, true, 0)
	r := l.find(9 * granule)
	require.Equal(t, 2, r.Ordinal)
	require.False(t, r.covers(9*granule, 1))
	require.True(t, r.Small)
	require.EqualValues(t, 3, r.Stream)
}
