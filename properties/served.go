package properties

import (
	"math"
	"sync"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// predictors are kept between calls, since a property keeps nothing itself.
var predictors = sync.Pool{New: func() any { return &predictor{} }}

// ServedAsPromised is the other direction of a promise: what the judge is for refusals. It looks at the allocations whose view
// at entry the run took: all of a short trace, in a long one as many as cost little.
var ServedAsPromised = executor.Property{
	ID: "served-as-promised",
	Claim: "A request is served by exactly the block that lookup finds, without a device call; if it finds none, only by memory " +
		"that the promise says can be bought.",
	Source: "contracts 3.1 (N: if and only if; X), I8; specification 9, 10, 17.3",
	Op: func(s *executor.State) *executor.Violation {
		if s.Entered == nil || s.Entry == nil || s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		p := predictors.Get().(*predictor)
		defer predictors.Put(p)
		q := newRequest(s)
		p.load(s.Entered, &q)
		if b := p.lookup(&q); b != nil {
			return servedFromCache(s, b)
		}
		return p.servedByPurchase(s, &q)
	},
}

// servedFromCache: lookup found a block, so that one serves, from its low end.
func servedFromCache(s *executor.State, b *candidate) *executor.Violation {
	switch {
	case s.Block.Addr != b.addr:
		return executor.Broken("I8", "%d bytes were served at %#x, but the smallest sufficient free block, among equals the lowest, has %d bytes at %#x",
			s.Operation.Bytes, uint64(s.Block.Addr), b.size, uint64(b.addr))
	case s.Block.Size > b.size:
		return executor.Broken("I8", "the block has %d bytes, the free block that it was taken from %d", s.Block.Size, b.size)
	case memoryCalls(s.Calls) > 0:
		return executor.Broken("needless-purchase", "%d device calls were made, although a free block of %d bytes was acceptable",
			memoryCalls(s.Calls), b.size)
	}
	return nil
}

// servedByPurchase: lookup found nothing, so the memory was bought, and the promise must have foreseen it.
func (p *predictor) servedByPurchase(s *executor.State, q *request) *executor.Violation {
	if q.Kind == allocators.PromiseN && memoryCalls(s.Calls) == 0 {
		return executor.Broken("no-lookup-serves", "%d bytes were served at %#x without a purchase, although no free block was acceptable",
			s.Operation.Bytes, uint64(s.Block.Addr))
	}
	if q.Void != "" || s.Foreign > s.Capacity {
		return nil
	}
	if q.keepsSomething() && (q.HasLimit || q.MaxSplitSize != math.MaxUint64) {
		return nil // garbage collection, or the release of oversize blocks, may take what a flush would not
	}
	if p.purchase(q, 0) || q.LookupAfterFlush && !q.held && choose(p.waited, q) != nil {
		return nil
	}
	if q.Kind == allocators.PromiseN {
		return executor.Broken("N", "%d bytes were served by a purchase of %d, although a full flush leaves %d bytes at the device%s",
			s.Operation.Bytes, q.buy, p.flushed, limitText(q, p.kept))
	}
	if p.growsUnflushed(s.Entered, q) {
		return nil
	}
	return executor.Broken("X", "%d bytes were served although neither before nor after a flush the pages can be had; %d bytes at the device after it%s",
		s.Operation.Bytes, p.flushed, limitText(q, p.kept))
}

// keepsSomething tells whether a flush may leave idle memory out.
func (q *request) keepsSomething() bool { return q.held || q.pool != 0 }

func limitText(q *request, kept uint64) string {
	if !q.HasLimit {
		return ""
	}
	return " and the limit leaves " + sizeText(q.Limit-min(q.Limit, kept))
}

// memoryCalls counts the calls that buy or return memory, refused ones included.
func memoryCalls(calls []device.Call) int {
	n := 0
	for i := range calls {
		switch calls[i].Kind {
		case device.CallWait, device.CallReserve, device.CallUnreserve:
		default:
			n++
		}
	}
	return n
}

// growsUnflushed tells whether an expandable segment could grow for the request as the state is: the first attempt, before
// anything is given back (specification 17.3). Memory of classic segments counts as given back, since garbage collection and
// the release of oversize blocks come before it or right behind it.
func (p *predictor) growsUnflushed(v *executor.View, q *request) bool {
	var reserved uint64
	for i := range v.Segments {
		g := &v.Segments[i]
		list := v.BlocksOf(i)
		live := false
		for k := range list {
			if b := &list[k]; b.State != allocators.Unmapped && g.Expandable {
				reserved += b.Size
			} else if b.State == allocators.Live || b.State == allocators.Pending {
				live = true
			}
		}
		if live && !g.Expandable {
			reserved += g.Size
		}
	}
	need, found := p.lowestRoom(v, q)
	if !found {
		if q.size > q.reservation {
			return false
		}
		need = roundUp(q.size, q.page)
	}
	return reserved+need <= q.available && (!q.HasLimit || reserved+q.buy <= q.Limit)
}

// lowestRoom returns what must be mapped at the lowest run of free and unmapped blocks that is large enough.
func (p *predictor) lowestRoom(v *executor.View, q *request) (need uint64, found bool) {
	for i := range v.Segments {
		g := &v.Segments[i]
		if !g.Expandable || q.category(g) != 0 {
			continue
		}
		p.keepSegment(v.BlocksOf(i), false)
		for k := range p.items {
			if p.items[k].state != allocators.Unmapped {
				continue
			}
			start := k
			if k > 0 && p.items[k-1].state == allocators.Free {
				start = k - 1
			}
			if need, short := p.need(start, q.size, q.page); short == 0 {
				return need, true
			}
		}
	}
	return 0, false
}
