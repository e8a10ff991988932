package executor

import (
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// before prepares the shadow for an operation.
func (r *Run) before(s *step) error {
	if len(r.recorder.Calls) > 0 {
		r.recorder.Reset()
	}
	if r.heap.Deferred() > 0 {
		r.resume(s)
	}
	switch s.kind {
	case trace.Alloc:
		// The allocator looks at finished events now, and so do we.
		if r.heap.Pending.Count > 0 && s.bytes > 0 && !r.state.Held {
			r.heap.Poll()
		}
		r.state.Pool = r.poolOf(s.stream)
	case trace.Free:
		if r.slots[s.slot].status == slotLive && r.heap.At(s.slot) != nil { // nil if it overlapped another one
			if err := r.heap.Free(s.slot); err != nil {
				return r.at(err)
			}
		}
	}
	if r.stats != nil {
		r.state.ReservedBefore = r.stats.ReservedBytes.All.Current
	}
	r.enter(s)
	return nil
}

// after updates the shadow and checks.
func (r *Run) after(s *step, failure error) error {
	st := &r.state
	st.Op, st.Operation, st.Outcome, st.Block = r.next, &r.prog.Trace.Ops[r.next], r.outcome, r.block
	st.Entry, st.Overlapped, st.Region, st.PendingDone = nil, nil, nil, false
	st.Queued, st.Unmapped, st.Robbed = nil, nil, nil
	if s.kind != trace.Alloc {
		st.Pool = 0
	}
	r.changed = false
	if err := r.heap.Marked(); err != nil {
		return r.at(harness(err))
	}
	st.Calls = r.recorder.Calls
	st.Foreign = r.foreign
	if r.outcome == OOM {
		st.OOMs++
		if st.Held || s.kind == trace.Segment {
			st.UnretriedOOMs++
		}
		if r.opts.Judge != nil && st.Entered == nil {
			r.entered.build(&r.ledger, r.heap)
			st.Entered = &r.entered
		}
	}
	if (s.kind == trace.Conf || s.kind == trace.Fraction) && r.outcome == OK {
		st.Reconfigured = true
	}
	if len(st.Calls) > 0 {
		r.applyCalls(s)
		if r.heap.Hazards() > 0 {
			r.watchWork()
		}
	}
	r.afterPools(s)
	if (s.kind == trace.EmptyCache && st.Operation.Pool == 0 || r.outcome == OOM) && !st.Held {
		st.PendingDone = r.promiser != nil
	}
	st.DeviceFree, _ = r.opts.Device.Info()
	switch {
	case failure != nil:
		r.find("device-conservation", "refused-call", failed(s.kind, failure))
		return nil
	case (s.kind == trace.Alloc || s.kind == trace.Block) && r.outcome == OK && s.bytes > 0:
		st.Region = r.ledger.find(r.block.Addr)
		st.Covered = st.Region != nil && st.Region.covers(r.block.Addr, r.block.Size)
		st.Overlapped = r.heap.Alloc(s.slot, r.block.Addr, r.block.Size, s.bytes, s.stream, r.next)
		st.Entry = r.heap.At(s.slot)
		if st.Entry != nil {
			if st.Entry.Pool = st.Pool; s.kind == trace.Block && st.Region != nil {
				st.Entry.Pool = st.Region.Pool
			}
		}
		if r.heap.Hazards() > 0 {
			st.Queued = r.heap.Disturbed(r.block.Addr, r.block.Size, s.stream)
		}
	case s.kind == trace.Record && r.slots[s.slot].status == slotLive && r.recordUse != nil:
		r.heap.Record(s.slot, s.stream)
	}
	if r.opts.OnRow != nil {
		r.row.set(r, s)
		r.opts.OnRow(&r.row)
	}
	if len(r.hooks) > 0 {
		st.Touched = nil
		moves := s.kind <= trace.Free || s.kind == trace.EmptyCache || s.kind.Starts()
		if r.toucher != nil && moves && r.outcome != Skip && r.outcome != Unsupported {
			r.touched = r.toucher.Touched(r.touched[:0])
			st.Touched = r.touched
		}
		for i := range r.hooks {
			v := r.hooks[i].Op(st)
			if v == nil {
				continue
			}
			if r.broken(&r.hooks[i], v); r.stopped {
				return nil
			}
		}
	}
	switch {
	case r.outcome != OOM:
	case s.kind == trace.Segment: // no request, so that there is nothing to judge
		r.view.build(&r.ledger, r.heap)
		st.View = &r.view
	default:
		r.judge()
	}
	if r.outcome == OOM || s.kind == trace.EmptyCache || (r.next+1)%WalkEvery == 0 || r.faults != nil && r.faults.walk {
		r.walk()
	}
	return nil
}

// failed says what an error of the allocator means.
func failed(kind trace.Kind, err error) string {
	if kind == trace.Alloc {
		return fmt.Sprintf("the allocation failed with an error that is no refusal (one is an *allocators.OOMError or wraps "+
			"device.ErrOutOfMemory): %v", err)
	}
	return fmt.Sprintf("a right call failed: %v", err)
}

// applyCalls enters the device calls of an operation in the ledger, and learns from waits what work is done.
func (r *Run) applyCalls(s *step) {
	small := false
	if r.state.Promise.Round != nil && s.kind == trace.Alloc {
		small = r.state.Promise.Round(max(s.bytes, 1)) <= smallPool
	}
	pool := r.state.Pool
	if s.kind == trace.Segment {
		small, pool = r.prog.Trace.Ops[r.next].Small, r.prog.Trace.Ops[r.next].Pool
	}
	calls := r.recorder.Calls
	r.apply(calls, s.stream, small, pool)
	waited, events := false, false
	for i := range calls {
		r.result.DeviceCalls[calls[i].Kind]++
		switch calls[i].Kind {
		case device.CallWait:
			waited = true
			if calls[i].Size == device.WaitedEvent {
				events = true
			} else {
				r.heap.Synced(device.Stream(calls[i].Addr), calls[i].Size == device.WaitedDevice)
			}
		case device.CallMallocFail, device.CallCreate, device.CallCreateFail, device.CallRelease:
		default:
			r.changed = true
		}
	}
	if waited && r.heap.Pending.Count > 0 && !r.state.Held {
		if p := r.prog.Trace.Ops[r.next].Pool; p != 0 && s.kind == trace.EmptyCache {
			r.heap.WaitedFor(p, events)
		} else {
			r.heap.Waited(events)
		}
		r.changed = true
	}
}

// apply enters device calls in the ledger.
func (r *Run) apply(calls []device.Call, stream device.Stream, small bool, pool allocators.PoolID) {
	r.ledger.apply(calls, stream, small, pool)
	r.state.Reserves = r.state.Reserves || slices.ContainsFunc(calls, func(c device.Call) bool { return c.Kind == device.CallReserve })
	r.state.Bought, r.state.Returned = r.ledger.bought, r.ledger.returned
}

// smallPool is the largest rounded size of the small pool, in bytes (specification, section 2).
const smallPool = 1 << 20
