package gen

import (
	"fmt"
	"strings"
)

// settings are an allocator's settings, of those that PyTorch 2.6 reads from PYTORCH_CUDA_ALLOC_CONF. Whether segments are
// expandable is never among them: the same trace runs on both.
type settings struct {
	splitMB     uint64 // max_split_size_mb, 0 if not set
	nonSplitMB  uint64 // max_non_split_rounding_mb, 0 if not set
	gcPercent   uint64 // garbage_collection_threshold in hundredths, 0 if not set; without effect unless a fraction is set
	divisions   uint64 // roundup_power2_divisions for all sizes, 0 if not set
	divisionsBy string // the same as a list, instead
}

// minLimitMB is the smallest max_split_size_mb and max_non_split_rounding_mb that PyTorch 2.6 takes.
const minLimitMB = 21

// drawSettings draws each setting with a chance of one in three. Limits stay small enough to matter on the device.
func drawSettings(src Source, capacity uint64) settings {
	var s settings
	most := min(max(capacity/mib/4, 2*minLimitMB), 512)
	if chance(src, 1, 3) {
		s.splitMB = logUniform(src, minLimitMB, most)
		if chance(src, 1, 3) {
			s.nonSplitMB = logUniform(src, minLimitMB, most)
		}
	}
	if chance(src, 1, 3) {
		if chance(src, 1, 2) {
			s.divisions = 1 << src.Uint64n(5)
		} else {
			s.divisionsBy = drawDivisionList(src)
		}
	}
	if chance(src, 1, 3) {
		s.gcPercent = between(src, 30, 95)
	}
	return s
}

// drawDivisionList draws two to four intervals, ascending, and often one for all above.
func drawDivisionList(src Source) string {
	var items []string
	interval := uint64(1) << src.Uint64n(3)
	for range between(src, 2, 4) {
		items = append(items, fmt.Sprintf("%d:%d", interval, uint64(1)<<src.Uint64n(4)))
		interval <<= 1 + src.Uint64n(3)
	}
	if chance(src, 1, 2) {
		items = append(items, fmt.Sprintf(">:%d", uint64(1)<<src.Uint64n(4)))
	}
	return "[" + strings.Join(items, ",") + "]"
}

// drawFraction draws a memory fraction in hundredths; zero means that the call is never made.
func drawFraction(src Source, s settings) uint64 {
	if s.gcPercent == 0 && !chance(src, 1, 4) {
		return 0
	}
	return between(src, 60, 100)
}

// steps is how many steps an octave has, for sizes that aim at them. Lists are taken at four, which meets steps of every list.
func (s *settings) steps() uint64 {
	if s.divisions > 0 {
		return s.divisions
	}
	return 4
}

// String returns the settings string, empty if nothing is set.
func (s *settings) String() string {
	var pairs []string
	add := func(format string, v any) { pairs = append(pairs, fmt.Sprintf(format, v)) }
	if s.splitMB > 0 {
		add("max_split_size_mb:%d", s.splitMB)
	}
	if s.nonSplitMB > 0 {
		add("max_non_split_rounding_mb:%d", s.nonSplitMB)
	}
	if s.gcPercent > 0 {
		add("garbage_collection_threshold:%g", hundredths(s.gcPercent))
	}
	if s.divisions > 0 {
		add("roundup_power2_divisions:%d", s.divisions)
	}
	if s.divisionsBy != "" {
		add("roundup_power2_divisions:%s", s.divisionsBy)
	}
	return strings.Join(pairs, ",")
}

// hundredths prints shortest: 95 is 0.95.
func hundredths(n uint64) float64 { return float64(n) / 100 }
