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
	f.settle(len(f.events))
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
		f.settle(i)
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

// complete notes that the frees seen completed. If nothing waited for them, their work was done before: a sync says so.
func (f *forward) complete(waited bool) {
	for _, addr := range f.completed {
		p := f.pending[addr]
		delete(f.pending, addr)
		f.idle = append(f.idle, p.stream)
		if !waited {
			f.leave()
			f.emit(-1, trace.Op{Kind: trace.Sync, Stream: p.stream})
		}
	}
	f.completed = f.completed[:0]
}

// enter opens the private pool that a request lies in, and closes another one. When pools were open is not recorded; they are taken to
// be so from the first request of a pool to what would not go on in one: a request of another pool, a free that waits for another stream,
// an empty_cache.
func (f *forward) enter(pool uint16) {
	id := allocators.PoolID(pool)
	if id == f.open {
		return
	}
	f.leave()
	if id == 0 {
		return
	}
	begin := trace.Op{Kind: trace.PoolBegin, Pool: id, Stream: trace.AllStreams, Capture: f.p.pools[id-1].Graph != 0}
	if !f.pools.Step(&begin) {
		return // it was released: what comes now is left to the default pool
	}
	f.stats.openings++
	f.emit(-1, begin)
	f.open = id
	if f.uses[id]++; f.uses[id] > 1 { // only the first one counts as a use that lasts
		f.endUse(id)
	}
}

// endUse releases a pool once.
func (f *forward) endUse(id allocators.PoolID) {
	op := trace.Op{Kind: trace.PoolRelease, Pool: id}
	if f.pools.Step(&op) {
		f.emit(-1, op)
		f.uses[id]--
	}
}

// leave closes the open private pool.
func (f *forward) leave() {
	if f.open == 0 {
		return
	}
	op := trace.Op{Kind: trace.PoolEnd, Pool: f.open}
	f.pools.Step(&op)
	f.emit(-1, op)
	f.open = 0
}

// releasePool releases a pool whose memory is given back next.
func (f *forward) releasePool(id allocators.PoolID) {
	for id != 0 && f.uses[id] > 0 {
		before := f.uses[id]
		f.endUse(id)
		if f.uses[id] == before {
			return
		}
	}
}

// settle takes what was recorded since the last request and belongs to none: an empty_cache.
func (f *forward) settle(i int) {
	if len(f.segments) == 0 && len(f.completed) == 0 {
		return
	}
	f.emptyCache(i, len(f.segments))
}

// emptyCache writes one, with the first n of the segments' entries as what it did.
func (f *forward) emptyCache(i, n int) {
	f.stats.emptied++
	f.leave()
	for _, k := range f.segments[:n] {
		f.releasePool(allocators.PoolID(f.p.poolOf(int(k))))
	}
	op := f.emit(-1, trace.Op{Kind: trace.EmptyCache})
	f.complete(true)
	for _, k := range f.segments[:n] {
		f.decision(op, &f.events[k])
	}
	f.segments = append(f.segments[:0], f.segments[n:]...)
}

// request takes what was recorded since the last request and belongs to this one, or to an empty_cache before it.
func (f *forward) request(i int, e *Event) {
	g := f.group(f.segments)
	if g.returned == 0 && e.Action != OOM {
		f.complete(false)
		return
	}
	// What was recorded can be read in several ways; see resolve.
	modes := []releaseMode{retried}
	if len(f.completed) > 0 {
		modes = append(modes, syncedAndRetried)
	}
	if g.returned > 0 && !g.boughtFirst {
		modes = append(modes, emptied)
		if e.Action != OOM && !f.isRetry(g) {
			modes[0], modes[len(modes)-1] = emptied, retried
		}
		if g.bought == 0 && e.Action != OOM {
			modes = modes[:1] // there is no lookup after a flush, so a request that buys nothing did not flush
		}
	}
	mode := modes[0]
	if m, ok := f.modes[i]; ok {
		mode = m
	}
	if len(modes) > 1 {
		f.doubtful = append(f.doubtful, doubt{entry: i, op: len(f.m.Trace.Ops), modes: modes})
	}
	switch mode {
	case emptied:
		f.emptyCache(i, g.last+1)
	default:
		f.stats.retries++
		for _, k := range f.segments {
			if a := f.events[k].Action; a == SegmentFree || a == SegmentUnmap {
				f.leave()
				f.releasePool(allocators.PoolID(f.p.poolOf(int(k))))
			}
		}
		f.complete(mode == retried)
	}
}

// releaseMode is how a release before a request came about.
type releaseMode uint8

