package executor

import (
	"errors"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/faultdev"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// ErrHarness marks a fault of the harness or its environment: it is never a finding.
var ErrHarness = errors.New("harness fault")

// WalkEvery is how many operations lie between two walks over the whole state.
const WalkEvery = 1024

// Target is an allocator under test.
type Target struct {
	// Name is what reports call it.
	Name string
	// New makes the allocator on an empty device.
	New func(device.Device) (allocators.Allocator, error)
}

// Options of a run.
type Options struct {
	// Device is the device, empty and not used before.
	Device device.Device
	// Properties are checked; none means that nothing is.
	Properties []Property
	// Judge decides what each refusal was; nil leaves them unjudged.
	Judge Judge
	// OnRow is called with a history row after every operation of the trace; the row is valid during the call.
	OnRow func(*Row)
	// Faults make the device fail calls of the allocator; what must hold then is property FaultRecovery. Nil for none.
	Faults faultdev.Plan
	// Verify says how much of each live block's bytes is written and compared, on a device that has bytes (property
	// DataIntegrity).
	Verify Verify
}

// Result is what a run came to.
type Result struct {
	Target string
	// Ops is the operations executed.
	Ops int
	// OOMs are the positions of refused allocations, Judgements what they were (with a Judge only).
	OOMs       []int
	Judgements []Judgement
	// Findings are broken properties; Known are those that a known upstream issue explains.
	Findings, Known []Finding
	// Stats are the counters at the end of the trace, before everything is freed; HasStats if the allocator keeps any.
	Stats    allocators.Stats
	HasStats bool
	// Elsewhere says that the allocator runs in a process of its own, whose memory the trace does not decide alone.
	Elsewhere bool
	// PeakAllocated and PeakReserved are the largest values after an operation, in bytes.
	PeakAllocated, PeakReserved uint64
	// SumAllocated, SumReserved add the bytes after each operation, for means.
	SumAllocated, SumReserved float64
	// DeviceFree is the device's free bytes at the end of the trace.
	DeviceFree uint64
	// Segments is the number of segments, of both kinds, at the end of the trace (checked runs only).
	Segments int
	// DeviceCalls counts the device's calls by kind.
	DeviceCalls [16]uint64
	// LastOOM is the message of the last refusal.
	LastOOM string
	// Faults is how many device calls failed as planned.
	Faults int
	// Verified is how many bytes were compared with what had been written.
	Verified uint64
}

// MemoryCalls counts the device calls that buy, map or return memory, refused ones included.
func (r *Result) MemoryCalls() uint64 {
	var n uint64
	for k, calls := range r.DeviceCalls {
		if device.CallKind(k) != device.CallWait {
			n += calls
		}
	}
	return n
}

// slot is what the program knows of an id.
type slot struct {
	block     allocators.Block
	requested uint64
	status    slotStatus
}

type slotStatus uint8

const (
	slotEmpty slotStatus = iota
	slotLive
	slotZero    // a zero-byte allocation: no block
	slotRefused // the alloc was an OOM
)

// Run is a trace on its way through a target.
type Run struct {
	prog   *Program
	target Target
	opts   Options
	dev    device.Device
	alloc  allocators.Allocator

	recordUse allocators.StreamRecorder
	emptier   allocators.CacheEmptier
	stats     *allocators.Stats
	snap      allocators.Snapshotter
	toucher   allocators.Toucher
	promiser  allocators.Promiser
	remote    remote
	starting  *starting // nil if the trace starts from nothing
	pools     pools

	next    int
	slots   []slot
	outcome Outcome
	block   allocators.Block
	stopped bool // a finding ended the checking

	checked  bool // properties, a judge or rows are wanted
	recorder *device.Recorder
	ledger   ledger
	heap     *shadow.Heap
	state    State
	view     View
	entered  View
	snapshot allocators.Snapshot
	touched  []allocators.Neighbourhood
	previous allocators.Stats
	row      Row
	capacity uint64
	foreign  uint64
	// foreignRefused: a foreign operation came to nothing, which the device knows and the allocator does not.
	foreignRefused bool
	hooks          []Property // those with Op
	credit         int        // what views before served allocations may still cost, see enter
	oom            *allocators.OOMError
	changed        bool     // the operation's device calls changed segments, pages or pending blocks
	faults         *faults  // nil if none are planned
	stamps         *stamper // nil if no bytes are verified
	result         Result
}

// Start makes a run ready before its first operation.
func Start(p *Program, t Target, o Options) (*Run, error) {
	r := &Run{prog: p, target: t, opts: o, dev: o.Device, slots: make([]slot, p.slots)}
	r.checked = len(o.Properties) > 0 || o.Judge != nil || o.OnRow != nil || o.Faults != nil
	_, r.capacity = o.Device.Info()
	if r.checked {
		r.recorder = &device.Recorder{Device: o.Device}
		if o.Faults != nil {
			r.faults = &faults{dev: faultdev.New(o.Device, o.Faults)}
			r.recorder.Device = r.faults.dev
		}
		r.dev = r.recorder
		r.heap = shadow.New(o.Device, p.slots)
		r.state.Heap, r.state.Capacity, r.state.Previous = r.heap, r.capacity, &r.previous
		for _, p := range o.Properties {
			if p.Op != nil {
				r.hooks = append(r.hooks, p)
			}
		}
	}
	var err error
	if r.stamps, err = newStamper(o.Verify, o.Device, p.slots); err != nil {
		return nil, err
	}
	if r.alloc, err = t.New(r.dev); err != nil {
		return nil, fmt.Errorf("%s cannot start: %w", t.Name, err)
	}
	r.recordUse, r.state.KnowsStreams = r.alloc.(allocators.StreamRecorder)
	r.emptier, r.state.Empties = r.alloc.(allocators.CacheEmptier)
	r.snap, _ = r.alloc.(allocators.Snapshotter)
	r.toucher, _ = r.alloc.(allocators.Toucher)
	r.promiser, _ = r.alloc.(allocators.Promiser)
	r.pools.can, r.state.HasPools = r.alloc.(allocators.PrivatePooler)
	r.pools.uses, r.pools.gone = map[allocators.PoolID]int{}, map[allocators.PoolID]bool{}
	if s, ok := r.alloc.(allocators.StatsReader); ok {
		r.stats = s.Stats()
		r.state.Stats = r.stats
		r.previous = *r.stats
	}
	if err := r.prepareStart(); err != nil {
		return nil, err
	}
	r.readPromise()
	r.connect()
	r.credit = enteredAtStart
	r.state.Faulty = r.faults != nil
	if r.checked { // an arena is bought at once
		r.apply(r.recorder.Calls, 0, false, 0)
		r.recorder.Reset()
	}
	r.result.Target = t.Name
	return r, nil
}

func (r *Run) readPromise() {
	if r.checked && r.promiser != nil {
		r.state.Promise = r.promiser.Promise()
		r.readPools()
	}
}

// Execute runs a whole trace and returns what it came to.
func Execute(p *Program, t Target, o Options) (*Result, error) {
	r, err := Start(p, t, o)
	if err != nil {
		return nil, err
	}
	if err := r.guard(r.all); err != nil {
		return nil, err
	}
	return r.Finish()
}

// all executes what is left.
func (r *Run) all() error {
	for r.More() {
		if err := r.Step(); err != nil {
			return err
		}
	}
	return nil
}

// More tells whether an operation is left to execute.
func (r *Run) More() bool { return r.next < len(r.prog.steps) && !r.stopped }

// Position is the index of the next operation.
func (r *Run) Position() int { return r.next }

// Allocator is the allocator under test.
func (r *Run) Allocator() allocators.Allocator { return r.alloc }

// Result is what the run has come to so far.
func (r *Run) Result() *Result { return &r.result }

// Step executes the next operation. An error is a fault of the harness, not a finding.
func (r *Run) Step() error {
	s := &r.prog.steps[r.next]
	if r.checked {
		if err := r.before(s); err != nil {
			return err
		}
	}
	if r.faults != nil {
		r.faults.prepare(r, s)
	}
	if r.stamps != nil && s.kind == trace.Free && r.slots[s.slot].status == slotLive {
		if err := r.checkStamps(s.slot); err != nil || r.stopped {
			r.next++
			return err
		}
	}
	err := r.perform(s)
	if r.faults != nil {
		err = r.faults.repeat(r, s, err)
		if r.stopped {
			r.next++
			return err
		}
	}
	if err != nil {
		if r.died(err) {
			r.next++
			return nil
		}
		if !r.checked || errors.Is(err, ErrHarness) || errors.Is(err, allocators.ErrEnvironment) || errors.Is(err, device.ErrEnvironment) {
			return r.at(err)
		}
	}
	if r.stats != nil {
		allocated, reserved := r.stats.AllocatedBytes.All.Current, r.stats.ReservedBytes.All.Current
		r.result.PeakAllocated = max(r.result.PeakAllocated, allocated)
		r.result.PeakReserved = max(r.result.PeakReserved, reserved)
		r.result.SumAllocated += float64(allocated)
		r.result.SumReserved += float64(reserved)
	}
	if r.outcome == OOM {
		r.result.OOMs = append(r.result.OOMs, r.next)
	}
	if r.checked {
		if err := r.after(s, err); err != nil {
			return err
		}
	}
	if r.stamps != nil && r.outcome == OK && !r.stopped {
		var err error
		switch {
		case s.kind == trace.Alloc && s.bytes > 0:
			err = r.stampNew(s)
		case s.kind == trace.EmptyCache:
			err = r.checkAllStamps()
		}
		if err != nil {
			return err
		}
	}
	r.next++
	return nil
}

// at adds the place to a harness fault.
func (r *Run) at(err error) error {
	op := &r.prog.Trace.Ops[r.next]
	return fmt.Errorf("%w: %s: operation %d (%s) on %s: %w", ErrHarness, r.prog.Trace.Name, r.next, op, r.target.Name, err)
}

// perform calls the allocator. A refusal is an outcome; any other error is returned.
func (r *Run) perform(s *step) error {
	r.outcome, r.block = OK, allocators.Block{}
	switch s.kind {
	case trace.Segment, trace.Block:
		return r.performStart(s)
	case trace.Alloc:
		sl := &r.slots[s.slot]
		b, err := r.alloc.Alloc(s.bytes, s.stream)
		if err != nil {
			sl.status = slotRefused
			return r.refused(err)
		}
		if b.Size == 0 {
			b.Size = s.bytes
			r.state.Unsized = r.state.Unsized || s.bytes > 0
		}
		*sl = slot{block: b, requested: s.bytes, status: slotLive}
		if s.bytes == 0 {
			sl.status = slotZero
		}
		r.block = b
	case trace.Free:
		sl := &r.slots[s.slot]
		status := sl.status
		sl.status = slotEmpty
		if status == slotLive {
			r.block = sl.block
			return r.alloc.Free(sl.block.Addr)
		}
		r.outcome = notLive(status)
	case trace.Record:
		sl := &r.slots[s.slot]
		if sl.status == slotLive {
			r.block = sl.block
			if r.recordUse != nil {
				return r.recordUse.Record(sl.block.Addr, s.stream)
			}
			return nil
		}
		r.outcome = notLive(sl.status)
	case trace.Sync:
		sync := func() error { return r.opts.Device.Sync(s.stream) }
		if s.stream == trace.AllStreams {
			sync = r.opts.Device.SyncAll
		}
		if err := sync(); err != nil {
			return harness(err)
		}
		return r.synced(s.stream)
	case trace.Use:
		sl := &r.slots[s.slot]
		if sl.status != slotLive {
			r.outcome = notLive(sl.status)
			return nil
		}
		r.block = sl.block
		// Who cannot be told of streams is not asked to mind the work on them.
		if r.checked && r.recordUse != nil && r.heap.At(s.slot) != nil {
			return harness(r.heap.Use(s.slot, s.stream))
		}
	case trace.EmptyCache:
		if r.prog.Trace.Ops[r.next].Pool != 0 {
			return r.performPool(s)
		}
		if r.emptier != nil {
			return r.unsupported(r.emptier.EmptyCache())
		}
	case trace.PoolBegin, trace.PoolEnd, trace.PoolRelease:
		return r.performPool(s)
	case trace.Conf:
		c, ok := r.alloc.(allocators.Configurer)
		if !ok {
			r.outcome = Skip
			return nil
		}
		err := c.Configure(r.prog.Trace.Ops[r.next].Conf)
		r.readPromise()
		return harness(err)
	case trace.Fraction:
		c, ok := r.alloc.(allocators.FractionSetter)
		if !ok {
			r.outcome = Skip
			return nil
		}
		err := c.SetFraction(r.prog.Trace.Ops[r.next].Fraction)
		r.readPromise()
		return harness(err)
	case trace.Foreign:
		d, ok := r.opts.Device.(device.Foreigner)
		if !ok || d.SetForeign(s.bytes) != nil {
			r.outcome = Skip // others cannot get what the device has not
			r.foreignRefused = true
			return nil
		}
		r.foreign = s.bytes
		if r.remote.follower != nil {
			return r.remote.follower.FollowForeign(s.bytes)
		}
	}
	return nil
}

// notLive is the outcome of a free or record of an id without a block: a zero-byte allocation is fine, a refused one is not.
func notLive(s slotStatus) Outcome {
	if s == slotZero {
		return OK
	}
	return Skip
}

func harness(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHarness, err)
}

