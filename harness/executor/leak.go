package executor

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// slack is what an allocator that declares nothing may keep to itself, 20 MiB (contracts section 3).
const slack = 20 << 20

// leakPasses is how often the trace is run again in search of a leak.
const leakPasses = 3

// checkLeak looks for memory that never comes back, in an allocator elsewhere that has no way to give its cache back: what it
// holds once everything is freed may be cache. It is no leak if a request for nearly the whole device is served, since then the
// cache was given up for it; it is one if the same trace, run again and again, takes more from the device every time.
func (r *Run) checkLeak() {
	if r.remote.follower == nil || r.emptier != nil || r.promiser != nil || r.stopped {
		return
	}
	held := r.held()
	if held == 0 || r.capacity-r.foreign <= slack {
		return
	}
	if b, err := r.alloc.Alloc(r.capacity-r.foreign-slack, 0); err == nil {
		if err := r.alloc.Free(b.Addr); err != nil && !r.died(err) {
			r.find("everything-returned", "free-failed", err.Error())
		}
		return
	} else if r.died(err) || !errors.Is(err, device.ErrOutOfMemory) {
		return
	}
	amounts := []uint64{r.held()}
	for range leakPasses {
		if !r.again() {
			return
		}
		now := r.held()
		if now <= amounts[len(amounts)-1] {
			return
		}
		amounts = append(amounts, now)
	}
	r.find("everything-returned", "leak", fmt.Sprintf("with everything freed the allocator holds %d bytes, and %d, %d and %d after the same operations "+
		"were run again, and it has not %d bytes for a request", amounts[0], amounts[1], amounts[2], amounts[3], r.capacity-r.foreign-slack))
}

// held is what the allocator has from the device, in bytes.
func (r *Run) held() uint64 {
	free, total := r.opts.Device.Info()
	return total - r.foreign - free
}

// again runs the trace's allocations, frees and waits once more, unchecked, and frees what is left. It returns false if that
// could not be done.
func (r *Run) again() bool {
	for i := range r.slots {
		r.slots[i] = slot{}
	}
	free := func(sl *slot) bool {
		status := sl.status
		sl.status = slotEmpty
		return status != slotLive || r.alloc.Free(sl.block.Addr) == nil
	}
	for i := range r.prog.steps {
		s := &r.prog.steps[i]
		switch s.kind {
		case trace.Alloc:
			b, err := r.alloc.Alloc(s.bytes, s.stream)
			if errors.Is(err, device.ErrOutOfMemory) {
				continue
			}
			if err != nil {
				return false
			}
			if b != (allocators.Block{}) {
				r.slots[s.slot] = slot{block: b, status: slotLive}
			}
		case trace.Free:
			if !free(&r.slots[s.slot]) {
				return false
			}
		case trace.Record:
			if sl := &r.slots[s.slot]; sl.status == slotLive && r.recordUse != nil && r.recordUse.Record(sl.block.Addr, s.stream) != nil {
				return false
			}
		case trace.Sync:
			if r.syncAll() != nil {
				return false
			}
		}
	}
	for i := range r.slots {
		if !free(&r.slots[i]) {
			return false
		}
	}
	return r.syncAll() == nil
}
