package snapshot

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/whatif"
)

// pendingFree is a block that was freed with uses on other streams outstanding. The recording does not say on which, so each
// gets a stream of its own, on which nothing else happens, until the entry that says that it completed.
type pendingFree struct {
	id     uint64
	stream device.Stream
}

// forward writes a history as a trace.
type forward struct {
	m        *Imported
	p        *past
	events   []Event
	set      *caching.Settings
	fraction *float64
	asked    uint64 // Options.Request

	streams []uint64 // raw handles, ascending: their index is the stream
	ids     uint64
	live    map[uint64]uint64 // address to id
	pending map[uint64]pendingFree
	idle    []device.Stream // streams for pending frees that are not in use
	used    device.Stream   // the next one never used

	open      allocators.PoolID // the private pool that requests go to
	pools     trace.PoolSet
	uses      map[allocators.PoolID]int
	reserved  uint64              // as recorded, private pools included
	modes     map[int]releaseMode // that are not the first choice, by entry
	doubtful  []doubt
	inferred  []string
	missing   []string
	completed []uint64
	segments  []int32 // entries of segments and ranges since the last request
	stats     struct{ openings, impliedFrees, unknownFrees, pendings, emptied, retries, oddSizes int }
}

func newForward(m *Imported, p *past, events []Event, set *caching.Settings, o Options) *forward {
	f := &forward{
		m: m, p: p, events: events, set: set, fraction: o.Fraction, asked: o.Request, live: make(map[uint64]uint64, len(p.blocks)),
		pending: map[uint64]pendingFree{}, streams: []uint64{0}, uses: map[allocators.PoolID]int{},
	}
	seen := map[uint64]bool{0: true}
	add := func(s uint64) {
		if !seen[s] {
			seen[s] = true
			f.streams = append(f.streams, s)
		}
	}
	for i := range p.regions.list {
		add(p.regions.list[i].stream)
	}
	for i := range events {
		if a := events[i].Action; a == Alloc || a == OOM || a == SegmentAlloc || a == SegmentMap {
			add(events[i].Stream)
		}
	}
	slices.Sort(f.streams) // the order of the handles decides the order of releases
	f.used = device.Stream(len(f.streams))
	f.findCapacity(o)
	n := len(p.regions.list) + len(p.blocks) + len(events)*2/3 + 4
	m.Trace = &trace.Trace{Ops: make([]trace.Op, 0, n)}
	m.Entry = make([]int32, 0, n)
	return f
}

func (f *forward) stream(raw uint64) device.Stream {
	i, _ := slices.BinarySearch(f.streams, raw)
	return device.Stream(i)
}

func (f *forward) emit(entry int, op trace.Op) int {
	f.m.Trace.Ops = append(f.m.Trace.Ops, op)
	f.m.Entry = append(f.m.Entry, int32(entry))
	return len(f.m.Trace.Ops) - 1
}

func (f *forward) run() {
	f.start()
	for i := range f.events {
		f.entry(i, &f.events[i])
	}
	f.settle()
	f.leave()
	if f.asked > 0 {
		f.m.OOMs = append(f.m.OOMs, f.emit(-1, trace.Op{Kind: trace.Alloc, ID: f.ids, Bytes: f.asked}))
	}
	f.report()
}

// start writes the state to start from.
func (f *forward) start() {
	regions := f.p.regions.list
	type base struct {
		sid  uint64
		addr uint64
	}
	ranges := map[[3]uint64]base{} // of stream, pool and private pool
	k := 0
	for i := range regions {
		g := &regions[i]
		for k < len(f.p.blocks) && f.p.blocks[k].addr < g.addr {
			k++ // it lies in no segment; that was counted
		}
		private := allocators.PoolID(f.p.poolID(g.pool))
		op := trace.Op{
			Kind: trace.Segment, ID: uint64(i), Bytes: g.size, Stream: f.stream(g.stream), Small: g.small, Expandable: g.expandable,
			Pool: private,
		}
		if private != 0 {
			f.uses[private] = 1
			f.pools.Step(&op)
		}
		if g.expandable {
			key := [3]uint64{g.stream, 0, uint64(private)}
			if g.small {
				key[1] = 1
			}
			// The address range is not recorded. It has 9/8 of the device, so ranges that lie closer belong together.
			if b, ok := ranges[key]; ok && g.end()-b.addr <= f.reach() && (g.addr-b.addr)%f.set.Rules.PageSize(g.small) == 0 {
				op.GoesOn, op.Base, op.Offset = true, b.sid, g.addr-b.addr
			} else {
				ranges[key] = base{op.ID, g.addr}
			}
		}
		f.emit(-1, op)
		f.m.Origins[op.ID] = device.Addr(g.addr)
		for ; k < len(f.p.blocks) && f.p.blocks[k].addr < g.end(); k++ {
			b := &f.p.blocks[k]
			if b.size == 0 || b.size%trace.StartGrain != 0 || b.requested > b.size || (b.addr-g.addr)%trace.StartGrain != 0 {
				f.stats.oddSizes++
				continue
			}
			id := f.newID(b.addr)
			f.m.Stacks = append(f.m.Stacks, b.stack)
			f.emit(-1, trace.Op{
				Kind: trace.Block, ID: id, Bytes: b.size, Requested: max(b.requested, 1), Base: op.ID, Offset: b.addr - g.addr,
			})
		}
	}
	for i := range f.p.blocks {
		if b := &f.p.blocks[i]; b.pending {
			if id, ok := f.live[b.addr]; ok {
				f.freeLater(-1, b.addr, id)
			}
		}
	}
}

