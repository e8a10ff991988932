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

// Run is a trace on its way through a target.
type Run struct {
	prog   *Program
	target Target
	opts   Options
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
	r := &Run{prog: p, target: t, opts: o, slots: make([]slot, p.slots)}
	r.checked = len(o.Properties) > 0 || o.Judge != nil || o.OnRow != nil || o.Faults != nil
	_, r.capacity = o.Device.Info()
	dev := o.Device // as the allocator sees it
	if r.checked {
		r.recorder = &device.Recorder{Device: o.Device}
		if o.Faults != nil {
			r.faults = &faults{dev: faultdev.New(o.Device, o.Faults)}
			r.recorder.Device = r.faults.dev
		}
		dev = r.recorder
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
	if r.alloc, err = t.New(dev); err != nil {
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
		free, _ := o.Device.Info()
		r.state.AtStart, r.state.BoughtAtStart = r.capacity-free, r.ledger.bought
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
		r.Leave()
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
		if err = r.faults.repeat(r, s, err); r.stopped {
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
		if err := r.stamp(s); err != nil {
			return err
		}
	}
	r.next++
	return nil
}

// harness marks an error as a fault of the harness.
func harness(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrHarness, err)
}

// at adds the place to a harness fault.
func (r *Run) at(err error) error {
	op := &r.prog.Trace.Ops[r.next]
	return fmt.Errorf("%w: %s: operation %d (%s) on %s: %w", ErrHarness, r.prog.Trace.Name, r.next, op, r.target.Name, err)
}
