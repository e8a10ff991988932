package caching

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
)

// Rules is what differs between PyTorch versions; all else has not changed since 2.6 (specification, section 24, and section 8 of
// that of the settings string).
type Rules struct {
	// Version is PyTorch's, "2.6".
	Version string
	// Checked says against what the rules were held: the decisions that PyTorch 2.6.0 was recorded to make, or a wheel of the version,
	// whose allocator ran the same 592 traces and settings and made every decision that these rules make.
	Checked string
	// LargeSegment in bytes is what requests over 1 MiB and under 10 MiB buy, the page of large expandable segments, and the
	// default of max_non_split_rounding_mb. Setting large_segment_size_mb changes it.
	LargeSegment uint64
	// MinLimitMB is the smallest value of max_split_size_mb and max_non_split_rounding_mb.
	MinLimitMB uint64
	// GreaterFillsLast: the entry `>` of a roundup_power2_divisions list also overwrites the bucket of the last key.
	GreaterFillsLast bool
	// OnePool and ExactPurchase switch rules off that all versions have, to see what they cost: requests of all sizes come from
	// one pool, which splits as the small one does; a purchase is no larger than the request, in whole pages of 2 MiB.
	OnePool, ExactPurchase bool
	// Variable is the environment variable that the version's documentation names.
	Variable string

	// Pools say which private pool a request goes to, and what is held back meanwhile.
	Pools allocators.PoolRules

	// emptiesInCapture: empty_cache does what it can while a pool holds releases back.
	emptiesInCapture bool
	// generic: the device-generic parser, which drops all white space and takes 64-bit integers.
	generic bool
	// fullIsUnlimited: a memory fraction of 1 sets no limit.
	fullIsUnlimited bool
	// resetsNonSplit: every parse sets max_non_split_rounding_mb back.
	resetsNonSplit bool
	// minor is the version's second number: settings came with one.
	minor int
}

// rules26 are the rules of PyTorch 2.6, the ones that recorded decisions verify.
var rules26 = Rules{
	Version: "2.6", minor: 6, Checked: "verified by recorded decisions", LargeSegment: 20 << 20, MinLimitMB: 21, GreaterFillsLast: true, Variable: "PYTORCH_CUDA_ALLOC_CONF",
}

// ruleSets are all rules there are, oldest first.
var ruleSets = []Rules{
	rules26,
	{
		Version: "2.9", minor: 9, Checked: "592 recorded traces replayed against the wheel 2.9.0", emptiesInCapture: true, LargeSegment: 20 << 20, MinLimitMB: 20, GreaterFillsLast: true, Variable: "PYTORCH_ALLOC_CONF", generic: true,
	},
	{
		Version: "2.11", minor: 11, Checked: "592 recorded traces replayed against the wheel 2.11.0", LargeSegment: 20 << 20, MinLimitMB: 20, Variable: "PYTORCH_ALLOC_CONF", generic: true,
		fullIsUnlimited: true, resetsNonSplit: true, emptiesInCapture: true, Pools: allocators.PoolRules{NewestFirst: true},
	},
	{
		Version: "2.13", minor: 13, Checked: "592 recorded traces replayed against the wheels 2.13.0 and 2.14.1", LargeSegment: 20 << 20, MinLimitMB: 20, Variable: "PYTORCH_ALLOC_CONF", generic: true,
		fullIsUnlimited: true, resetsNonSplit: true, emptiesInCapture: true,
		Pools: allocators.PoolRules{NewestFirst: true, CapturesOnly: true},
	},
}

// RuleVersions are the PyTorch versions that RulesFor knows, oldest first.
func RuleVersions() []string {
	var out []string
	for i := range ruleSets {
		out = append(out, ruleSets[i].Version)
	}
	return out
}

// RulesFor returns the rules of a PyTorch version: 2.6, 2.9, 2.11 or 2.13.
func RulesFor(version string) (Rules, error) {
	for i := range ruleSets {
		if ruleSets[i].Version == version {
			return ruleSets[i], nil
		}
	}
	return Rules{}, fmt.Errorf("x_rules:%s: there are rules of PyTorch %s", version, strings.Join(RuleVersions(), ", "))
}

// Source says what the rules rest on, for people.
func (r *Rules) Source() string { return r.Checked }
