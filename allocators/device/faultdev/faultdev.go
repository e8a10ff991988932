// Package faultdev wraps a device so that calls fail as a plan says: the third Map, every Create after 40 MiB, memory that
// others take in mid-run. A call that fails has no effect on the device below.
//
// It also keeps count of what was taken from the device and not returned, so that a leak shows even where it costs no bytes.
package faultdev

import (
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Held is what was taken from the device and not given back.
type Held struct {
	Regions, Reservations, Chunks, Mappings, Events int
}

// Device passes calls on to another device, except those that its plan makes fail. It is used by one goroutine at a time.
type Device struct {
	inner  device.Device
	plan   Plan
	paused bool
	count  [calls]uint64 // calls made while not paused, refused ones included
	bytes  [calls]uint64 // bytes handed out by Malloc and Create in all
	hits   []Hit
	held   Held
}

// Hit is a call that the plan made fail.
type Hit struct {
	Rule Rule
	N    uint64 // which call of its kind it was, from 1
}

// New wraps a device.
func New(inner device.Device, plan Plan) *Device { return &Device{inner: inner, plan: plan} }

// Pause lifts all faults until Resume; calls made meanwhile are not counted.
func (d *Device) Pause() { d.paused = true }

// Resume puts the plan in force again.
func (d *Device) Resume() { d.paused = false }

// TakeHits returns the faults since the last call of TakeHits.
func (d *Device) TakeHits() []Hit {
	h := d.hits
	d.hits = nil
	return h
}

// Held counts what is held now.
func (d *Device) Held() Held { return d.held }

// ForeignAt returns how much memory the plan lets others hold from this operation on, if it says so.
func (d *Device) ForeignAt(op int) (bytes uint64, ok bool) {
	for _, r := range d.plan {
		if r.Kind == Foreign && r.Nth == uint64(op) {
			bytes, ok = r.Bytes, true
		}
	}
	return bytes, ok
}

// fault counts a call and returns the error that the plan has for it.
func (d *Device) fault(c Call, size uint64) error {
	if d.paused {
		return nil
	}
	d.count[c]++
	n := d.count[c]
	for _, r := range d.plan {
		hit := r.Kind != Foreign && r.Call == c
		if hit && r.Nth > 0 {
			hit = n >= r.Nth && n-r.Nth < r.Times
		} else if hit {
			hit = size > r.Bytes || d.bytes[c] > r.Bytes-size
		}
		if hit {
			d.hits = append(d.hits, Hit{r, n})
			return r.error(n)
		}
	}
	return nil
}

// Info implements device.Memory.
func (d *Device) Info() (free, total uint64) { return d.inner.Info() }

// Malloc implements device.Memory.
func (d *Device) Malloc(size uint64) (device.Addr, error) {
	if err := d.fault(Malloc, size); err != nil {
		return 0, err
	}
	a, err := d.inner.Malloc(size)
	if err == nil {
		d.bytes[Malloc] += size
		d.held.Regions++
	}
	return a, err
}

// call makes a call that takes or gives back one thing, which n counts.
func (d *Device) call(c Call, n *int, by int, do func() error) error {
	err := d.fault(c, 0)
	if err == nil {
		err = do()
	}
	if err == nil && n != nil {
		*n += by
	}
	return err
}

// Free implements device.Memory.
func (d *Device) Free(addr device.Addr) error {
	return d.call(Free, &d.held.Regions, -1, func() error { return d.inner.Free(addr) })
}

// Granularity implements device.Virtual.
func (d *Device) Granularity() uint64 { return d.inner.Granularity() }

// Reserve implements device.Virtual.
func (d *Device) Reserve(size uint64) (a device.Addr, err error) {
	err = d.call(Reserve, &d.held.Reservations, 1, func() error { a, err = d.inner.Reserve(size); return err })
	return a, err
}

// Unreserve implements device.Virtual.
func (d *Device) Unreserve(addr device.Addr, size uint64) error {
	return d.call(Unreserve, &d.held.Reservations, -1, func() error { return d.inner.Unreserve(addr, size) })
}

// Create implements device.Virtual.
func (d *Device) Create(size uint64) (device.Handle, error) {
	if err := d.fault(Create, size); err != nil {
		return 0, err
	}
	h, err := d.inner.Create(size)
	if err == nil {
		d.bytes[Create] += size
		d.held.Chunks++
	}
	return h, err
}

// Release implements device.Virtual.
func (d *Device) Release(h device.Handle) error {
	return d.call(Release, &d.held.Chunks, -1, func() error { return d.inner.Release(h) })
}

// Map implements device.Virtual.
func (d *Device) Map(addr device.Addr, size uint64, h device.Handle) error {
	return d.call(Map, &d.held.Mappings, 1, func() error { return d.inner.Map(addr, size, h) })
}

// Unmap implements device.Virtual. Held.Mappings takes it for one mapping, as allocators call it.
func (d *Device) Unmap(addr device.Addr, size uint64) error {
	return d.call(Unmap, &d.held.Mappings, -1, func() error { return d.inner.Unmap(addr, size) })
}

// Record implements device.Streams.
func (d *Device) Record(s device.Stream) (e device.Event, err error) {
	err = d.call(Record, &d.held.Events, 1, func() error { e, err = d.inner.Record(s); return err })
	return e, err
}

// Done implements device.Streams.
func (d *Device) Done(e device.Event) (done bool, err error) {
	err = d.call(Done, nil, 0, func() error { done, err = d.inner.Done(e); return err })
	return done, err
}

// Wait implements device.Streams.
func (d *Device) Wait(e device.Event) error {
	return d.call(Wait, nil, 0, func() error { return d.inner.Wait(e) })
}

// Sync implements device.Streams.
func (d *Device) Sync(s device.Stream) error {
	return d.call(Sync, nil, 0, func() error { return d.inner.Sync(s) })
}

// SyncAll implements device.Streams.
func (d *Device) SyncAll() error { return d.call(Sync, nil, 0, d.inner.SyncAll) }

// Destroy implements device.Streams.
func (d *Device) Destroy(e device.Event) error {
	return d.call(Destroy, &d.held.Events, -1, func() error { return d.inner.Destroy(e) })
}
