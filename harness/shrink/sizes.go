package shrink

import (
	"cmp"
	"slices"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// edges are the sizes at which allocators change their mind (PyTorch's: the quantum of rounding, the small pool, small
// segments, segments of their own, large segments), in bytes. The least of them that still fails is the one to read.
var edges = []uint64{1, 512, 513, 1 << 20, 1<<20 + 1, 2 << 20, 10 << 20, 20 << 20}

// steps are what sizes are first a multiple of when the smallest that fails is looked for.
var steps = []uint64{20 << 20, 2 << 20, 512, 1}

// sizes lowers the sizes of all allocations at once, of those of one size together, and of each alone.
func (m *minimiser) sizes() {
	var all []int
	bySize := map[uint64][]int{}
	for i, op := range m.best.Ops {
		if op.Kind == trace.Alloc || op.Kind == trace.Foreign {
			all = append(all, i)
			bySize[op.Bytes] = append(bySize[op.Bytes], i)
		}
	}
	for _, e := range edges {
		if len(all) > 1 && m.adopt(resized(m.best, all, e)) {
			break
		}
	}
	var distinct []uint64
	for n, group := range bySize {
		if len(group) > 1 {
			distinct = append(distinct, n)
		}
	}
	slices.Sort(distinct)
	for i := len(distinct) - 1; i >= 0; i-- {
		m.lower(bySize[distinct[i]])
	}
	for _, i := range all {
		m.lower([]int{i})
	}
	m.shift()
	m.grid()
}

// maxShift is up to how many allocations bytes are moved between: some thousand runs of a small trace at worst.
const maxShift = 16

// shift brings an allocation to an edge by giving its other bytes to a later one: where only the sum matters, the first ones
// become the smallest.
func (m *minimiser) shift() {
	for i := range m.best.Ops {
		for k := i + 1; k < len(m.best.Ops) && len(units(m.best)) <= maxShift; k++ {
			for _, e := range edges {
				t := m.best
				if k >= len(t.Ops) || t.Ops[i].Kind != trace.Alloc || t.Ops[k].Kind != trace.Alloc || e >= t.Ops[i].Bytes {
					break
				}
				out := resized(t, []int{i}, e)
				if out.Ops[k].Bytes += t.Ops[i].Bytes - e; out.Ops[k].Bytes <= trace.MaxBytes && m.adopt(out) {
					break
				}
			}
		}
	}
}

// maxGrid is up to how many allocations all choices of edges are tried: 512 choices for three.
const maxGrid = 3

// grid tries all choices of edges, those with the fewest bytes first: what cannot be lowered one by one may do so together.
func (m *minimiser) grid() {
	list := allocations(m.best)
	if len(list) > maxGrid {
		return
	}
	var choices [][]uint64
	var choose func([]uint64)
	choose = func(c []uint64) {
		if len(c) == len(list) {
			choices = append(choices, c)
			return
		}
		for _, e := range edges {
			choose(append(c[:len(c):len(c)], e))
		}
	}
	choose(nil)
	slices.SortStableFunc(choices, func(a, b []uint64) int { return cmp.Compare(sum(a), sum(b)) })
	for _, c := range choices {
		if m.adopt(changing(m.best, func(i int, op *trace.Op) {
			if k := slices.IndexFunc(list, func(u []int) bool { return u[0] == i }); k >= 0 {
				op.Bytes = c[k]
			}
		})) {
			return
		}
	}
}

func sum(list []uint64) (n uint64) {
	for _, v := range list {
		n += v
	}
	return n
}

// resized is a trace with these operations at most n bytes large.
func resized(t *trace.Trace, group []int, n uint64) *trace.Trace {
	out := changing(t, func(int, *trace.Op) {})
	for _, i := range group {
		out.Ops[i].Bytes = min(out.Ops[i].Bytes, n)
	}
	return out
}

// lower brings operations of one size to the lowest edge that fails, and from there to the smallest size.
func (m *minimiser) lower(group []int) {
	if group[len(group)-1] >= len(m.best.Ops) {
		return // the trace fails earlier now
	}
	now := m.best.Ops[group[0]].Bytes
	var passes uint64 // the largest size that does not fail
	for _, e := range edges {
		if e >= now {
			break
		}
		if m.adopt(resized(m.best, group, e)) {
			now = e
			break
		}
		passes = e
	}
	// Where waste matters, what counts is the distance to a multiple, so sizes are first lowered by multiples: then to them.
	for _, step := range steps {
		now, _ = m.search(group, step, now%step, 0, now)
	}
	for _, step := range steps {
		now, passes = m.search(group, step, 0, passes, now)
	}
}

// search looks between a size that does not fail and one that does for the smallest multiple of step, plus rest, that fails,
// as if all above it did. It returns what is known then.
func (m *minimiser) search(group []int, step, rest, passes, now uint64) (least, below uint64) {
	lo, hi := (passes+step-rest)/step, (now+step-1-rest)/step // in steps: lo is the first to try, hi fails
	for lo < hi && group[len(group)-1] < len(m.best.Ops) && m.result.Stopped == "" {
		mid := lo + (hi-lo)/2
		if n := mid*step + rest; m.adopt(resized(m.best, group, n)) {
			hi, now = mid, n
		} else {
			lo, passes = mid+1, max(passes, n)
		}
	}
	return now, passes
}
