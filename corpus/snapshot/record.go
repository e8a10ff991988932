package snapshot

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// handleOf is the raw handle of a stream in what this package records: a multiple of a page, in the streams' order.
func handleOf(s device.Stream) uint64 { return uint64(s) << 12 }

// Record runs a trace and returns what PyTorch would have recorded of it, from its state to start from on. The target must be a caching
// allocator, whose settings are set. The history ends at the first operation that breaks off the run.
func Record(t *trace.Trace, target executor.Target, dev device.Device, set *caching.Settings) (*Snapshot, error) {
	r := &recorder{s: &Snapshot{
		Name: t.Name, Shape: "2.6", Pools: []Pool{{}},
		Settings: Settings{
			Recorded: true, Conf: set.Text, MaxSplit: -1, GCThreshold: set.GCThreshold, Expandable: set.Expandable, Divisions: set.RoundupDivisions,
		},
	}, trace: t, free: map[uint64]freed{}}
	if set.MaxSplitSize != caching.Off {
		r.s.Settings.MaxSplit = int64(set.MaxSplitSize)
	}
	run, err := executor.Start(executor.Compile(t), target, executor.Options{
		Device: dev, Properties: []executor.Property{{ID: "record", Op: r.after}},
	})
	if err != nil {
		return nil, err
	}
	for run.More() {
		if err := run.Step(); err != nil {
			return nil, err
		}
	}
	r.s.Traces = [][]Event{r.events}
	if snap, ok := run.Allocator().(allocators.Snapshotter); ok {
		var state allocators.Snapshot
		snap.Snapshot(&state)
		r.s.Segments = segmentsOf(&state)
	}
	return r.s, nil
}

// freed is a block that waits for other streams.
type freed struct {
	size   uint64
	stream device.Stream
}

// reserved is an address range of an expandable segment.
type reserved struct {
	addr   device.Addr
	size   uint64
	stream device.Stream
}

// recorder notes what an operation did, in the order in which PyTorch does.
type recorder struct {
	s      *Snapshot
	trace  *trace.Trace
	events []Event
	free   map[uint64]freed // pending blocks by address
	live   map[uint64]freed
	segs   map[device.Addr]freed // sizes and streams of classic segments
	ranges []reserved
}

func (r *recorder) note(s *executor.State, a Action, addr, size uint64, stream device.Stream) {
	r.events = append(r.events, Event{Action: a, Addr: addr, Size: size, Stream: handleOf(stream), TimeUS: int64(s.Op)})
}

func (r *recorder) after(s *executor.State) *executor.Violation {
	if r.live == nil {
		r.live, r.segs = map[uint64]freed{}, map[device.Addr]freed{}
	}
	op := s.Operation
	switch {
	case op.Kind == trace.Free && s.Outcome == executor.OK && s.Block.Addr != 0:
		addr := uint64(s.Block.Addr)
		b := r.live[addr]
		delete(r.live, addr)
		r.note(s, FreeRequested, addr, b.size, b.stream)
		if pendingAt(s.Heap, s.Block.Addr) {
			r.free[addr] = b
		} else {
			r.note(s, FreeCompleted, addr, b.size, b.stream)
		}
		return nil
	case len(r.free) > 0 && (op.Kind == trace.Alloc || op.Kind == trace.EmptyCache):
		r.complete(s)
	}
	r.calls(s)
	switch {
	case op.Kind == trace.Alloc && s.Outcome == executor.OOM:
		size := op.Bytes
		if s.Promise.Round != nil {
			size = s.Promise.Round(op.Bytes)
		}
		r.note(s, OOM, s.DeviceFree, size, op.Stream)
	case s.Entry != nil:
		r.live[uint64(s.Block.Addr)] = freed{s.Entry.Requested, s.Entry.Stream}
		if op.Kind == trace.Alloc {
			r.note(s, Alloc, uint64(s.Block.Addr), op.Bytes, op.Stream)
		} else if s.Region != nil {
			r.live[uint64(s.Block.Addr)] = freed{s.Entry.Requested, s.Region.Stream}
		}
	}
	return nil
}

