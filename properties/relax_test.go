package properties

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestPins holds the bytes and blocks that the judge calls pinned against the allocator's own list of blocks, unit by unit: a
// unit is a classic segment or a page, and pinned is what is idle in one that a live block touches.
func TestPins(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	pinned := 0
	for i, alloc := range predicted {
		tr, capacity := crowded(seed*1000+uint64(i), 500, inMidRun)
		s, _ := newStepper(t, tr, alloc, capacity)
		for s.More() {
			require.NoError(t, s.Step())
			var snap allocators.Snapshot
			s.Allocator().(allocators.Snapshotter).Snapshot(&snap)
			var wantBytes uint64
			blocks := map[*allocators.BlockInfo]bool{}
			for k := range snap.Segments {
				g := &snap.Segments[k]
				list := snap.BlocksOf(k)
				unit := g.Size
				if g.Expandable {
					unit = g.PageSize
				}
				for from := g.Addr; from < g.Addr+addr(g.Size); from += addr(unit) {
					var idle uint64
					var live []*allocators.BlockInfo
					for m := range list {
						b := &list[m]
						lo, hi := max(b.Addr, from), min(b.End(), from+addr(unit))
						switch {
						case lo >= hi || b.State == allocators.Unmapped:
						case b.State == allocators.Live:
							live = append(live, b)
						default:
							idle += uint64(hi - lo)
						}
					}
					if len(live) > 0 && idle > 0 {
						wantBytes += idle
						for _, b := range live {
							blocks[b] = true
						}
					}
				}
			}
			bytes, n := pins(s.View(), &s.state.Promise)
			where := fmt.Sprintf("%s, %s, operation %d", alloc, tr.Name, s.Position()-2)
			require.Equal(t, wantBytes, bytes, where)
			require.Equal(t, len(blocks), n, where)
			st := s.state.Stats
			require.Equal(t, st.ReservedBytes.All.Current-st.AllocatedBytes.All.Current-measure.Releasable(&snap), bytes, where)
			if bytes > 0 {
				pinned++
			}
		}
	}
	require.Greater(t, pinned, 2000)
}

// TestRelaxations holds each single relaxation against another reading of the rule: the allocator itself where the rule can be
// got round by the trace (events by a sync before the request, stream by asking on the other stream), else the state that a
// flush by the allocator itself leaves.
func TestRelaxations(t *testing.T) {
	t.Parallel()
	seed := testSeed(t)
	asked, seen := 0, 0
	would := map[string]int{}
	for i, alloc := range predicted {
		for k := range uint64(4) {
			tr, capacity := crowded(seed*1000+uint64(i)*100+50+k, 200, nil)
			s, started := newStepper(t, tr, alloc, capacity)
			p := &predictor{}
			for s.More() {
				op := &started.Ops[s.Position()]
				if op.Kind != trace.Alloc || op.Bytes == 0 {
					require.NoError(t, s.Step())
					continue
				}
				st, view := s.entry(op)
				q := newRequest(st)
				p.load(view, &q)
				entered := slices.Clone(view.Blocks)
				refusals := len(s.Result().OOMs)
				require.NoError(t, s.Step())
				if len(s.Result().OOMs) == refusals {
					continue
				}
				seen++
				at := s.Position() - 1
				where := fmt.Sprintf("%s, %s, capacity %d, operation %d: %s", alloc, tr.Name, capacity, at-1, op)
				r := &reading{t: t, q: &q, alloc: alloc, capacity: capacity, trace: started, at: at, entered: entered}
				for n := range executor.Relaxations {
					rule := executor.Relaxation(1) << n
					got := p.served(&q, rule)
					if !got && (seen+n)%8 != 0 {
						continue // replays are slow, so of the many that would not help only some are tried
					}
					asked++
					want, exact := r.served(rule)
					if !exact && !want {
						continue
					}
					require.Equal(t, want, got, "%s without %s", where, rule)
					if got {
						would[rule.String()]++
					}
				}
			}
		}
	}
	t.Logf("%d refusals, %d rules tried, served without %v", seen, asked, would)
	require.Greater(t, asked, 500)
	for _, rule := range []executor.Relaxation{executor.RelaxEvents, executor.RelaxStream, executor.RelaxPool, executor.RelaxQuantum} {
		require.Positive(t, would[rule.String()], rule.String())
	}
}

