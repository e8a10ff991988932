package executor

import (
	"errors"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// slot is what the program knows of an id.
type slot struct {
	block  allocators.Block
	status slotStatus
}

type slotStatus uint8

const (
	slotEmpty slotStatus = iota
	slotLive
	slotZero    // a zero-byte allocation: no block
	slotRefused // the alloc was an OOM
)

// perform calls the allocator. A refusal is an outcome; any other error is returned.
func (r *Run) perform(s *step) error {
	r.outcome, r.block = OK, allocators.Block{}
	switch s.kind {
	case trace.Segment, trace.Block:
		return r.performStart(s)
	case trace.Alloc:
		sl := &r.slots[s.slot]
		b, err := r.alloc.Alloc(s.bytes, s.stream)
		if err != nil {
			sl.status = slotRefused
			return r.refused(err)
		}
		if b.Size == 0 {
			b.Size = s.bytes
			r.state.Unsized = r.state.Unsized || s.bytes > 0
		}
		*sl = slot{block: b, status: slotLive}
		if s.bytes == 0 {
			sl.status = slotZero
		}
		r.block = b
	case trace.Free:
		sl := &r.slots[s.slot]
		status := sl.status
		sl.status = slotEmpty
		if status == slotLive {
			r.block = sl.block
			return r.alloc.Free(sl.block.Addr)
		}
		r.outcome = notLive(status)
	case trace.Record, trace.Use:
		sl := &r.slots[s.slot]
		if sl.status != slotLive {
			r.outcome = notLive(sl.status)
			return nil
		}
		r.block = sl.block
		switch {
		case r.recordUse == nil: // who cannot be told of streams is not asked to mind the work on them
		case s.kind == trace.Record:
			return r.recordUse.Record(sl.block.Addr, s.stream)
		case r.checked && r.heap.At(s.slot) != nil:
			return harness(r.heap.Use(s.slot, s.stream))
		}
	case trace.Sync:
		sync := func() error { return r.opts.Device.Sync(s.stream) }
		if s.stream == trace.AllStreams {
			sync = r.opts.Device.SyncAll
		}
		if err := sync(); err != nil {
			return harness(err)
		}
		return r.synced(s.stream)
	case trace.EmptyCache:
		if r.prog.Trace.Ops[r.next].Pool != 0 {
			return r.performPool(s)
		}
		if r.emptier != nil {
			return r.unsupported(r.emptier.EmptyCache())
		}
	case trace.PoolBegin, trace.PoolEnd, trace.PoolRelease:
		return r.performPool(s)
	case trace.Conf:
		if c, ok := r.alloc.(allocators.Configurer); ok {
			return r.configured(c.Configure(r.prog.Trace.Ops[r.next].Conf))
		}
		r.outcome = Skip
	case trace.Fraction:
		if f, ok := r.alloc.(allocators.FractionSetter); ok {
			return r.configured(f.SetFraction(r.prog.Trace.Ops[r.next].Fraction))
		}
		r.outcome = Skip
	case trace.Foreign:
		d, ok := r.opts.Device.(device.Foreigner)
		if !ok || d.SetForeign(s.bytes) != nil {
			r.outcome = Skip // others cannot get what the device has not
			r.foreignRefused = true
			return nil
		}
		r.foreign = s.bytes
		if r.remote.follower != nil {
			return r.remote.follower.FollowForeign(s.bytes)
		}
	}
	return nil
}

// notLive is the outcome of an operation on an id without a block: a zero-byte allocation is fine, a refused one is not.
func notLive(s slotStatus) Outcome {
	if s == slotZero {
		return OK
	}
	return Skip
}

// configured takes note of settings that have changed.
func (r *Run) configured(err error) error {
	r.readPromise()
	return harness(err)
}

// refused makes an outcome of a refusal; any other error is returned.
func (r *Run) refused(err error) error {
	r.oom = nil
	if !errors.As(err, &r.oom) && !errors.Is(err, device.ErrOutOfMemory) {
		r.outcome = Failed
		return err
	}
	r.outcome = OOM
	return nil
}
