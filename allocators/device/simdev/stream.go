package simdev

import "github.com/shatter-gpu/shatter/allocators/device"

// clock is a stream's queue of work in virtual time: how many events were recorded and up to which all is done.
type clock struct {
	recorded, done uint64
}

// An event carries the index of its stream's clock above seqBits and its number in the stream below.
const seqBits = 40

func (d *Device) clockOf(s device.Stream) int {
	if d.lastClock >= 0 && d.lastName == s {
		return d.lastClock
	}
	i, ok := d.streams[s]
	if !ok {
		i = len(d.clocks)
		d.clocks = append(d.clocks, clock{})
		d.streams[s] = i
	}
	d.lastName, d.lastClock = s, i
	return i
}

// Record puts an event behind the stream's work.
func (d *Device) Record(s device.Stream) (device.Event, error) {
	i := d.clockOf(s)
	d.clocks[i].recorded++
	return device.Event(uint64(i)<<seqBits | d.clocks[i].recorded), nil
}

func (d *Device) event(e device.Event) (c *clock, seq uint64) {
	i := uint64(e) >> seqBits
	seq = uint64(e) & (1<<seqBits - 1)
	if i >= uint64(len(d.clocks)) || seq == 0 || seq > d.clocks[i].recorded {
		return nil, 0
	}
	return &d.clocks[i], seq
}

// Done tells whether the event's work has completed.
func (d *Device) Done(e device.Event) (bool, error) {
	c, seq := d.event(e)
	if c == nil {
		return false, invalid("query of event %#x, which was never recorded", uint64(e))
	}
	return seq <= c.done, nil
}

// Wait completes the stream's work up to the event.
func (d *Device) Wait(e device.Event) error {
	d.elapsed += d.opts.Latency.Sync
	c, seq := d.event(e)
	if c == nil {
		return invalid("wait for event %#x, which was never recorded", uint64(e))
	}
	c.done = max(c.done, seq)
	return nil
}

// Sync completes the stream's work.
func (d *Device) Sync(s device.Stream) error {
	d.elapsed += d.opts.Latency.Sync
	c := &d.clocks[d.clockOf(s)]
	c.done = c.recorded
	return nil
}

// SyncAll completes all work.
func (d *Device) SyncAll() error {
	d.elapsed += d.opts.Latency.Sync
	for i := range d.clocks {
		d.clocks[i].done = d.clocks[i].recorded
	}
	return nil
}

// Destroy gives an event back; the simulated device keeps none.
func (d *Device) Destroy(device.Event) error { return nil }
