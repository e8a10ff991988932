package external

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Allocator is an allocator in a child process. What the child tells of its device is done on the harness's device as well,
// so that the two are always in the same state.
//
// Its session can be parked at any time: the next call then opens another one and repeats what was asked so far.
type Allocator struct {
	mu       sync.Mutex // the pool parks an allocator that is idle
	pool     *pool
	dev      device.Device
	capacity uint64
	fraction *float64
	can      abilities
	model    promiser
	session  *session
	stats    *statistics
	fresh    bool // stats has everything, not only what replies carry

	script   allocators.Script
	scripted bool // the script is being followed
	next     int  // requests of the script that were answered
	extra    []allocators.Request
	gone     map[int32]bool // ids of the script without a block: refused, or of no bytes
	ids      map[device.Addr][]int32
	nextID   int32
	mirror   mirror
	oom      allocators.OOMError
	retry    string
	failed   error // the child is dead; every further call gives this
	opened   int   // private pools that are open
}

// promiser predicts refusals, with the settings as they change.
type promiser interface {
	promise() allocators.Promise
	configure(conf string)
	setFraction(f float64)
}

// open makes sure that there is a session that has seen all that was asked so far.
func (a *Allocator) open() error {
	if a.failed != nil {
		return a.failed
	}
	if a.session != nil {
		return nil
	}
	stats := a.stats
	begun := a.next > 0 || len(a.extra) > 0
	if begun {
		stats = newStatistics() // what is known stays as it is
	}
	s, err := openSession(a.pool, a.capacity, a.fraction, a.script.Judged || a.script.Len == 0, stats)
	if err != nil {
		return err
	}
	a.session = s
	a.pool.opened(a)
	if !begun {
		a.fresh = a.can.stats && s.reply.detailed
		if a.script.Len > 0 {
			s.play(&a.script, &a.can, 0, a.script.Len)
			a.scripted = true
		}
		return nil
	}
	return a.repeat(stats)
}

// repeat asks again what was asked before. Its device calls were done on the device already.
func (a *Allocator) repeat(scrap *statistics) error {
	again := allocators.Script{Len: a.next + len(a.extra), At: func(i int) allocators.Request {
		if i < a.next {
			return a.script.At(i)
		}
		return a.extra[i-a.next]
	}}
	a.scripted = false
	a.session.play(&again, &a.can, 0, again.Len)
	for i := range again.Len {
		r := again.At(i)
		n := 0
		if a.can.has(r.Kind) {
			n++
		}
		if r.StatsAfter && a.can.stats {
			n++
		}
		for range n {
			if err := a.session.next(scrap); err != nil {
				return a.fail(err)
			}
		}
	}
	a.session.writing.Wait()
	return nil
}

// fail notes the child's end.
func (a *Allocator) fail(err error) error {
	var d *allocators.Death
	if errors.As(err, &d) || errors.Is(err, allocators.ErrEnvironment) {
		a.failed = err
		if a.session != nil {
			a.session.kill()
			a.session = nil
			a.pool.closed(a)
		}
	}
	return err
}

// park gives the session back.
func (a *Allocator) park() {
	if a.session == nil {
		return
	}
	a.session.finish(a.pool)
	a.session = nil
	a.scripted = false
	a.pool.closed(a)
}

// Close gives the child back to the pool; a later call takes another one and brings it to the same state.
func (a *Allocator) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.park()
	return nil
}

// Foresee implements allocators.Foreseer.
func (a *Allocator) Foresee(s allocators.Script) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.script = s
	for i := range s.Len {
		if r := s.At(i); r.Kind == allocators.RequestAlloc {
			a.nextID = max(a.nextID, r.ID+1)
		}
	}
}

// answer is what a call came to.
type answer struct {
	outcome outcome
	id      int32
	addr    device.Addr
	size    uint64
	hasSize bool
	message string
}

// call has the child execute a request, and does on the device what the child's device did. at are the ids that a free or a
// record may mean: allocations that lie at its address.
func (a *Allocator) call(r allocators.Request, at []int32) (answer, error) {
	if err := a.open(); err != nil {
		return answer{}, err
	}
	if a.scripted {
		want, ok, err := a.expect(r, at)
		if err != nil {
			return answer{}, a.fail(err)
		}
		if ok {
			out, err := a.take(want.Kind, want.ID)
			if want.StatsAfter && a.failed == nil {
				// They were asked for ahead, also behind what the allocator says it cannot do.
				if unread := a.readStats(); err == nil {
					err = unread
				}
			}
			return out, err
		}
		if a.scripted {
			// The caller leaves the script, and the child is ahead already: another one, that has not seen what did not happen.
			a.park()
			if err := a.open(); err != nil {
				return answer{}, err
			}
		}
	}
	switch {
	case r.Kind == allocators.RequestAlloc:
		r.ID = a.nextID
		a.nextID++
	case len(at) > 0:
		r.ID = at[len(at)-1]
	}
	a.extra = append(a.extra, r)
	a.session.line = appendRequest(a.session.line[:0], r, &a.can)
	if err := a.session.ask(a.session.line, a.stats); err != nil {
		return answer{}, a.fail(err)
	}
	return a.take(r.Kind, r.ID)
}

