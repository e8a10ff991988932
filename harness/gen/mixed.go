package gen

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var mixedDefaults = Params{Ops: 6000, Capacity: 80 * gib, Long: 0.5, Streams: 1}

// mixed interleaves long- and short-lived tensors on a device of real size. Its live bytes wander between 60 and 90 percent of
// a working set that is drawn as 60 to 75 percent of the device, so most traces pass on it, and how much less memory they
// pass with is the measure. Phases follow one another as in programs: the long-lived blocks build up while short-lived ones come
// and go between them, then there is only churn, then a part of everything is released (Johnstone and Wilson: without
// phases, real fragmentation does not show).
func mixed(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(mixedDefaults)
	m := &mixer{
		program: newProgram(ops, p.Ops),
		long:    p.Long,
		streams: uint64(p.Streams),
		working: percent(p.Capacity, between(cfg, 60, 75)),
		most:    max(p.Capacity/32, granule),
	}
	for !m.full() {
		m.buildUp(percent(m.working, between(ops, 80, 90)))
		m.churn(between(ops, 100, 600))
		m.partialRelease(percent(m.working, between(ops, 60, 75)))
		m.churn(between(ops, 50, 200))
	}
	return m.finish(p.Capacity)
}

type mixer struct {
	program
	long      float64 // share of the live bytes in long-lived blocks
	streams   uint64
	working   uint64 // bytes; live bytes stay below 95 percent of it, but for one block
	most      uint64 // bytes of the largest block
	lasting   set
	fleeting  set
	shortGoal uint64 // bytes of short-lived blocks to hold
}

// size is half the time any size, half the time a typical tensor.
func (m *mixer) size() uint64 {
	if chance(m.src, 1, 2) {
		return tensor(m.src, m.most)
	}
	return logUniform(m.src, granule, m.most)
}

// buildUp grows to some live bytes. Each long-lived block comes after a few short-lived ones came and went.
func (m *mixer) buildUp(goal uint64) {
	long := share(goal, m.long)
	m.shortGoal = goal - long
	for !m.full() && m.live < goal {
		if m.lasting.bytes < long {
			m.alloc(&m.lasting, m.size(), 0)
		}
		for range m.src.Uint64n(6) + 1 {
			m.turnover()
		}
	}
}

// turnover allocates or frees a short-lived block, whichever leads to the goal; one time in three the other one, so that
// there is a coming and going.
func (m *mixer) turnover() {
	grow := m.fleeting.bytes < m.shortGoal
	if chance(m.src, 1, 3) {
		grow = !grow
	}
	if bytes := m.size(); m.live+bytes <= percent(m.working, 95) && (grow || len(m.fleeting.blocks) == 0) {
		stream := device.Stream(0)
		if m.streams > 1 {
			stream = device.Stream(m.src.Uint64n(m.streams))
		}
		m.alloc(&m.fleeting, bytes, stream)
	} else if len(m.fleeting.blocks) > 0 {
		// Most die young, and none lives long: the dial is about the others.
		i := m.older(&m.fleeting)
		if chance(m.src, 1, 2) {
			i = m.younger(&m.fleeting)
		}
		m.free(&m.fleeting, i)
	} else {
		m.free(&m.lasting, m.pick(&m.lasting))
	}
}

// churn turns short-lived blocks over at the level reached.
func (m *mixer) churn(n uint64) {
	for range n {
		m.turnover()
	}
}

// partialRelease frees long- and short-lived blocks in proportion, down to some live bytes.
func (m *mixer) partialRelease(goal uint64) {
	long := share(goal, m.long)
	m.shortGoal = goal - long
	for m.lasting.bytes > long {
		m.free(&m.lasting, m.pick(&m.lasting))
	}
	for m.fleeting.bytes > m.shortGoal {
		m.free(&m.fleeting, m.older(&m.fleeting))
	}
}
