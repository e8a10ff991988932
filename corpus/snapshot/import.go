package snapshot

import (
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/whatif"
)

// Options of an import; zero fields are taken from the file or guessed.
type Options struct {
	// Version is PyTorch's, as x_rules takes it: 2.6, 2.9, 2.11, 2.13.
	Version string
	// Capacity in bytes is what PyTorch could take of the device at most.
	Capacity uint64
	// Fraction is the memory fraction that the program set.
	Fraction *float64
	// Request in bytes is the request that failed, where the file has none: it is put at the end.
	Request uint64
}

// Loss says what an import rests on.
type Loss struct {
	Exact, Inferred, Missing []string
}

// NotReplayable says why a history cannot be replayed.
type NotReplayable struct {
	Name   string
	Device int
	Reason string
}

// Error returns one line.
func (e *NotReplayable) Error() string {
	return fmt.Sprintf("%s: device %d is not replayable, because %s", e.Name, e.Device, e.Reason)
}

// Imported is the history of one device as a trace.
type Imported struct {
	Snapshot *Snapshot
	Device   int
	Trace    *trace.Trace
	// Entry has for each operation the history entry that it came from, -1 for those that none did.
	Entry []int32
	// Stack has for each block of the state to start from, by its id, the stack of its allocation.
	Stacks []uint32
	// Recorded are PyTorch's decisions, in order of the operations.
	Recorded []whatif.Decision
	// Origins are the recorded addresses of the segments to start from, by sid.
	Origins map[uint64]device.Addr
	// End is the recorded final state.
	End whatif.EndState
	// Version is that of the rules; Guessed says that it was taken from the file's keys.
	Version string
	Guessed bool
	Conf    string
	// Capacity in bytes, 0 if not known; CapacityIs says what it rests on.
	Capacity   uint64
	CapacityIs string
	recorded   uint64 // capacity under which the recording was made, 0 if not known
	// Private is the bytes reserved in private pools at the end, Reserved all.
	Private, Reserved uint64
	// Verified is what a replay under the file's settings came to, held against the recorded decisions.
	Verified *whatif.Verified
	// OOMs are the operations that PyTorch refused.
	OOMs []int
	Loss Loss
}

// PrivateShare is the share, 0 to 1, of the reserved bytes that lie in private pools.
func (m *Imported) PrivateShare() float64 {
	if m.Reserved == 0 {
		return 0
	}
	return float64(m.Private) / float64(m.Reserved)
}

// StackOf is the stack of the allocation that an operation made, 0 if none was recorded.
func (m *Imported) StackOf(op int) uint32 {
	if o := &m.Trace.Ops[op]; o.Kind == trace.Block {
		return m.Stacks[o.ID]
	}
	if e := m.Entry[op]; e >= 0 {
		return m.Snapshot.Traces[m.Device][e].Stack
	}
	return 0
}

