package external

import (
	"errors"
	"fmt"
	"sort"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// mirror does on the harness's device what a child's device did, so that the harness knows the segments, what is free, and what
// work is done.
type mirror struct {
	regions []mirrored // by the child's address; kept once an address differs
	differs bool
	same    map[device.Addr]uint64 // size by address, as long as no address differs
	handles []device.Handle        // by the child's handle
	events  []device.Event         // by the child's event; valid where known
	known   []bool
}

// mirrored is a region that lies elsewhere on the harness's device.
type mirrored struct {
	child, ours device.Addr
	size        uint64
}

// address translates an address of the child's.
func (m *mirror) address(a device.Addr) device.Addr {
	if !m.differs || a == 0 {
		return a
	}
	i := sort.Search(len(m.regions), func(i int) bool { return m.regions[i].child > a }) - 1
	if i < 0 || uint64(a-m.regions[i].child) >= m.regions[i].size {
		return a // in no region: that is for the properties to say
	}
	return m.regions[i].ours + (a - m.regions[i].child)
}

func (m *mirror) add(child, ours device.Addr, size uint64) {
	if !m.differs && child == ours {
		if m.same == nil {
			m.same = map[device.Addr]uint64{}
		}
		m.same[child] = size
		return
	}
	if !m.differs {
		m.differs = true
		for a, n := range m.same {
			m.regions = append(m.regions, mirrored{a, a, n})
		}
		m.same = nil
		sort.Slice(m.regions, func(i, j int) bool { return m.regions[i].child < m.regions[j].child })
	}
	i := sort.Search(len(m.regions), func(i int) bool { return m.regions[i].child > child })
	m.regions = append(m.regions, mirrored{})
	copy(m.regions[i+1:], m.regions[i:])
	m.regions[i] = mirrored{child, ours, size}
}

func (m *mirror) drop(child device.Addr) {
	if !m.differs {
		delete(m.same, child)
		return
	}
	for i := range m.regions {
		if m.regions[i].child == child {
			m.regions = append(m.regions[:i], m.regions[i+1:]...)
			return
		}
	}
}

// disagree is what the child's device must not do.
func disagree(format string, args ...any) error {
	return environment("the child's device does not follow the rules of the simulated one: "+format, args...)
}

// do repeats the calls. An error that wraps device.ErrInvalid is the allocator's doing: it made a call that it must not make.
func (m *mirror) do(calls []call, dev device.Device) error {
	for i := range calls {
		if err := m.one(&calls[i], dev); err != nil {
			return err
		}
	}
	return nil
}

func (m *mirror) one(c *call, dev device.Device) error {
	switch c.kind {
	case callMalloc:
		a, err := dev.Malloc(c.size)
		if err != nil {
			return refusedHere(err, "malloc of %d bytes succeeded there", c.size)
		}
		m.add(c.addr, a, c.size)
	case callReserve:
		a, err := dev.Reserve(c.size)
		if err != nil {
			return refusedHere(err, "reservation of %d bytes succeeded there", c.size)
		}
		m.add(c.addr, a, c.size)
	case callMallocFail:
		if _, err := dev.Malloc(c.size); err == nil {
			return disagree("malloc of %d bytes was refused there and succeeds here", c.size)
		}
	case callCreateFail:
		if _, err := dev.Create(c.size); err == nil {
			return disagree("create of %d bytes was refused there and succeeds here", c.size)
		}
	case callFree:
		if err := dev.Free(m.address(c.addr)); err != nil {
			return err
		}
		m.drop(c.addr)
	case callUnreserve:
		if err := dev.Unreserve(m.address(c.addr), c.size); err != nil {
			return err
		}
		m.drop(c.addr)
	case callCreate:
		h, err := dev.Create(c.size)
		if err != nil {
			return refusedHere(err, "create of %d bytes succeeded there", c.size)
		}
		m.handles = at(m.handles, c.handle)
		m.handles[c.handle] = h
	case callRelease:
		return dev.Release(m.handle(c.handle))
	case callMap:
		return dev.Map(m.address(c.addr), c.size, m.handle(c.handle))
	case callUnmap:
		return dev.Unmap(m.address(c.addr), c.size)
	case callEvent:
		e, err := dev.Record(device.Stream(c.size))
		if err != nil {
			return err
		}
		m.events, m.known = at(m.events, c.handle), at(m.known, c.handle)
		if m.known[c.handle] {
			if err := dev.Destroy(m.events[c.handle]); err != nil {
				return err
			}
		}
		m.events[c.handle], m.known[c.handle] = e, true
	case callWait:
		if c.handle >= uint64(len(m.events)) || !m.known[c.handle] {
			return disagree("event %d was waited for and never recorded", c.handle)
		}
		return dev.Wait(m.events[c.handle])
	case callSync:
		return dev.Sync(device.Stream(c.size))
	case callSyncAll:
		return dev.SyncAll()
	case callInvalid:
		return fmt.Errorf("%s of %#x, which the device refused: %w", c.text, uint64(c.addr), device.ErrInvalid)
	}
	return nil
}

func refusedHere(err error, format string, args ...any) error {
	if errors.Is(err, device.ErrInvalid) {
		return err
	}
	// Not wrapped: here the refusal is no out-of-memory of the allocator's.
	return fmt.Errorf("%w, and here: %v", disagree(format, args...), err)
}

func (m *mirror) handle(h uint64) device.Handle {
	if h < uint64(len(m.handles)) {
		return m.handles[h]
	}
	return 0
}

// at makes a slice long enough for an index. A child that names absurd ones gets nowhere: what is beyond is dropped.
func at[T any](s []T, i uint64) []T {
	const most = 1 << 24
	for uint64(len(s)) <= min(i, most) {
		var zero T
		s = append(s, zero)
	}
	return s
}
