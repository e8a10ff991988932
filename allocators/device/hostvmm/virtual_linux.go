package hostvmm

import (
	"sort"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// reservation is reserved address space with its mappings, by address.
type reservation struct {
	addr, size uint64
	maps       []mapping
}

type mapping struct {
	addr, size uint64
	chunk      *chunk
}

// Granularity is 2 MiB.
func (d *Device) Granularity() uint64 { return Granule }

// Reserve takes address space.
func (d *Device) Reserve(size uint64) (device.Addr, error) {
	if size == 0 || size%Granule != 0 || d.host.closed {
		return 0, invalid("reserve of %d bytes, not a positive multiple of 2 MiB", size)
	}
	addr, err := d.place(size)
	if err != nil {
		return 0, err
	}
	i := d.reservationAfter(addr)
	d.reservations = append(d.reservations, reservation{})
	copy(d.reservations[i+1:], d.reservations[i:])
	d.reservations[i] = reservation{addr: addr, size: size}
	return device.Addr(addr), nil
}

// reservationAfter returns the index of the first reservation at addr or behind.
func (d *Device) reservationAfter(addr uint64) int {
	return sort.Search(len(d.reservations), func(i int) bool { return d.reservations[i].addr >= addr })
}

// find returns the reservation that holds [addr, addr+size), nil if none does or addr is not aligned.
func (d *Device) find(addr, size uint64) *reservation {
	i := d.reservationAfter(addr + 1)
	if i == 0 || addr%Granule != 0 || d.host.closed {
		return nil
	}
	r := &d.reservations[i-1]
	if off := addr - r.addr; off > r.size || size > r.size-off {
		return nil
	}
	return r
}

// at returns the index of the first mapping that ends behind addr.
func (r *reservation) at(addr uint64) int {
	return sort.Search(len(r.maps), func(i int) bool { return r.maps[i].addr+r.maps[i].size > addr })
}

// Unreserve gives a whole reservation back.
func (d *Device) Unreserve(addr device.Addr, size uint64) error {
	i := d.reservationAfter(uint64(addr))
	if i == len(d.reservations) || d.reservations[i].addr != uint64(addr) || d.reservations[i].size != size || d.host.closed {
		return invalid("unreserve of %d bytes at %#x, which is no reservation", size, uint64(addr))
	}
	if n := len(d.reservations[i].maps); n > 0 {
		return invalid("unreserve of %#x with %d mappings in it", uint64(addr), n)
	}
	d.reservations = append(d.reservations[:i], d.reservations[i+1:]...)
	d.unplace(uint64(addr))
	return nil
}

// Create takes physical memory.
func (d *Device) Create(size uint64) (device.Handle, error) {
	if size == 0 || size%Granule != 0 {
		return 0, invalid("create of %d bytes, not a positive multiple of 2 MiB", size)
	}
	offset, err := d.buy(size)
	if err != nil {
		return 0, err
	}
	d.handles++
	d.chunks[d.handles] = &chunk{size: size, offset: offset}
	return d.handles, nil
}

// Release gives a chunk back; its memory is free once it is no longer mapped.
func (d *Device) Release(h device.Handle) error {
	c := d.chunks[h]
	if c == nil || d.host.closed {
		return invalid("release of handle %#x, which does not exist or is released", uint64(h))
	}
	delete(d.chunks, h)
	c.released = true
	return d.drop(c)
}

// drop returns the chunk's memory once nobody holds or maps it.
func (d *Device) drop(c *chunk) error {
	if !c.released || c.mappings > 0 {
		return nil
	}
	d.used -= c.size
	return d.host.discard(c.offset, c.size)
}

// Map puts a chunk into a reservation.
func (d *Device) Map(addr device.Addr, size uint64, h device.Handle) error {
	a := uint64(addr)
	c := d.chunks[h]
	if c == nil || c.size != size {
		return invalid("map of %d bytes of handle %#x, which is not a held chunk of that size", size, uint64(h))
	}
	r := d.find(a, size)
	if r == nil {
		return invalid("map of %d bytes at %#x, not 2 MiB aligned inside one reservation", size, a)
	}
	i := r.at(a)
	if i < len(r.maps) && r.maps[i].addr < a+size {
		return invalid("map of %d bytes at %#x, where something is mapped", size, a)
	}
	if err := d.takeAreas(areasOfMapping); err != nil {
		return err
	}
	if err := d.host.show(a, size, c.offset); err != nil {
		d.giveAreas(areasOfMapping)
		return err
	}
	r.maps = append(r.maps, mapping{})
	copy(r.maps[i+1:], r.maps[i:])
	r.maps[i] = mapping{a, size, c}
	c.mappings++
	return nil
}

// Unmap removes whole mappings.
func (d *Device) Unmap(addr device.Addr, size uint64) error {
	a := uint64(addr)
	r := d.find(a, size)
	if r == nil || size == 0 {
		return invalid("unmap of %d bytes at %#x, not 2 MiB aligned inside one reservation", size, a)
	}
	i := r.at(a)
	last, end := i, a
	for ; last < len(r.maps) && r.maps[last].addr == end && end < a+size; last++ {
		end += r.maps[last].size
	}
	if end != a+size {
		return invalid("unmap of %d bytes at %#x, which cuts a mapping or is not all mapped", size, a)
	}
	if err := d.host.hide(a, size); err != nil {
		return err
	}
	d.giveAreas(areasOfMapping * int64(last-i))
	gone := append([]mapping(nil), r.maps[i:last]...)
	r.maps = append(r.maps[:i], r.maps[last:]...)
	for _, m := range gone {
		m.chunk.mappings--
		if err := d.drop(m.chunk); err != nil {
			return err
		}
	}
	return nil
}
