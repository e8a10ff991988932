package properties

import (
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func sizeText(n uint64) string { return fmt.Sprintf("%d bytes", n) }

// Placement: whose memory a request gets, and how much of the block.
var Placement = executor.Property{
	ID: "placement",
	Claim: "A request gets memory of its own stream and pool, at the low end of the free block, and no more of it than the split " +
		"rule leaves.",
	Source: "contracts I3, I7, I8; specification 7, 10, 12",
	Op: func(s *executor.State) *executor.Violation {
		if s.Entry == nil || s.Region == nil || s.Promise.Kind == allocators.PromiseNone || s.Operation.Kind == trace.Block {
			return nil // a block of the state to start from lies where it says
		}
		size := s.Promise.Round(s.Operation.Bytes)
		small := size <= smallLimit
		switch {
		case size < s.Operation.Bytes || s.Block.Size < size:
			return executor.Broken("I3", "a request of %d bytes is rounded to %d and got %d", s.Operation.Bytes, size, s.Block.Size)
		case s.Region.Stream != s.Operation.Stream:
			return executor.Broken("stream", "a request of stream %d got memory of stream %d", s.Operation.Stream, s.Region.Stream)
		case s.Region.Small != small:
			return executor.Broken("pool", "a request of %d bytes got memory of a segment for %s requests", s.Operation.Bytes, poolName(s.Region.Small))
		}
		if v := slackOf(s, size, small); v != nil {
			return v
		}
		return neighbours(s, size, small)
	},
}

func poolName(small bool) string {
	if small {
		return "small"
	}
	return "large"
}

// slackOf holds what the block has beyond the request against the split rule.
func slackOf(s *executor.State, size uint64, small bool) *executor.Violation {
	q := &s.Promise
	slack := s.Block.Size - size
	most := uint64(0)
	switch {
	case small || q.Kind == allocators.PromiseX:
		// a remainder of 512 bytes or more is split off, and all sizes are multiples of 512
	case size < q.MaxSplitSize:
		most = smallLimit
	default:
		// From the cache less than the allowance; a fresh segment is the size rounded up to 2 MiB, or 20 MiB.
		most = max(q.MaxNonSplitRounding-1, q.SegmentSize(size)-size)
	}
	if slack > most {
		return executor.Broken("I3", "a request of %d bytes, rounded to %d, got a block of %d: %d bytes should have been split off",
			s.Operation.Bytes, size, s.Block.Size, slack)
	}
	return nil
}

// neighbours looks at what lies beside the block.
func neighbours(s *executor.State, size uint64, small bool) *executor.Violation {
	for i := range s.Touched {
		n := &s.Touched[i]
		if n.Block.Addr != s.Block.Addr || n.Block.State != allocators.Live {
			continue
		}
		if n.HasPrev && n.Prev.State == allocators.Free {
			return executor.Broken("I7", "the block at %#x was not placed at the low end: %d free bytes lie before it", s.Block.Addr, n.Prev.Size)
		}
		if !n.HasNext || n.Next.State != allocators.Free || small || s.Promise.Kind == allocators.PromiseX {
			return nil
		}
		switch {
		case size >= s.Promise.MaxSplitSize:
			return executor.Broken("split", "a block for %d bytes was split, %d bytes lie behind it, although max_split_size is %d",
				size, n.Next.Size, s.Promise.MaxSplitSize)
		case n.Next.Size <= smallLimit:
			return executor.Broken("split", "%d bytes were split off behind the block at %#x; in the large pool 1 MiB or less is not", n.Next.Size, s.Block.Addr)
		}
		return nil
	}
	return nil
}

// FractionLimit: the memory fraction bounds what is reserved.
var FractionLimit = executor.Property{
	ID:     "fraction-limit",
	Claim:  "On classic, reserved bytes are at most the memory-fraction limit after any purchase.",
	Source: "contracts D2 (not promised of expandable segments, see not-promised); specification 11, 19",
	Op: func(s *executor.State) *executor.Violation {
		q := &s.Promise
		if s.Stats == nil || s.Operation.Kind != trace.Alloc || q.Kind != allocators.PromiseN || !q.HasLimit {
			return nil
		}
		if reserved := s.Stats.ReservedBytes.All.Current; reserved > q.Limit && slices.ContainsFunc(s.Calls, bought) {
			return executor.Broken("D2", "%d bytes are reserved, the limit is %d", reserved, q.Limit)
		}
		return nil
	},
}

// DeviceCounters: the counters of device calls and refusals are what was called and refused.
var DeviceCounters = executor.Property{
	ID:     "device-counters",
	Claim:  "num_device_alloc, num_device_free and num_ooms count what happened; every refusal came after a retry (but in a pool that holds releases back); oversize counts are those of the blocks.",
	Source: "contracts A9, A11, A14; specification 20",
	Walk: func(s *executor.State) *executor.Violation {
		st := s.Stats
		if st == nil || s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		switch {
		case st.NumOOMs > st.NumAllocRetries+s.UnretriedOOMs:
			return executor.Broken("A14", "%d refusals after only %d retries", st.NumOOMs-s.UnretriedOOMs, st.NumAllocRetries)
		case s.Faulty:
			return nil // an operation that failed half-way was counted, or not, as far as it came
		case st.NumDeviceAlloc != s.Bought:
			return differs("A9", "num_device_alloc", st.NumDeviceAlloc, s.Bought)
		case st.NumDeviceFree != s.Returned:
			return differs("A9", "num_device_free", st.NumDeviceFree, s.Returned)
		case st.NumOOMs != s.OOMs:
			return differs("A9", "num_ooms", st.NumOOMs, s.OOMs)
		}
		if s.Reconfigured {
			return nil // what counts as oversize has changed
		}
		return oversizeCounts(s)
	},
}

func oversizeCounts(s *executor.State) *executor.Violation {
	var blocks, segments uint64
	limit := s.Promise.MaxSplitSize
	for i := range s.View.Segments {
		if g := &s.View.Segments[i]; !g.Expandable && g.Size >= limit {
			segments++
		}
	}
	for i := range s.View.Blocks {
		if b := &s.View.Blocks[i]; b.State == allocators.Live && b.Size >= limit {
			blocks++
		}
	}
	if got := s.Stats.OversizeAllocations.Current; got != blocks {
		return differs("A11", "oversize_allocations", got, blocks)
	}
	if got := s.Stats.OversizeSegments.Current; got != segments {
		return differs("A11", "oversize_segments", got, segments)
	}
	return nil
}

// WholePages: physical memory comes and goes in pages.
var WholePages = executor.Property{
	ID:     "whole-pages",
	Claim:  "In an expandable segment every stretch without memory begins and ends at a page; its blocks add up to the reservation.",
	Source: "contracts X1, X3; specification 17.2",
	Walk: func(s *executor.State) *executor.Violation {
		if s.Promise.Kind == allocators.PromiseNone {
			return nil
		}
		for i := range s.View.Segments {
			g := &s.View.Segments[i]
			if !g.Expandable {
				continue
			}
			page := s.Promise.PageSize(g.Small)
			if g.Size%page != 0 {
				return executor.Broken("X3", "the reservation at %#x has %d bytes, no multiple of the page of %d", g.Addr, g.Size, page)
			}
			for _, b := range s.View.BlocksOf(i) {
				if b.State == allocators.Unmapped && (uint64(b.Addr-g.Addr)%page != 0 || b.Size%page != 0) {
					return executor.Broken("X1", "%d bytes without memory at offset %d of the segment at %#x do not lie on pages of %d",
						b.Size, b.Addr-g.Addr, g.Addr, page)
				}
			}
		}
		return nil
	},
}