func (r *Run) refused(err error) error {
	r.oom = nil
	if !errors.As(err, &r.oom) && !errors.Is(err, device.ErrOutOfMemory) {
		r.outcome = Failed
		return err
	}
	r.outcome = OOM
	return nil
}

// before prepares the shadow for an operation.
func (r *Run) before(s *step) error {
	if len(r.recorder.Calls) > 0 {
		r.recorder.Reset()
	}
	if r.heap.Deferred() > 0 {
		r.resume(s)
	}
	switch s.kind {
	case trace.Alloc:
		// The allocator looks at finished events now, and so do we.
		if r.heap.Pending.Count > 0 && s.bytes > 0 && !r.state.Held {
			r.heap.Poll()
		}
		r.state.Pool = r.poolOf(s.stream)
	case trace.Free:
		if r.slots[s.slot].status == slotLive && r.heap.At(s.slot) != nil { // nil if it overlapped another one
			if err := r.heap.Free(s.slot); err != nil {
				return r.at(err)
			}
		}
	}
	if r.stats != nil {
		r.state.ReservedBefore = r.stats.ReservedBytes.All.Current
	}
	r.enter(s)
	return nil
}

// after updates the shadow and checks.
func (r *Run) after(s *step, failure error) error {
	st := &r.state
	st.Op, st.Operation, st.Outcome, st.Block = r.next, &r.prog.Trace.Ops[r.next], r.outcome, r.block
	st.Entry, st.Overlapped, st.Region, st.PendingDone = nil, nil, nil, false
	st.Queued, st.Unmapped, st.Robbed = nil, nil, nil
	if s.kind != trace.Alloc {
		st.Pool = 0
	}
	r.changed = false
	if err := r.heap.Marked(); err != nil {
		return r.at(harness(err))
	}
	st.Calls = r.recorder.Calls
	st.Foreign = r.foreign
	if r.outcome == OOM {
		st.OOMs++
		if st.Held {
			st.HeldOOMs++
		}
		if r.opts.Judge != nil && st.Entered == nil {
			r.entered.build(&r.ledger, r.heap)
			st.Entered = &r.entered
		}
	}
	if (s.kind == trace.Conf || s.kind == trace.Fraction) && r.outcome == OK {
		st.Reconfigured = true
	}
	if len(st.Calls) > 0 {
		r.applyCalls(s)
		if r.heap.Hazards() > 0 {
			r.watchWork()
		}
	}
	r.afterPools(s)
	if (s.kind == trace.EmptyCache && st.Operation.Pool == 0 || r.outcome == OOM) && !st.Held {
		st.PendingDone = r.promiser != nil
	}
	st.DeviceFree, _ = r.opts.Device.Info()
	switch {
	case failure != nil:
		r.find("device-conservation", "refused-call", failure.Error())
		return nil
	case (s.kind == trace.Alloc || s.kind == trace.Block) && r.outcome == OK && s.bytes > 0:
		st.Region = r.ledger.find(r.block.Addr)
		st.Covered = st.Region != nil && st.Region.covers(r.block.Addr, r.block.Size)
		st.Overlapped = r.heap.Alloc(s.slot, r.block.Addr, r.block.Size, s.bytes, s.stream, r.next)
		st.Entry = r.heap.At(s.slot)
		if st.Entry != nil {
			if st.Entry.Pool = st.Pool; s.kind == trace.Block && st.Region != nil {
				st.Entry.Pool = st.Region.Pool
			}
		}
		if r.heap.Hazards() > 0 {
			st.Queued = r.heap.Disturbed(r.block.Addr, r.block.Size, s.stream)
		}
	case s.kind == trace.Record && r.slots[s.slot].status == slotLive && r.recordUse != nil:
		r.heap.Record(s.slot, s.stream)
	}
	if r.opts.OnRow != nil {
		r.row.set(r, s)
		r.opts.OnRow(&r.row)
	}
	if len(r.hooks) > 0 {
		st.Touched = nil
		if r.toucher != nil && (s.kind <= trace.Free || s.kind == trace.EmptyCache || s.kind.Starts()) && r.outcome != Skip && r.outcome != Unsupported {
			r.touched = r.toucher.Touched(r.touched[:0])
			st.Touched = r.touched
		}
		for i := range r.hooks {
			v := r.hooks[i].Op(st)
			if v == nil {
				continue
			}
			if v.Known != "" {
				f := r.finding(r.hooks[i].ID, v.Rule, v.Detail)
				f.Known = v.Known
				r.result.Known = append(r.result.Known, f)
				continue
			}
			r.find(r.hooks[i].ID, v.Rule, v.Detail)
			return nil
		}
	}
	if r.outcome == OOM && s.kind != trace.Segment {
		r.judge()
	}
	if r.outcome == OOM || s.kind == trace.EmptyCache || (r.next+1)%WalkEvery == 0 || r.faults != nil && r.faults.walk {
		r.walk()
	}
	return nil
}

