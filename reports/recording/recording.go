// Package recording keeps what an allocator held after every operation of a run, small enough for a page that is stepped
// through: the state before the first operation, then of each operation only what it changed.
//
// In go a program, targets and a device; out comes a Group, a Recording a target, which is JSON for a page's script as it is, and
// Samples, where the bytes of the device were after each operation. It does not grow beyond limits that are given: of a longer
// run a window is kept, and Cut says in words what is missing.
package recording

import (
	"fmt"
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Group is the same window of a trace on several allocators.
type Group struct {
	// From is the window's first operation, Ops how many it has, of Of in the trace.
	From int `json:"from"`
	Ops  int `json:"ops"`
	Of   int `json:"of"`
	// Texts are the operations of the window, a line each; Earlier those before it that allocated what is still live.
	Texts   string         `json:"texts"`
	Earlier map[int]string `json:"earlier,omitempty"`
	// Cut says what of the trace is missing, empty if nothing is.
	Cut        string       `json:"cut,omitempty"`
	Recordings []*Recording `json:"recordings"`
}

// Recording is a window of a run, operation by operation.
//
// Steps is a list of numbers: a step for the state before the window's first operation, then one for each operation. A step is
//
//	outcome        of the operation (executor.Outcome: 0 ok, 1 refused, 2 skipped, 3 failed)
//	free           what the device has left
//	n, n times     segments that are gone: segment
//	n, n times     blocks that are new or changed: segment, offset in it, size, state (allocators.State), 1 + the operation
//	               that allocated the block, 0 if it is neither live nor pending
//
// with segments as indices into Segments and sizes in Units. The blocks of a segment tile it, so a new block takes the place of
// all that it overlaps, and a segment begins with the first block in it.
type Recording struct {
	Allocator string `json:"allocator"`
	Capacity  uint64 `json:"capacity"` // bytes
	// Unit is bytes: every other size here is a multiple of it.
	Unit     uint64    `json:"unit"`
	Segments []Segment `json:"segments"`
	Steps    []uint64  `json:"steps"`
	// Ops is how many operations of the window are here: fewer than all if the allocator came to an End before, which says how.
	Ops int    `json:"ops"`
	End string `json:"end,omitempty"`

	// Samples has the state before the window and after each operation of it.
	Samples []Sample `json:"-"`
}

// Segment is a region that was there at some time.
type Segment struct {
	Addr       string `json:"at"`   // hexadecimal
	Size       uint64 `json:"size"` // units; of an expandable segment the reservation
	Expandable bool   `json:"expandable,omitempty"`
	Small      bool   `json:"small,omitempty"` // of the small pool
	Stream     int    `json:"stream,omitempty"`
	Pool       int    `json:"pool,omitempty"` // private pool, 0 for none
	Page       uint64 `json:"page,omitempty"` // units; 0 if not expandable
}

// Sample says where the bytes of the device are. Its parts add up to the capacity.
type Sample struct {
	Live     uint64 // as requested, of live blocks
	Rounding uint64 // live blocks beyond what was requested
	Pinned   uint64 // used by nobody, and kept by live blocks in the same segment or page
	Idle     uint64 // what a full release would return, pending blocks included
	Free     uint64 // at the device
	Others   uint64 // held by others, or by the device itself
}

// Limits of a recording; zero means the default.
type Limits struct {
	// Ops is the most operations kept (default 20,000), Numbers the most numbers in Steps (default 2,000,000, some 10 MB of JSON).
	Ops, Numbers int
}

const (
	defaultOps     = 20_000
	defaultNumbers = 2_000_000
	// after is the share of a window, one in so many operations, that comes after the operation of interest.
	after = 10
)

// Record runs a program on each target and keeps what it held. interest is the operation to have in the window, such as the first
// refusal; -1 for the one at which live bytes are at their peak. An error is a fault of the harness, or says that even the
// operation of interest alone is too much; an allocator that panics ends its recording.
func Record(p *executor.Program, targets []executor.Target, newDevice measure.NewDevice, capacity uint64, interest int, l Limits) (*Group, error) {
	if l.Ops <= 0 {
		l.Ops = defaultOps
	}
	if l.Numbers <= 0 {
		l.Numbers = defaultNumbers
	}
	if interest < 0 || interest >= p.Len() {
		_, interest = measure.PeakLive(p.Trace)
		interest = max(interest, 0)
	}
	from, to := window(p.Len(), interest, l.Ops)
	large := false
again:
	g := &Group{From: from, Ops: to - from, Of: p.Len()}
	for _, t := range targets {
		r, err := record(p, t, newDevice, capacity, from, to, l.Numbers)
		if err != nil {
			return nil, err
		}
		g.Recordings = append(g.Recordings, r)
		if end := from + r.Ops; end < to && r.End == "" { // too many numbers
			switch large = true; {
			case end > interest:
				to = end
			case from == interest:
				return nil, fmt.Errorf("%s on %s after operation %d: more than %s numbers, too much for a map",
					p.Trace.Name, t.Name, interest, thousands(l.Numbers))
			default:
				from = interest - (interest-from)/2
			}
			goto again
		}
	}
	g.finish(p, large)
	return g, nil
}

// window chooses at most n operations of all, most of them before the one of interest.
func window(all, interest, n int) (from, to int) {
	if all <= n {
		return 0, all
	}
	from = min(max(interest+1+n/after-n, 0), all-n)
	return from, from + n
}

// record keeps the operations from..to-1 on a target, or fewer once there are too many numbers.
func record(p *executor.Program, t executor.Target, newDevice measure.NewDevice, capacity uint64, from, to, numbers int) (*Recording, error) {
	dev, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	b := &builder{rec: &Recording{Allocator: t.Name, Capacity: capacity}, born: map[uint64]int{}}
	seen := executor.Property{ID: "recording", Op: b.look}
	r, err := executor.Start(p, t, executor.Options{Device: dev, Properties: []executor.Property{seen}})
	if err != nil {
		return nil, err
	}
	defer r.Leave()
	b.free, _ = dev.Info()
	if from == 0 {
		b.step(r)
	}
	for r.More() && r.Position() < to && len(b.rec.Steps) < numbers {
		died, err := step(r)
		if err != nil {
			return nil, err
		}
		if died != "" {
			b.rec.End = fmt.Sprintf("%s at operation %d", died, r.Position())
			break
		}
		at := r.Position()
		if at >= from {
			b.step(r)
		}
		if at > from {
			b.rec.Ops++
		}
	}
	if b.rec.End == "" && !r.More() && r.Position() < to {
		b.rec.End = fmt.Sprintf("the run ended at operation %d", r.Position()-1)
	}
	return b.rec, nil
}

// step executes an operation. An allocator that panics says so.
func step(r *executor.Run) (died string, err error) {
	defer func() {
		if v := recover(); v != nil {
			died = fmt.Sprintf("the allocator panicked (%v)", v)
		}
	}()
	return "", r.Step()
}

// finish divides sizes by what they have in common and adds the texts.
func (g *Group) finish(p *executor.Program, large bool) {
	var texts []byte
	for i := g.From; i < g.From+g.Ops; i++ {
		texts = trace.Append(texts, p.Trace.Ops[i])
		texts = append(texts, '\n')
	}
	g.Texts = string(texts)
	for _, r := range g.Recordings {
		r.shrinkUnits()
		r.eachBlock(func(at int) {
			if born := int(r.Steps[at+4]) - 1; born >= 0 && born < g.From {
				if g.Earlier == nil {
					g.Earlier = map[int]string{}
				}
				g.Earlier[born] = p.Trace.Ops[born].String()
			}
		})
	}
	if g.Ops < g.Of {
		g.Cut = fmt.Sprintf("operations %s to %s of %s are kept here", thousands(g.From), thousands(g.From+g.Ops-1), thousands(g.Of))
		if large {
			g.Cut += "; with the others the page would be too large"
		}
	}
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// sample takes a state apart. free is the device's.
func sample(s *allocators.Snapshot, capacity, free uint64) Sample {
	m := Sample{Free: free}
	var allocated, reserved uint64
	for i := range s.Segments {
		for k := s.Segments[i].First; k < s.Segments[i].First+s.Segments[i].Count; k++ {
			b := &s.Blocks[k]
			if b.State == allocators.Unmapped {
				continue
			}
			reserved += b.Size
			if b.State == allocators.Live {
				allocated += b.Size
				m.Live += min(b.Requested, b.Size)
			}
		}
	}
	m.Rounding = allocated - m.Live
	m.Idle = min(measure.Releasable(s), reserved-allocated)
	m.Pinned = reserved - allocated - m.Idle
	m.Others = capacity - min(capacity, reserved+free)
	return m
}
