package executor

import (
	"errors"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Survives is the property that an allocator in a process of its own must not break: it neither crashes nor exits, hangs,
// answers nonsense or throws what is no refusal.
const Survives = "survives"

// remote is what an allocator in another process needs of a run.
type remote struct {
	follower allocators.DeviceFollower
	retrier  allocators.Retrier
	counts   allocators.StatsReader
	closer   io.Closer
}

// connect finds the abilities, and tells the allocator what will be asked of it.
func (r *Run) connect() {
	r.remote.follower, _ = r.alloc.(allocators.DeviceFollower)
	r.remote.retrier, _ = r.alloc.(allocators.Retrier)
	r.remote.counts, _ = r.alloc.(allocators.StatsReader)
	r.remote.closer, _ = r.alloc.(io.Closer)
	if f, ok := r.alloc.(allocators.Foreseer); ok {
		r.result.Elsewhere = true
		f.Foresee(allocators.Script{Len: len(r.prog.steps), At: r.request, Judged: r.opts.Judge != nil})
	}
}

// request is step i as a foreseen call.
func (r *Run) request(i int) allocators.Request {
	s := &r.prog.steps[i]
	op := &r.prog.Trace.Ops[i]
	q := allocators.Request{ID: s.slot, Stream: s.stream, Bytes: s.bytes, Pool: op.Pool, Capture: op.Capture}
	switch s.kind {
	case trace.Alloc:
		q.Kind = allocators.RequestAlloc
	case trace.Free:
		q.Kind = allocators.RequestFree
	case trace.Record:
		q.Kind = allocators.RequestRecord
	case trace.Sync:
		q.Kind = allocators.RequestSync
	case trace.EmptyCache:
		if q.Kind = allocators.RequestEmptyCache; q.Pool != 0 {
			q.Kind = allocators.RequestEmptyPool
		}
	case trace.Conf:
		q.Kind, q.Conf = allocators.RequestConf, r.prog.Trace.Ops[i].Conf
	case trace.Fraction:
		q.Kind, q.Fraction = allocators.RequestFraction, r.prog.Trace.Ops[i].Fraction
	case trace.Foreign:
		q.Kind = allocators.RequestForeign
	case trace.PoolBegin:
		q.Kind = allocators.RequestPoolBegin
	case trace.PoolEnd:
		q.Kind = allocators.RequestPoolEnd
	case trace.PoolRelease:
		q.Kind = allocators.RequestPoolRelease
	default:
		q.Kind = allocators.RequestNone
	}
	// A walk reads all statistics, and so does the end.
	q.StatsAfter = len(r.opts.Properties) > 0 && (i+1)%WalkEvery == 0 || i+1 == len(r.prog.steps)
	// So does emptying a pool, and an allocator without pools is not asked for that; and emptying the cache, which one with pools may
	// refuse while one is open, without telling statistics.
	q.StatsAfter = q.StatsAfter || q.Kind == allocators.RequestEmptyPool || q.Kind == allocators.RequestEmptyCache && r.state.HasPools
	return q
}

// synced tells an allocator elsewhere that work has completed.
func (r *Run) synced(s device.Stream) error {
	if r.remote.follower == nil {
		return nil
	}
	return r.remote.follower.FollowSync(s)
}

// syncAll waits for all work, on the device and wherever the allocator is.
func (r *Run) syncAll() error {
	if err := r.opts.Device.SyncAll(); err != nil {
		return err
	}
	if err := r.synced(trace.AllStreams); err != nil && !r.died(err) {
		return err
	}
	return nil
}

// readStats has the counters brought up to date; most allocators keep them so.
func (r *Run) readStats() {
	if r.remote.counts != nil {
		r.remote.counts.Stats()
	}
}

// died tells whether an error is the end of the allocator's process, and notes it as a finding.
func (r *Run) died(err error) bool {
	var d *allocators.Death
	if !errors.As(err, &d) {
		return false
	}
	r.outcome = Failed
	rule, _, _ := strings.Cut(d.Kind.String(), " ")
	r.find(Survives, rule, d.Error())
	return true
}

// Leave gives the process of an allocator that has one back, as Finish does; it is for runs that are not finished. What is asked
// of the allocator later brings another process to the same state.
func (r *Run) Leave() {
	if r.remote.closer != nil {
		_ = r.remote.closer.Close() // it has nothing to say that matters now
	}
}

// retried says, for the judge, what the refused request would come to if it were made again unchanged.
func (r *Run) retried() Repetition {
	if r.remote.retrier == nil {
		return RepetitionUnknown
	}
	served, known := r.remote.retrier.Retried()
	switch {
	case !known:
		return RepetitionUnknown
	case served:
		return RepetitionServed
	}
	return RepetitionRefused
}

// Repetition is what a refused request would come to if it were made again unchanged.
type Repetition uint8

// The answers; most allocators do not tell, and for those that declare a promise the judge predicts it.
const (
	RepetitionUnknown Repetition = iota
	RepetitionServed
	RepetitionRefused
)
