package caching

import "github.com/shatter-gpu/shatter/allocators/device"

// addrTable finds a live block by its address: open addressing with linear probes, at most half full. The built-in map
// takes several times as long, and this table is on the way of every call. Addresses stand in the slots, so that a probe
// reads no block but the one it looks for; address 0 is never live and marks an empty slot.
type addrTable struct {
	slots []addrSlot
	shift uint
	count int
}

type addrSlot struct {
	addr  device.Addr
	block *block
}

const minTableBits = 8

func (t *addrTable) init() {
	t.slots = make([]addrSlot, 1<<minTableBits)
	t.shift = 64 - minTableBits
}

// home spreads addresses, multiples of 512, over the slots (Fibonacci hashing).
func (t *addrTable) home(addr device.Addr) uint64 {
	return uint64(addr) >> 9 * 0x9e3779b97f4a7c15 >> t.shift
}

func (t *addrTable) insert(b *block) {
	if t.count*2 >= len(t.slots) {
		t.grow()
	}
	t.count++
	mask := uint64(len(t.slots) - 1)
	i := t.home(b.addr)
	for t.slots[i].addr != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = addrSlot{b.addr, b}
}

func (t *addrTable) grow() {
	old := t.slots
	t.slots = make([]addrSlot, 2*len(old))
	t.shift--
	t.count = 0
	for _, s := range old {
		if s.addr != 0 {
			t.insert(s.block)
		}
	}
}

// find returns the live block at addr, nil if there is none.
func (t *addrTable) find(addr device.Addr) *block {
	mask := uint64(len(t.slots) - 1)
	for i := t.home(addr); t.slots[i].addr != 0; i = (i + 1) & mask {
		if t.slots[i].addr == addr {
			return t.slots[i].block
		}
	}
	return nil
}

// take finds and removes.
func (t *addrTable) take(addr device.Addr) *block {
	mask := uint64(len(t.slots) - 1)
	i := t.home(addr)
	for t.slots[i].addr != addr {
		if t.slots[i].addr == 0 {
			return nil
		}
		i = (i + 1) & mask
	}
	b := t.slots[i].block
	t.removeAt(i, mask)
	return b
}

// removeAt empties slot i and moves back what probed past it.
func (t *addrTable) removeAt(i, mask uint64) {
	t.count--
	for j := i; ; {
		j = (j + 1) & mask
		s := t.slots[j]
		if s.addr == 0 {
			break
		}
		// s may move to i unless its home lies behind i, cyclically.
		if (j-t.home(s.addr))&mask >= (j-i)&mask {
			t.slots[i] = s
			i = j
		}
	}
	t.slots[i] = addrSlot{}
}
