package shrink

import (
	"slices"
	"strconv"
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
	// Allocators order streams by number, so the order stays at first.
	used = streamsOf(m.best)
	m.adopt(renamed(m.best, func(old device.Stream) device.Stream { return device.Stream(slices.Index(used, old)) }))
	used = streamsOf(m.best)
	for i, s := range used {
		for _, other := range used[:i] {
			m.adopt(renamed(m.best, func(old device.Stream) device.Stream {
				switch old {
				case s:
					return other
				case other:
					return s
				}
				return old
			}))
		}
	}
	if len(m.best.Ops) > maxOrder {
		return
	}
	for i := 0; i < len(m.best.Ops); i++ {
		for _, to := range used {
			// Ranges of one address range have one stream, so a segment does not move alone.
			if op := m.best.Ops[i]; onStream(op) && op.Kind != trace.Segment && to < op.Stream && m.moved(i, to) {
				break
			}
		}
	}
}

// moved brings one operation to a lower stream. An allocation that is refused on its own stream may have to be larger there.
func (m *minimiser) moved(i int, to device.Stream) bool {
	t := changing(m.best, func(k int, op *trace.Op) {
		if k == i {
			op.Stream = to
		}
	})
	capacity, _, _ := t.Capacity()
	return m.adopt(t) || t.Ops[i].Kind == trace.Alloc && m.adopt(sized(t, i, capacity+1))
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
	return op.Kind == trace.Alloc || op.Kind == trace.Record || op.Kind == trace.Use || op.Kind == trace.Segment ||
		(op.Kind == trace.Sync || op.Kind == trace.PoolBegin) && op.Stream != trace.AllStreams
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

// pools makes what opens a pool plainer: no graph, requests of every stream.
func (m *minimiser) pools() {
	for i := 0; i < len(m.best.Ops); i++ {
		if m.best.Ops[i].Kind != trace.PoolBegin {
			continue
		}
		for _, plainer := range []func(*trace.Op){
			func(op *trace.Op) { op.Capture = false }, func(op *trace.Op) { op.Stream = trace.AllStreams },
		} {
			if i < len(m.best.Ops) {
				m.adopt(changing(m.best, func(k int, op *trace.Op) {
					if k == i {
						plainer(op)
					}
				}))
			}
		}
	}
}

// settings drops the header's fraction, and one by one the settings of the header and of conf operations. Settings that are
// changed on the way are tried as those of the start.
func (m *minimiser) settings() {
	for i := 0; i < len(m.best.Ops); i++ {
		switch op := m.best.Ops[i]; op.Kind {
		case trace.Conf:
			m.adopt(without(withField(m.best, trace.KeyConf, op.Conf), []int{i}))
		case trace.Fraction:
			m.adopt(without(withField(m.best, trace.KeyFraction, strconv.FormatFloat(op.Fraction, 'g', -1, 64)), []int{i}))
		}
	}
	m.adopt(withField(m.best, trace.KeyFraction, ""))
	if conf, ok := m.best.Settings(); ok {
		m.shorten(conf, func(conf string) *trace.Trace { return withField(m.best, trace.KeyConf, conf) })
	}
	for i := 0; i < len(m.best.Ops); i++ {
		if m.best.Ops[i].Kind == trace.Conf {
			m.shorten(m.best.Ops[i].Conf, func(conf string) *trace.Trace {
				return changing(m.best, func(k int, op *trace.Op) {
					if k == i && conf != "" {
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

// unbounded is a device on which nothing is refused for lack of memory: 8 TiB, the size at which measures take profiles.
const unbounded = 8 << 40

// dependsOnCapacity tells whether the failure is gone on a device without bounds. Not every device can be that large; then it is
// taken to be.
func (m *minimiser) dependsOnCapacity() bool {
	capacity, ok, err := m.best.Capacity()
	if !ok || err != nil || capacity >= unbounded || m.spent() {
		return false
	}
	m.result.Runs++
	t := withCapacity(m.best, unbounded)
	a := m.predicate(t)
	if a.Kind == Different {
		m.other(a.Signature, t)
	}
	return a.Kind != Same
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
			if a.Kind.Starts() || onBlock(a) && onBlock(b) && a.ID == b.ID || a.Pool != 0 && a.Pool == b.Pool {
				continue // the state to start from stands first, in order, and so do the operations on a pool
			}
			ops := slices.Clone(m.best.Ops)
			ops[i-1], ops[i] = b, a
			moved = m.adopt(with(m.best, ops)) || moved
		}
	}
}

// retarget lets frees and records fall on earlier allocations, which may leave the later ones without a purpose.
func (m *minimiser) retarget() {
	for i := 0; i < len(m.best.Ops) && len(m.best.Ops) <= maxOrder; i++ {
		op := m.best.Ops[i]
		if op.Kind != trace.Free && op.Kind != trace.Record && op.Kind != trace.Use {
			continue
		}
		for id := range op.ID {
			t := changing(m.best, func(k int, op *trace.Op) {
				if k == i {
					op.ID = id
				}
			})
			if t.Validate() == nil && m.adopt(t) {
				break
			}
		}
	}
}

func onBlock(op trace.Op) bool {
	return op.Kind == trace.Alloc || op.Kind == trace.Free || op.Kind == trace.Record || op.Kind == trace.Use
}
