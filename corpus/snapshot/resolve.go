package snapshot

import (
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/whatif"
)

// maxReadings bounds the replays that look for the reading under which the recorded decisions come out again, maxReadingOps
// their operations and mapped pages together: a few seconds.
const (
	maxReadings   = 64
	maxReadingOps = 4_000_000
)

// resolve makes the trace and holds it against the recording. Where that can be read in several ways (was memory returned because a
// purchase failed, or by a call of empty_cache?) and the replay departs from it, it tries the others.
func (m *Imported) resolve(build func(map[int]releaseMode) (*forward, error), fraction *float64) error {
	modes := map[int]releaseMode{}
	attempt := func() (*forward, error) {
		m.Recorded, m.OOMs, m.Stacks = nil, nil, nil
		inferred, missing := m.Loss.Inferred, m.Loss.Missing
		f, err := build(modes)
		if err != nil {
			return nil, err
		}
		// What a walk says of the recording is kept of the last one only.
		f.inferred, f.missing = m.Loss.Inferred[len(inferred):], m.Loss.Missing[len(missing):]
		m.Loss.Inferred, m.Loss.Missing = inferred[:len(inferred):len(inferred)], missing[:len(missing):len(missing)]
		m.Verified, err = m.verify(fraction)
		return f, err
	}
	f, err := attempt()
	if err != nil {
		return err
	}
	tried := map[int]int{} // how many readings of an entry were tried
	cost := len(m.Trace.Ops) + m.pages()
	for n := 1; n < maxReadings && n*cost < maxReadingOps && m.Verified.First != ""; n++ {
		d := f.doubtAt(m.Verified.FirstOp, tried)
		if d == nil {
			break
		}
		before, had := modes[d.entry]
		best := m.Verified
		tried[d.entry]++
		modes[d.entry] = d.modes[tried[d.entry]]
		if f, err = attempt(); err != nil {
			return err
		}
		if m.Verified.Reproduced > best.Reproduced {
			continue
		}
		if modes[d.entry] = before; !had {
			delete(modes, d.entry)
		}
		if f, err = attempt(); err != nil {
			return err
		}
	}
	m.Loss.Inferred = append(m.Loss.Inferred, f.inferred...)
	m.Loss.Missing = append(m.Loss.Missing, f.missing...)
	return nil
}

// pages is how many pages of 2 MiB a replay maps at most.
func (m *Imported) pages() int {
	n := uint64(0)
	for i := range m.Recorded {
		if m.Recorded[i].Kind == whatif.Mapped {
			n += m.Recorded[i].Size >> 21
		}
	}
	for i := range m.Trace.Ops {
		if op := &m.Trace.Ops[i]; op.Kind == trace.Segment && op.Expandable {
			n += op.Bytes >> 21
		}
	}
	return int(min(n, 1<<40))
}

// Target is the allocator under the file's settings.
func (m *Imported) Target(fraction *float64) (executor.Target, error) {
	spec, err := catalog.FromSettings(m.Conf, fraction)
	return executor.Target{Name: spec.Name, New: spec.New}, err
}

func (m *Imported) verify(fraction *float64) (*whatif.Verified, error) {
	target, err := m.Target(fraction)
	if err != nil {
		return nil, err
	}
	capacity := m.recorded
	if capacity == 0 {
		capacity = measure.Unbounded
	}
	newDevice := func(capacity uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: capacity}) }
	return whatif.Verify(executor.Compile(m.Trace), target, newDevice, capacity,
		&whatif.Recording{Decisions: m.Recorded, Origins: m.Origins, End: m.End})
}
