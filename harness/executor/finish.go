package executor

import (
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Finish ends the run: the result is taken, then everything is freed, the cache emptied, and what must then hold checked.
func (r *Run) Finish() (*Result, error) {
	r.result.Ops = r.next
	r.result.Segments = len(r.ledger.regions)
	defer r.Leave()
	r.readStats()
	if r.stats != nil {
		r.result.Stats, r.result.HasStats = *r.stats, true
	}
	r.result.DeviceFree, _ = r.opts.Device.Info()
	if r.faults != nil {
		r.faults.dev.Pause()
	}
	if r.stamps != nil {
		if !r.stopped {
			if err := r.checkAllStamps(); err != nil {
				return nil, err
			}
		}
		r.result.Verified = r.stamps.compared
	}
	if len(r.opts.Properties) > 0 && !r.stopped {
		if err := r.guard(r.freeAll); err != nil {
			return nil, err
		}
	}
	return &r.result, nil
}

// freeAll frees every live block, waits for all work and empties the cache, under the same checks.
func (r *Run) freeAll() error {
	if r.next > 0 {
		// What is wrong now may be gone once everything is freed.
		if r.walk(); r.stopped {
			return nil
		}
	}
	r.state.Operation = &trace.Op{Kind: trace.EmptyCache}
	r.recorder.Reset()
	if err := r.closePools(); err != nil {
		return r.endFault(err)
	}
	for i := range r.slots {
		sl := &r.slots[i]
		if sl.status != slotLive {
			continue
		}
		if err := r.heap.Free(int32(i)); err != nil {
			return r.endFault(err)
		}
		sl.status = slotEmpty
		if err := r.alloc.Free(sl.block.Addr); r.died(err) {
			return nil
		} else if err != nil {
			r.find("everything-returned", "free-failed", err.Error())
			return nil
		}
	}
	if err := r.syncAll(); err != nil {
		return r.endFault(err)
	}
	r.outcome, r.block = OK, allocators.Block{}
	r.heap.Resume()
	if err := r.heap.Marked(); err != nil {
		return r.endFault(err)
	}
	if r.emptier != nil {
		if err := r.emptier.EmptyCache(); r.died(err) {
			return nil
		} else if err != nil {
			r.find("everything-returned", "empty-cache-failed", err.Error())
			return nil
		}
	}
	r.heap.Waited(true)
	st := &r.state
	st.Op, st.Outcome, st.Calls, st.PendingDone = r.next, OK, r.recorder.Calls, true
	r.apply(r.recorder.Calls, 0, false, 0)
	if r.heap.Hazards() > 0 {
		r.watchWork()
	}
	st.DeviceFree, _ = r.opts.Device.Info()
	st.Ranges = r.ledger.ranges()
	r.walk()
	for i := range r.opts.Properties {
		if p := &r.opts.Properties[i]; p.End != nil && !r.stopped {
			if v := p.End(st); v != nil {
				r.find(p.ID, v.Rule, v.Detail)
			}
		}
	}
	r.checkLeak()
	if r.faults != nil && !r.stopped {
		r.faults.checkHeld(r)
	}
	return nil
}

func (r *Run) endFault(err error) error {
	return fmt.Errorf("%w: %s: freeing everything on %s: %w", ErrHarness, r.prog.Trace.Name, r.target.Name, err)
}

// View builds and returns the state as the harness knows it; only a checked run has one.
func (r *Run) View() *View {
	r.view.build(&r.ledger, r.heap)
	return &r.view
}

// NextCapacity is the smallest capacity at which the run so far would have gone otherwise, the largest uint64 if none.
// exact is false if neither the allocator nor the device tells.
func (r *Run) NextCapacity() (capacity uint64, exact bool) {
	dev, hasDevice := r.opts.Device.(device.CapacitySensor)
	if s, ok := r.alloc.(allocators.CapacitySensor); ok && (hasDevice || !r.foreignRefused) {
		capacity = s.NextCapacity()
		if r.foreignRefused {
			capacity = min(capacity, dev.NextCapacity())
		}
		return capacity, true
	}
	if hasDevice {
		return dev.NextCapacity(), true
	}
	return math.MaxUint64, false
}

// Rewind frees everything, empties the cache and makes the run ready before its first operation again, on the warm
// allocator. What the run has come to so far is forgotten.
func (r *Run) Rewind() error {
	if r.checked {
		r.recorder.Reset()
	}
	if err := r.closePools(); err != nil {
		return r.endFault(err)
	}
	clear(r.pools.uses)
	clear(r.pools.gone)
	for i := range r.slots {
		sl := &r.slots[i]
		if sl.status == slotLive {
			if r.checked {
				if err := r.heap.Free(int32(i)); err != nil {
					return r.endFault(err)
				}
			}
			if err := r.alloc.Free(sl.block.Addr); err != nil {
				return r.endFault(err)
			}
		}
		*sl = slot{}
	}
	if err := r.syncAll(); err != nil {
		return r.endFault(err)
	}
	if r.checked {
		r.heap.Resume()
		if err := r.heap.Marked(); err != nil {
			return r.endFault(err)
		}
	}
	if r.emptier != nil {
		if err := r.emptier.EmptyCache(); err != nil {
			return r.endFault(err)
		}
	}
	if r.checked {
		r.heap.Waited(true)
		r.apply(r.recorder.Calls, 0, false, 0)
	}
	ooms, judgements := r.result.OOMs[:0], r.result.Judgements[:0]
	r.result = Result{Target: r.target.Name, OOMs: ooms, Judgements: judgements}
	r.next, r.stopped = 0, false
	return r.prepareStart()
}
