// Package simdev is a deterministic simulated GPU: it counts bytes and holds none. Its rules are those on which
// PyTorch's own allocator was recorded (see README, "Exactness"), so decisions on it can be compared with the recorded
// ones:
//
//   - Malloc takes its size rounded up to 2 MiB and fails when that is more than what is free. Physical memory does not
//     fragment: only the sum matters.
//   - Regions come from a bump pointer at 0x7f0000000000, reservations from one at 0x600000000000; neither is reused.
//   - A reservation costs nothing; a chunk costs its size from Create until it is released and unmapped.
//   - An event is done once its stream is synchronised later, or the event itself (or a later one of its stream) is
//     waited for. Malloc and Free synchronise nothing.
//
// Options change the order of addresses, make others hold memory, and charge each call a latency in virtual time.
package simdev

import (
	"fmt"
	"math"
	"time"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Granule is what the device hands out memory in: 2 MiB.
const Granule = 2 << 20

const (
	mallocBase  = device.Addr(0x7f0000000000)
	reserveBase = device.Addr(0x600000000000)
)

// MinCapacity is the smallest device: one granule.
const MinCapacity = Granule

// MaxCapacity keeps reservations of 9/8 of the device inside the address space: 16 TiB.
const MaxCapacity = 16 << 40

// Options of a device. The zero value with a Capacity is the device of the recorded logs.
type Options struct {
	// Capacity in bytes, MinCapacity to MaxCapacity.
	Capacity uint64
	// Order of the addresses of Malloc and Reserve.
	Order Order
	// Seed of Order Random.
	Seed uint64
	// Latency of each call, in virtual time.
	Latency Latency
}

// Latency is the virtual time that each call takes.
type Latency struct {
	Malloc, Free, Reserve, Unreserve, Create, Release, Map, Unmap, Sync time.Duration
}

type region struct {
	size uint64
}

type chunk struct {
	size       uint64
	mappings   int32
	released   bool
	generation uint32
}

// Device is a simulated GPU.
type Device struct {
	opts    Options
	used    uint64 // bytes in regions and chunks
	foreign uint64 // bytes that others hold
	next    uint64 // smallest capacity at which a refused call would have succeeded

	regions      map[device.Addr]region
	reservations []reservation // by address
	chunks       []chunk
	freeChunks   []int32

	mallocs, reserves addressSpace

	streams   map[device.Stream]int
	clocks    []clock
	lastName  device.Stream
	lastClock int
	elapsed   time.Duration
}

// New makes a device. The capacity must be at least MinCapacity and at most MaxCapacity.
func New(opts Options) (*Device, error) {
	if opts.Capacity < MinCapacity || opts.Capacity > MaxCapacity {
		return nil, fmt.Errorf("a simulated device has 2 MiB to 16 TiB, not %d bytes: %w", opts.Capacity, device.ErrInvalid)
	}
	d := &Device{
		opts: opts, next: math.MaxUint64, regions: map[device.Addr]region{},
		streams: map[device.Stream]int{}, lastClock: -1,
	}
	d.mallocs.init(mallocBase, 0, opts.Order, opts.Seed)
	d.reserves.init(reserveBase, mallocBase, opts.Order, opts.Seed+1)
	return d, nil
}

// Info returns what is free and the capacity.
func (d *Device) Info() (free, total uint64) {
	return d.free(), d.opts.Capacity
}

func (d *Device) free() uint64 {
	taken := d.used + d.foreign
	if taken >= d.opts.Capacity {
		return 0
	}
	return d.opts.Capacity - taken
}

// Elapsed is the virtual time that all calls took.
func (d *Device) Elapsed() time.Duration { return d.elapsed }

// NextCapacity implements device.CapacitySensor.
func (d *Device) NextCapacity() uint64 { return d.next }

// SetForeign makes others hold this many bytes.
func (d *Device) SetForeign(bytes uint64) error {
	if bytes > d.opts.Capacity || d.used > d.opts.Capacity-bytes {
		d.need(d.used + bytes) // in place of what they hold now
		return fmt.Errorf("others cannot take %d bytes, %d of %d are in use: %w",
			bytes, d.used, d.opts.Capacity, device.ErrOutOfMemory)
	}
	d.foreign = bytes
	return nil
}

// refuse notes what capacity a refused call of this size would have needed.
func (d *Device) refuse(size uint64) {
	d.need(d.used + d.foreign + size)
}

func (d *Device) need(capacity uint64) { d.next = min(d.next, capacity) }

// roundUp rounds to whole granules; sizes are at most 2^61 here, so it cannot overflow.
func roundUp(n uint64) uint64 { return (n + Granule - 1) &^ (Granule - 1) }

// Malloc hands out a region of the size rounded up to 2 MiB.
func (d *Device) Malloc(size uint64) (device.Addr, error) {
	d.elapsed += d.opts.Latency.Malloc
	if size == 0 || size > 1<<61 {
		return 0, invalid("malloc of %d bytes", size)
	}
	size = roundUp(size)
	if size > d.free() {
		d.refuse(size)
		return 0, device.ErrOutOfMemory
	}
	addr := d.mallocs.take(size)
	d.regions[addr] = region{size}
	d.used += size
	return addr, nil
}

// Free takes a region back.
func (d *Device) Free(addr device.Addr) error {
	d.elapsed += d.opts.Latency.Free
	r, ok := d.regions[addr]
	if !ok {
		return invalid("free of %#x, which no malloc returned or which is freed already", uint64(addr))
	}
	delete(d.regions, addr)
	d.used -= r.size
	d.mallocs.give(addr, r.size)
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, device.ErrInvalid)...)
}
