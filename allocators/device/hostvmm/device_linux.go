package hostvmm

import (
	"fmt"
	"math"
	"runtime"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
)

// Supported says why there are no host devices on this system; nil if there are.
func Supported() error { return nil }

// Device is a device of host memory. It is used by one goroutine at a time.
type Device struct {
	device.Streams // virtual, as on the simulated device
	host           *host
	maxAreas       int64
	capacity       uint64
	used           uint64 // bytes in regions and chunks
	foreign        uint64 // bytes that others hold
	next           uint64 // smallest capacity at which a refused call would have succeeded

	regions      map[uint64]region
	reservations []reservation // by address
	chunks       map[device.Handle]*chunk
	handles      device.Handle // the last one given
}

// region is what Malloc gave.
type region struct {
	size   uint64
	offset int64
}

// chunk is what Create gave.
type chunk struct {
	size     uint64
	offset   int64
	mappings int
	released bool
}

// arenaOf is the address space that is reserved at a time: room for dozens of expandable segments, which reserve 9/8 of
// the device each, so that one arena serves nearly always and addresses keep their order.
func arenaOf(capacity uint64) uint64 {
	return min(max(128*capacity, 1<<36), 1<<44) / Granule * Granule
}

// New makes a device. Close gives its memory back to the system; so does the garbage collector, some time later.
func New(o Options) (*Device, error) {
	if err := checkCapacity(o.Capacity); err != nil {
		return nil, err
	}
	queues, err := simdev.New(simdev.Options{Capacity: simdev.MinCapacity})
	if err != nil {
		return nil, err
	}
	h, err := openHost()
	if err != nil {
		return nil, err
	}
	d := &Device{
		Streams: queues, host: h, maxAreas: o.MaxAreas, capacity: o.Capacity, next: math.MaxUint64,
		regions: map[uint64]region{}, chunks: map[device.Handle]*chunk{},
	}
	runtime.AddCleanup(d, func(h *host) { _ = h.close() }, h)
	return d, nil
}

// Close gives all memory back to the system. The device must not be used afterwards; a second call does nothing.
func (d *Device) Close() error { return d.host.close() }

// Info returns what is free and the capacity, in bytes.
func (d *Device) Info() (free, total uint64) { return d.free(), d.capacity }

func (d *Device) free() uint64 { return d.capacity - min(d.capacity, d.used+d.foreign) }

// NextCapacity implements device.CapacitySensor.
func (d *Device) NextCapacity() uint64 { return d.next }

// SetForeign makes others hold this many bytes; it is counted, not taken from the host.
func (d *Device) SetForeign(bytes uint64) error {
	if bytes > d.capacity || d.used > d.capacity-bytes {
		d.next = min(d.next, d.used+bytes)
		return fmt.Errorf("others cannot take %d bytes, %d of %d are in use: %w", bytes, d.used, d.capacity, device.ErrOutOfMemory)
	}
	d.foreign = bytes
	return nil
}

// roundUp rounds to whole granules; sizes are at most 2^61 here, so it cannot overflow.
func roundUp(n uint64) uint64 { return (n + Granule - 1) &^ (Granule - 1) }

// buy takes memory out of the capacity and a range of the file for it.
func (d *Device) buy(size uint64) (offset int64, err error) {
	if size > d.free() {
		d.next = min(d.next, d.used+d.foreign+size)
		return 0, device.ErrOutOfMemory
	}
	if d.host.closed {
		return 0, invalid("use of a closed device")
	}
	d.used += size
	offset = d.host.end
	d.host.end += int64(size)
	return offset, nil
}

// place takes address space.
func (d *Device) place(size uint64) (uint64, error) {
	for i := range d.host.arenas {
		if at := d.host.arenas[i].take(size); at != 0 {
			return at, nil
		}
	}
	if err := d.takeAreas(areasOfArena); err != nil {
		return 0, err
	}
	if err := d.host.addArena(max(arenaOf(d.capacity), size)); err != nil {
		d.giveAreas(areasOfArena)
		return 0, err
	}
	return d.host.arenas[len(d.host.arenas)-1].take(size), nil
}

func (d *Device) unplace(addr uint64) {
	for i := range d.host.arenas {
		if a := &d.host.arenas[i]; addr >= a.base && addr-a.base < a.size {
			a.give(addr)
		}
	}
}

// Malloc hands out a region of the size rounded up to 2 MiB.
func (d *Device) Malloc(size uint64) (device.Addr, error) {
	if size == 0 || size > 1<<61 {
		return 0, invalid("malloc of %d bytes", size)
	}
	size = roundUp(size)
	offset, err := d.buy(size)
	if err != nil {
		return 0, err
	}
	addr, err := d.placeShown(size, offset)
	if err != nil {
		d.used -= size
		return 0, err
	}
	d.regions[addr] = region{size, offset}
	return device.Addr(addr), nil
}

func (d *Device) placeShown(size uint64, offset int64) (uint64, error) {
	addr, err := d.place(size)
	if err != nil {
		return 0, err
	}
	if err = d.takeAreas(areasOfMapping); err == nil {
		if err = d.host.show(addr, size, offset); err == nil {
			return addr, nil
		}
		d.giveAreas(areasOfMapping)
	}
	d.unplace(addr)
	return 0, err
}

// Free takes a region back.
func (d *Device) Free(addr device.Addr) error {
	r, ok := d.regions[uint64(addr)]
	if !ok || d.host.closed {
		return invalid("free of %#x, which no malloc returned or which is freed already", uint64(addr))
	}
	if err := d.host.hide(uint64(addr), r.size); err != nil {
		return err
	}
	d.giveAreas(areasOfMapping)
	delete(d.regions, uint64(addr))
	d.unplace(uint64(addr))
	d.used -= r.size
	return d.host.discard(r.offset, r.size)
}