// applyCalls enters the device calls of an operation in the ledger, and learns from waits what work is done.
func (r *Run) applyCalls(s *step) {
	small := false
	if r.state.Promise.Round != nil && s.kind == trace.Alloc {
		small = r.state.Promise.Round(max(s.bytes, 1)) <= smallPool
	}
	pool := r.state.Pool
	if s.kind == trace.Segment {
		small, pool = r.prog.Trace.Ops[r.next].Small, r.prog.Trace.Ops[r.next].Pool
		if pool != 0 {
			r.pools.uses[pool] = max(r.pools.uses[pool], 1)
		}
	}
	calls := r.recorder.Calls
	r.apply(calls, s.stream, small, pool)
	waited, events := false, false
	for i := range calls {
		r.result.DeviceCalls[calls[i].Kind]++
		switch calls[i].Kind {
		case device.CallWait:
			waited = true
			if calls[i].Size == device.WaitedEvent {
				events = true
			} else {
				r.heap.Synced(device.Stream(calls[i].Addr), calls[i].Size == device.WaitedDevice)
			}
		case device.CallMallocFail, device.CallCreate, device.CallCreateFail, device.CallRelease:
		default:
			r.changed = true
		}
	}
	if waited && r.heap.Pending.Count > 0 && !r.state.Held {
		if p := r.prog.Trace.Ops[r.next].Pool; p != 0 && s.kind == trace.EmptyCache {
			r.heap.WaitedFor(p, events)
		} else {
			r.heap.Waited(events)
		}
		r.changed = true
	}
}

