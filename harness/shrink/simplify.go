package shrink

import (
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// streams removes streams with all that is done on them, merges each into a lower one, and numbers them from 0.
func (m *minimiser) streams() {
	used := streamsOf(m.best)
	for i := len(used) - 1; i >= 0; i-- {
		s := used[i]
		if m.adopt(without(m.best, touching(m.best, s)...)) {
			continue
		}
		for _, to := range used[:i] {
			if m.adopt(renamed(m.best, func(old device.Stream) device.Stream {
				if old == s {
					return to
				}
				return old
			})) {
				break
			}
		}
	}
	// Allocators order streams by number, so the order stays.
	used = streamsOf(m.best)
	m.adopt(renamed(m.best, func(old device.Stream) device.Stream { return device.Stream(slices.Index(used, old)) }))
}

// streamsOf lists the streams of a trace, ascending.
func streamsOf(t *trace.Trace) []device.Stream {
	var used []device.Stream
	for _, op := range t.Ops {
		if onStream(op) && !slices.Contains(used, op.Stream) {
			used = append(used, op.Stream)
		}
	}
	slices.Sort(used)
	return used
}

func onStream(op trace.Op) bool {
	return op.Kind == trace.Alloc || op.Kind == trace.Record || op.Kind == trace.Sync && op.Stream != trace.AllStreams
}

// touching are the units with an operation on the stream.
func touching(t *trace.Trace, s device.Stream) [][]int {
	var out [][]int
	for _, u := range units(t) {
		if slices.ContainsFunc(u, func(i int) bool { return onStream(t.Ops[i]) && t.Ops[i].Stream == s }) {
			out = append(out, u)
		}
	}
	return out
}

func renamed(t *trace.Trace, name func(device.Stream) device.Stream) *trace.Trace {
	return changing(t, func(_ int, op *trace.Op) {
		if onStream(*op) {
			op.Stream = name(op.Stream)
		}
	})
}

// settings drops the header's fraction, and one by one the settings of the header and of conf operations.
func (m *minimiser) settings() {
	m.adopt(withHeader(m.best, keepFields(m.best.Header, func(f trace.Field) bool { return f.Key != trace.KeyFraction })))
	if conf, ok := m.best.Settings(); ok {
		m.shorten(conf, func(conf string) *trace.Trace {
			header := keepFields(m.best.Header, func(f trace.Field) bool { return f.Key != trace.KeyConf })
			if conf != "" {
				header = append(header, trace.Field{Key: trace.KeyConf, Value: conf})
			}
			return withHeader(m.best, header)
		})
	}
	for i := range m.best.Ops {
		if m.best.Ops[i].Kind == trace.Conf {
			m.shorten(m.best.Ops[i].Conf, func(conf string) *trace.Trace {
				if conf == "" {
					return m.best
				}
				return changing(m.best, func(k int, op *trace.Op) {
					if k == i {
						op.Conf = conf
					}
				})
			})
		}
	}
}

// shorten drops the items of a settings string one at a time. change makes the trace with a shorter one.
func (m *minimiser) shorten(conf string, change func(string) *trace.Trace) {
	items := splitSettings(conf)
	for i := 0; i < len(items); {
		rest := slices.Delete(slices.Clone(items), i, i+1)
		ops := len(m.best.Ops)
		if !m.adopt(change(strings.Join(rest, ","))) {
			i++
			continue
		}
		if items = rest; len(m.best.Ops) != ops {
			return // the trace fails earlier now: positions have changed, the next round goes on
		}
	}
}

// splitSettings cuts at the commas outside brackets.
func splitSettings(conf string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(conf) {
		switch conf[i] {
		case '[':
			depth++
		case ']':
			depth--
		case ',':
			if depth == 0 {
				out = append(out, conf[from:i])
				from = i + 1
			}
		}
	}
	if from < len(conf) {
		out = append(out, conf[from:])
	}
	return out
}

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
	for _, step := range steps {
		lo, hi := passes/step, (now+step-1)/step
		for hi > lo+1 && group[len(group)-1] < len(m.best.Ops) && m.result.Stopped == "" {
			mid := lo + (hi-lo)/2
			if m.adopt(resized(m.best, group, mid*step)) {
				hi, now = mid, mid*step
			} else {
				lo, passes = mid, mid*step
			}
		}
	}
}

// unbounded is a device on which nothing is refused for lack of memory: 8 TiB, the size at which measures take profiles.
const unbounded = 8 << 40

// dependsOnCapacity tells whether the failure is gone on a device without bounds.
func (m *minimiser) dependsOnCapacity() bool {
	capacity, ok, err := m.best.Capacity()
	return ok && err == nil && capacity < unbounded && m.ask(withCapacity(m.best, unbounded)).Kind != Same
}

// capacity lowers the header's capacity: to what is used, and from there by doubling from the least and halving the rest.
func (m *minimiser) capacity() {
	now, ok, err := m.best.Capacity()
	if !ok || err != nil {
		return
	}
	if used := (m.answer.Used + granule - 1) / granule * granule; used > 0 && used < now && m.adopt(withCapacity(m.best, used)) {
		now = used
	}
	lo, hi := uint64(0), (now+granule-1)/granule
	for n := uint64(1); n < hi; n *= 2 {
		if m.adopt(withCapacity(m.best, n*granule)) {
			hi = n
			break
		}
		lo = n
	}
	for hi > lo+1 && m.result.Stopped == "" {
		mid := lo + (hi-lo)/2
		if m.adopt(withCapacity(m.best, mid*granule)) {
			hi = mid
		} else {
			lo = mid
		}
	}
}

// maxOrder is up to how many operations the order is looked at: a few thousand runs of a small trace at worst.
const maxOrder = 64

// order exchanges neighbours as long as that brings the trace nearer to one order, so that traces of one cause look alike.
func (m *minimiser) order() {
	if len(m.best.Ops) > maxOrder {
		return
	}
	for moved := true; moved && m.result.Stopped == ""; {
		moved = false
		for i := 1; i < len(m.best.Ops); i++ {
			a, b := m.best.Ops[i-1], m.best.Ops[i]
			if onBlock(a) && onBlock(b) && a.ID == b.ID {
				continue
			}
			ops := slices.Clone(m.best.Ops)
			ops[i-1], ops[i] = b, a
			moved = m.adopt(with(m.best, ops)) || moved
		}
	}
}

func onBlock(op trace.Op) bool {
	return op.Kind == trace.Alloc || op.Kind == trace.Free || op.Kind == trace.Record
}
