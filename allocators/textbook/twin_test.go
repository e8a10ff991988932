package textbook

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

const (
	mib  = 1 << 20
	seed = 20260301
)

// twin is an arena as a plain map of granules: every placement is found by looking at all of them.
type twin struct {
	taken    []bool // by granule
	policy   Policy
	buddy    bool
	rover    int
	capacity int // granules
}

// place is the first granule of the place for size granules, -1 if there is none.
func (t *twin) place(size int) int {
	top := len(t.taken)
	for top > 0 && !t.taken[top-1] {
		top--
	}
	best, bestSize := -1, 0
	better := func(at, hole int) {
		switch {
		case best < 0,
			t.policy == Best && hole < bestSize,
			t.policy == Worst && hole > bestSize,
			t.policy == Next && at >= t.rover && best < t.rover:
			best, bestSize = at, hole
		}
	}
	if t.buddy {
		return t.placeBuddy(size)
	}
	for at := 0; at < top; at++ {
		end := at
		for end < top && !t.taken[end] {
			end++
		}
		if end-at >= size {
			better(at, end-at)
		}
		if end > at {
			at = end
		}
	}
	if best < 0 {
		best = top
	}
	if best+size > t.capacity {
		return -1
	}
	t.rover = best + size
	return best
}

// placeBuddy looks at all aligned blocks, small ones first, that are free with a buddy that is not.
func (t *twin) placeBuddy(size int) int {
	for order := bits.Len(uint(size - 1)); order < 30; order++ {
		for at := 0; at+size <= t.capacity; at += 1 << order {
			if t.empty(at, order) && (order == 29 || !t.empty(at^1<<order, order)) {
				return at
			}
		}
	}
	return -1
}

func (t *twin) empty(at, order int) bool {
	return !slices.Contains(t.taken[min(at, len(t.taken)):min(at+1<<order, len(t.taken))], true)
}

func (t *twin) mark(at, size int, as bool) {
	for len(t.taken) < at+size {
		t.taken = append(t.taken, false)
	}
	for i := range size {
		t.taken[at+i] = as
	}
}

func TestAgainstTwin(t *testing.T) {
	for name, c := range map[string]struct {
		policy Policy
		buddy  bool
	}{"first": {First, false}, "best": {Best, false}, "worst": {Worst, false}, "next": {Next, false}, "buddy": {First, true}} {
		t.Run(name, func(t *testing.T) {
			t.Logf("seed %d", seed)
			rng := rand.New(rand.NewPCG(seed, 1))
			const capacity = 2 * mib
			dev, err := simdev.New(simdev.Options{Capacity: capacity})
			require.NoError(t, err)
			a := NewFit(dev, c.policy)
			if c.buddy {
				a = NewBuddy(dev)
			}
			w := twin{policy: c.policy, buddy: c.buddy, capacity: capacity / granule}
			type pair struct {
				addr     device.Addr
				at, size int
			}
			var live []pair
			refused := 0
			for i := range 6000 {
				if len(live) > 0 && rng.IntN(9) < 4 {
					k := rng.IntN(len(live))
					require.NoError(t, a.Free(live[k].addr))
					w.mark(live[k].at, live[k].size, false)
					live = slices.Delete(live, k, k+1)
					continue
				}
				n := 1 + rng.Uint64N(granule<<rng.IntN(9))
				size := int((n + granule - 1) / granule)
				if c.buddy {
					size = 1 << bits.Len(uint(size-1))
				}
				at := w.place(size)
				b, err := a.Alloc(n, 0)
				if at < 0 {
					require.ErrorIs(t, err, device.ErrOutOfMemory, "operation %d", i)
					refused++
					continue
				}
				require.NoError(t, err, "operation %d", i)
				require.EqualValues(t, at*granule, b.Addr-a.base, "operation %d: %d granules", i, size)
				require.EqualValues(t, size*granule, b.Size)
				w.mark(at, size, true)
				live = append(live, pair{b.Addr, at, size})
				if i%500 == 0 {
					var s allocators.Snapshot
					a.Snapshot(&s)
					sum := uint64(0)
					for k, b := range s.Blocks {
						require.EqualValues(t, a.base+device.Addr(sum), b.Addr, "blocks tile the arena")
						require.False(t, k > 0 && b.State == allocators.Free && s.Blocks[k-1].State == allocators.Free && b.End() < a.base+device.Addr(a.placer.top()))
						sum += b.Size
					}
					require.Equal(t, a.space, sum)
				}
			}
			require.Greater(t, refused, 50, "the arena was full often enough")
			for _, p := range live {
				require.NoError(t, a.Free(p.addr))
			}
			require.NoError(t, a.EmptyCache())
			free, total := dev.Info()
			require.Equal(t, total, free)
			require.Zero(t, a.stats.ReservedBytes.All.Current)
		})
	}
}

func TestErrors(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 4 * mib})
	require.NoError(t, err)
	a := NewFit(dev, Best)
	require.ErrorIs(t, a.Free(512), allocators.ErrInvalidPointer)
	require.ErrorIs(t, a.Record(512, 1), allocators.ErrInvalidPointer)
	require.NoError(t, a.Free(0))
	_, err = a.Alloc(allocators.MaxRequest+1, 0)
	require.ErrorIs(t, err, device.ErrInvalid)
	require.NotErrorIs(t, err, device.ErrOutOfMemory)
	_, err = a.Alloc(5*mib, 0)
	var oom *allocators.OOMError
	require.ErrorAs(t, err, &oom)
	require.EqualValues(t, 6*mib, a.NextCapacity())
	b, err := a.Alloc(4*mib, 0)
	require.NoError(t, err)
	require.NoError(t, a.Free(b.Addr))
	require.EqualValues(t, 4*mib, a.HighWater())
}
