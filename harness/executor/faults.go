package executor

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// FaultRecovery is the property that a run with injected faults checks: after a device call failed the allocator is
// consistent, nothing has leaked, and the same request succeeds once the fault is gone (the class of
// https://github.com/pytorch/pytorch/issues/188008).
const FaultRecovery = "fault-recovery"

// faults drives a run whose device fails by a plan. The allocator alone sees the faults: the harness calls the device below.
type faults struct {
	dev     *faultdev.Device
	foreign bool // the plan, not the trace, made others hold memory
	before  allocators.Snapshot
	after   allocators.Snapshot
	walk    bool // an operation was repeated: check everything behind it
}

// prepare is called before an operation.
func (f *faults) prepare(r *Run, s *step) {
	f.walk = false
	if bytes, ok := f.dev.ForeignAt(r.next); ok {
		if d, ok := r.opts.Device.(device.Foreigner); ok && d.SetForeign(bytes) == nil {
			r.foreign, f.foreign = bytes, bytes > 0
		}
	}
	if s.kind == trace.Free && r.snap != nil {
		r.snap.Snapshot(&f.before)
	}
}

// repeat is called when an operation failed or was refused. If a fault is to blame it checks what the operation left
// behind and makes it again without faults; what that came to is the operation's outcome.
func (f *faults) repeat(r *Run, s *step, failure error) error {
	hits := f.dev.TakeHits()
	scarce := r.outcome == OOM && f.foreign
	if failure == nil && r.outcome == OK || len(hits) == 0 && !scarce || errors.Is(failure, ErrHarness) {
		return failure
	}
	r.result.Faults += len(hits)
	if r.outcome == OOM && r.state.Held {
		r.state.UnretriedOOMs++ // the allocator counts the failed attempt too
	}
	if scarce {
		if err := r.opts.Device.(device.Foreigner).SetForeign(0); err != nil {
			return harness(err)
		}
		r.foreign, f.foreign = 0, false
	}
	if r.outcome == OOM && r.state.Held {
		r.state.UnretriedOOMs++ // the allocator counts this attempt too
	}
	f.checkLeft(r, s, hits)
	if r.stopped {
		return nil
	}
	r.state.Entered = nil // what the failed attempt found is not what the repetition finds
	f.dev.Pause()
	defer f.dev.Resume()
	if s.kind == trace.Free {
		r.slots[s.slot].status = slotLive // it was not freed
	}
	f.walk = true
	err := r.perform(s)
	if err != nil && !errors.Is(err, ErrHarness) {
		r.find(FaultRecovery, "retry-failed", fmt.Sprintf("%s; repeated without the fault: %v", describe(hits, failure), err))
		return nil
	}
	return err
}

// describe says what was injected and what the allocator made of it.
func describe(hits []faultdev.Hit, failure error) string {
	text := "memory was short"
	if len(hits) > 0 {
		text = fmt.Sprintf("%s call %d failed as planned (%s)", hits[0].Rule.Call, hits[0].N, hits[0].Rule)
	}
	if failure != nil {
		text += fmt.Sprintf(", the operation said %q", failure)
	}
	return text
}

// checkLeft checks the state that a failed operation left.
func (f *faults) checkLeft(r *Run, s *step, hits []faultdev.Hit) {
	r.state.Op, r.state.Operation, r.state.Outcome, r.state.PendingDone = r.next, &r.prog.Trace.Ops[r.next], Failed, false
	r.state.Foreign = r.foreign
	if err := r.heap.Marked(); err != nil {
		r.find(FaultRecovery, "marks", err.Error())
		return
	}
	r.applyCalls(s)
	r.recorder.Reset()
	if s.kind == trace.Free {
		f.checkUnchanged(r)
		return
	}
	for _, h := range hits {
		// A chunk that could not be released is held by nobody's mapping, and where an event call failed the allocator has not
		// looked at all finished events: what is pending to it may be free to us. Both are settled by the repetition.
		if h.Rule.Call == faultdev.Release || h.Rule.Call >= faultdev.Record {
			return
		}
	}
	r.state.DeviceFree, _ = r.opts.Device.Info()
	outcome := r.outcome
	r.outcome = Failed
	r.walk()
	r.outcome = outcome
}

// checkUnchanged holds a failed free to having freed nothing.
func (f *faults) checkUnchanged(r *Run) {
	if r.snap == nil {
		return
	}
	r.snap.Snapshot(&f.after)
	if len(f.before.Blocks) != len(f.after.Blocks) {
		r.find(FaultRecovery, "half-freed", fmt.Sprintf("a free that failed left %d blocks of %d", len(f.after.Blocks), len(f.before.Blocks)))
		return
	}
	for i := range f.before.Blocks {
		if b, a := &f.before.Blocks[i], &f.after.Blocks[i]; *a != *b {
			r.find(FaultRecovery, "half-freed", fmt.Sprintf("a free that failed made the %s block of %d bytes at %#x a %s one of %d bytes",
				b.State, b.Size, uint64(b.Addr), a.State, a.Size))
			return
		}
	}
}

// checkHeld is called once everything is freed and the cache emptied.
func (f *faults) checkHeld(r *Run) {
	h := f.dev.Held()
	if h.Regions+h.Chunks+h.Mappings+h.Events == 0 {
		return // address space that is kept for later costs no memory
	}
	r.find(FaultRecovery, "leak", fmt.Sprintf("everything is freed and the cache emptied; still held are %d regions, %d chunks, "+
		"%d mappings, %d events", h.Regions, h.Chunks, h.Mappings, h.Events))
}