// apply enters device calls in the ledger.
func (r *Run) apply(calls []device.Call, stream device.Stream, small bool, pool allocators.PoolID) {
	r.ledger.apply(calls, stream, small, pool)
	r.state.Bought, r.state.Returned = r.ledger.bought, r.ledger.returned
}

// smallPool is the largest rounded size of the small pool, in bytes (specification, section 2).
const smallPool = 1 << 20

// find notes a finding; the run goes no further, since what follows would be its consequences.
func (r *Run) find(property, rule, detail string) *Finding {
	r.stopped = true
	r.result.Findings = append(r.result.Findings, r.finding(property, rule, detail))
	return &r.result.Findings[len(r.result.Findings)-1]
}

func (r *Run) finding(property, rule, detail string) Finding {
	f := Finding{
		Property: property, Rule: rule, Target: r.target.Name, Op: r.next, Operation: "end of the trace", Detail: detail, At: AtEnd,
	}
	if r.next < len(r.prog.Trace.Ops) {
		op := &r.prog.Trace.Ops[r.next]
		f.Operation, f.At = op.String(), op.Kind.String()
	}
	return f
}

// NoFalseOOM is the property that judges refusals.
const NoFalseOOM = "no-false-oom-when-free-exceeds-request"

// judge decides what the refusal was.
func (r *Run) judge() {
	if r.oom != nil && r.opts.OnRow != nil {
		r.result.LastOOM = r.oom.Error()
	}
	if r.opts.Judge == nil {
		return
	}
	// Most refusals change nothing: then the view at entry is the view now.
	r.state.View = &r.entered
	if r.changed {
		r.view.build(&r.ledger, r.heap)
		r.state.View = &r.view
	}
	r.state.Repetition = r.retried()
	j := r.opts.Judge(&r.state, r.oom)
	j.Op = r.next
	r.result.Judgements = append(r.result.Judgements, j)
	if j.Asked != nil {
		r.find(NoFalseOOM, j.Asked.Level.String(), j.Asked.Reason)
		return
	}
	if j.Verdict == False {
		f := r.finding(NoFalseOOM, j.Rule, j.Reason)
		f.Known = j.Known
		if j.Known != "" {
			r.result.Known = append(r.result.Known, f)
			return
		}
		r.result.Findings = append(r.result.Findings, f)
		r.stopped = true
	}
}

// walk checks the whole state.
func (r *Run) walk() {
	if len(r.opts.Properties) == 0 || r.stopped {
		return
	}
	if r.outcome != OOM || r.opts.Judge == nil {
		r.view.build(&r.ledger, r.heap)
		r.state.View = &r.view
	}
	r.state.Snapshot = nil
	r.readStats()
	if r.snap != nil {
		r.snap.Snapshot(&r.snapshot)
		r.state.Snapshot = &r.snapshot
	}
	for i := range r.opts.Properties {
		p := &r.opts.Properties[i]
		if p.Walk == nil {
			continue
		}
		if v := p.Walk(&r.state); v != nil {
			r.find(p.ID, v.Rule, v.Detail).At = AtWalk
			return
		}
	}
	if r.stats != nil {
		r.previous = *r.stats
	}
}