// Devices are the devices with a history or segments.
func (s *Snapshot) Devices() []int {
	var out []int
	for d, t := range s.Traces {
		if len(t) > 0 {
			out = append(out, d)
		}
	}
	for i := range s.Segments {
		if d := s.Segments[i].Device; d >= 0 && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out
}

// guessVersion is the set of rules next to the version that wrote the file.
func (s *Snapshot) guessVersion() string {
	switch s.Shape {
	case "2.12":
		return "2.13"
	case "2.10":
		return "2.11"
	case "2.9":
		return "2.9"
	}
	return "2.6"
}

// tolerance is the share of entries, in percent, that may contradict the rest: histories and segments are taken in two
// critical sections, so a program with threads can allocate in between.
const tolerance = 5

// maxBytes is the largest segment, or sum of segments at the start, that is replayed: 4 TiB.
const maxBytes = 4 << 40

// bytes is the sum of the segments at the start, or the largest size of an entry if that is more.
func (p *past) bytes(events []Event) uint64 {
	var sum, most uint64
	for i := range p.regions.list {
		if sum += p.regions.list[i].size; sum > maxBytes || p.regions.list[i].size > maxBytes {
			return max(sum, p.regions.list[i].size)
		}
	}
	for i := range events {
		switch events[i].Action {
		case Other, Taken:
		default:
			most = max(most, events[i].Size)
		}
	}
	return max(sum, most)
}

// Import makes a trace of the history of a device. An error is a *NotReplayable, or tells of a setting or version that is not known.
func Import(s *Snapshot, dev int, o Options) (*Imported, error) {
	m := &Imported{Snapshot: s, Device: dev, Version: o.Version, Origins: map[uint64]device.Addr{}}
	if m.Version == "" {
		m.Version, m.Guessed = s.guessVersion(), true
	}
	set, err := m.settings()
	if err != nil {
		return nil, err
	}
	p := s.backwards(dev, set)
	var events []Event
	if dev < len(s.Traces) {
		events = s.Traces[dev]
	}
	if bad := p.outside + p.contradictions; len(s.Segments) > 0 && bad*100 > tolerance*(len(events)+len(p.blocks)) {
		return nil, &NotReplayable{s.Name, dev, fmt.Sprintf("history and segments do not belong together: %d of %d entries lie in no segment, "+
			"%d contradict the others; the first: %s", p.outside, len(events), p.contradictions, p.first)}
	}
	if bytes := p.bytes(events); bytes > maxBytes {
		return nil, &NotReplayable{s.Name, dev, fmt.Sprintf("segments and requests of %d bytes are more than any device has", bytes)}
	}
	for i := range s.Segments {
		if g := &s.Segments[i]; g.Device == dev {
			m.Reserved += g.Size
			if g.Pool != (Pool{}) {
				m.Private += g.Size
			}
		}
	}
	m.endState()
	if err := m.resolve(func(modes map[int]releaseMode) (*forward, error) {
		f := newForward(m, p, events, set, o)
		f.modes = modes
		f.run()
		m.Trace.Name = s.Name
		if len(s.Devices()) > 1 {
			m.Trace.Name += fmt.Sprintf(" (device %d)", dev)
		}
		m.header(o)
		if err := m.Trace.Validate(); err != nil {
			return nil, &NotReplayable{s.Name, dev, "the state that it begins from is not whole: " + err.Error()}
		}
		return f, nil
	}, o.Fraction); err != nil {
		return nil, err
	}
	m.report(p, events)
	return m, nil
}

func (m *Imported) miss(format string, args ...any) {
	m.Loss.Missing = append(m.Loss.Missing, fmt.Sprintf(format, args...))
}

func (m *Imported) infer(format string, args ...any) {
	m.Loss.Inferred = append(m.Loss.Inferred, fmt.Sprintf(format, args...))
}

func (m *Imported) exact(format string, args ...any) {
	m.Loss.Exact = append(m.Loss.Exact, fmt.Sprintf(format, args...))
}

// settings finds the settings string: the recorded one if it says what the recorded values say, else one made of these.
func (m *Imported) settings() (*caching.Settings, error) {
	r := &m.Snapshot.Settings
	prefix := ""
	if m.Version != "2.6" {
		prefix = "x_rules:" + m.Version
	}
	join := func(a, b string) string {
		if a == "" || b == "" {
			return a + b
		}
		return a + "," + b
	}
	recorded := strings.Trim(strings.TrimSpace(r.Conf), ",")
	set, _, err := caching.ParseSettings(join(prefix, recorded))
	if err == nil && (!r.Recorded || agrees(&set, r)) {
		m.Conf = join(prefix, recorded)
		return &set, nil
	}
	if err != nil {
		if _, _, bad := caching.ParseSettings(prefix); bad != nil {
			return nil, bad
		}
		m.infer("settings made of their recorded values: the string %q is not read (%v)", r.Conf, err)
	} else {
		m.infer("settings made of their recorded values: the string %q does not say what was in force", r.Conf)
	}
	m.Conf = join(prefix, made(r))
	set, _, err = caching.ParseSettings(m.Conf)
	return &set, err
}

// agrees tells whether a string's settings are those that were in force.
func agrees(set *caching.Settings, r *Settings) bool {
	split := int64(-1)
	if set.MaxSplitSize != caching.Off {
		split = int64(set.MaxSplitSize)
	}
	return set.Expandable == r.Expandable && split == r.MaxSplit && set.GCThreshold == r.GCThreshold && set.RoundupDivisions == r.Divisions
}

// made writes recorded values as a settings string.
func made(r *Settings) string {
	var out []string
	if r.Expandable {
		out = append(out, "expandable_segments:True")
	}
	if r.MaxSplit > 0 {
		out = append(out, "max_split_size_mb:"+strconv.FormatInt(r.MaxSplit>>20, 10))
	}
	if r.GCThreshold > 0 && r.GCThreshold < 1 {
		out = append(out, "garbage_collection_threshold:"+strconv.FormatFloat(r.GCThreshold, 'g', -1, 64))
	}
	if r.Divisions != [16]uint64{} {
		var list []string
		for i, d := range r.Divisions {
			if bits.OnesCount64(d) == 1 || d == 0 {
				list = append(list, fmt.Sprintf("%d:%d", 1<<i, d))
			}
		}
		out = append(out, "roundup_power2_divisions:["+strings.Join(list, ",")+"]")
	}
	return strings.Join(out, ",")
}

// header writes what a replay needs to know.
func (m *Imported) header(o Options) {
	t := m.Trace
	t.Set(trace.KeyVersion, trace.Version)
	if m.Capacity > 0 {
		t.Set(trace.KeyCapacity, strconv.FormatUint(m.Capacity, 10))
	}
	if m.Conf != "" {
		t.Set(trace.KeyConf, m.Conf)
	}
	if o.Fraction != nil {
		t.Set(trace.KeyFraction, strconv.FormatFloat(*o.Fraction, 'g', -1, 64))
	}
	t.Set("source", fmt.Sprintf("snapshot %s, device %d, written by PyTorch %s", filepath.Base(m.Snapshot.Name), m.Device, m.Snapshot.ShapeText()))
}

// ShapeText names the versions that write this shape.
func (s *Snapshot) ShapeText() string {
	switch s.Shape {
	case "2.0":
		return "2.0 to 2.3"
	case "2.4":
		return "2.4 or 2.5"
	case "2.6":
		return "2.6 to 2.8"
	case "2.12":
		return "2.12 or later"
	case "2.10":
		return "2.10 or 2.11"
	}
	return s.Shape
}

// report writes the Loss.
func (m *Imported) report(p *past, events []Event) {
	allocs := 0
	for i := range events {
		if events[i].Action == Alloc {
			allocs++
		}
	}
	if allocs > 0 {
		m.exact("%d allocations with requested bytes, stream and address", allocs)
	} else {
		m.miss("there is no history: only the state at the end is known, not how it came about")
		if len(m.OOMs) == 0 {
			m.miss("the request that failed, if one did, is not in the file (give --request)")
		}
		var live uint64
		for i := range p.blocks {
			live += p.blocks[i].size
		}
		m.exact("%d bytes are reserved and not live: fragmentation cannot explain more than that", m.Reserved-min(live, m.Reserved))
	}
	if n := p.ghosts + p.survivors; n > 0 && allocs > 0 {
		m.infer("the recording began in mid-run, or its ring overflowed (the file does not tell which): %d blocks were live before it; "+
			"%d of them are live at the end, and %d are freed in it, whose sizes are taken from their requests", n, p.survivors, p.ghosts)
	}
	if m.Snapshot.Overflowed {
		m.miss("the file says that its ring of entries overflowed: the oldest are lost")
	}
	if n := p.outside + p.contradictions; n > 0 {
		m.miss("%d entries contradict the rest; the first: %s", n, p.first)
	}
	if m.Snapshot.Settings.Recorded {
		m.exact("settings")
	} else {
		m.miss("settings are not in the file: the defaults are assumed")
	}
	if n := len(m.OOMs); n > 0 && m.Entry[m.OOMs[0]] >= 0 {
		m.miss("what the program would have done had it been served: %d operations of the history lie behind its first OOM", len(m.Trace.Ops)-1-m.OOMs[0])
	}
	if m.Capacity == 0 {
		m.miss("the device's capacity is not in the file (give --capacity)")
	}
}

// endState lists what the file says of the end.
func (m *Imported) endState() {
	for i := range m.Snapshot.Segments {
		g := &m.Snapshot.Segments[i]
		if g.Device != m.Device {
			continue
		}
		m.End.Segments = append(m.End.Segments, whatif.EndSegment{Addr: g.Addr, Size: g.Size, Small: g.Small, Expandable: g.Expandable})
		for k := range g.Blocks {
			b := &g.Blocks[k]
			m.End.Blocks = append(m.End.Blocks, whatif.EndBlock{
				Addr: b.Addr, Size: b.Size, Requested: b.Requested, Live: b.State == Live, Pending: b.State == Pending,
			})
		}
	}
}
