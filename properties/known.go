package properties

import "github.com/shatter-gpu/shatter/harness/executor"

// Known189504: the last flush makes a block acceptable, since work on it is done or what is left of it is small enough, and the
// allocator does not look again.
const Known189504 = "pytorch#189504"

// Known159674: in a private pool a refused request is not asked for again after a release.
const Known159674 = "pytorch#159674"

// KnownIssue is an upstream fault that the exact allocator reproduces.
type KnownIssue struct {
	ID, URL, Summary, Condition string
}

// KnownIssues are counted apart from findings; with the flag --known off they are findings.
var KnownIssues = []KnownIssue{{
	ID: Known189504, URL: "https://github.com/pytorch/pytorch/issues/189504",
	Summary: "the last rung of the ladder waits for pending frees, then asks only the device again",
	Condition: "verdict false, the promise was kept, and the repeated request is served by a block that was pending at entry, or by " +
		"what the flush left of an expandable one that was too large for the request by max_split_size_mb",
}, {
	ID: Known175015, URL: "https://github.com/pytorch/pytorch/issues/175015",
	Summary: "while a pool of the user's is open PyTorch up to 2.12 takes uses on other streams for parts of a graph, and forgets them",
	Condition: "work-done-before-reuse, the work is on a stream that was recorded while a pool that is no capture was open, and the rules are " +
		"those of a version up to 2.12 (https://github.com/pytorch/pytorch/pull/181830 mends it)",
}, {
	ID: Known159674, URL: "https://github.com/pytorch/pytorch/issues/159674",
	Summary: "while a private pool is open nothing is released and asked for again, except oversize blocks, whose release may fall short " +
		"of its aim and yet suffice (https://github.com/pytorch/pytorch/pull/187795 is about the same place)",
	Condition: "verdict false, the promise was kept, an open pool held releases back, and the repeated request is served by a purchase",
}, {
	ID: Known193400, URL: "https://github.com/pytorch/pytorch/pull/193400",
	Summary:   "large free blocks of expandable segments are kept from smaller requests by max_split_size_mb, so that they pile up",
	Condition: "a repeated sequence grows with max_split_size_mb and expandable segments, and is bounded with each of them alone",
}}

// WithoutKnown makes findings of known issues.
func WithoutKnown(j executor.Judge) executor.Judge {
	return func(s *executor.State, oom *oomError) executor.Judgement {
		v := j(s, oom)
		v.Known = ""
		return v
	}
}

// RelationsWithoutKnown are the relations with findings made of known issues.
func RelationsWithoutKnown() []executor.Relation {
	all := Relations()
	for i := range all {
		check := all[i].Check
		all[i].Check = func(c *executor.Case) (*executor.Violation, error) {
			v, err := check(c)
			if v != nil {
				v.Known = ""
			}
			return v, err
		}
	}
	return all
}
