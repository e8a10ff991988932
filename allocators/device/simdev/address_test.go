package simdev

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// TestLowAddresses: the lowest place that is free, so addresses are used again and holes are filled.
func TestLowAddresses(t *testing.T) {
	d := start(t, Options{Capacity: 100 * Granule, Order: Low})
	base := mallocBase
	place := func(size uint64) int {
		return int((got[device.Addr](t)(d.Malloc(size*Granule)) - base) / Granule)
	}
	free := func(at device.Addr) { require.NoError(t, d.Free(base+at*Granule)) }
	require.Equal(t, []int{0, 2, 5, 6}, []int{place(2), place(3), place(1), place(4)})
	free(2)
	require.Equal(t, 10, place(4), "the hole is too small")
	require.Equal(t, 2, place(2))
	require.Equal(t, 4, place(1))
	free(0)
	free(2)
	require.Equal(t, 0, place(4), "two holes side by side are one")
	require.EqualValues(t, reserveBase, got[device.Addr](t)(d.Reserve(Granule)))
}

// TestRandomAddresses differ from seed to seed, and are the same for one.
func TestRandomAddresses(t *testing.T) {
	addrs := func(seed uint64) (a []device.Addr) {
		d := start(t, Options{Capacity: 1000 * Granule, Order: Random, Seed: seed})
		for range 20 {
			a = append(a, got[device.Addr](t)(d.Malloc(3*Granule)), got[device.Addr](t)(d.Reserve(5*Granule)))
		}
		return a
	}
	one := addrs(1)
	require.Equal(t, one, addrs(1))
	require.NotEqual(t, one, addrs(2))
	var mallocs []device.Addr
	for i := 0; i < len(one); i += 2 {
		mallocs = append(mallocs, one[i])
	}
	require.False(t, slices.IsSorted(mallocs))
}

// TestAddressesNeverOverlap: whatever the order, nothing lies where something else is, regions and reservations together; on
// devices so large that a few hundred reservations would fill the space between the two bases, too.
func TestAddressesNeverOverlap(t *testing.T) {
	const seed = 3
	for _, order := range []Order{Bump, Low, Random} {
		for _, capacity := range []uint64{64 * Granule, 80 << 30, MaxCapacity} {
			rng := rand.New(rand.NewPCG(seed, capacity))
			d := start(t, Options{Capacity: capacity, Order: order, Seed: seed})
			type span struct {
				addr, end device.Addr
				reserved  bool
			}
			var used []span
			seen := map[device.Addr]bool{}
			for range 1500 {
				if len(used) > 0 && rng.IntN(5) < 2 {
					i := rng.IntN(len(used))
					u := used[i]
					used = slices.Delete(used, i, i+1)
					if u.reserved {
						require.NoError(t, d.Unreserve(u.addr, uint64(u.end-u.addr)))
					} else {
						require.NoError(t, d.Free(u.addr))
					}
					continue
				}
				u := span{reserved: rng.IntN(2) == 0}
				size := (1 + rng.Uint64N(3)) * Granule
				if u.reserved {
					size = (capacity + capacity/8) / Granule * Granule
					u.addr = got[device.Addr](t)(d.Reserve(size))
				} else if addr, err := d.Malloc(size); err == nil {
					u.addr = addr
				} else {
					continue
				}
				u.end = u.addr + device.Addr(size)
				require.Greater(t, u.end, u.addr)
				require.Zero(t, u.addr%Granule)
				for _, v := range used {
					require.True(t, u.end <= v.addr || v.end <= u.addr, "order %d, capacity %d: %#x-%#x and %#x-%#x", order, capacity,
						uint64(u.addr), uint64(u.end), uint64(v.addr), uint64(v.end))
				}
				require.False(t, order != Low && seen[u.addr], "an address is given twice")
				seen[u.addr] = true
				used = append(used, u)
			}
		}
	}
}
