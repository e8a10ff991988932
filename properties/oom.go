package properties

import (
	"fmt"
	"math"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// request is what the judge asks about: a refused allocation under the rules in force.
type request struct {
	allocators.Promise
	n, size, buy uint64 // bytes asked for, looked for, bought
	stream       device.Stream
	small        bool
	pool         allocators.PoolID
	held         bool // nothing is flushed, and finished work is not noticed
	uses         map[allocators.PoolID]int
	page         uint64
	available    uint64 // bytes that the device could give this allocator
	reservation  uint64 // address space of a new expandable segment
}

const smallLimit = 1 << 20

func newRequest(s *executor.State) request {
	q := request{
		Promise: s.Promise, n: s.Operation.Bytes, size: s.Operation.Bytes, stream: s.Operation.Stream,
		available: s.Capacity - s.Foreign, pool: s.Pool, held: s.Held, uses: s.PoolUses,
	}
	if q.Kind == allocators.PromiseNone {
		return q
	}
	q.size = q.Round(q.n)
	q.buy = q.SegmentSize(q.size)
	q.small = q.size <= smallLimit
	q.page = q.PageSize(q.small)
	q.reservation = roundUp(s.Capacity+s.Capacity/8, q.page)
	return q
}

func roundUp(n, to uint64) uint64 { return (n + to - 1) / to * to }

// NewJudge returns a judge of refusals, for one goroutine. It predicts from the state that the harness knows; it never
// touches the allocator. The verdicts and their order are those of the table in the package's documentation of findings:
// device-refused, genuine, false, rounding, policy, fragmentation; the first that matches holds.
func NewJudge() executor.Judge {
	p := &predictor{}
	return p.judge
}

func (p *predictor) judge(s *executor.State, _ *allocators.OOMError) executor.Judgement {
	q := newRequest(s)
	v := s.View
	heap := s.Heap
	j := executor.Judgement{
		Request: q.n, Rounded: q.size, LiveRequested: heap.Live.Requested, Live: heap.Live.Bytes,
		Active: heap.Live.Bytes + heap.Pending.Bytes, Reserved: v.Reserved, DeviceFree: s.DeviceFree,
		Capacity: v.Reserved + s.DeviceFree,
	}
	if q.HasLimit {
		j.Capacity = min(j.Capacity, q.Limit)
	}
	for i := range v.Blocks {
		if b := &v.Blocks[i]; b.State == allocators.Free {
			j.LargestFree = max(j.LargestFree, b.Size)
		}
	}
	if reason := deviceRefused(s); reason != "" {
		j.Verdict, j.Reason = executor.DeviceRefused, reason
		return j
	}
	if below(j.Capacity, j.LiveRequested, q.n) {
		j.Verdict = executor.Genuine
		return j
	}
	if q.Kind == allocators.PromiseNone {
		j.Demands = p.demands(s, &q)
		return judgeUnpromised(s, &q, j)
	}
	j.Pinned, j.PinnedBy = pins(v, &q.Promise)
	p.load(v, &q)
	again := p.retry(&q)
	if s.Entered != v {
		p.load(s.Entered, &q)
	}
	j.Demands = p.demands(s, &q)
	if j.Rule, j.Reason = p.promised(&q, &again); j.Rule != "" {
		j.Verdict = executor.False
		return j
	}
	if again.served {
		j.Verdict, j.Reason = executor.False, again.String()
		switch {
		case again.block.size == 0 && q.held:
			// The release of oversize blocks went on, and returned less than it looked for but enough.
			j.Rule, j.Known = "repeat-bought-held", Known159674
		case again.block.size == 0:
			j.Rule = "repeat-bought"
		case wasPending(s.Entered, &again.block):
			j.Rule, j.Known = "repeat-served-by-pending", Known189504
		case p.found[0][0] && p.lookup(&q) == nil:
			// At entry a block was large enough, and max_split_size_mb kept it from the request; the flush returned or cut
			// it, so that a second lookup would find another.
			j.Rule, j.Known = "repeat-served-by-remainder", Known189504
		default:
			j.Rule = "repeat-served"
		}
		return j
	}
	if below(j.Capacity, j.Live, q.size) {
		j.Verdict = executor.Rounding
		return j
	}
	if j.Relaxed = p.relaxations(&q); len(j.Relaxed) > 0 {
		j.Verdict = executor.Policy
		return j
	}
	j.Verdict = executor.Fragmentation
	return j
}

// below tells whether capacity less used is less than need.
func below(capacity, used, need uint64) bool { return used > capacity || capacity-used < need }

// deviceRefused tells whether the device's last refusal came although it had the bytes.
func deviceRefused(s *executor.State) string {
	free := s.DeviceFree
	var created uint64 // of the attempt that a failed create ended; they were given back after it
	for i := len(s.Calls) - 1; i >= 0; i-- {
		c := &s.Calls[i]
		switch c.Kind {
		case device.CallMallocFail:
			if c.Size <= free {
				return fmt.Sprintf("the device refused %d bytes with %d free", c.Size, free)
			}
			return ""
		case device.CallCreateFail:
			for k := i - 1; k >= 0 && s.Calls[k].Kind == device.CallCreate; k-- {
				created += s.Calls[k].Size
			}
			if created+c.Size <= free {
				return fmt.Sprintf("the device refused a chunk of %d bytes with %d free", c.Size, free-created)
			}
			return ""
		case device.CallRelease:
		default:
			return "" // something was returned or bought after the last refusal: another matter
		}
	}
	return ""
}

// judgeUnpromised judges an allocator that declares nothing: by bytes, and by what it has shown so far.
func judgeUnpromised(s *executor.State, q *request, j executor.Judgement) executor.Judgement {
	if j.Rule, j.Reason = deviceHasRoom(s, q); j.Rule != "" {
		j.Verdict = executor.False
		return j
	}
	switch {
	case s.Repetition == executor.RepetitionServed:
		j.Verdict, j.Rule = executor.False, "repeat-served"
		j.Reason = "the same request, repeated unchanged, is served"
	case below(j.Capacity, j.Live, q.n):
		j.Verdict = executor.Rounding
	default:
		j.Verdict = executor.Unknown
	}
	return j
}

// deviceHasRoom tells the rule by which a refusal is false by the device's memory alone, and why; empty if it is not.
//
// How an allocator rounds what it buys is its own affair, up to twice the request (a buddy system doubles) and 20 MiB (PyTorch's page).
// If the device lacked that, it lacked memory. One that cuts up an address range, or a pool that it was made with, does not depend on
// the device's room and is not accused.
func deviceHasRoom(s *executor.State, q *request) (rule, reason string) {
	const slack = 20 << 20
	if s.DeviceFree < q.n+slack {
		return "", ""
	}
	if least, refused := leastRefused(s.Calls); refused {
		switch {
		case least <= s.DeviceFree:
			return "device-not-asked-again",
				fmt.Sprintf("the device refused %d bytes, then got memory back and has %d free, and was not asked again", least, s.DeviceFree)
		case least <= 2*q.n+slack:
			return "", ""
		}
		return "device-has-room", fmt.Sprintf("the device has %d bytes free, 20 MiB more than was asked for, and was asked for %d at least",
			s.DeviceFree, least)
	}
	if s.Reserves || s.AtStart > 0 && s.Bought == s.BoughtAtStart {
		return "", ""
	}
	return "device-has-room", fmt.Sprintf("the device has %d bytes free, 20 MiB more than was asked for, and was not asked", s.DeviceFree)
}

// leastRefused is the least that the device refused in an operation, in bytes: a region, or a chunk with those created before it.
func leastRefused(calls []device.Call) (least uint64, refused bool) {
	var created uint64
	least = math.MaxUint64
	for i := range calls {
		switch c := &calls[i]; c.Kind {
		case device.CallCreate:
			created += c.Size
		case device.CallMallocFail:
			least, refused = min(least, c.Size), true
		case device.CallCreateFail:
			least, refused = min(least, created+c.Size), true
		}
	}
	return least, refused
}

// promised predicts from the state at entry, finished events processed, whether the allocator's promise covers the request:
// the rule and why, empty if it does not.
func (p *predictor) promised(q *request, again *repeat) (rule, reason string) {
	if q.Void != "" {
		return "", ""
	}
	if b := p.lookup(q); b != nil {
		return "block-at-entry", fmt.Sprintf("a free block of %d bytes was acceptable at entry", b.size)
	}
	if q.Kind == allocators.PromiseN {
		if p.affords(q, q.buy, q.buy) {
			return "flush-suffices", fmt.Sprintf("a full flush leaves %d bytes at the device, the segment needs %d", p.flushed, q.buy)
		}
	} else if need := roundUp(q.size, q.page); p.affords(q, need, q.buy) { // a new segment has the room: it is larger than the device
		return "flush-suffices", fmt.Sprintf("a full flush leaves %d bytes at the device, the pages need at most %d", p.flushed, need)
	}
	if q.LookupAfterFlush && !q.held && again.block.size > 0 {
		return "block-after-flush", fmt.Sprintf("a free block of %d bytes was acceptable after the flush", again.block.size)
	}
	return "", ""
}

// repeat is what would become of the same request, made again unchanged right after the refusal.
type repeat struct {
	served bool
	block  candidate // the free block that serves it; no size if a purchase does
}

func (r *repeat) String() string {
	if r.block.size > 0 {
		return fmt.Sprintf("the same request, repeated unchanged, is served by a free block of %d bytes", r.block.size)
	}
	return "the same request, repeated unchanged, is served by a purchase"
}

// retry predicts from the loaded state, that after the refusal.
func (p *predictor) retry(q *request) repeat {
	if b := p.lookup(q); b != nil {
		return repeat{served: true, block: *b}
	}
	return repeat{served: p.purchase(q, 0)}
}

// wasPending tells whether a block that is free now held memory that was pending at entry.
func wasPending(entered *executor.View, b *candidate) bool {
	for i := range entered.Blocks {
		e := &entered.Blocks[i]
		if e.State == allocators.Pending && e.Addr < b.addr+addr(b.size) && b.addr < e.End() {
			return true
		}
	}
	return false
}

// pins returns the bytes that nobody uses and a full release would not return, and how many live blocks lie in the segments
// or pages that hold them. Pending blocks count as free.
func pins(v *executor.View, promise *allocators.Promise) (bytes uint64, blocks int) {
	for i := range v.Segments {
		g := &v.Segments[i]
		list := v.BlocksOf(i)
		if g.Expandable {
			b, n := pagePins(g, list, promise.PageSize(g.Small))
			bytes, blocks = bytes+b, blocks+n
			continue
		}
		var live int
		used := uint64(0)
		for k := range list {
			if list[k].State == allocators.Live {
				live++
				used += list[k].Size
			}
		}
		if live > 0 && used < g.Size {
			bytes += g.Size - used
			blocks += live
		}
	}
	return bytes, blocks
}

// pagePins is pins for an expandable segment: by page.
func pagePins(g *allocators.SegmentInfo, list []allocators.BlockInfo, page uint64) (bytes uint64, blocks int) {
	next := uint64(0) // the first page not counted yet
	var used, held uint64
	var idleEnd uint64 // behind the last idle block, from the segment's base
	// waiting live blocks end in the page waitingPage, of which no idle byte was seen yet.
	waiting, waitingPage := 0, uint64(0)
	for k := range list {
		b := &list[k]
		begin, end := uint64(b.Addr-g.Addr), uint64(b.End()-g.Addr)
		switch b.State {
		case allocators.Unmapped: // whole pages
		case allocators.Live:
			used += b.Size
			first, last := begin/page, (end-1)/page
			held += (last + 1 - max(first, next)) * page
			next = last + 1
			if last != waitingPage {
				waiting, waitingPage = 0, last
			}
			if idleEnd > first*page {
				blocks++
			} else {
				waiting++
			}
		default:
			if begin/page == waitingPage {
				blocks += waiting
				waiting = 0
			}
			idleEnd = end
		}
	}
	return held - used, blocks
}
