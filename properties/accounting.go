package properties

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func addr(n uint64) device.Addr { return device.Addr(n) }

// Accounting: the statistics are what the blocks and segments add up to.
var Accounting = executor.Property{
	ID:     "accounting",
	Claim:  "Every statistic is what the program's blocks and the device's segments add up to.",
	Source: "contracts A1-A8, A10, A12, A13; specification 20",
	Op: func(s *executor.State) *executor.Violation {
		st := s.Stats
		if st == nil {
			return nil
		}
		live, pending := &s.Heap.Live, &s.Heap.Pending
		switch {
		case st.AllocatedBytes.All.Current != live.Bytes && keeps(s, &st.AllocatedBytes):
			return differs("A2", "allocated_bytes", st.AllocatedBytes.All.Current, live.Bytes)
		case st.Allocation.All.Current != live.Count && keeps(s, &st.Allocation):
			return differs("A2", "allocation", st.Allocation.All.Current, live.Count)
		case st.ActiveBytes.All.Current != live.Bytes+pending.Bytes && keeps(s, &st.ActiveBytes):
			return atMost(s, "A3", "active_bytes", st.ActiveBytes.All.Current, live.Bytes, pending.Bytes)
		case st.Active.All.Current != live.Count+pending.Count && keeps(s, &st.Active):
			return atMost(s, "A3", "active", st.Active.All.Current, live.Count, pending.Count)
		case st.RequestedBytes.All.Current != live.Requested+pending.Requested && keeps(s, &st.RequestedBytes):
			return atMost(s, "A4", "requested_bytes", st.RequestedBytes.All.Current, live.Requested, pending.Requested)
		case st.ReservedBytes.All.Current != s.Capacity-s.Foreign-s.DeviceFree && keeps(s, &st.ReservedBytes):
			return differs("A5", "reserved_bytes", st.ReservedBytes.All.Current, s.Capacity-s.Foreign-s.DeviceFree)
		}
		return nil
	},
	Walk: walkAccounting,
}

// keeps tells whether a figure is kept: an allocator that declares no promise may leave those at 0 that it has not.
func keeps(s *executor.State, p *allocators.Pooled) bool {
	return s.Promise.Kind != allocators.PromiseNone || *p != (allocators.Pooled{})
}

func differs(rule, stat string, got, want uint64) *executor.Violation {
	return executor.Broken(rule, "%s is %d, must be %d", stat, got, want)
}

// atMost judges a figure that includes pending blocks. An allocator that declares a promise notices finished work when the
// specification says so, so the figure is exact; of another one only the range is known.
func atMost(s *executor.State, rule, stat string, got, live, pending uint64) *executor.Violation {
	if s.Promise.Kind == allocators.PromiseNone && got >= live && got <= live+pending {
		return nil
	}
	return differs(rule, stat, got, live+pending)
}

// sums are what a snapshot adds up to, by pool: small, large.
type sums struct {
	live, active, liveBytes, activeBytes, requested [2]uint64
	segments, segmentBytes, split, splitBytes       [2]uint64
	unsplitFree, expandableFree                     uint64
}

func walkAccounting(s *executor.State) *executor.Violation {
	st := s.Stats
	if st == nil {
		return nil
	}
	promised := s.Promise.Kind != allocators.PromiseNone
	if v := checkShape(st, s.Previous, promised); v != nil {
		return v
	}
	if s.Snapshot == nil || !promised {
		return nil // what counts as small or split is PyTorch's own affair
	}
	var w sums
	w.add(s.Snapshot)
	for _, c := range []struct {
		rule, name string
		stat       *allocators.Pooled
		want       [2]uint64
	}{
		{"A2", "allocation", &st.Allocation, w.live},
		{"A2", "allocated_bytes", &st.AllocatedBytes, w.liveBytes},
		{"A3", "active", &st.Active, w.active},
		{"A3", "active_bytes", &st.ActiveBytes, w.activeBytes},
		{"A4", "requested_bytes", &st.RequestedBytes, w.requested},
		{"A5", "reserved_bytes", &st.ReservedBytes, w.segmentBytes},
		{"A6", "segment", &st.Segment, w.segments},
		{"A7", "inactive_split", &st.InactiveSplit, w.split},
		{"A7", "inactive_split_bytes", &st.InactiveSplitBytes, w.splitBytes},
	} {
		if c.stat.Small.Current != c.want[0] {
			return differs(c.rule, c.name+".small_pool.current", c.stat.Small.Current, c.want[0])
		}
		if c.stat.Large.Current != c.want[1] {
			return differs(c.rule, c.name+".large_pool.current", c.stat.Large.Current, c.want[1])
		}
	}
	// A8 follows from A3, A5 and A7 where they hold; it is computed the other way round on purpose.
	if sum := st.ActiveBytes.All.Current + st.InactiveSplitBytes.All.Current + w.unsplitFree + w.expandableFree; sum != st.ReservedBytes.All.Current {
		return differs("A8", "reserved_bytes", st.ReservedBytes.All.Current, sum)
	}
	return nil
}

