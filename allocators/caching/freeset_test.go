package caching

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// sortedSet is the free set as a sorted slice.
type sortedSet []*block

func inOrder(a, b *block) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.addr, b.addr))
}

// from returns the index of the first block of at least this size.
func (s sortedSet) from(size uint64) int {
	i := 0
	for i < len(s) && s[i].size < size {
		i++
	}
	return i
}

func (s sortedSet) at(i int) *block {
	if i < 0 || i >= len(s) {
		return nil
	}
	return s[i]
}

// binEdges are sizes at which the bins of the free set begin, with their neighbours.
func binEdges() []uint64 {
	var sizes []uint64
	for e := range 50 {
		for m := uint64(16); m < 32; m++ {
			edge := m << e * 512
			if edge > 1<<60 {
				break
			}
			sizes = append(sizes, edge)
			if edge > 512 {
				sizes = append(sizes, edge-512)
			}
			if edge < 1<<60 {
				sizes = append(sizes, edge+512)
			}
		}
	}
	for g := uint64(1); g <= 16; g++ {
		sizes = append(sizes, g*512)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}

// TestBins: the bin is monotone in the size and inside the table up to the largest size.
func TestBins(t *testing.T) {
	last := 0
	for _, size := range binEdges() {
		i := binOf(size)
		require.True(t, i >= last && i < binWords*64, "size %d has bin %d after %d", size, i, last)
		last = i
	}
	require.EqualValues(t, 1<<60, binEdges()[len(binEdges())-1])
}

// TestFreeSet compares every question with the sorted slice. Few different sizes make deep trees in a bin; all bin edges
// make long walks over the bitmap.
func TestFreeSet(t *testing.T) {
	const seed = 7
	t.Logf("seed %d", seed)
	edges := binEdges()
	for run := range 60 {
		rng := rand.New(rand.NewPCG(seed, uint64(run)))
		sizes := edges
		switch run % 3 {
		case 1:
			sizes = edges[:1+rng.IntN(40)]
		case 2: // within two bins
			at := rng.IntN(len(edges) - 8)
			sizes = edges[at : at+8]
		}
		var set freeSet
		var twin sortedSet
		var pool spares
		pool.random.Seed(seed, uint64(run))
		most := 1 + rng.IntN(200)
		for range 1500 {
			if len(twin) < most && rng.IntN(2) == 0 {
				b := pool.block()
				b.size, b.addr = sizes[rng.IntN(len(sizes))], device.Addr(512*(1+rng.IntN(1<<20)))
				i, taken := slices.BinarySearchFunc(twin, b, inOrder)
				if taken {
					pool.dropBlock(b)
					continue
				}
				twin = slices.Insert(twin, i, b)
				set.insert(b)
				require.True(t, b.inSet)
			} else if len(twin) > 0 {
				i := rng.IntN(len(twin))
				b := twin[i]
				twin = slices.Delete(twin, i, i+1)
				set.remove(b)
				require.False(t, b.inSet || b.left != nil || b.right != nil)
				pool.dropBlock(b)
			}
			require.Equal(t, len(twin), set.count)
			require.Same(t, twin.at(0), set.first())
			ask := sizes[rng.IntN(len(sizes))]
			if rng.IntN(4) == 0 {
				ask = edges[rng.IntN(len(edges))]
			}
			require.Same(t, twin.at(twin.from(ask)), set.lowerBound(ask), "lowerBound(%d)", ask)
			require.Same(t, twin.at(twin.from(ask)-1), set.lastBelow(ask), "lastBelow(%d)", ask)
			if len(twin) > 0 {
				i := rng.IntN(len(twin))
				require.Same(t, twin.at(i+1), set.next(twin[i]))
				require.Same(t, twin.at(i-1), set.previous(twin[i]))
			}
		}
		for _, b := range twin {
			require.True(t, (b.left == nil || b.left.priority <= b.priority) && (b.right == nil || b.right.priority <= b.priority),
				"a bin's tree is ordered by priority downwards, else it is not shallow")
		}
		require.True(t, slices.Equal(twin[twin.from(ask512):], set.appendFrom(nil, ask512)), "appendFrom")
		// Above all sizes: what a max_split_size of nearly 2^64 asks for.
		require.Nil(t, set.lowerBound(1<<60+512))
		require.Same(t, twin.at(len(twin)-1), set.lastBelow(1<<63))
	}
}

// TestFreeSetEnd: the largest size there can be, and requests above it.
func TestFreeSetEnd(t *testing.T) {
	var set freeSet
	var pool spares
	require.Nil(t, set.lowerBound(512))
	small := pool.block()
	small.size, small.addr = 512, 512
	set.insert(small)
	require.Nil(t, set.lowerBound(1<<60))
	require.Nil(t, set.lowerBound(1<<63))
	large := pool.block()
	large.size, large.addr = 1<<60, 1024
	set.insert(large)
	require.Same(t, large, set.lowerBound(1024))
	require.Same(t, large, set.lowerBound(1<<60))
	require.Nil(t, set.lowerBound(1<<60+512))
	require.Nil(t, set.lowerBound(1<<63))
}

// ask512 is where a bin begins, so that appendFrom gives nothing smaller, and not the first bin of a word of the bitmap.
const ask512 = 1 << 21

// TestAddrTable compares with a map. The addresses share a few homes, so that chains are long, wrap around the end of the
// table, and are broken in the middle.
func TestAddrTable(t *testing.T) {
	const seed = 11
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for run := range 40 {
		var table addrTable
		table.init()
		crowded := run%2 == 0
		var addrs []device.Addr
		for a := device.Addr(512); len(addrs) < 300; a += 512 {
			if h := table.home(a); !crowded || h < 3 || h > 1<<minTableBits-4 {
				addrs = append(addrs, a)
			}
		}
		most := 100 // under half of the first size, so that a crowded table does not grow
		if !crowded {
			most = 300
		}
		twin := map[device.Addr]*block{}
		for range 3000 {
			a := addrs[rng.IntN(len(addrs))]
			require.Same(t, twin[a], table.find(a))
			switch {
			case twin[a] != nil:
				require.Same(t, twin[a], table.take(a))
				delete(twin, a)
				require.Nil(t, table.take(a), "taken already")
			case len(twin) < most:
				twin[a] = &block{addr: a}
				table.insert(twin[a])
			}
			require.Equal(t, len(twin), table.count)
		}
		require.Equal(t, crowded, len(table.slots) == 1<<minTableBits, "only the crowded table stays small")
		for _, a := range addrs {
			require.Same(t, twin[a], table.find(a))
		}
		// Half as many homes as addresses, at the size that the table has now.
		homes := map[uint64]bool{}
		for a := device.Addr(0x7f0000000000); len(homes) < len(table.slots)/2; a += 512 {
			require.Less(t, a, device.Addr(0x7f0000000000+512*len(table.slots)), "addresses are not spread")
			homes[table.home(a)] = true
			require.Less(t, table.home(a), uint64(len(table.slots)))
		}
	}
}