// reach is the address space of an expandable segment, as far as the device's size is known.
func (f *forward) reach() uint64 {
	c := f.m.recorded
	if c == 0 {
		c = 1 << 37 // 128 GiB: no device is larger by much
	}
	return c + c/8
}

func (f *forward) newID(addr uint64) uint64 {
	id := f.ids
	f.ids++
	f.live[addr] = id
	return id
}

func (f *forward) entry(i int, e *Event) {
	switch e.Action {
	case SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap:
		f.segments = append(f.segments, int32(i))
	case Alloc:
		f.request(i, e)
		f.enter(f.p.poolOf(i))
		if id, ok := f.live[e.Addr]; ok {
			f.stats.impliedFrees++
			delete(f.live, e.Addr)
			f.emit(-1, trace.Op{Kind: trace.Free, ID: id})
		}
		op := f.emit(i, trace.Op{Kind: trace.Alloc, ID: f.newID(e.Addr), Bytes: e.Size, Stream: f.stream(e.Stream)})
		f.decide(op, e)
	case OOM:
		f.request(i, e)
		f.enter(f.p.poolID(poolNamed(f.m.Snapshot.Pools, e)))
		op := f.emit(i, trace.Op{Kind: trace.Alloc, ID: f.ids, Bytes: e.Size, Stream: f.stream(e.Stream)})
		f.ids++
		f.m.OOMs = append(f.m.OOMs, op)
		f.decide(op, e)
	case FreeRequested:
		f.settle()
		id, ok := f.live[e.Addr]
		if !ok {
			f.stats.unknownFrees++
			return
		}
		if i+1 < len(f.events) && f.events[i+1].Action == FreeCompleted && f.events[i+1].Addr == e.Addr {
			// A free that a flush completes right behind it looks like one that waited for nothing.
			if i+2 < len(f.events) && f.events[i+2].Action >= SegmentAlloc {
				f.doubtful = append(f.doubtful, doubt{i, len(f.m.Trace.Ops), []releaseMode{atOnce, heldBack}})
				if f.modes[i] == heldBack {
					f.freeLater(i, e.Addr, id)
					return
				}
			}
			delete(f.live, e.Addr)
			f.emit(i, trace.Op{Kind: trace.Free, ID: id})
			return
		}
		f.freeLater(i, e.Addr, id)
	case FreeCompleted:
		if _, ok := f.pending[e.Addr]; ok {
			f.completed = append(f.completed, e.Addr)
		} else if id, ok := f.live[e.Addr]; ok { // free_requested entries were left out of the recording
			delete(f.live, e.Addr)
			f.emit(i, trace.Op{Kind: trace.Free, ID: id})
		} else if i == 0 || f.events[i-1].Action != FreeRequested || f.events[i-1].Addr != e.Addr {
			f.stats.unknownFrees++
		}
	}
}

// freeLater frees a block that stays pending.
func (f *forward) freeLater(i int, addr, id uint64) {
	f.stats.pendings++
	var s device.Stream
	if n := len(f.idle); n > 0 {
		s, f.idle = f.idle[n-1], f.idle[:n-1]
	} else {
		s = f.used
		f.used++
	}
	delete(f.live, addr)
	f.pending[addr] = pendingFree{id, s}
	f.leave()
	f.emit(-1, trace.Op{Kind: trace.Record, ID: id, Stream: s})
	f.emit(i, trace.Op{Kind: trace.Free, ID: id})
}

// decide notes PyTorch's decisions on a request.
func (f *forward) decide(op int, e *Event) {
	for _, k := range f.segments {
		f.decision(op, &f.events[k])
	}
	f.segments = f.segments[:0]
	f.decision(op, e)
}

var decisionKinds = map[Action]whatif.DecisionKind{
	Alloc: whatif.Placed, OOM: whatif.Refused, SegmentAlloc: whatif.Bought, SegmentFree: whatif.Returned, SegmentMap: whatif.Mapped,
	SegmentUnmap: whatif.Unmapped,
}

func (f *forward) decision(op int, e *Event) {
	f.m.Recorded = append(f.m.Recorded, whatif.Decision{Op: op, Kind: decisionKinds[e.Action], Addr: device.Addr(e.Addr), Size: e.Size})
	f.reserve(e)
}

// report adds what the walk found to the Loss.
func (f *forward) report() {
	m, s := f.m, &f.stats
	if s.pendings > 0 {
		m.infer("%d frees waited for other streams, which are not recorded: each waits on a stream of its own until the entry that says "+
			"that it completed", s.pendings)
	}
	if s.openings > 0 {
		m.infer("%d openings of private pools (CUDA graphs, MemPool): the recording does not say when one was open, only which requests "+
			"went there", s.openings)
	}
	if s.retries > 0 || s.emptied > 0 {
		m.infer("%d releases taken for retries after a failed purchase or for garbage collection, %d for calls of empty_cache", s.retries,
			s.emptied)
	}
	if s.impliedFrees > 0 {
		m.miss("%d frees are not recorded: they are put before the next allocation at their address", s.impliedFrees)
	}
	if s.unknownFrees > 0 {
		m.miss("%d frees are of blocks that nothing else tells of; they are left out", s.unknownFrees)
	}
	if s.oddSizes > 0 {
		m.miss("%d blocks from before the recording have a size or place that no allocator of PyTorch gives; they are left out", s.oddSizes)
	}
	if n := len(m.OOMs); n > 0 && f.asked == 0 {
		m.infer("%d refused requests: the file has their rounded size, not what was asked for", n)
	}
}