func (w *sums) add(snap *allocators.Snapshot) {
	for i := range snap.Segments {
		g := &snap.Segments[i]
		p := 1
		if g.Small {
			p = 0
		}
		if !g.Expandable {
			w.segments[p]++
			w.segmentBytes[p] += g.Size
		}
		blocks := snap.BlocksOf(i)
		for j := range blocks {
			b := &blocks[j]
			if g.Expandable && b.State != allocators.Unmapped {
				w.segmentBytes[p] += b.Size
			}
			switch b.State {
			case allocators.Live:
				w.live[p]++
				w.liveBytes[p] += b.Size
				fallthrough
			case allocators.Pending:
				w.active[p]++
				w.activeBytes[p] += b.Size
				w.requested[p] += b.Requested
			case allocators.Free:
				switch {
				case g.Expandable:
					w.expandableFree += b.Size
				case len(blocks) > 1:
					w.split[p]++
					w.splitBytes[p] += b.Size
				default:
					w.unsplitFree += b.Size
				}
			}
		}
	}
}

// checkShape checks what must hold of the counters among themselves and over time. Without a promise they need not be kept by pool.
func checkShape(st, previous *allocators.Stats, promised bool) *executor.Violation {
	now, before := pooled(st), pooled(previous)
	for i := range now {
		p, q := now[i].stat, before[i].stat
		if !promised && p.Small == (allocators.Stat{}) && p.Large == (allocators.Stat{}) {
			if v := checkStat(now[i].name, &p.All, &q.All); v != nil {
				return v
			}
			continue
		}
		if p.All.Current != p.Small.Current+p.Large.Current || p.All.Allocated != p.Small.Allocated+p.Large.Allocated ||
			p.All.Freed != p.Small.Freed+p.Large.Freed {
			return executor.Broken("A1", "%s: all is not the sum of small_pool and large_pool", now[i].name)
		}
		for k, v := range [...]*allocators.Stat{&p.All, &p.Small, &p.Large} {
			old := [...]*allocators.Stat{&q.All, &q.Small, &q.Large}[k]
			if v := checkStat(now[i].name, v, old); v != nil {
				return v
			}
		}
		if most := p.Small.Peak + p.Large.Peak; p.All.Peak > most || p.All.Peak < max(p.Small.Peak, p.Large.Peak) {
			return executor.Broken("A1", "%s: the peak %d of all is beyond those of small_pool and large_pool, %d and %d", now[i].name,
				p.All.Peak, p.Small.Peak, p.Large.Peak)
		}
	}
	for _, c := range []struct {
		name     string
		now, old uint64
	}{
		{"num_alloc_retries", st.NumAllocRetries, previous.NumAllocRetries}, {"num_ooms", st.NumOOMs, previous.NumOOMs},
		{"num_sync_all_streams", st.NumSyncAllStreams, previous.NumSyncAllStreams},
		{"num_device_alloc", st.NumDeviceAlloc, previous.NumDeviceAlloc}, {"num_device_free", st.NumDeviceFree, previous.NumDeviceFree},
	} {
		if c.now < c.old {
			return executor.Broken("A13", "%s fell from %d to %d", c.name, c.old, c.now)
		}
	}
	if v := checkStat("oversize_allocations", &st.OversizeAllocations, &previous.OversizeAllocations); v != nil {
		return v
	}
	return checkStat("oversize_segments", &st.OversizeSegments, &previous.OversizeSegments)
}

// signed reads a figure as PyTorch keeps it: what counts as oversize can change in mid-run, and its count fall below 0.
func signed(n uint64) int64 { return int64(n) }

func checkStat(name string, now, old *allocators.Stat) *executor.Violation {
	switch {
	case signed(now.Peak) < signed(now.Current) || now.Peak < old.Peak:
		return executor.Broken("A12", "%s: the peak %d is below the present %d or the earlier peak %d", name, now.Peak, signed(now.Current), old.Peak)
	case now.Allocated < old.Allocated || now.Freed < old.Freed:
		return executor.Broken("A13", "%s: a sum of increases or decreases fell", name)
	case now.Current-old.Current != (now.Allocated-old.Allocated)-(now.Freed-old.Freed):
		return executor.Broken("A10", "%s: the change is not increases less decreases", name)
	}
	return nil
}

type namedPooled struct {
	name string
	stat *allocators.Pooled
}

func pooled(s *allocators.Stats) [9]namedPooled {
	return [9]namedPooled{
		{"allocation", &s.Allocation}, {"allocated_bytes", &s.AllocatedBytes}, {"active", &s.Active},
		{"active_bytes", &s.ActiveBytes}, {"requested_bytes", &s.RequestedBytes}, {"segment", &s.Segment},
		{"reserved_bytes", &s.ReservedBytes}, {"inactive_split", &s.InactiveSplit}, {"inactive_split_bytes", &s.InactiveSplitBytes},
	}
}

// DeviceConservation: what was obtained from the device and not returned is what is reserved.
var DeviceConservation = executor.Property{
	ID: "device-conservation",
	Claim: "Bytes obtained from the device less bytes returned are the reserved bytes; no right call fails, of the program or of the " +
		"allocator; a free buys and returns nothing.",
	Source: "contracts D1, D3",
	Op: func(s *executor.State) *executor.Violation {
		if s.Stats == nil || s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		if s.Operation.Kind == trace.Free && s.Stats.ReservedBytes.All.Current != s.ReservedBefore {
			return executor.Broken("D3", "a free changed reserved bytes from %d to %d", s.ReservedBefore, s.Stats.ReservedBytes.All.Current)
		}
		return nil
	},
	Walk: func(s *executor.State) *executor.Violation {
		if held := s.Capacity - s.Foreign - s.DeviceFree; s.View.Reserved != held {
			return executor.Broken("D1", "the device has given %d bytes, its calls add up to %d", held, s.View.Reserved)
		}
		return nil
	},
}
