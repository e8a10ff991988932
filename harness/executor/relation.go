package executor

import (
	"fmt"
	"runtime/debug"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Relation is something that must hold between several runs: of a trace and others made from it, or of a trace on several
// configurations of an allocator. A property sees one run; a relation makes its own.
type Relation struct {
	ID, Claim, Source string
	// Check runs what it needs. Nil without an error means that the relation holds, or says nothing about the case.
	Check func(*Case) (*Violation, error)
}

// Case is what a relation is asked about.
type Case struct {
	Trace  *trace.Trace
	Target Target
	// Capacity in bytes, and how to make a device.
	Capacity  uint64
	NewDevice func(capacity uint64) (device.Device, error)
	// Conf is the allocator's settings string, and With makes the allocator under another one; With is nil if it takes none.
	Conf string
	With func(conf string) (Target, error)
	// Explore lets relations try settings of their own besides Conf. A finding then names the allocator with those.
	Explore bool
}

// MovesMemory tells whether the operation bought, returned or mapped memory, or tried to.
func (w *Row) MovesMemory() bool {
	for i := range w.run.recorder.Calls {
		switch w.run.recorder.Calls[i].Kind {
		case device.CallWait, device.CallReserve, device.CallUnreserve:
		default:
			return true
		}
	}
	return false
}

// AtRuns is what noticed a finding of a relation: several runs side by side.
const AtRuns = "runs"

// Relate asks relations about a case, in order, and returns a finding for the first that is broken, nil if none is. The
// operation of such a finding is the end of the trace.
func Relate(c *Case, relations []Relation) (*Finding, error) {
	for i := range relations {
		r := &relations[i]
		v, crash, err := check(c, r)
		if err != nil || crash != nil {
			return crash, err
		}
		if v != nil {
			target := c.Target.Name
			if v.Target != "" {
				target = v.Target
			}
			return &Finding{
				Property: r.ID, Rule: v.Rule, Target: target, Op: len(c.Trace.Ops), Operation: "the whole trace, in several runs",
				Detail: v.Detail, At: AtRuns, Known: v.Known,
			}, nil
		}
	}
	return nil, nil
}

// check asks a relation. A panic of the allocator is a finding of its own.
func check(c *Case, r *Relation) (v *Violation, crash *Finding, err error) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		stack := debug.Stack()
		frame, ours := panicFrame(string(stack))
		if ours {
			err = fmt.Errorf("%w: %s on %s: relation %s: panic: %v\n%s", ErrHarness, c.Trace.Name, c.Target.Name, r.ID, p, stack)
			return
		}
		crash = &Finding{
			Property: NoCrash, Rule: "panic", Target: c.Target.Name, Op: len(c.Trace.Ops), Operation: "the whole trace, in several runs",
			Detail: fmt.Sprintf("the allocator panicked while %s was looked at: %v", r.ID, p), At: AtRuns, Frame: frame,
		}
	}()
	v, err = r.Check(c)
	return v, nil, err
}
