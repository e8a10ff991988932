package executor

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Result is what a run came to.
type Result struct {
	Target string
	// Ops is the operations executed.
	Ops int
	// OOMs are the positions of refused allocations, Judgements what they were (with a Judge only).
	OOMs       []int
	Judgements []Judgement
	// Findings are broken properties; Known are those that a known upstream issue explains.
	Findings, Known []Finding
	// Stats are the counters at the end of the trace, before everything is freed; HasStats if the allocator keeps any.
	Stats    allocators.Stats
	HasStats bool
	// Elsewhere says that the allocator runs in a process of its own, whose memory the trace does not decide alone.
	Elsewhere bool
	// PeakAllocated and PeakReserved are the largest values after an operation, in bytes.
	PeakAllocated, PeakReserved uint64
	// SumAllocated, SumReserved add the bytes after each operation, for means.
	SumAllocated, SumReserved float64
	// DeviceFree is the device's free bytes at the end of the trace.
	DeviceFree uint64
	// Segments is the number of segments, of both kinds, at the end of the trace (checked runs only).
	Segments int
	// DeviceCalls counts the device's calls by kind.
	DeviceCalls [16]uint64
	// LastOOM is the message of the last refusal.
	LastOOM string
	// Faults is how many device calls failed as planned.
	Faults int
	// Verified is how many bytes were compared with what had been written.
	Verified uint64
}

// MemoryCalls counts the device calls that buy, map or return memory, refused ones included.
func (r *Result) MemoryCalls() uint64 {
	var n uint64
	for k, calls := range r.DeviceCalls {
		if device.CallKind(k) != device.CallWait {
			n += calls
		}
	}
	return n
}

// find notes that a property was broken.
func (r *Run) find(property, rule, detail string) { r.note(r.finding(property, rule, detail)) }

// note enters a finding. After one that no known issue explains the run goes no further, since what follows would be its
// consequences.
func (r *Run) note(f Finding) {
	if f.Known != "" {
		r.result.Known = append(r.result.Known, f)
		return
	}
	r.stopped = true
	r.result.Findings = append(r.result.Findings, f)
}

// finding is one at the operation that the run is at.
func (r *Run) finding(property, rule, detail string) Finding {
	f := Finding{
		Property: property, Rule: rule, Target: r.target.Name, Op: r.next, Operation: "end of the trace", Detail: detail, At: AtEnd,
	}
	if r.next < len(r.prog.Trace.Ops) {
		op := &r.prog.Trace.Ops[r.next]
		f.Operation, f.At = op.String(), op.Kind.String()
	}
	return f
}
