package executor

import "github.com/shatter-gpu/shatter/harness/trace"

// Views before served allocations are taken as far as the work stays a constant per operation: each operation earns
// enteredPerOp, in blocks looked at, and a view costs as many as it has blocks. A run begins with enteredAtStart, so that in a
// short trace every allocation is looked at, in a long one about as many as its heap is small.
const (
	enteredPerOp   = 1
	enteredAtStart = 1 << 14
)

// enter takes the view before an alloc, if its price is there.
func (r *Run) enter(s *step) {
	r.state.Entered = nil
	r.credit += enteredPerOp
	if s.kind != trace.Alloc || s.bytes == 0 || r.promiser == nil || len(r.hooks) == 0 || r.faults != nil {
		return // after a planned fault the operation is made again, from another state
	}
	price := len(r.ledger.regions) + 4*int(r.heap.Live.Count+r.heap.Pending.Count)
	if price > r.credit {
		return
	}
	r.credit -= price
	r.entered.build(&r.ledger, r.heap)
	r.state.Entered = &r.entered
}
