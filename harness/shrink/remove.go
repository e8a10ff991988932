package shrink

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// closure tries to keep only what can have to do with the failing operation: the allocations on its stream and on streams that
// those are recorded on, once and again until nothing is added, with what is done to the whole device.
func (m *minimiser) closure() {
	t := m.best
	if m.answer.Op >= len(t.Ops) || m.answer.Op < 0 {
		return
	}
	failing := t.Ops[m.answer.Op]
	home := map[uint64]device.Stream{} // of an allocation
	for _, op := range t.Ops {
		if op.Kind == trace.Alloc {
			home[op.ID] = op.Stream
		}
	}
	streams := map[device.Stream]bool{}
	switch failing.Kind {
	case trace.Alloc, trace.Record:
		streams[failing.Stream] = true
	}
	if failing.Kind == trace.Record || failing.Kind == trace.Free {
		streams[home[failing.ID]] = true
	}
	if len(streams) == 0 {
		return
	}
	for {
		keep := make([]bool, len(t.Ops))
		more := map[device.Stream]bool{}
		for i, op := range t.Ops {
			switch op.Kind {
			case trace.Alloc:
				keep[i] = streams[op.Stream]
			case trace.Free:
				keep[i] = streams[home[op.ID]]
			case trace.Record:
				if keep[i] = streams[home[op.ID]]; keep[i] && !streams[op.Stream] {
					more[op.Stream] = true
				}
			case trace.Sync:
				keep[i] = op.Stream == trace.AllStreams || streams[op.Stream]
			default:
				keep[i] = true
			}
		}
		if m.adopt(keeping(t, keep)) || len(more) == 0 {
			return
		}
		for s := range more {
			streams[s] = true
		}
	}
}

// chunks removes halves of the units that a trace is cut into, then quarters, down to single units.
func (m *minimiser) chunks(cut func(*trace.Trace) [][]int) {
	list := cut(m.best)
	for n := (len(list) + 1) / 2; n > 0; n /= 2 {
		for at := 0; at < len(list); {
			if m.adopt(without(m.best, list[at:min(at+n, len(list))]...)) {
				list = cut(m.best)
			} else {
				at += n
			}
			if m.result.Stopped != "" {
				return
			}
		}
	}
}

// maxTwo is up to how many units all pairs of them are tried: 780 runs of a trace that is small by then.
const maxTwo = 40

// two removes two units at once, or one and a loose operation: what keeps only each other alive.
func (m *minimiser) two() {
	for m.removedTwo() && m.result.Stopped == "" {
	}
}

func (m *minimiser) removedTwo() bool {
	list := append(units(m.best), loose(m.best)...)
	if len(list) > maxTwo {
		return false
	}
	for i := range list {
		for k := range i {
			if m.adopt(without(m.best, list[k], list[i])) {
				return true
			}
		}
	}
	return false
}
