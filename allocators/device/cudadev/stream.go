//go:build cuda

package cudadev

import (
	"errors"
	"fmt"

	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// A stream's work is a queue of waits for its word, a number in device memory: the nth event lies behind a wait for the word
// to reach n. The host lets work go by writing the word. Which events are done is decided by the queues of the simulated
// device, so that decisions are the same on both; the real queue is never behind what they say.
type stream struct {
	real     cu.Stream
	word     cu.DevicePtr
	recorded uint32
	let      uint32 // the value of the word
}

// event is an event on a real stream, with its twin on the simulated one.
type event struct {
	real   cu.Event
	stream *stream
	seq    uint32
}

const (
	wordBlock = 4096 // bytes of words that are allocated at a time; a word has 4
	waitGEQ   = 0    // CU_STREAM_WAIT_VALUE_GEQ: signed difference, so the count may wrap
)

// tryHold finds out whether a stream can be held: a wait for a word that has its value already must pass.
func (d *Device) tryHold() error {
	s, err := d.newStream()
	if err != nil {
		return err
	}
	if err := s.real.WaitOnValue32(s.word, 0, waitGEQ); err != nil {
		return errors.Join(translate("cuStreamWaitValue32", err), s.real.Destroy())
	}
	return errors.Join(translate("waiting for a held stream", s.real.Synchronize()), s.real.Destroy())
}

// Holds tells whether events can be kept outstanding, which traces with `record` need.
func (d *Device) Holds() bool { return d.holds }

func (d *Device) newStream() (*stream, error) {
	if d.nextWord%wordBlock == 0 {
		p, err := cu.MemAlloc(wordBlock)
		if err != nil {
			return nil, translate("memory for the words of streams", err)
		}
		d.words = append(d.words, p)
		d.nextWord = 0
	}
	s := &stream{word: d.words[len(d.words)-1] + cu.DevicePtr(d.nextWord)}
	d.nextWord += 4
	if err := cu.MemsetD32(s.word, 0, 1); err != nil {
		return nil, translate("clearing the word of a stream", err)
	}
	// A memset on the null stream is not waited for by a stream that does not synchronise with it.
	if err := cu.Synchronize(); err != nil {
		return nil, translate("cuCtxSynchronize", err)
	}
	var err error
	s.real, err = cu.MakeStream(cu.NonBlocking)
	return s, translate("cuStreamCreate", err)
}

// streamOf returns the real stream of a number.
func (d *Device) streamOf(n device.Stream) (*stream, error) {
	if s := d.streams[n]; s != nil {
		return s, nil
	}
	// New streams are made while nothing is held, since that waits for the device.
	if err := d.letGoAll(); err != nil {
		return nil, err
	}
	s, err := d.newStream()
	if err == nil {
		d.streams[n] = s
	}
	return s, err
}

// letGo lets the stream's work go up to an event.
func (s *stream) letGo(seq uint32) error {
	if int32(seq-s.let) <= 0 {
		return nil
	}
	s.let = seq
	return translate("letting a stream go", cu.MemsetD32(s.word, seq, 1))
}

// letGoAll lets all work go and waits for it.
func (d *Device) letGoAll() error {
	for _, s := range d.streams {
		if s.let == s.recorded {
			continue
		}
		if err := s.letGo(s.recorded); err != nil {
			return err
		}
		if err := s.real.Synchronize(); err != nil {
			return translate("cuStreamSynchronize", err)
		}
	}
	return nil
}

// Record puts an event behind the stream's work, and holds the stream before it.
func (d *Device) Record(n device.Stream) (device.Event, error) {
	if !d.holds {
		return 0, fmt.Errorf("GPU %d has no stream memory operations, so no work can be kept outstanding; run traces without record: %w",
			d.ordinal, device.ErrEnvironment)
	}
	defer d.bind()()
	s, err := d.streamOf(n)
	if err != nil {
		return 0, err
	}
	e := &event{stream: s, seq: s.recorded + 1}
	if e.real, err = cu.MakeEvent(cu.DisableTiming); err != nil {
		return 0, translate("cuEventCreate", err)
	}
	if err = s.real.WaitOnValue32(s.word, e.seq, waitGEQ); err == nil {
		s.recorded++
		err = e.real.Record(s.real)
	}
	if err != nil {
		return 0, errors.Join(translate("recording an event", err), cu.DestroyEvent(&e.real))
	}
	virtual, err := d.virtual.Record(n)
	if err == nil {
		d.events[virtual] = e
	}
	return virtual, err
}

// find returns the real event.
func (d *Device) find(v device.Event) (*event, error) {
	if e := d.events[v]; e != nil {
		return e, nil
	}
	return nil, invalid("use of event %#x, which was never recorded or is destroyed", uint64(v))
}

// Done tells whether the event's work has completed. Work that was let go before its time does not count.
func (d *Device) Done(v device.Event) (bool, error) {
	e, err := d.find(v)
	if err != nil {
		return false, err
	}
	done, err := d.virtual.Done(v)
	if err != nil || !done {
		return false, err
	}
	defer d.bind()()
	if err := e.real.Query(); err != nil {
		return false, translate("cuEventQuery of an event that was waited for", err)
	}
	return true, nil
}

// Wait completes the stream's work up to the event.
func (d *Device) Wait(v device.Event) error {
	e, err := d.find(v)
	if err != nil {
		return err
	}
	defer d.bind()()
	if err := e.stream.letGo(e.seq); err != nil {
		return err
	}
	if err := e.real.Synchronize(); err != nil {
		return translate("cuEventSynchronize", err)
	}
	return d.virtual.Wait(v)
}

// Sync completes the stream's work.
func (d *Device) Sync(n device.Stream) error {
	if s := d.streams[n]; s != nil {
		defer d.bind()()
		if err := s.letGo(s.recorded); err != nil {
			return err
		}
		if err := s.real.Synchronize(); err != nil {
			return translate("cuStreamSynchronize", err)
		}
	}
	return d.virtual.Sync(n)
}

// SyncAll completes all work.
func (d *Device) SyncAll() error {
	defer d.bind()()
	if err := d.letGoAll(); err != nil {
		return err
	}
	if err := cu.Synchronize(); err != nil {
		return translate("cuCtxSynchronize", err)
	}
	return d.virtual.SyncAll()
}

// Destroy gives an event back. If work before it is held, it is let go, but does not count as done.
func (d *Device) Destroy(v device.Event) error {
	e, err := d.find(v)
	if err != nil {
		return err
	}
	defer d.bind()()
	if err := e.stream.letGo(e.seq); err != nil {
		return err
	}
	if err := e.real.Synchronize(); err != nil {
		return translate("cuEventSynchronize", err)
	}
	if err := cu.DestroyEvent(&e.real); err != nil {
		return translate("cuEventDestroy", err)
	}
	delete(d.events, v)
	return nil
}

// closeStreams lets everything go and gives streams, events and words back.
func (d *Device) closeStreams() error {
	errs := []error{d.letGoAll()}
	for _, e := range d.events {
		errs = append(errs, translate("cuEventDestroy", cu.DestroyEvent(&e.real)))
	}
	for _, s := range d.streams {
		errs = append(errs, translate("cuStreamDestroy", s.real.Destroy()))
	}
	for _, p := range d.words {
		errs = append(errs, translate("cuMemFree", cu.MemFree(p)))
	}
	return errors.Join(errs...)
}
