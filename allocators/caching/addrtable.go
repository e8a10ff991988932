package caching

import "github.com/shatter-gpu/shatter/allocators/device"

// addrTable finds a live block by its address: open addressing with linear probes, at most half full. The built-in map
// takes several times as long, and this table is on the way of every call.
type addrTable struct {
	slots []*block
	shift uint
	count int
}

const minTableBits = 8

func (t *addrTable) init() {
	t.slots = make([]*block, 1<<minTableBits)
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
	for t.slots[i] != nil {
		i = (i + 1) & mask
	}
	t.slots[i] = b
}

func (t *addrTable) grow() {
	old := t.slots
	t.slots = make([]*block, 2*len(old))
	t.shift--
	t.count = 0
	for _, b := range old {
		if b != nil {
			t.insert(b)
		}
	}
}

// find returns the live block at addr, nil if there is none.
func (t *addrTable) find(addr device.Addr) *block {
	mask := uint64(len(t.slots) - 1)
	for i := t.home(addr); t.slots[i] != nil; i = (i + 1) & mask {
		if t.slots[i].addr == addr {
			return t.slots[i]
		}
	}
	return nil
}

// take finds and removes.
func (t *addrTable) take(addr device.Addr) *block {
	mask := uint64(len(t.slots) - 1)
	i := t.home(addr)
	for {
		b := t.slots[i]
		if b == nil {
			return nil
		}
		if b.addr == addr {
			t.removeAt(i, mask)
			return b
		}
		i = (i + 1) & mask
	}
}

// removeAt empties slot i and moves back what probed past it.
func (t *addrTable) removeAt(i, mask uint64) {
	t.count--
	for j := i; ; {
		t.slots[i] = nil
		for {
			j = (j + 1) & mask
			b := t.slots[j]
			if b == nil {
				return
			}
			// b may move to i unless its home lies behind i, cyclically.
			if (j-t.home(b.addr))&mask >= (j-i)&mask {
				t.slots[i] = b
				i = j
				break
			}
		}
	}
}
