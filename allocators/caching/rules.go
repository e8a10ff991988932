package caching

import "fmt"

// Rules is what differs between PyTorch versions; all else has not changed since 2.6 (section 24).
type Rules struct {
	// Version is PyTorch's, "2.6".
	Version string
	// LargeSegment in bytes is what requests over 1 MiB and under 10 MiB buy, the page of large expandable segments, and the
	// default of max_non_split_rounding_mb.
	LargeSegment uint64
	// MinLimitMB is the smallest value of max_split_size_mb and max_non_split_rounding_mb.
	MinLimitMB uint64
	// GreaterFillsLast: the entry `>` of a roundup_power2_divisions list also overwrites the bucket of the last key.
	GreaterFillsLast bool
}

// rules26 are the rules of PyTorch 2.6, the ones that recorded decisions verify.
var rules26 = Rules{Version: "2.6", LargeSegment: 20 << 20, MinLimitMB: 21, GreaterFillsLast: true}

// RulesFor returns the rules of a PyTorch version.
func RulesFor(version string) (Rules, error) {
	if version == rules26.Version {
		return rules26, nil
	}
	return Rules{}, fmt.Errorf("x_rules:%s: the only rules there are now are 2.6", version)
}
