package executor

import (
	"math/bits"
	"sort"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Region is a segment as the device gave it: from a malloc, or reserved address space.
type Region struct {
	Addr       device.Addr
	Size       uint64 // bytes
	Ordinal    int    // order of creation, both kinds counted together
	Expandable bool
	// Stream and Small are those of the request that it was made for.
	Stream device.Stream
	Small  bool
	Pool   allocators.PoolID // private pool, 0 for the default one
	// mapped has a bit a granule of 2 MiB, as far as anything was ever mapped.
	mapped []uint64
}

const granule = 2 << 20

// End is the address behind the region.
func (r *Region) End() device.Addr { return r.Addr + device.Addr(r.Size) }

// isMapped tells whether the granule with this index has memory.
func (r *Region) isMapped(i uint64) bool {
	return i>>6 < uint64(len(r.mapped)) && r.mapped[i>>6]>>(i&63)&1 != 0
}

// run returns where the run of granules in the same state as granule i ends.
func (r *Region) run(i uint64) (mapped bool, end uint64) {
	last := r.Size / granule
	mapped = r.isMapped(i)
	for end = i; end < last; {
		if end>>6 >= uint64(len(r.mapped)) {
			if mapped {
				return mapped, end
			}
			return mapped, last
		}
		w := r.mapped[end>>6]
		if mapped {
			w = ^w
		}
		if w >>= end & 63; w != 0 {
			return mapped, min(end+uint64(bits.TrailingZeros64(w)), last)
		}
		end = (end>>6 + 1) << 6
	}
	return mapped, last
}

// covers tells whether all of [addr, addr+size) has memory.
func (r *Region) covers(addr device.Addr, size uint64) bool {
	if addr < r.Addr || addr+device.Addr(size) > r.End() {
		return false
	}
	if !r.Expandable || size == 0 {
		return true
	}
	first := uint64(addr-r.Addr) / granule
	mapped, end := r.run(first)
	return mapped && end*granule >= uint64(addr-r.Addr)+size
}

func (r *Region) setMapped(addr device.Addr, size uint64, to bool) {
	first := uint64(addr-r.Addr) / granule
	last := first + size/granule
	for last > uint64(len(r.mapped))<<6 {
		r.mapped = append(r.mapped, 0)
	}
	for i := first; i < last; i = (i>>6 + 1) << 6 {
		mask := ^uint64(0) << (i & 63)
		if end := (i>>6 + 1) << 6; end > last {
			mask &= 1<<(last&63) - 1
		}
		if to {
			r.mapped[i>>6] |= mask
		} else {
			r.mapped[i>>6] &^= mask
		}
	}
}

// ledger follows the device calls of an allocator.
type ledger struct {
	regions []*Region // by address
	made    int
	last    *Region
	// bought counts mallocs and mapped ranges, returned freed regions and unmapped ranges: a range is what the allocator asks
	// for at once, page by page.
	bought, returned uint64
	dropped          []*Region // by the last apply, latest last
	spare            []*Region
}

// find returns the region that holds addr, nil if none does.
func (l *ledger) find(addr device.Addr) *Region {
	if r := l.last; r != nil && addr >= r.Addr && addr < r.End() {
		return r
	}
	if i := l.after(addr); i > 0 && addr < l.regions[i-1].End() {
		l.last = l.regions[i-1]
		return l.last
	}
	return nil
}

// after returns the index of the first region that starts behind addr.
func (l *ledger) after(addr device.Addr) int {
	return sort.Search(len(l.regions), func(i int) bool { return l.regions[i].Addr > addr })
}

// apply enters the calls that one operation made.
func (l *ledger) apply(calls []device.Call, stream device.Stream, small bool, pool allocators.PoolID) {
	l.spare = append(l.spare, l.dropped...)
	l.dropped = l.dropped[:0]
	var in *Region // of the range that is being unmapped
	var next device.Addr
	for i := range calls {
		c := &calls[i]
		switch c.Kind {
		case device.CallMalloc, device.CallReserve:
			l.add(c.Addr, c.Size, c.Kind == device.CallReserve, stream, small, pool)
			if c.Kind == device.CallMalloc {
				l.bought++
			}
		case device.CallFree, device.CallUnreserve:
			l.drop(c.Addr)
			if c.Kind == device.CallFree {
				l.returned++
			}
		case device.CallMap:
			// The chunks of a range are all created before the first is mapped.
			if i == 0 || calls[i-1].Kind != device.CallMap {
				l.bought++
			}
			if r := l.find(c.Addr); r != nil {
				r.setMapped(c.Addr, c.Size, true)
			}
		case device.CallUnmap:
			r := l.find(c.Addr)
			if r != in || c.Addr != next {
				l.returned++
			}
			in, next = r, c.Addr+device.Addr(c.Size)
			if r != nil {
				r.setMapped(c.Addr, c.Size, false)
			}
		}
	}
}

func (l *ledger) add(addr device.Addr, size uint64, expandable bool, stream device.Stream, small bool, pool allocators.PoolID) {
	var r *Region
	if n := len(l.spare); n > 0 {
		r, l.spare = l.spare[n-1], l.spare[:n-1]
	} else {
		r = &Region{}
	}
	*r = Region{Addr: addr, Size: size, Ordinal: l.made, Expandable: expandable, Stream: stream, Small: small, Pool: pool, mapped: r.mapped[:0]}
	l.made++
	i := l.after(addr)
	l.regions = append(l.regions, nil)
	copy(l.regions[i+1:], l.regions[i:])
	l.regions[i] = r
}

func (l *ledger) drop(addr device.Addr) {
	i := l.after(addr) - 1
	if i < 0 || l.regions[i].Addr != addr {
		return
	}
	r := l.regions[i]
	l.regions = append(l.regions[:i], l.regions[i+1:]...)
	if l.last == r {
		l.last = nil
	}
	l.dropped = append(l.dropped, r)
}

// ranges counts the reserved address ranges in which anything was ever mapped.
func (l *ledger) ranges() (n int) {
	for _, r := range l.regions {
		if r.Expandable && len(r.mapped) > 0 {
			n++
		}
	}
	return n
}

// droppedAt returns the region at addr that the last apply dropped, nil if there is none.
func (l *ledger) droppedAt(addr device.Addr) *Region {
	for i := len(l.dropped) - 1; i >= 0; i-- {
		if l.dropped[i].Addr == addr {
			return l.dropped[i]
		}
	}
	return nil
}

// has tells whether a private pool has a region.
func (l *ledger) has(pool allocators.PoolID) bool {
	for _, r := range l.regions {
		if r.Pool == pool {
			return true
		}
	}
	return false
}

// gone returns the number and base of the latest dropped region that held addr.
func (l *ledger) gone(addr device.Addr) (ordinal int, base device.Addr) {
	for i := len(l.dropped) - 1; i >= 0; i-- {
		if r := l.dropped[i]; addr >= r.Addr && addr < r.End() {
			return r.Ordinal, r.Addr
		}
	}
	return -1, 0
}
