package allocators

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// ErrEnvironment: the allocator cannot do its work here (a program is missing, a function is not simulated). It says nothing
// about the allocator, so it is never a finding.
var ErrEnvironment = errors.New("environment fault")

// DeathKind is how an allocator in a process of its own ended in mid-run.
type DeathKind uint8

const (
	// Crashed: a signal that it raised ended it.
	Crashed DeathKind = iota
	// Exited: it called exit.
	Exited
	// Hung: it answered nothing until the watchdog's time was over.
	Hung
	// Garbled: it answered what is no reply.
	Garbled
	// Raised: it threw an error that is no refusal, such as a failed assertion of its own; what it is worth afterwards is not known.
	Raised
)

// String returns the word of reports.
func (k DeathKind) String() string {
	return [...]string{"crashed", "exited", "hung", "garbled", "raised an error"}[k]
}

// Death is an allocator's end with an operation to do. It is an outcome of the run: a finding, not a fault of the harness.
type Death struct {
	Kind DeathKind
	// Detail says it in words: the signal's name, the exit code, the time waited, the line that is no reply.
	Detail string
	// Output is the end of what it wrote to its standard error, at most a few KiB.
	Output string
}

// Error returns one line.
func (d *Death) Error() string {
	s := fmt.Sprintf("the allocator %s: %s", d.Kind, d.Detail)
	if line := lastLine(d.Output); line != "" {
		s += fmt.Sprintf(" (its last output: %q)", line)
	}
	return s
}

// lastLine returns the last line that says something: PyTorch's warnings ([W1130 15:32:29.696474376 FILE] TEXT) tell of refusals before,
// and the time, which makes each run another one.
func lastLine(s string) string {
	lines := strings.Split(s, "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		if line := strings.TrimSpace(lines[i]); line != "" && !warning.MatchString(line) {
			return line[:min(len(line), 200)]
		}
	}
	return ""
}

var warning = regexp.MustCompile(`^\[[WI]\d{4} `)

// RequestKind is what a foreseen call is.
type RequestKind uint8

// The calls that a Script foresees.
const (
	RequestAlloc RequestKind = iota
	RequestFree
	RequestRecord
	RequestSync
	RequestEmptyCache
	RequestConf
	RequestFraction
	RequestForeign
	RequestPoolBegin
	RequestPoolEnd
	RequestPoolRelease
	RequestEmptyPool
	// RequestNone asks for nothing: the operation concerns the harness alone.
	RequestNone
)

// Request is a foreseen call. ID names an allocation from its alloc to its free.
type Request struct {
	Kind     RequestKind
	ID       int32
	Stream   device.Stream // of a sync, -1 for all
	Bytes    uint64
	Conf     string
	Fraction float64
	// Pool is that of a request about a private pool; of a begin, Capture says that a graph is captured, and Stream is whose requests it
	// admits, AnyStream for all.
	Pool    PoolID
	Capture bool
	// StatsAfter says that Stats will be asked for right after it.
	StatsAfter bool
}

// Script is all that will be asked of an allocator, as far as nothing ends the run.
type Script struct {
	Len int
	// At returns request i. It may be called from several goroutines at once.
	At func(i int) Request
	// Judged says that refusals will be judged, so that it is worth finding out what an unchanged retry would give.
	Judged bool
}

// Foreseer is an allocator that works faster when it knows what it will be asked, as one behind a pipe does. Calls that
// depart from the script are served all the same.
type Foreseer interface {
	// Foresee is called at most once, before the first call.
	Foresee(Script)
}

// DeviceFollower is an allocator whose device only follows the one that it was made on: what the harness does to the device
// itself it must be told.
type DeviceFollower interface {
	// FollowSync says that all work on the stream has completed, on all streams if s is negative.
	FollowSync(s device.Stream) error
	// FollowForeign says that others hold this many bytes from now on.
	FollowForeign(bytes uint64) error
}

// Retrier is an allocator that tells what the request that it refused last would come to if it were made again unchanged.
type Retrier interface {
	// Retried returns whether it would be served; known is false if that was not found out.
	Retried() (served, known bool)
}
