//go:build cuda

package cudadev

import (
	"fmt"
	"sort"

	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// chunk is what Create gave.
type chunk struct {
	size     uint64
	mappings int
	released bool
}

// span is a region (chunk nil) or a mapping.
type span struct {
	addr  device.Addr
	size  uint64
	chunk *chunk
}

// spans are by address; they never overlap.
type spans []span

// at returns the index of the first span that ends behind addr.
func (s spans) at(addr device.Addr) int {
	return sort.Search(len(s), func(i int) bool { return s[i].addr+device.Addr(s[i].size) > addr })
}

func (s *spans) insert(v span) {
	i := s.at(v.addr)
	*s = append(*s, span{})
	copy((*s)[i+1:], (*s)[i:])
	(*s)[i] = v
}

// uncovered returns the first address of [addr, addr+size) that no span covers; ok says that all is covered.
func (s spans) uncovered(addr device.Addr, size uint64) (at device.Addr, ok bool) {
	end := addr + device.Addr(size)
	if end < addr {
		return addr, false
	}
	for i := s.at(addr); addr < end; i++ {
		if i == len(s) || s[i].addr > addr {
			return addr, false
		}
		addr = s[i].addr + device.Addr(s[i].size)
	}
	return 0, true
}

func roundUp(n uint64) uint64 { return (n + Granule - 1) &^ (Granule - 1) }

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, device.ErrInvalid)...)
}

// Malloc hands out a region of the size rounded up to 2 MiB (cuMemAlloc).
func (d *Device) Malloc(size uint64) (device.Addr, error) {
	if size == 0 || size > 1<<61 {
		return 0, invalid("malloc of %d bytes", size)
	}
	size = roundUp(size)
	if err := d.within(size); err != nil {
		return 0, err
	}
	defer d.bind()()
	p, err := cu.MemAlloc(int64(size))
	if err != nil {
		return 0, translate(fmt.Sprintf("cuMemAlloc of %d bytes", size), err)
	}
	addr := device.Addr(p)
	d.regions[addr] = size
	d.live.insert(span{addr: addr, size: size})
	d.used += size
	return addr, nil
}

// Free takes a region back (cuMemFree). The driver waits for all work of the device in it, so held streams are let go first;
// which events count as done does not change.
func (d *Device) Free(addr device.Addr) error {
	size, ok := d.regions[addr]
	if !ok {
		return invalid("free of %#x, which no malloc returned or which is freed already", uint64(addr))
	}
	defer d.bind()()
	if err := d.letGoAll(); err != nil {
		return err
	}
	if err := cu.MemFree(cu.DevicePtr(addr)); err != nil {
		return translate("cuMemFree", err)
	}
	delete(d.regions, addr)
	i := d.live.at(addr)
	d.live = append(d.live[:i], d.live[i+1:]...)
	d.used -= size
	return nil
}

// SetForeign takes memory as others would: chunks that are mapped nowhere, counted to the byte and taken in whole granules.
func (d *Device) SetForeign(bytes uint64) error {
	if bytes > d.limit || d.used > d.limit-bytes {
		d.next = min(d.next, d.used+bytes)
		return fmt.Errorf("others cannot take %d bytes, %d of %d are in use: %w", bytes, d.used, d.limit, device.ErrOutOfMemory)
	}
	defer d.bind()()
	for _, h := range d.ballast {
		if err := memRelease(h); err != nil {
			return translate("giving back foreign memory", err)
		}
	}
	d.ballast, d.foreign = d.ballast[:0], 0
	if bytes == 0 {
		return nil
	}
	h, err := memCreate(d.ordinal, roundUp(bytes))
	if err != nil {
		return translate(fmt.Sprintf("taking %d bytes of foreign memory", bytes), err)
	}
	d.ballast, d.foreign = append(d.ballast, h), bytes
	return nil
}

// Granularity is 2 MiB; the driver's own divides it.
func (d *Device) Granularity() uint64 { return Granule }

// Reserve takes address space.
func (d *Device) Reserve(size uint64) (device.Addr, error) {
	if size == 0 || size%Granule != 0 {
		return 0, invalid("reserve of %d bytes, not a positive multiple of 2 MiB", size)
	}
	defer d.bind()()
	a, err := addressReserve(size)
	if err != nil {
		return 0, translate(fmt.Sprintf("cuMemAddressReserve of %d bytes", size), err)
	}
	d.reservations[a] = size
	return a, nil
}

