package conform

import (
	"bytes"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// addressColumn is the column that logs of real devices have behind the others: the address of the block. Allocators break
// ties by address, so the model must see its segments in the recorded order.
const addressColumn = "address"

// bases reads the address of each region, by ordinal, from the rows of a log (without header).
func bases(rows []byte) map[int]device.Addr {
	found := map[int]device.Addr{}
	for row := range bytes.Lines(rows) {
		f := bytes.Split(bytes.TrimSuffix(row, []byte("\n")), []byte("\t"))
		if len(f) != len(executor.Columns)+1 {
			continue
		}
		ordinal, err1 := strconv.Atoi(string(f[3]))
		offset, err2 := strconv.ParseUint(string(f[4]), 10, 64)
		address, err3 := strconv.ParseUint(string(f[len(f)-1]), 10, 64)
		if err1 == nil && err2 == nil && err3 == nil && offset <= address {
			found[ordinal] = device.Addr(address - offset)
		}
	}
	return found
}

// placed is a device that gives its regions the addresses of a log, by the order in which they are made. A region that the log
// does not name, or whose place is taken, lies behind all others.
type placed struct {
	device.Device
	bases   map[int]device.Addr
	made    int
	regions []placedRegion
	behind  device.Addr
}

type placedRegion struct {
	shown, below device.Addr
	size         uint64
}

func newPlaced(d device.Device, bases map[int]device.Addr) *placed {
	p := &placed{Device: d, bases: bases, behind: 1 << 57}
	return p
}

func (p *placed) add(below device.Addr, size uint64) device.Addr {
	shown, named := p.bases[p.made]
	p.made++
	for _, r := range p.regions {
		named = named && (shown+device.Addr(size) <= r.shown || r.shown+device.Addr(r.size) <= shown)
	}
	if !named {
		shown = p.behind
		p.behind += device.Addr(size)
	}
	p.regions = append(p.regions, placedRegion{shown, below, size})
	return shown
}

// find returns the region that holds the address. An address in none is passed on as it is, for the device to refuse.
func (p *placed) find(a device.Addr) (i int, below device.Addr) {
	for i, r := range p.regions {
		if a >= r.shown && a < r.shown+device.Addr(r.size) {
			return i, r.below + (a - r.shown)
		}
	}
	return -1, a
}

func (p *placed) drop(a device.Addr, do func(below device.Addr) error) error {
	i, below := p.find(a)
	err := do(below)
	if err == nil && i >= 0 {
		p.regions = append(p.regions[:i], p.regions[i+1:]...)
	}
	return err
}

// Malloc implements device.Memory.
func (p *placed) Malloc(size uint64) (device.Addr, error) {
	const granule = 2 << 20 // what the device below rounds to
	a, err := p.Device.Malloc(size)
	if err != nil {
		return 0, err
	}
	return p.add(a, (size+granule-1)/granule*granule), nil
}

// Free implements device.Memory.
func (p *placed) Free(a device.Addr) error { return p.drop(a, p.Device.Free) }

// Reserve implements device.Virtual.
func (p *placed) Reserve(size uint64) (device.Addr, error) {
	a, err := p.Device.Reserve(size)
	if err != nil {
		return 0, err
	}
	return p.add(a, size), nil
}

// Unreserve implements device.Virtual.
func (p *placed) Unreserve(a device.Addr, size uint64) error {
	return p.drop(a, func(below device.Addr) error { return p.Device.Unreserve(below, size) })
}

// Map implements device.Virtual.
func (p *placed) Map(a device.Addr, size uint64, h device.Handle) error {
	_, below := p.find(a)
	return p.Device.Map(below, size, h)
}

// Unmap implements device.Virtual.
func (p *placed) Unmap(a device.Addr, size uint64) error {
	_, below := p.find(a)
	return p.Device.Unmap(below, size)
}
