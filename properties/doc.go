// Package properties is what must hold: one file a family, each property with its claim and the source of the claim, and the
// judge that decides what a refusal was.
//
// In go states of a run (executor.State), out come violations and judgements. A property computes what it needs from the
// state by brute force, independently of the code under test; it keeps nothing between calls.
//
// Numbers like I4 or E1 are those of the project's contract catalogue, which the properties' sources quote.
package properties

import "github.com/shatter-gpu/shatter/harness/executor"

// All returns every property, in the order in which they are checked: the first one broken names the finding.
func All() []executor.Property {
	return []executor.Property{
		NoOverlap, ReuseBeforeEvent, WorkDone, PoolIsolation, Bounds, Placement, ServedAsPromised, Tiling, Coalescing, WholePages, Accounting, DeviceCounters,
		DeviceConservation, FractionLimit, EverythingReturned,
	}
}
