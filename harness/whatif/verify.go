package whatif

import (
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// DecisionKind is what an allocator decided.
type DecisionKind uint8

// The decisions that a recording can have.
const (
	Placed   DecisionKind = iota // a request was served at an address
	Refused                      // a request was refused; Addr is the device's free bytes, Size the rounded request
	Bought                       // a segment was bought
	Returned                     // a segment was returned
	Mapped                       // a range was mapped
	Unmapped                     // a range was unmapped
)

var decisionWords = [...]string{"placed", "refused", "bought", "returned", "mapped", "unmapped"}

// String returns a word.
func (k DecisionKind) String() string { return decisionWords[k] }

// Decision is a recorded decision on an operation of a trace.
type Decision struct {
	Op   int
	Kind DecisionKind
	Addr device.Addr
	Size uint64 // bytes
}

// EndSegment and EndBlock are a recorded final state.
type EndSegment struct {
	Addr, Size        uint64
	Small, Expandable bool
}

// EndBlock is a block of a recorded final state.
type EndBlock struct {
	Addr, Size, Requested uint64
	Live, Pending         bool
}

// EndState is a recorded final state; all of it is in address order.
type EndState struct {
	Segments []EndSegment
	Blocks   []EndBlock
}

// Recording is what a trace is held against.
type Recording struct {
	Decisions []Decision
	// Origins are the addresses of the segments that the trace starts from, by sid.
	Origins map[uint64]device.Addr
	End     EndState
}

// Verified is what a replay against a recording came to.
type Verified struct {
	// Decisions were recorded, Reproduced of them made again: the same address, or the same purchase or return.
	Decisions  int `json:"decisions"`
	Reproduced int `json:"reproduced"`
	// Purchases of them are about segments and ranges.
	Purchases int `json:"purchases"`
	// First is the first one that was not, in words, empty if all were.
	First   string `json:"first_difference,omitempty"`
	FirstOp int    `json:"first_difference_op"`
	// EndSame says that the final segments and blocks are those of the recording; else EndDifference names the first that is not.
	EndSame       bool   `json:"end_same"`
	EndDifference string `json:"end_difference,omitempty"`
}

// Share is the share of decisions reproduced, 0 to 1; 1 if there are none.
func (v *Verified) Share() float64 {
	if v.Decisions == 0 {
		return 1
	}
	return float64(v.Reproduced) / float64(v.Decisions)
}

// Verify replays a trace on a device that gives segments the recorded addresses, since these break ties, and compares each
// decision with the recorded one.
func Verify(p *executor.Program, t executor.Target, newDevice measure.NewDevice, capacity uint64, rec *Recording) (*Verified, error) {
	inner, err := newDevice(capacity)
	if err != nil {
		return nil, err
	}
	o := &oracle{Device: inner, spare: spareBase}
	v := &verifier{rec: rec, oracle: o, out: &Verified{Decisions: len(rec.Decisions), FirstOp: -1}}
	for i := range rec.Decisions {
		if k := rec.Decisions[i].Kind; k != Placed && k != Refused {
			v.out.Purchases++
		}
	}
	run, err := executor.Start(p, t, executor.Options{Device: o, Properties: []executor.Property{{ID: "recorded", Op: v.after}}})
	if err != nil {
		return nil, err
	}
	v.run = run
	for run.More() {
		v.before(&p.Trace.Ops[run.Position()], run.Position())
		if err := run.Step(); err != nil {
			return nil, err
		}
	}
	var snap allocators.Snapshot
	if s, ok := run.Allocator().(allocators.Snapshotter); ok {
		s.Snapshot(&snap)
		v.compareEnd(&snap)
	}
	return v.out, nil
}

// verifier compares, operation by operation.
type verifier struct {
	rec    *Recording
	oracle *oracle
	out    *Verified
	run    *executor.Run
	next   int // in rec.Decisions

	want, got []Decision
}

// before tells the device what the recording bought in this operation.
func (v *verifier) before(op *trace.Op, n int) {
	v.oracle.queue = v.oracle.queue[:0]
	if op.Kind == trace.Segment {
		if a, ok := v.rec.Origins[op.ID]; ok {
			v.oracle.queue = append(v.oracle.queue, purchase{a, op.Bytes})
		}
		return
	}
	for i := v.next; i < len(v.rec.Decisions) && v.rec.Decisions[i].Op == n; i++ {
		if d := &v.rec.Decisions[i]; d.Kind == Bought || d.Kind == Mapped {
			v.oracle.queue = append(v.oracle.queue, purchase{d.Addr, d.Size})
		}
	}
	v.oracle.later = v.rec.Decisions[v.next:]
}

func (v *verifier) after(s *executor.State) *executor.Violation {
	v.want, v.got = v.want[:0], v.got[:0]
	for v.next < len(v.rec.Decisions) && v.rec.Decisions[v.next].Op == s.Op {
		v.want = add(v.want, v.rec.Decisions[v.next])
		v.next++
	}
	if len(v.want) == 0 {
		return nil
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		switch c.Kind {
		case device.CallMalloc:
			v.got = add(v.got, Decision{s.Op, Bought, c.Addr, c.Size})
		case device.CallFree:
			v.got = add(v.got, Decision{s.Op, Returned, c.Addr, 0})
		case device.CallMap:
			v.got = add(v.got, Decision{s.Op, Mapped, c.Addr, c.Size})
		case device.CallUnmap:
			v.got = add(v.got, Decision{s.Op, Unmapped, c.Addr, c.Size})
		}
	}
	switch {
	case s.Outcome == executor.OOM:
		v.got = append(v.got, Decision{s.Op, Refused, device.Addr(s.DeviceFree), 0})
	case s.Operation.Kind == trace.Alloc:
		v.got = append(v.got, Decision{s.Op, Placed, s.Block.Addr, 0})
	}
	used := 0
	for i := range v.want {
		w := &v.want[i]
		same := false
		// Decisions are held against each other in their order; one that is missing does not spoil those behind it.
		for k := used; k < len(v.got); k++ {
			if g := &v.got[k]; g.Kind == w.Kind && g.Addr == w.Addr && (g.Size == w.Size || g.Size == 0) {
				same, used = true, k+1
				break
			}
		}
		weight := v.weight(w)
		if same {
			v.out.Reproduced += weight
		} else if v.out.First == "" {
			v.out.First = fmt.Sprintf("operation %d: recorded %s at %#x, replayed %s", s.Op, w.words(), uint64(w.Addr), describe(v.got))
			v.out.FirstOp = s.Op
		}
	}
	return nil
}

// weight is how many recorded entries were joined to one decision.
func (v *verifier) weight(w *Decision) int {
	n := 0
	for i := v.next - 1; i >= 0 && v.rec.Decisions[i].Op == w.Op; i-- {
		if d := &v.rec.Decisions[i]; d.Kind == w.Kind && d.Addr >= w.Addr && d.Addr < w.Addr+device.Addr(max(w.Size, 1)) {
			n++
		}
	}
	return max(n, 1)
}

func (d *Decision) words() string {
	if d.Kind == Placed {
		return fmt.Sprintf("%s (%d bytes)", d.Kind, d.Size)
	}
	return fmt.Sprintf("%s %d bytes", d.Kind, d.Size)
}

func describe(list []Decision) string {
	if len(list) == 0 {
		return "nothing"
	}
	s := ""
	for i := range list[:min(len(list), 4)] {
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprintf("%s %#x", list[i].Kind, uint64(list[i].Addr))
	}
	return s
}

// add appends a decision; ranges that go on are one, since a replay maps page by page.
func add(list []Decision, d Decision) []Decision {
	if n := len(list); n > 0 && (d.Kind == Mapped || d.Kind == Unmapped) && list[n-1].Kind == d.Kind &&
		list[n-1].Addr+device.Addr(list[n-1].Size) == d.Addr {
		list[n-1].Size += d.Size
		return list
	}
	return append(list, d)
}

// compareEnd compares the final state: segments (or mapped ranges), and live and pending blocks with their sizes.
func (v *verifier) compareEnd(s *allocators.Snapshot) {
	var segments []EndSegment
	var blocks []EndBlock
	for i := range s.Segments {
		g := &s.Segments[i]
		for _, b := range s.BlocksOf(i) {
			if b.State == allocators.Live || b.State == allocators.Pending {
				blocks = append(blocks, EndBlock{uint64(b.Addr), b.Size, b.Requested, b.State == allocators.Live, b.State == allocators.Pending})
			} else if b.State == allocators.Free {
				blocks = append(blocks, EndBlock{Addr: uint64(b.Addr), Size: b.Size})
			}
			if n := len(segments); g.Expandable && b.State != allocators.Unmapped {
				if n > 0 && segments[n-1].Expandable && segments[n-1].Addr+segments[n-1].Size == uint64(b.Addr) && b.Addr != g.Addr {
					segments[n-1].Size += b.Size
				} else {
					segments = append(segments, EndSegment{uint64(b.Addr), b.Size, g.Small, true})
				}
			}
		}
		if !g.Expandable {
			segments = append(segments, EndSegment{uint64(g.Addr), g.Size, g.Small, false})
		}
	}
	v.out.EndDifference = difference(&v.rec.End, &EndState{segments, blocks})
	v.out.EndSame = v.out.EndDifference == ""
}

func difference(want, got *EndState) string {
	if len(want.Segments) != len(got.Segments) {
		return fmt.Sprintf("%d segments recorded, %d replayed", len(want.Segments), len(got.Segments))
	}
	for i := range want.Segments {
		if w, g := want.Segments[i], got.Segments[i]; w != g {
			return fmt.Sprintf("segment recorded at %#x with %d bytes, replayed at %#x with %d", w.Addr, w.Size, g.Addr, g.Size)
		}
	}
	if len(want.Blocks) != len(got.Blocks) {
		return fmt.Sprintf("%d blocks recorded, %d replayed", len(want.Blocks), len(got.Blocks))
	}
	for i := range want.Blocks {
		w, g := want.Blocks[i], got.Blocks[i]
		if !w.Live && !w.Pending {
			w.Requested = 0 // of free blocks it is left from an earlier life
		}
		if w != g {
			return fmt.Sprintf("block recorded at %#x: %+v, replayed %+v", w.Addr, w, g)
		}
	}
	return ""
}
