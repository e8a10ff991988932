package simdev

import (
	"sort"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// reservation is reserved address space. pages has a slot a granule, as far as anything was ever mapped: the handle at
// the first granule of a mapping, covered at its others.
type reservation struct {
	addr  device.Addr
	size  uint64
	pages []device.Handle
	maps  int
}

const covered = device.Handle(1<<64 - 1)

// Granularity is 2 MiB.
func (d *Device) Granularity() uint64 { return Granule }

// Reserve takes address space.
func (d *Device) Reserve(size uint64) (device.Addr, error) {
	d.elapsed += d.opts.Latency.Reserve
	if size == 0 || size%Granule != 0 {
		return 0, invalid("reserve of %d bytes, not a positive multiple of 2 MiB", size)
	}
	addr := d.reserves.take(size)
	i := d.reservationAfter(addr)
	d.reservations = append(d.reservations, reservation{})
	copy(d.reservations[i+1:], d.reservations[i:])
	d.reservations[i] = reservation{addr: addr, size: size}
	return addr, nil
}

// reservationAfter returns the index of the first reservation that starts at or behind addr.
func (d *Device) reservationAfter(addr device.Addr) int {
	return sort.Search(len(d.reservations), func(i int) bool { return d.reservations[i].addr >= addr })
}

// find returns the reservation that holds [addr, addr+size).
func (d *Device) find(addr device.Addr, size uint64) *reservation {
	i := d.reservationAfter(addr + 1)
	if i == 0 {
		return nil
	}
	r := &d.reservations[i-1]
	if off := uint64(addr - r.addr); off > r.size || size > r.size-off {
		return nil
	}
	return r
}

// Unreserve gives a reservation back.
func (d *Device) Unreserve(addr device.Addr, size uint64) error {
	d.elapsed += d.opts.Latency.Unreserve
	i := d.reservationAfter(addr)
	if i == len(d.reservations) || d.reservations[i].addr != addr || d.reservations[i].size != size {
		return invalid("unreserve of %d bytes at %#x, which is no reservation", size, uint64(addr))
	}
	if d.reservations[i].maps > 0 {
		return invalid("unreserve of %#x with %d mappings in it", uint64(addr), d.reservations[i].maps)
	}
	d.reservations = append(d.reservations[:i], d.reservations[i+1:]...)
	d.reserves.give(addr, size)
	return nil
}

// Create takes physical memory.
func (d *Device) Create(size uint64) (device.Handle, error) {
	d.elapsed += d.opts.Latency.Create
	if size == 0 || size%Granule != 0 {
		return 0, invalid("create of %d bytes, not a positive multiple of 2 MiB", size)
	}
	if size > d.free() {
		d.refuse(size)
		return 0, device.ErrOutOfMemory
	}
	d.used += size
	var i int32
	if n := len(d.freeChunks); n > 0 {
		i = d.freeChunks[n-1]
		d.freeChunks = d.freeChunks[:n-1]
	} else {
		i = int32(len(d.chunks))
		d.chunks = append(d.chunks, chunk{})
	}
	c := &d.chunks[i]
	*c = chunk{size: size, generation: c.generation + 1}
	return device.Handle(uint64(c.generation)<<32 | uint64(uint32(i))), nil
}

func (d *Device) chunk(h device.Handle) *chunk {
	if i := uint64(uint32(h)); i < uint64(len(d.chunks)) {
		if c := &d.chunks[i]; c.size != 0 && uint64(c.generation) == uint64(h)>>32 {
			return c
		}
	}
	return nil
}

// drop returns the chunk's memory once nobody holds or maps it.
func (d *Device) drop(c *chunk, h device.Handle) {
	if c.released && c.mappings == 0 {
		d.used -= c.size
		c.size = 0
		d.freeChunks = append(d.freeChunks, int32(uint32(h)))
	}
}

// Release gives a chunk back; its memory is free once it is no longer mapped.
func (d *Device) Release(h device.Handle) error {
	d.elapsed += d.opts.Latency.Release
	c := d.chunk(h)
	if c == nil || c.released {
		return invalid("release of handle %#x, which does not exist or is released", uint64(h))
	}
	c.released = true
	d.drop(c, h)
	return nil
}

// Map puts a chunk into a reservation.
func (d *Device) Map(addr device.Addr, size uint64, h device.Handle) error {
	d.elapsed += d.opts.Latency.Map
	c := d.chunk(h)
	if c == nil || c.released || c.size != size {
		return invalid("map of %d bytes of handle %#x, which is not a held chunk of that size", size, uint64(h))
	}
	r := d.find(addr, size)
	if r == nil || (addr-r.addr)%Granule != 0 {
		return invalid("map of %d bytes at %#x, not 2 MiB aligned inside one reservation", size, uint64(addr))
	}
	first := int(uint64(addr-r.addr) / Granule)
	last := first + int(size/Granule)
	for len(r.pages) < last {
		r.pages = append(r.pages, 0)
	}
	for _, p := range r.pages[first:last] {
		if p != 0 {
			return invalid("map of %d bytes at %#x, where something is mapped", size, uint64(addr))
		}
	}
	r.pages[first] = h
	for i := first + 1; i < last; i++ {
		r.pages[i] = covered
	}
	r.maps++
	c.mappings++
	return nil
}

// Unmap removes whole mappings.
func (d *Device) Unmap(addr device.Addr, size uint64) error {
	d.elapsed += d.opts.Latency.Unmap
	r := d.find(addr, size)
	if r == nil || size == 0 || (addr-r.addr)%Granule != 0 || size%Granule != 0 {
		return invalid("unmap of %d bytes at %#x, not 2 MiB aligned inside one reservation", size, uint64(addr))
	}
	first := int(uint64(addr-r.addr) / Granule)
	last := first + int(size/Granule)
	if last > len(r.pages) || r.pages[first] == 0 || r.pages[first] == covered ||
		(last < len(r.pages) && r.pages[last] == covered) {
		return invalid("unmap of %d bytes at %#x, which cuts a mapping or is not mapped", size, uint64(addr))
	}
	for _, p := range r.pages[first:last] {
		if p == 0 {
			return invalid("unmap of %d bytes at %#x, where not all is mapped", size, uint64(addr))
		}
	}
	for i := first; i < last; i++ {
		if h := r.pages[i]; h != covered {
			c := d.chunk(h)
			c.mappings--
			d.drop(c, h)
			r.maps--
		}
		r.pages[i] = 0
	}
	return nil
}