// expect reads the reply to the next request of the script. ok is false if the script goes on otherwise, or has ended.
func (a *Allocator) expect(r allocators.Request, at []int32) (want allocators.Request, ok bool, err error) {
	if err := a.skim(); err != nil {
		return want, false, err
	}
	if a.next < a.script.Len {
		want = a.script.At(a.next)
		named := want.Kind == allocators.RequestFree || want.Kind == allocators.RequestRecord
		if want.Kind != r.Kind || want.Stream != r.Stream || named && !slices.Contains(at, want.ID) ||
			!named && (want.Bytes != r.Bytes || want.Pool != r.Pool || want.Capture != r.Capture || want.Conf != r.Conf || want.Fraction != r.Fraction) {
			return want, false, nil
		}
		if err := a.session.next(a.stats); err != nil {
			return want, false, err
		}
		a.next++
		return want, true, nil
	}
	a.session.writing.Wait()
	a.scripted = false
	return want, false, nil
}

// skim passes over the requests of the script that the harness does not make: those that the child has no ability for, and
// frees and records of what is no block.
func (a *Allocator) skim() error {
	for ; a.next < a.script.Len; a.next++ {
		r := a.script.At(a.next)
		if a.can.has(r.Kind) {
			if r.Kind != allocators.RequestFree && r.Kind != allocators.RequestRecord || !a.gone[r.ID] {
				return nil
			}
			if r.Kind == allocators.RequestFree {
				delete(a.gone, r.ID)
			}
			if err := a.session.next(a.stats); err != nil {
				return a.fail(err)
			}
		}
		if r.StatsAfter {
			if err := a.readStats(); err != nil {
				return err
			}
		}
	}
	return nil
}

// readStats reads the reply to `stats`.
func (a *Allocator) readStats() error {
	if !a.can.stats {
		return nil
	}
	if err := a.session.next(a.stats); err != nil {
		return a.fail(err)
	}
	a.fresh = a.session.reply.detailed
	return nil
}

// take does the reply's device calls and returns what the caller wants to know.
func (a *Allocator) take(kind allocators.RequestKind, id int32) (answer, error) {
	r := &a.session.reply
	a.fresh = r.detailed
	a.retry = r.retry
	err := a.mirror.do(r.calls, a.dev)
	out := answer{outcome: r.outcome, id: id, addr: a.mirror.address(r.addr), size: r.size, hasSize: r.hasSize, message: r.message}
	if err != nil {
		return out, err
	}
	switch {
	case r.outcome != replyError:
		return out, nil
	case (kind == allocators.RequestEmptyCache || kind == allocators.RequestEmptyPool) && a.opened > 0 && cannotNow(r.message):
		return out, fmt.Errorf("in an open pool: the allocator %w (%s)", allocators.ErrUnsupported, firstLine(r.message))
	case kind == allocators.RequestConf || kind == allocators.RequestFraction: // settings that it rejects are no fault of its own
		return out, fmt.Errorf("the allocator rejects it: %s", firstLine(r.message))
	}
	return out, a.fail(&allocators.Death{Kind: allocators.Raised, Detail: firstLine(r.message)})
}

// cannotNow tells whether an error behind an empty_cache in an open pool says that it cannot be done meanwhile. PyTorch says so by an
// assertion, captures_underway.empty() or from 2.13 on !is_capture_context(); any other one that fails is a finding.
func cannotNow(message string) bool {
	asserted, _, failed := strings.Cut(message, " INTERNAL ASSERT FAILED")
	return !failed || strings.Contains(asserted, "captur")
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	return s
}

