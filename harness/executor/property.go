package executor

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
)

// Property is something that must hold. A hook that is nil is not called. Hooks are pure: they read the State and keep
// nothing, so one Property serves many runs at once.
type Property struct {
	// ID is what reports and flags call it.
	ID string
	// Claim is one sentence: what holds.
	Claim string
	// Source is where the claim comes from: a specification section, a paper, an upstream issue.
	Source string
	// Op is called after every operation and looks at what the operation touched.
	Op func(*State) *Violation
	// Walk is called with the whole state: every WalkEvery operations, after a refusal, after empty_cache and at the end.
	Walk func(*State) *Violation
	// End is called once everything is freed and the cache emptied.
	End func(*State) *Violation
}

// Violation is how a property was broken.
type Violation struct {
	// Rule names the part of the property, a slug.
	Rule string
	// Detail says it in words and figures.
	Detail string
	// Known is the known upstream issue that explains it, Target the allocator if it is not the one of the case; relations only.
	Known, Target string
}

// Broken makes a violation.
func Broken(rule, format string, args ...any) *Violation {
	return &Violation{Rule: rule, Detail: fmt.Sprintf(format, args...)}
}

// Verdict is what a refusal was (design: the OOM verdict).
type Verdict uint8

// The verdicts; the first that matches in this order holds.
const (
	NoVerdict Verdict = iota
	DeviceRefused
	Genuine
	False
	Rounding
	Policy
	Fragmentation
	Unknown
)

var verdictNames = [...]string{"none", "device-refused", "genuine", "false", "rounding", "policy", "fragmentation", "unknown"}

// Verdicts are all verdicts, in order.
var Verdicts = []Verdict{DeviceRefused, Genuine, False, Rounding, Policy, Fragmentation, Unknown}

// String returns the verdict's word.
func (v Verdict) String() string { return verdictNames[v] }

// Relaxation is a set of the allocator's rules.
type Relaxation uint16

// The rules that can be relaxed, one at a time or two.
const (
	RelaxEvents       Relaxation = 1 << iota // wait for pending frees, then look again
	RelaxStream                              // take a free block of another stream
	RelaxPool                                // take a free block of another pool, or what a private pool keeps apart
	RelaxOversize                            // take a free block that max_split_size_mb keeps from this request
	RelaxQuantum                             // buy no more than the rounded request
	RelaxHole                                // grow where the fewest pages are needed
	RelaxLimit                               // hold the fraction limit against what is really bought
	RelaxAddressSpace                        // let an expandable segment grow past its reservation
)

var relaxationNames = [...]string{"events", "stream", "pool", "oversize", "quantum", "hole", "limit", "address-space"}

// Relaxations is how many rules there are.
const Relaxations = len(relaxationNames)

// String joins the rules' names with +.
func (r Relaxation) String() string {
	var names []string
	for i, n := range relaxationNames {
		if r>>i&1 != 0 {
			names = append(names, n)
		}
	}
	return strings.Join(names, "+")
}

// Judgement is the verdict on one refusal, with its grounds.
type Judgement struct {
	Verdict Verdict
	Op      int
	Request uint64 // bytes asked for
	Rounded uint64 // bytes looked for; 0 if unknown
	// Capacity is min(limit, reserved + device free) at the failure, in bytes.
	Capacity uint64
	// LiveRequested, Live and Active are bytes at the failure: asked for, in block sizes, and with pending blocks.
	LiveRequested, Live, Active uint64
	Reserved                    uint64 // bytes after the failure
	DeviceFree                  uint64 // bytes after the failure
	// LargestFree is the largest free block after the failure, in any pool or stream.
	LargestFree uint64
	// Pinned is the bytes that a full release would not return and nobody uses; PinnedBy blocks hold them.
	Pinned   uint64
	PinnedBy int
	// Relaxed has all minimal sets of one or two rules whose relaxation would have served the request (Policy).
	Relaxed []Relaxation
	// Rule is a slug for why the verdict is False; Reason says in a few words why it is False or DeviceRefused.
	Rule, Reason string
	// Known is the id of the known upstream issue that a False verdict falls under.
	Known string
	// Demands say which levels of free memory the refusal broke.
	Demands Demands
	// Asked is set if the literal promise was asked at a level, and the refusal broke it: a finding, whatever the verdict.
	Asked *Asked
}

// Asked is a literal promise, asked at a level and broken.
type Asked struct {
	Level  Level
	Reason string
}

// Free is the bytes that are not live: the 'free memory' of the founding question.
func (j *Judgement) Free() uint64 { return j.Capacity - min(j.Capacity, j.Live) }

// Finding is a broken property.
type Finding struct {
	Property  string `json:"property"`
	Rule      string `json:"rule"`
	Target    string `json:"target"`
	Op        int    `json:"op"`
	Operation string `json:"operation"`
	Detail    string `json:"detail"`
	// At is what noticed it: the kind of the operation, AtWalk or AtEnd. Frame is the function in which a panic began.
	At    string `json:"at"`
	Frame string `json:"frame,omitempty"`
	// Known is the upstream issue that explains it; such findings are counted apart.
	Known string `json:"known,omitempty"`
}

func (f *Finding) String() string {
	return fmt.Sprintf("%s/%s on %s at operation %d (%s): %s", f.Property, f.Rule, f.Target, f.Op, f.Operation, f.Detail)
}

// Judge decides what a refusal was.
type Judge func(s *State, oom *allocators.OOMError) Judgement
