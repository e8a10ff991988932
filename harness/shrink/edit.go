package shrink

import (
	"slices"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// granule is what capacities are a multiple of: 2 MiB, a small segment or page.
const granule = 2 << 20

// with is a trace with other operations, ids, segments and private pools renumbered in order of their first operations. Operations
// on pools that are not legal any more go: an end or a release of what no longer begins, and what stands in the way of the rest.
func with(t *trace.Trace, ops []trace.Op) *trace.Trace {
	ids := make(map[uint64]uint64, len(ops)/2)
	segments := map[uint64]uint64{}
	pools := map[allocators.PoolID]allocators.PoolID{}
	var legal trace.PoolSet
	out := make([]trace.Op, 0, len(ops))
	for _, op := range ops {
		switch op.Kind {
		case trace.Segment:
			segments[op.ID] = uint64(len(segments))
			op.ID = segments[op.ID]
		case trace.Alloc, trace.Block:
			ids[op.ID] = uint64(len(ids))
			fallthrough
		case trace.Free, trace.Record, trace.Use:
			op.ID = ids[op.ID]
		}
		if op.Kind == trace.Block || op.GoesOn {
			op.Base = segments[op.Base]
		}
		if op.Pool != 0 {
			if !legal.Step(&op) {
				continue
			}
			if _, ok := pools[op.Pool]; !ok {
				pools[op.Pool] = allocators.PoolID(len(pools) + 1)
			}
			op.Pool = pools[op.Pool]
		}
		out = append(out, op)
	}
	return &trace.Trace{Name: t.Name, Header: t.Header, Ops: out}
}

// distinct gives every allocation an id of its own, so that operations can be removed without two allocations becoming one.
func distinct(ops []trace.Op) []trace.Op {
	now := make(map[uint64]uint64, len(ops)/2)
	out := slices.Clone(ops)
	next := uint64(0)
	for i := range out {
		switch op := &out[i]; op.Kind {
		case trace.Alloc, trace.Block:
			now[op.ID] = next
			next++
			fallthrough
		case trace.Free, trace.Record, trace.Use:
			op.ID = now[op.ID]
		}
	}
	return out
}

// keeping is a trace with some of its operations. Those on ids whose alloc is not kept go too, so it is legal.
func keeping(t *trace.Trace, keep []bool) *trace.Trace {
	gone := map[uint64]bool{}
	ops := make([]trace.Op, 0, len(t.Ops))
	noSegment := map[uint64]bool{}
	for i, op := range t.Ops {
		switch op.Kind {
		case trace.Segment:
			if !keep[i] || op.GoesOn && noSegment[op.Base] {
				noSegment[op.ID] = true
				continue
			}
		case trace.Block:
			if !keep[i] || noSegment[op.Base] {
				gone[op.ID] = true
				continue
			}
		case trace.Alloc:
			if !keep[i] {
				gone[op.ID] = true
			}
		case trace.Free, trace.Record, trace.Use:
			if gone[op.ID] {
				continue
			}
		}
		if keep[i] {
			ops = append(ops, op)
		}
	}
	return with(t, ops)
}

// without is a trace without some operations, and those orphaned by that.
func without(t *trace.Trace, drop ...[]int) *trace.Trace {
	keep := make([]bool, len(t.Ops))
	for i := range keep {
		keep[i] = true
	}
	for _, list := range drop {
		for _, i := range list {
			keep[i] = false
		}
	}
	return keeping(t, keep)
}

// changing is a trace in which change was applied to a copy of every operation.
func changing(t *trace.Trace, change func(i int, op *trace.Op)) *trace.Trace {
	ops := slices.Clone(t.Ops)
	for i := range ops {
		change(i, &ops[i])
	}
	return &trace.Trace{Name: t.Name, Header: t.Header, Ops: ops}
}

// withCapacity is a trace with another capacity, in bytes.
func withCapacity(t *trace.Trace, bytes uint64) *trace.Trace {
	return withField(t, trace.KeyCapacity, strconv.FormatUint(bytes, 10))
}

// withField is a trace with a header line of this value, or without one if it is empty.
func withField(t *trace.Trace, key, value string) *trace.Trace {
	out := &trace.Trace{Name: t.Name, Header: t.Header, Ops: t.Ops}
	if value != "" {
		out.Set(key, value)
	} else {
		out.Header = keepFields(t.Header, func(f trace.Field) bool { return f.Key != key })
	}
	return out
}

func keepFields(fields []trace.Field, keep func(trace.Field) bool) []trace.Field {
	var out []trace.Field
	for _, f := range fields {
		if keep(f) {
			out = append(out, f)
		}
	}
	return out
}

// units are what can be removed whole: an allocation with its records, uses and its free, a private pool with all that is done to it,
// any other operation alone.
func units(t *trace.Trace) [][]int {
	var out [][]int
	at := map[uint64]int{}
	pools := map[allocators.PoolID]int{}
	for i, op := range t.Ops {
		switch op.Kind {
		case trace.Free, trace.Record, trace.Use:
			u := at[op.ID]
			out[u] = append(out[u], i)
			continue
		case trace.Alloc, trace.Block:
			at[op.ID] = len(out)
		case trace.PoolBegin, trace.PoolEnd, trace.PoolRelease, trace.EmptyCache:
			if op.Pool == 0 {
				break
			}
			if u, ok := pools[op.Pool]; ok {
				out[u] = append(out[u], i)
				continue
			}
			pools[op.Pool] = len(out)
		}
		out = append(out, []int{i})
	}
	return out
}

// pairs are the units that are allocated and freed: they hold nothing at the end.
func pairs(t *trace.Trace) [][]int {
	return slices.DeleteFunc(units(t), func(u []int) bool { return t.Ops[u[len(u)-1]].Kind != trace.Free })
}

// loose are the operations on an allocation or a pool that can be removed while it stays.
func loose(t *trace.Trace) [][]int {
	var out [][]int
	for i, op := range t.Ops {
		switch {
		case op.Kind == trace.Free, op.Kind == trace.Record, op.Kind == trace.Use, op.Kind.OnPool(), op.Kind == trace.EmptyCache && op.Pool != 0:
			out = append(out, []int{i})
		}
	}
	return out
}
