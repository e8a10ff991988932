package properties

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// EverythingReturned: after empty_cache only what overlaps a live block is left; with nothing live, nothing.
var EverythingReturned = executor.Property{
	ID:     "everything-returned",
	Claim:  "After empty_cache every segment holds a live block and every mapped page overlaps one, but for private pools in use; once all is freed nothing is reserved, nor address space that had memory.",
	Source: "contracts E1, E3; specification 15.2, 17.5",
	Walk: func(s *executor.State) *executor.Violation {
		if s.Operation.Kind != trace.EmptyCache || s.Outcome != executor.OK || s.Promise.Kind == allocators.PromiseNone || s.Held {
			return nil
		}
		only := s.Operation.Pool // 0: of all that are not in use
		if n := s.Heap.Pending.Count; n > 0 && only == 0 {
			return executor.Broken("E1", "empty_cache left %d pending blocks", n)
		}
		for i := range s.View.Segments {
			g := &s.View.Segments[i]
			if g.Pool != 0 && s.PoolUses[g.Pool] > 0 || only != 0 && g.Pool != only {
				continue
			}
			if v := unreturned(g, s.View.BlocksOf(i), s.Promise.PageSize(g.Small)); v != nil {
				return v
			}
		}
		return nil
	},
	End: func(s *executor.State) *executor.Violation {
		taken := s.Capacity - s.Foreign - s.DeviceFree
		if s.Promise.Kind == allocators.PromiseNone && taken <= s.AtStart {
			return nil // a pool that it was made with may stay
		}
		if s.Empties && taken > 0 {
			return executor.Broken("E3", "everything is freed and the cache emptied, %d bytes are still taken from the device", taken)
		}
		// A range whose first mapping failed is not looked at again (specification 17.5), nor one that the device failed to take back.
		if s.Empties && s.Ranges > 0 && s.Promise.Kind != allocators.PromiseNone && !s.Faulty {
			return executor.Broken("E3", "everything is freed and the cache emptied, %d address ranges that had memory are still reserved", s.Ranges)
		}
		return nil
	},
}

// unreturned looks for memory of a segment that no live block keeps.
func unreturned(g *allocators.SegmentInfo, blocks []allocators.BlockInfo, page uint64) *executor.Violation {
	if !g.Expandable {
		if len(blocks) == 1 && blocks[0].State == allocators.Free {
			return executor.Broken("E1", "empty_cache kept a segment of %d bytes without a live block", g.Size)
		}
		return nil
	}
	for j := range blocks {
		b := &blocks[j]
		if b.State != allocators.Free {
			continue
		}
		first := (uint64(b.Addr-g.Addr) + page - 1) / page
		last := uint64(b.End()-g.Addr) / page
		if last > first {
			return executor.Broken("E1", "empty_cache kept %d mapped pages of %d bytes that overlap no live block", last-first, page)
		}
	}
	return nil
}