const (
	retried          releaseMode = iota // a purchase failed; the flush waited for pending frees
	syncedAndRetried                    // the work that pending frees waited for was done before
	emptied                             // the program called empty_cache
	atOnce                              // a free waited for nothing
	heldBack                            // a free waited, and was completed by the next flush
)

// doubt is a place where the recording can be read in several ways, the likeliest first.
type doubt struct {
	entry, op int
	modes     []releaseMode
}

// group is what the entries of segments before a request come to.
type group struct {
	returned, last int    // entries that give memory back, and the last one of them
	bought         uint64 // bytes bought behind the last of these
	boughtFirst    bool   // something was mapped before memory was given back
	before         uint64 // bytes reserved before all of them
}

func (f *forward) group(entries []int32) group {
	g := group{last: -1, before: f.reserved}
	for k, i := range entries {
		switch e := &f.events[i]; e.Action {
		case SegmentFree, SegmentUnmap:
			g.boughtFirst = g.boughtFirst || g.bought > 0
			g.returned++
			g.last, g.bought = k, 0
		default:
			g.bought += e.Size
		}
	}
	return g
}

// isRetry tells whether memory was likely given back because a purchase had failed, as against by an empty_cache before the request.
// The recording does not say; at least what was bought must not have fitted before.
func (f *forward) isRetry(g group) bool {
	if g.bought == 0 {
		return false
	}
	limit := f.m.recorded
	if f.fraction != nil && limit > 0 {
		limit = uint64(*f.fraction * float64(limit))
		if f.set.GCThreshold > 0 && f.reserved > uint64(f.set.GCThreshold*float64(limit)) {
			return true
		}
	}
	return limit > 0 && g.before+g.bought > limit
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
	switch e.Action {
	case SegmentAlloc, SegmentMap:
		f.reserved += e.Size
	case SegmentFree, SegmentUnmap:
		f.reserved -= min(e.Size, f.reserved)
	}
}

// findCapacity finds what PyTorch could take of the device, or nothing. It also sets the bytes reserved at the start.
func (f *forward) findCapacity(o Options) {
	for i := range f.p.regions.list {
		f.reserved += f.p.regions.list[i].size
	}
	start := f.reserved
	defer func() { f.reserved = start }()
	peak, atOOM, below := f.reserved, uint64(0), ^uint64(0)
	var groups []group
	var entries []int32
	for i := range f.events {
		switch e := &f.events[i]; e.Action {
		case SegmentAlloc, SegmentFree, SegmentMap, SegmentUnmap:
			entries = append(entries, int32(i))
		case Alloc, OOM:
			g := f.group(entries)
			for _, k := range entries {
				switch s := &f.events[k]; s.Action {
				case SegmentAlloc, SegmentMap:
					f.reserved += s.Size
				default:
					f.reserved -= min(s.Size, f.reserved)
				}
				peak = max(peak, f.reserved)
			}
			entries = entries[:0]
			if e.Action == OOM {
				atOOM = max(atOOM, f.reserved+e.Addr)
			} else if g.returned > 0 && g.bought > 0 {
				groups = append(groups, g)
			}
		case FreeRequested:
			for _, k := range entries {
				if s := &f.events[k]; s.Action == SegmentFree || s.Action == SegmentUnmap {
					f.reserved -= min(s.Size, f.reserved)
				}
			}
			entries = entries[:0]
		}
	}
	for _, g := range groups {
		if g.before+g.bought > peak {
			below = min(below, g.before+g.bought)
		}
	}
	// What the recording was made on decides how it is read, whatever it is to be replayed on.
	m := f.m
	switch {
	case atOOM > 0:
		m.recorded, m.CapacityIs = atOOM, "reserved + device free at the recorded OOM"
	case o.Capacity >= peak:
		m.recorded = o.Capacity
	case below != ^uint64(0):
		m.recorded, m.CapacityIs = (below-1)>>21<<21, "the most at which the recorded retries had to happen"
	}
	if m.Capacity = m.recorded; o.Capacity > 0 && o.Capacity != m.Capacity || m.CapacityIs == "" && o.Capacity > 0 {
		m.Capacity, m.CapacityIs = o.Capacity, "as given"
	}
}

// report adds what the walk found to the Loss.
func (f *forward) report() {
	m, s := f.m, &f.stats
	if s.pendings > 0 {
		m.infer("%d frees waited for other streams, which are not recorded: each waits on a stream of its own until the entry that says "+
			"that it completed", s.pendings)
	}
	if s.openings > 0 {
		m.infer("%d openings of private pools (CUDA graphs, MemPool): the recording does not say when one was open, only which requests went there", s.openings)
	}
	if s.retries > 0 || s.emptied > 0 {
		m.infer("%d releases taken for retries after a failed purchase or for garbage collection, %d for calls of empty_cache", s.retries, s.emptied)
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
