package shrink

import (
	"slices"

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
	segments := map[uint64]device.Stream{}
	for _, op := range t.Ops {
		switch op.Kind {
		case trace.Segment:
			segments[op.ID] = op.Stream
		case trace.Block:
			home[op.ID] = segments[op.Base]
		case trace.Alloc:
			home[op.ID] = op.Stream
		}
	}
	streams := map[device.Stream]bool{}
	switch failing.Kind {
	case trace.Alloc, trace.Record, trace.Use:
		streams[failing.Stream] = true
	}
	if failing.Kind == trace.Record || failing.Kind == trace.Use || failing.Kind == trace.Free {
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
			case trace.Record, trace.Use:
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

// maxPairs is up to how many units and loose operations all pairs of them are tried: some thousand runs at most of a trace that
// is small by then.
const maxPairs = 40

// two removes two units at once, or one and a loose operation: what keeps only each other alive.
func (m *minimiser) two() {
	for again := true; again && m.result.Stopped == ""; {
		list := append(units(m.best), loose(m.best)...)
		again = len(list) <= maxPairs && m.removedTwo(list)
	}
}

func (m *minimiser) removedTwo(list [][]int) bool {
	for i := range list {
		for k := range i {
			if m.adopt(without(m.best, list[k], list[i])) {
				return true
			}
		}
	}
	return false
}

// fill removes an allocation where it only takes up room, and another one, the one before or if there are few any, grows by its
// bytes instead. Where its free only makes room, the allocation becomes one that is refused.
func (m *minimiser) fill() {
	capacity, _, _ := m.best.Capacity()
	for i := 0; i < len(allocations(m.best)) && m.result.Stopped == ""; {
		t := m.best
		list := allocations(t)
		from := list[i]
		if m.adopt(without(sized(t, from[0], capacity+1), from[1:])) {
			continue
		}
		others := list
		if len(units(t)) > maxPairs {
			others = list[max(i-1, 0):i]
		}
		if !slices.ContainsFunc(others, func(to []int) bool {
			return to[0] != from[0] &&
				m.adopt(without(sized(t, to[0], rounded(t.Ops[to[0]].Bytes)+rounded(t.Ops[from[0]].Bytes)), from))
		}) {
			i++
		}
	}
}

// allocations are the units that are one.
func allocations(t *trace.Trace) [][]int {
	return slices.DeleteFunc(units(t), func(u []int) bool { return t.Ops[u[0]].Kind != trace.Alloc })
}

// sized is a trace with operation i that large.
func sized(t *trace.Trace, i int, bytes uint64) *trace.Trace {
	return changing(t, func(k int, op *trace.Op) {
		if k == i {
			op.Bytes = min(bytes, trace.MaxBytes)
		}
	})
}

// rounded is a size as PyTorch rounds it by default, to 512 bytes: what it takes up.
func rounded(n uint64) uint64 { return (n + 511) / 512 * 512 }
