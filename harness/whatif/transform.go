package whatif

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// derived is a trace with other operations.
func derived(t *trace.Trace, ops []trace.Op) *trace.Trace {
	return &trace.Trace{Name: t.Name, Header: t.Header, Ops: ops}
}

// HasStart tells whether a trace begins from a state.
func HasStart(t *trace.Trace) bool { return len(t.Ops) > 0 && t.Ops[0].Kind.Starts() }

// Fresh replaces the state that a trace begins from by allocations of its blocks, in address order, on an empty device: another setting
// would not have come to that state. In which order the program made them is not known.
func Fresh(t *trace.Trace) *trace.Trace {
	if !HasStart(t) {
		return t
	}
	stream := map[uint64]device.Stream{}
	ops := make([]trace.Op, 0, len(t.Ops))
	for _, op := range t.Ops {
		switch op.Kind {
		case trace.Segment:
			stream[op.ID] = op.Stream
		case trace.Block:
			ops = append(ops, trace.Op{Kind: trace.Alloc, ID: op.ID, Bytes: op.Requested, Stream: stream[op.Base]})
		default:
			ops = append(ops, op)
		}
	}
	return derived(t, ops)
}

// unusedStream is a stream above all that a trace uses.
func unusedStream(t *trace.Trace) device.Stream {
	s := device.Stream(0)
	for i := range t.Ops {
		s = max(s, t.Ops[i].Stream+1)
	}
	return s
}

// ownPool gives some allocations segments of their own: as if they were of another stream, which shares no segment with others.
func ownPool(t *trace.Trace, pick func(op int) bool) *trace.Trace {
	s := unusedStream(t)
	ops := slices.Clone(t.Ops)
	for i := range ops {
		if ops[i].Kind == trace.Alloc && pick(i) {
			ops[i].Stream = s
		}
	}
	return derived(t, ops)
}

// upFront makes some allocations before the first other operation.
func upFront(t *trace.Trace, pick func(op int) bool) *trace.Trace {
	next := NextID(t)
	var first, rest []trace.Op
	renamed := map[uint64]uint64{} // an id may be used again, so what moves gets a new one
	for i, op := range t.Ops {
		switch {
		case op.Kind == trace.Alloc && pick(i):
			renamed[op.ID] = next
			op.ID = next
			next++
			first = append(first, op)
			continue
		case op.Kind == trace.Alloc:
			delete(renamed, op.ID)
		case op.Kind == trace.Free || op.Kind == trace.Record || op.Kind == trace.Use:
			if id, ok := renamed[op.ID]; ok {
				op.ID = id
			}
		}
		rest = append(rest, op)
	}
	start := 0 // behind the state to start from
	for start < len(rest) && rest[start].Kind.Starts() {
		start++
	}
	return derived(t, slices.Insert(rest, start, first...))
}

// NextID is an id above all that a trace uses.
func NextID(t *trace.Trace) uint64 {
	var id uint64
	for i := range t.Ops {
		if k := t.Ops[i].Kind; k == trace.Alloc || k == trace.Block {
			id = max(id, t.Ops[i].ID+1)
		}
	}
	return id
}

// freedAt frees some allocations before an operation, if they are live there.
func freedAt(t *trace.Trace, pick func(op int) bool, at int) *trace.Trace {
	var ids []uint64
	early := map[uint64]bool{}
	picked := map[uint64]bool{} // live and picked
	ops := make([]trace.Op, 0, len(t.Ops)+8)
	for i, op := range t.Ops {
		if i == at {
			for id := range picked {
				ids = append(ids, id)
			}
			slices.Sort(ids)
			for _, id := range ids {
				ops = append(ops, trace.Op{Kind: trace.Free, ID: id})
				early[id] = true
			}
		}
		switch op.Kind {
		case trace.Alloc:
			if pick(i) && i < at {
				picked[op.ID] = true
			}
			delete(early, op.ID)
		case trace.Free:
			if early[op.ID] {
				delete(early, op.ID)
				continue
			}
			delete(picked, op.ID)
		case trace.Record, trace.Use:
			if early[op.ID] {
				continue
			}
		}
		ops = append(ops, op)
	}
	return derived(t, ops)
}

// emptiedAt calls empty_cache before some operations.
func emptiedAt(t *trace.Trace, at []int) *trace.Trace {
	ops := make([]trace.Op, 0, len(t.Ops)+len(at))
	for i, op := range t.Ops {
		if len(at) > 0 && at[0] == i {
			at = at[1:]
			ops = append(ops, trace.Op{Kind: trace.EmptyCache})
		}
		ops = append(ops, op)
	}
	return derived(t, ops)
}

// Phases are the operations before which the requested bytes that are live are at the bottom between two peaks: ends of steps or of
// phases. A bottom counts if live memory falls to less than half of the way from what is live throughout to the peak, after it was
// above three quarters; it is the last operation before live memory rises again.
func Phases(t *trace.Trace) []int {
	live := make([]uint64, len(t.Ops))
	sizes := map[uint64]uint64{}
	var now, peak uint64
	for i := range t.Ops {
		switch op := &t.Ops[i]; op.Kind {
		case trace.Alloc:
			sizes[op.ID] = op.Bytes
			now += op.Bytes
		case trace.Block:
			sizes[op.ID] = op.Requested
			now += op.Requested
		case trace.Free:
			now -= sizes[op.ID]
			delete(sizes, op.ID)
		}
		live[i] = now
		peak = max(peak, now)
	}
	var out []int
	high := false
	low, at := ^uint64(0), -1
	for i, n := range live {
		switch {
		case n > peak*3/4:
			if high && at >= 0 {
				out = append(out, at+1)
			}
			high, low, at = true, ^uint64(0), -1
		case high && n < peak/2 && n <= low:
			low, at = n, i
		}
	}
	return out
}