// pendingAt tells whether a freed block waits.
func pendingAt(h *shadow.Heap, addr device.Addr) bool {
	found := false
	h.Each(func(e *shadow.Entry) bool {
		found = e.Addr == addr && e.Pending
		return e.Addr < addr
	})
	return found
}

// complete notes the pending frees that are not pending any more, lowest address first.
func (r *recorder) complete(s *executor.State) {
	still := map[uint64]bool{}
	s.Heap.Each(func(e *shadow.Entry) bool {
		if e.Pending {
			still[uint64(e.Addr)] = true
		}
		return true
	})
	var done []uint64
	for addr := range r.free {
		if !still[addr] {
			done = append(done, addr)
		}
	}
	slices.Sort(done)
	for _, addr := range done {
		b := r.free[addr]
		delete(r.free, addr)
		r.note(s, FreeCompleted, addr, b.size, b.stream)
	}
}

// calls notes purchases and returns; pages in a row that one purchase mapped are one range.
func (r *recorder) calls(s *executor.State) {
	start := len(r.events)
	if s.Operation.Kind == trace.Segment {
		for i := range s.Calls {
			switch c := &s.Calls[i]; c.Kind {
			case device.CallMalloc:
				r.segs[c.Addr] = freed{c.Size, s.Operation.Stream}
			case device.CallReserve:
				r.ranges = append(r.ranges, reserved{c.Addr, c.Size, s.Operation.Stream})
			}
		}
		return // what is there before the history begins
	}
	for i := range s.Calls {
		c := &s.Calls[i]
		stream := s.Operation.Stream
		switch c.Kind {
		case device.CallMalloc:
			r.segs[c.Addr] = freed{c.Size, stream}
			r.note(s, SegmentAlloc, uint64(c.Addr), c.Size, stream)
		case device.CallFree:
			r.note(s, SegmentFree, uint64(c.Addr), r.segs[c.Addr].size, r.segs[c.Addr].stream)
			delete(r.segs, c.Addr)
		case device.CallReserve:
			r.ranges = append(r.ranges, reserved{c.Addr, c.Size, stream})
		case device.CallUnreserve:
			r.ranges = slices.DeleteFunc(r.ranges, func(g reserved) bool { return g.addr == c.Addr })
		case device.CallMap, device.CallUnmap:
			for _, g := range r.ranges {
				if c.Addr >= g.addr && uint64(c.Addr-g.addr) < g.size {
					stream = g.stream
				}
			}
			a := SegmentMap
			if c.Kind == device.CallUnmap {
				a = SegmentUnmap
			}
			if n := len(r.events); n > start {
				if last := &r.events[n-1]; last.Action == a && last.Addr+last.Size == uint64(c.Addr) {
					last.Size += c.Size
					continue
				}
			}
			r.note(s, a, uint64(c.Addr), c.Size, stream)
		}
	}
}

// segmentsOf lists an allocator's state as PyTorch does: expandable segments as their mapped ranges.
func segmentsOf(s *allocators.Snapshot) []Segment {
	var out []Segment
	for i := range s.Segments {
		g := &s.Segments[i]
		open := false
		for _, b := range s.BlocksOf(i) {
			if b.State == allocators.Unmapped {
				open = false
				continue
			}
			if !open {
				out = append(out, Segment{Addr: uint64(b.Addr), Stream: handleOf(g.Stream), Small: g.Small, Expandable: g.Expandable, Pool: Pool{User: uint64(g.Pool)}})
				open = true
			}
			last := &out[len(out)-1]
			last.Size += b.Size
			k := Block{Addr: uint64(b.Addr), Size: b.Size}
			switch b.State {
			case allocators.Live:
				k.State, k.Requested = Live, b.Requested
			case allocators.Pending:
				k.State, k.Requested = Pending, b.Requested
			}
			last.Blocks = append(last.Blocks, k)
		}
	}
	return out
}