// Unreserve gives a whole reservation back.
func (d *Device) Unreserve(addr device.Addr, size uint64) error {
	if d.reservations[addr] != size || size == 0 {
		return invalid("unreserve of %d bytes at %#x, which is no reservation", size, uint64(addr))
	}
	if i := d.live.at(addr); i < len(d.live) && d.live[i].addr < addr+device.Addr(size) {
		return invalid("unreserve of %#x with a mapping in it", uint64(addr))
	}
	defer d.bind()()
	if err := addressFree(addr, size); err != nil {
		return translate("cuMemAddressFree", err)
	}
	delete(d.reservations, addr)
	return nil
}

// Create takes physical memory.
func (d *Device) Create(size uint64) (device.Handle, error) {
	if size == 0 || size%Granule != 0 {
		return 0, invalid("create of %d bytes, not a positive multiple of 2 MiB", size)
	}
	if err := d.within(size); err != nil {
		return 0, err
	}
	defer d.bind()()
	h, err := memCreate(d.ordinal, size)
	if err != nil {
		return 0, translate(fmt.Sprintf("cuMemCreate of %d bytes", size), err)
	}
	d.chunks[h] = &chunk{size: size}
	d.used += size
	return h, nil
}

// Release gives a chunk back; its memory is free once it is no longer mapped.
func (d *Device) Release(h device.Handle) error {
	c := d.chunks[h]
	if c == nil {
		return invalid("release of handle %#x, which does not exist or is released", uint64(h))
	}
	defer d.bind()()
	if err := memRelease(h); err != nil {
		return translate("cuMemRelease", err)
	}
	delete(d.chunks, h)
	c.released = true
	d.drop(c)
	return nil
}

func (d *Device) drop(c *chunk) {
	if c.released && c.mappings == 0 {
		d.used -= c.size
	}
}

// Map puts a chunk into a reservation and makes it accessible: cuMemMap and cuMemSetAccess, both or neither.
func (d *Device) Map(addr device.Addr, size uint64, h device.Handle) error {
	c := d.chunks[h]
	if c == nil || c.size != size {
		return invalid("map of %d bytes of handle %#x, which is not a held chunk of that size", size, uint64(h))
	}
	if addr%Granule != 0 {
		return invalid("map of %d bytes at %#x, not at a multiple of 2 MiB", size, uint64(addr))
	}
	defer d.bind()()
	if err := memMap(addr, size, h); err != nil {
		return translate(fmt.Sprintf("cuMemMap of %d bytes at %#x", size, uint64(addr)), err)
	}
	if err := memSetAccess(d.ordinal, addr, size); err != nil {
		if undo := memUnmap(addr, size); undo != nil {
			return translate("cuMemUnmap after cuMemSetAccess failed", undo)
		}
		return translate(fmt.Sprintf("cuMemSetAccess of %d bytes at %#x", size, uint64(addr)), err)
	}
	c.mappings++
	d.live.insert(span{addr, size, c})
	return nil
}

// Unmap removes whole mappings. Work on streams is let go first, as in Free: nothing held may stand in the driver's way.
func (d *Device) Unmap(addr device.Addr, size uint64) error {
	i := d.live.at(addr)
	last, end := i, addr
	for ; last < len(d.live) && d.live[last].chunk != nil && d.live[last].addr == end && end < addr+device.Addr(size); last++ {
		end += device.Addr(d.live[last].size)
	}
	if size == 0 || end != addr+device.Addr(size) {
		return invalid("unmap of %d bytes at %#x, which cuts a mapping or is not all mapped", size, uint64(addr))
	}
	defer d.bind()()
	if err := d.letGoAll(); err != nil {
		return err
	}
	if err := memUnmap(addr, size); err != nil {
		return translate(fmt.Sprintf("cuMemUnmap of %d bytes at %#x", size, uint64(addr)), err)
	}
	gone := append(spans(nil), d.live[i:last]...)
	d.live = append(d.live[:i], d.live[last:]...)
	for _, m := range gone {
		m.chunk.mappings--
		d.drop(m.chunk)
	}
	return nil
}
