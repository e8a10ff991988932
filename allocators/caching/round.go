package caching

import "math/bits"

// Sizes in bytes (section 2).
const (
	minBlock      = 512
	smallLimit    = 1 << 20  // rounded sizes up to it go to the small pool
	smallSegment  = 2 << 20  // what every small request buys; the page of small expandable segments
	minOwnSegment = 10 << 20 // rounded sizes from it on buy a segment of their own size
	largeRounding = 2 << 20  // own segments are a multiple of it
)

// Round is the size that is looked for when n > 0 bytes are asked for (section 6): a multiple of 512, or of a fraction of the
// power of two below n where roundup_power2_divisions says so.
func (s *Settings) Round(n uint64) uint64 {
	if n < minBlock {
		return minBlock
	}
	if d := s.RoundupDivisions[bucket(n)]; d > 1 && n > minBlock*d {
		floor := uint64(1) << (bits.Len64(n) - 1)
		if n == floor {
			return n
		}
		step := floor / d
		return (n + step - 1) &^ (step - 1)
	}
	return (n + minBlock - 1) &^ (minBlock - 1)
}

// bucket is the size class of an unrounded request, [2^k, 2^(k+1)) MiB, all below and above in the outer ones (section 6.1).
func bucket(n uint64) int {
	return min(max(bits.Len64(n)-1-20, 0), Buckets-1)
}

// SegmentSize is what a rounded size buys from the device (section 8).
func (r *Rules) SegmentSize(rounded uint64) uint64 {
	switch {
	case r.ExactPurchase:
		return (rounded + largeRounding - 1) &^ (largeRounding - 1)
	case rounded <= smallLimit && !r.OnePool:
		return smallSegment
	case rounded < minOwnSegment:
		return r.LargeSegment
	default:
		return (rounded + largeRounding - 1) &^ (largeRounding - 1)
	}
}

// PageSize is the physical chunk of an expandable segment (section 17.1).
func (r *Rules) PageSize(small bool) uint64 {
	if small || r.ExactPurchase {
		return smallSegment
	}
	return r.LargeSegment
}
