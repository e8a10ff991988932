package properties

import "github.com/shatter-gpu/shatter/harness/executor"

// Known189504: a pending block becomes free during the last flush, and the allocator does not look again.
const Known189504 = "pytorch#189504"

// KnownIssue is an upstream fault that the exact allocator reproduces.
type KnownIssue struct {
	ID, URL, Summary, Condition string
}

// KnownIssues are counted apart from findings; with the flag --known off they are findings.
var KnownIssues = []KnownIssue{{
	ID: Known189504, URL: "https://github.com/pytorch/pytorch/issues/189504",
	Summary:   "the last rung of the ladder waits for pending frees, then asks only the device again",
	Condition: "verdict false, the promise was kept, and the repeated request is served by a block that was pending at entry",
}}

// WithoutKnown makes findings of known issues.
func WithoutKnown(j executor.Judge) executor.Judge {
	return func(s *executor.State, oom *oomError) executor.Judgement {
		v := j(s, oom)
		v.Known = ""
		return v
	}
}