// Alloc implements allocators.Allocator.
func (a *Allocator) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	out, err := a.call(allocators.Request{Kind: allocators.RequestAlloc, Bytes: n, Stream: s}, nil)
	if err == nil && (out.outcome != replyOK || n == 0) {
		a.gone[out.id] = true
	}
	switch {
	case err != nil:
		return allocators.Block{}, err
	case out.outcome == replyOOM:
		return allocators.Block{}, a.refusal(n, s, out.message)
	case out.outcome != replyOK:
		return allocators.Block{}, a.fail(&allocators.Death{Kind: allocators.Garbled, Detail: fmt.Sprintf("it answered an alloc with %q", outcomeWords[out.outcome])})
	case n == 0:
		return allocators.Block{}, nil
	}
	delete(a.gone, out.id)
	a.ids[out.addr] = append(a.ids[out.addr], out.id)
	b := allocators.Block{Addr: out.addr}
	if out.hasSize {
		b.Size = out.size
	}
	return b, nil
}

// refusal makes the error of an out-of-memory reply.
func (a *Allocator) refusal(n uint64, s device.Stream, message string) error {
	if a.model == nil {
		return fmt.Errorf("%w: %s", device.ErrOutOfMemory, firstLine(message))
	}
	free, total := a.dev.Info()
	p := a.model.promise()
	a.oom = allocators.OOMError{Request: n, Rounded: n, SegmentSize: n, Total: total, DeviceFree: free, HasLimit: p.HasLimit, Limit: p.Limit, Stream: s}
	if p.Round != nil {
		a.oom.Rounded = p.Round(n)
		a.oom.SegmentSize = p.SegmentSize(a.oom.Rounded)
	}
	a.oom.Allocated = a.stats.stats.AllocatedBytes.All.Current
	a.oom.Reserved = a.stats.stats.ReservedBytes.All.Current
	return &refused{&a.oom, message}
}

// refused is an OOMError with the allocator's own text.
type refused struct {
	figures *allocators.OOMError
	message string
}

func (r *refused) Error() string { return r.message }
func (r *refused) Unwrap() error { return r.figures }

// Free implements allocators.Allocator.
func (a *Allocator) Free(addr device.Addr) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if addr == 0 {
		return nil
	}
	at := a.ids[addr]
	if len(at) == 0 {
		return fmt.Errorf("free of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	out, err := a.call(allocators.Request{Kind: allocators.RequestFree}, at)
	if i := slices.Index(at, out.id); i >= 0 && len(at) > 1 {
		a.ids[addr] = slices.Delete(at, i, i+1)
	} else {
		delete(a.ids, addr)
	}
	return err
}

// record implements allocators.StreamRecorder for children that can.
func (a *Allocator) record(addr device.Addr, s device.Stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	at := a.ids[addr]
	if len(at) == 0 {
		return fmt.Errorf("record of %#x: %w", uint64(addr), allocators.ErrInvalidPointer)
	}
	_, err := a.call(allocators.Request{Kind: allocators.RequestRecord, Stream: s}, at)
	return err
}

// FollowSync implements allocators.DeviceFollower.
func (a *Allocator) FollowSync(s device.Stream) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(allocators.Request{Kind: allocators.RequestSync, Stream: max(s, -1)}, nil)
	return err
}

// FollowForeign implements allocators.DeviceFollower.
func (a *Allocator) FollowForeign(bytes uint64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(allocators.Request{Kind: allocators.RequestForeign, Bytes: bytes}, nil)
	return err
}

func (a *Allocator) emptyCache() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(allocators.Request{Kind: allocators.RequestEmptyCache}, nil)
	return err
}

// poolCall makes a request about a private pool.
func (a *Allocator) poolCall(r allocators.Request) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(r, nil)
	if err == nil {
		switch r.Kind {
		case allocators.RequestPoolBegin:
			a.opened++
		case allocators.RequestPoolEnd:
			a.opened--
		}
	}
	return err
}

func (a *Allocator) configure(conf string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(allocators.Request{Kind: allocators.RequestConf, Conf: conf}, nil)
	if err == nil && a.model != nil {
		a.model.configure(conf)
	}
	return err
}

func (a *Allocator) setFraction(f float64) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, err := a.call(allocators.Request{Kind: allocators.RequestFraction, Fraction: f}, nil)
	if err == nil && a.model != nil {
		a.model.setFraction(f)
	}
	return err
}

// readAll returns the counters, brought up to date if need be. After the child's death they are what was known last.
func (a *Allocator) readAll() *allocators.Stats {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.scripted && !a.fresh && a.failed == nil {
		_ = a.skim() // a failure is for the next call to return
	}
	if !a.fresh && a.failed == nil && !a.scripted && a.session != nil {
		if err := a.session.ask([]byte("stats\n"), a.stats); err != nil {
			_ = a.fail(err) // the next call returns it
		} else {
			a.fresh = a.session.reply.detailed
		}
	}
	return &a.stats.stats
}

// Retried implements allocators.Retrier.
func (a *Allocator) Retried() (served, known bool) { return a.retry == "served", a.retry != "" }
