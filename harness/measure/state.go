package measure

import (
	"errors"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// Held is how memory is held after an operation. All in bytes, in block sizes unless said otherwise.
type Held struct {
	Op         int    `json:"op"`
	Requested  uint64 `json:"requested"` // asked for, of active blocks
	Allocated  uint64 `json:"allocated"` // live blocks
	Active     uint64 `json:"active"`    // live and pending blocks
	Reserved   uint64 `json:"reserved"`
	Releasable uint64 `json:"releasable"` // what a full release would return, pending blocks counted as free
	// Pinned is reserved - allocated - releasable: used by nobody, and kept by live blocks in the same segment or page.
	Pinned uint64 `json:"pinned"`
	// Unlisted: the allocator does not list its blocks, so Releasable and Pinned are unknown, and 0 here.
	Unlisted bool `json:"unlisted,omitempty"`
}

// IdleCache is (reserved - allocated) / reserved, the measure that people know. It counts cache that a release would
// return, so it is not fragmentation.
func (h *Held) IdleCache() float64 { return ratio(h.Reserved-h.Allocated, h.Reserved) }

// PinnedShare is pinned / reserved.
func (h *Held) PinnedShare() float64 { return ratio(h.Pinned, h.Reserved) }

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// ErrUncounted: the allocator keeps no statistics.
var ErrUncounted = errors.New("the allocator keeps no statistics, so what it holds cannot be measured")

// HeldBy reads an allocator that counts its blocks, and what it does not list stays unknown. The error is ErrUncounted.
func HeldBy(a allocators.Allocator, op int) (Held, error) {
	stats, ok := a.(allocators.StatsReader)
	if !ok {
		return Held{}, ErrUncounted
	}
	st := stats.Stats()
	h := Held{
		Op: op, Requested: st.RequestedBytes.All.Current, Allocated: st.AllocatedBytes.All.Current,
		Active: st.ActiveBytes.All.Current, Reserved: st.ReservedBytes.All.Current,
	}
	snap, ok := a.(allocators.Snapshotter)
	if !ok {
		h.Unlisted = true
		return h, nil
	}
	var s allocators.Snapshot
	snap.Snapshot(&s)
	h.Releasable = Releasable(&s)
	h.Pinned = h.Reserved - h.Allocated - h.Releasable
	return h, nil
}

// Releasable is the bytes of segments, or of pages of expandable segments, that overlap no live block.
func Releasable(s *allocators.Snapshot) uint64 {
	var sum uint64
	for i := range s.Segments {
		g := &s.Segments[i]
		var mapped, kept, nextPage uint64
		for _, b := range s.BlocksOf(i) {
			if b.State != allocators.Unmapped {
				mapped += b.Size
			}
			if b.State != allocators.Live {
				continue
			}
			if !g.Expandable {
				kept = g.Size
				break
			}
			first, last := uint64(b.Addr-g.Addr)/g.PageSize, (uint64(b.End()-g.Addr)-1)/g.PageSize
			kept += (last + 1 - max(first, nextPage)) * g.PageSize
			nextPage = last + 1
		}
		if !g.Expandable {
			mapped = g.Size
		}
		sum += mapped - kept
	}
	return sum
}

// Profile is a run on a device that refuses nothing: ratios are taken there, since after a refusal two allocators no longer
// run the same thing.
type Profile struct {
	// Peak is the state at t*, the first operation at which the live bytes of the trace are at their peak.
	Peak Held `json:"peak"`
	// MeanIdleCache is the sum of idle bytes over all operations by that of reserved bytes.
	MeanIdleCache float64 `json:"mean_idle_cache"`
	// PeakReserved is the largest reserved bytes.
	PeakReserved uint64 `json:"peak_reserved"`
	// Uncounted: the allocator keeps no statistics, so all of this is unknown.
	Uncounted bool `json:"uncounted,omitempty"`
}

// Unbounded is the capacity of a device that refuses nothing, 8 TiB.
const Unbounded = 8 << 40

// ProfileOf runs a trace on an unbounded device.
func ProfileOf(p *executor.Program, t executor.Target, newDevice NewDevice) (Profile, error) {
	dev, err := newDevice(Unbounded)
	if err != nil {
		return Profile{}, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return Profile{}, err
	}
	defer r.Leave()
	var out Profile
	_, peak := PeakLive(p.Trace)
	for r.More() {
		if err := r.Step(); err != nil {
			return out, err
		}
		if r.Position() == peak+1 {
			if out.Peak, err = HeldBy(r.Allocator(), peak); err != nil {
				return Profile{Uncounted: true}, nil
			}
		}
	}
	res := r.Result()
	out.PeakReserved = res.PeakReserved
	if res.SumReserved > 0 {
		out.MeanIdleCache = (res.SumReserved - res.SumAllocated) / res.SumReserved
	}
	return out, nil
}

// Refusal is a point of the refusal curve.
type Refusal struct {
	Bytes  uint64 `json:"bytes"`
	Served int    `json:"served"` // how many requests of this size would be served in a row: k(n)
	// Refused is U(n) = 1 - n k(n) / F, the share of the free memory F that requests of this size cannot get; nil if the
	// allocator keeps no statistics, since F is unknown then.
	Refused *float64 `json:"refused"`
}

// CurveSizes are the sizes at which refusal curves are taken.
var CurveSizes = []uint64{1<<20 + 1, 20 << 20, 200 << 20, 1 << 30}

// RefusalCurve asks, in the state after operation op at a capacity, how many requests of each size would be served in a row
// on stream 0. Each size gets a run of its own, so the state is the same.
func RefusalCurve(p *executor.Program, t executor.Target, newDevice NewDevice, capacity uint64, op int, sizes []uint64) ([]Refusal, error) {
	var out []Refusal
	for _, n := range sizes {
		dev, err := newDevice(capacity)
		if err != nil {
			return nil, err
		}
		r, err := executor.Start(p, t, executor.Options{Device: dev})
		if err != nil {
			return nil, err
		}
		for r.More() && r.Position() <= op {
			if err := r.Step(); err != nil {
				return nil, err
			}
		}
		h, uncounted := HeldBy(r.Allocator(), op)
		free, _ := dev.Info()
		f := h.Reserved + free - h.Allocated
		c := Refusal{Bytes: n}
		for {
			if _, err := r.Allocator().Alloc(n, 0); err != nil {
				break
			}
			c.Served++
		}
		if uncounted == nil {
			var share float64
			if f > 0 {
				share = 1 - float64(n)*float64(c.Served)/float64(f)
			}
			c.Refused = &share
		}
		r.Leave()
		out = append(out, c)
	}
	return out, nil
}