// reading reads what a relaxation means, from replays of the trace up to the refused operation.
type reading struct {
	t        *testing.T
	q        *request
	alloc    string
	capacity uint64
	trace    *trace.Trace
	at       int
	entered  []allocators.BlockInfo // at entry, finished events processed
	flushed  executor.View
	free     uint64 // at the device once flushed
}

// until runs the trace up to the operation, then more operations.
func (r *reading) until(more ...trace.Op) *stepper {
	tr := &trace.Trace{Name: r.trace.Name, Ops: append(slices.Clone(r.trace.Ops[1:r.at]), more...)}
	s, _ := newStepper(r.t, tr, r.alloc, r.capacity)
	for s.More() {
		require.NoError(r.t, s.Step())
	}
	return s
}

// flush gets the state that a flush by the allocator itself leaves, once.
func (r *reading) flush() {
	if r.flushed.Segments != nil {
		return
	}
	s := r.until(trace.Op{Kind: trace.EmptyCache})
	v := s.View()
	r.flushed = executor.View{Reserved: v.Reserved, Snapshot: allocators.Snapshot{Segments: slices.Clone(v.Segments), Blocks: slices.Clone(v.Blocks)}}
	r.free = s.state.DeviceFree
}

// has tells whether there is a free block that is large enough, in the request's stream, that a test admits.
func (r *reading) has(admits func(*allocators.BlockInfo) bool) bool {
	for i := range r.entered {
		b := &r.entered[i]
		if b.State == allocators.Free && b.Size >= r.q.size && b.Stream == r.q.stream && admits(b) &&
			(!b.Expandable || r.q.Kind == allocators.PromiseX) {
			return true
		}
	}
	return false
}

// served tells whether the request is served without a rule; exact is false where only a yes counts.
func (r *reading) served(rule executor.Relaxation) (yes, exact bool) {
	q := r.q
	buys := func(x rules) bool {
		r.flush()
		return buys(&r.flushed, r.free, q, x)
	}
	usual := rules{unit: q.page, charge: q.buy}
	op := r.trace.Ops[r.at]
	switch rule {
	case executor.RelaxEvents:
		s := r.until(trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}, op)
		return s.state.Outcome == executor.OK, true
	case executor.RelaxStream:
		if q.LookupAfterFlush {
			return false, false // it looks again after waiting, which is another relaxation
		}
		// Without the rule any block of another stream will do; a lookup there takes one, which may be too large.
		exact = q.Kind == allocators.PromiseN || q.MaxSplitSize > r.capacity
		for other := range device.Stream(3) {
			if op.Stream = other; other != q.stream && r.until(op).state.Outcome == executor.OK {
				return true, exact
			}
		}
		return false, exact
	case executor.RelaxPool:
		// On expandable segments the other pool's could grow as well, which is not read here.
		return r.has(func(b *allocators.BlockInfo) bool { return b.Small != q.small && !q.oversize(b.Size) }), q.Kind == allocators.PromiseN
	case executor.RelaxOversize:
		return r.has(func(b *allocators.BlockInfo) bool { return b.Small == q.small }) || buys(usual), true
	case executor.RelaxQuantum:
		usual.unit, usual.charge = granule, q.size
	case executor.RelaxHole:
		usual.least = true
	case executor.RelaxLimit:
		if q.Kind == allocators.PromiseX {
			usual.charge = 0
		}
	case executor.RelaxAddressSpace:
		usual.endless = true
	}
	return buys(usual), true
}
