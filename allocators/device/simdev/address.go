package simdev

import (
	"math/rand/v2"
	"sort"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Order is the order of addresses. Allocators break ties by address, so it can change decisions.
type Order uint8

const (
	// Bump gives ascending addresses and never one twice: the order of the recorded logs.
	Bump Order = iota
	// Low gives the lowest address that is free, so addresses are used again.
	Low
	// Random gives addresses in random order, none twice.
	Random
)

// Ascending tells whether every new address lies behind all earlier ones, so that nothing depends on what was given back.
func (d *Device) Ascending() bool { return d.mallocs.order == Bump }

// span is an address range in use.
type span struct {
	addr device.Addr
	size uint64
}

// addressSpace chooses addresses for regions.
type addressSpace struct {
	base  device.Addr
	next  device.Addr
	order Order
	rng   *rand.Rand
	used  []span // by address; kept for Low and Random only
	wall  device.Addr
}

// farBase is where reservations go on once they have filled the space below the wall: 31 TiB are not many at 9/8 of a device
// each, and none may lie where Malloc's regions do.
const farBase = device.Addr(1 << 52)

// init says where the space begins and which address, if not 0, its regions must not cross before farBase.
func (s *addressSpace) init(base, wall device.Addr, order Order, seed uint64) {
	s.base, s.next, s.wall, s.order = base, base, wall, order
	switch order {
	case Low:
		if wall != 0 {
			s.used = []span{{wall, uint64(farBase - wall)}}
		}
	case Random:
		// Two windows apart from each other, so large that a free place is found at once nearly always.
		s.base = base << randomShift
		s.rng = rand.New(rand.NewPCG(seed, uint64(base)))
	}
}

const (
	randomShift  = 14
	randomWindow = uint64(mallocBase-reserveBase)<<randomShift - MaxCapacity*2
)

// take chooses the address of a region; size is a multiple of the granule.
func (s *addressSpace) take(size uint64) device.Addr {
	switch s.order {
	case Low:
		at := s.base
		for i := range s.used {
			if uint64(s.used[i].addr-at) >= size {
				s.insert(i, span{at, size})
				return at
			}
			at = s.used[i].addr + device.Addr(s.used[i].size)
		}
		s.insert(len(s.used), span{at, size})
		return at
	case Random:
		for {
			at := s.base + device.Addr(s.rng.Uint64N(randomWindow/Granule)*Granule)
			i := sort.Search(len(s.used), func(i int) bool { return s.used[i].addr >= at })
			if (i == 0 || s.used[i-1].addr+device.Addr(s.used[i-1].size) <= at) &&
				(i == len(s.used) || at+device.Addr(size) <= s.used[i].addr) {
				s.insert(i, span{at, size})
				return at
			}
		}
	default:
		if s.next < s.wall && size > uint64(s.wall-s.next) {
			s.next = farBase
		}
		at := s.next
		s.next += device.Addr(size)
		return at
	}
}

func (s *addressSpace) insert(i int, v span) {
	s.used = append(s.used, span{})
	copy(s.used[i+1:], s.used[i:])
	s.used[i] = v
}

// give returns an address range. Only Low uses it again.
func (s *addressSpace) give(addr device.Addr, size uint64) {
	if s.order != Low {
		return
	}
	i := sort.Search(len(s.used), func(i int) bool { return s.used[i].addr >= addr })
	s.used = append(s.used[:i], s.used[i+1:]...)
}
