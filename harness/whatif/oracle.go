package whatif

import (
	"sort"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// purchase is memory that the recording bought.
type purchase struct {
	addr device.Addr
	size uint64
}

// oracle is a device whose addresses are the recorded ones.
type oracle struct {
	device.Device
	queue []purchase // what the operation under way bought in the recording
	later []Decision // recorded behind the operation under way
	held  []holding  // by address
	spare device.Addr
}

// holding is a segment or an address range, at the address that the allocator knows and the one that the device below gave.
type holding struct {
	addr, inner device.Addr
	size        uint64
}

// spareBase is where segments lie that the recording did not buy: behind all addresses of a process.
const spareBase = device.Addr(1 << 60)

// insert enters what the device gave at an address, or at a spare one if something of it is taken: recordings can be wrong.
func (o *oracle) insert(a, inner device.Addr, size uint64) device.Addr {
	i := o.behind(a)
	if a == 0 || a+device.Addr(size) < a || i < len(o.held) && o.held[i].addr < a+device.Addr(size) ||
		i > 0 && o.held[i-1].addr+device.Addr(o.held[i-1].size) > a {
		a = o.spare
		o.spare += device.Addr((size + 1<<21) >> 21 << 21)
		i = o.behind(a)
	}
	o.held = append(o.held, holding{})
	copy(o.held[i+1:], o.held[i:])
	o.held[i] = holding{a, inner, size}
	return a
}

// behind returns the index of the first holding that begins behind an address.
func (o *oracle) behind(a device.Addr) int {
	return sort.Search(len(o.held), func(i int) bool { return o.held[i].addr > a })
}

// find returns the index of the holding that has an address, -1 if none does.
func (o *oracle) find(a device.Addr) int {
	i := o.behind(a) - 1
	if i >= 0 && uint64(a-o.held[i].addr) < o.held[i].size {
		return i
	}
	return -1
}

// inner is the address at the device below.
func (o *oracle) inner(a device.Addr) device.Addr {
	if i := o.find(a); i >= 0 {
		return o.held[i].inner + a - o.held[i].addr
	}
	return a
}

func (o *oracle) drop(i int) {
	if i >= 0 {
		o.held = append(o.held[:i], o.held[i+1:]...)
	}
}

// Malloc gives the recorded address of a purchase of this size.
func (o *oracle) Malloc(size uint64) (device.Addr, error) {
	inner, err := o.Device.Malloc(size)
	if err != nil {
		return 0, err
	}
	var a device.Addr
	for i, p := range o.queue {
		if p.size == size {
			a = p.addr
			o.queue = append(o.queue[:i], o.queue[i+1:]...)
			break
		}
	}
	return o.insert(a, inner, (size+1<<21-1)>>21<<21), nil
}

// Free returns a segment.
func (o *oracle) Free(a device.Addr) error {
	i := o.find(a)
	if err := o.Device.Free(o.inner(a)); err != nil {
		return err
	}
	o.drop(i)
	return nil
}

// Reserve places a new address range where the recording mapped its first page.
func (o *oracle) Reserve(size uint64) (device.Addr, error) {
	inner, err := o.Device.Reserve(size)
	if err != nil {
		return 0, err
	}
	var a device.Addr
	for _, p := range o.queue {
		if o.find(p.addr) < 0 {
			a = p.addr
			break
		}
	}
	// A range that was reserved for a request that was refused is used later.
	for i := 0; a == 0 && i < len(o.later); i++ {
		if d := &o.later[i]; d.Kind == Mapped && o.find(d.Addr) < 0 {
			a = d.Addr
		}
	}
	return o.insert(a, inner, size), nil
}

// Unreserve gives a range back.
func (o *oracle) Unreserve(a device.Addr, size uint64) error {
	i := o.find(a)
	if err := o.Device.Unreserve(o.inner(a), size); err != nil {
		return err
	}
	o.drop(i)
	return nil
}

// Map maps a chunk.
func (o *oracle) Map(a device.Addr, size uint64, h device.Handle) error {
	return o.Device.Map(o.inner(a), size, h)
}

// Unmap unmaps.
func (o *oracle) Unmap(a device.Addr, size uint64) error { return o.Device.Unmap(o.inner(a), size) }
