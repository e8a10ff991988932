package nightly

import (
	"github.com/shatter-gpu/shatter/harness/executor"
)

// Kind is what a task asks for.
type Kind string

// The kinds of task.
const (
	Panel     Kind = "panel"     // a committed trace under committed settings: Answer.Log
	Case      Kind = "case"      // a case of the corpus: Answer.Differences
	Sequence  Kind = "sequence"  // a generated sequence
	Adversary Kind = "adversary" // an adversary's trace
	Hunt      Kind = "hunt"      // a short hunt; what it keeps is checked
	Settings  Kind = "settings"  // the same among settings
	Repeat    Kind = "repeat"    // a finding, on fresh seeds: Answer.Repeated
	Shrink    Kind = "shrink"    // a finding's trace: Answer.Shrunk
)

// Task is what a worker is asked, a line of JSON.
type Task struct {
	Kind Kind `json:"kind"`
	// Index counts the tasks of a kind; with the seed it says all of what is to be done.
	Index int    `json:"index"`
	Seed  uint64 `json:"seed,omitempty"`
	// Found is what is to be repeated or shrunk, Of the task that found it.
	Found *Found `json:"found,omitempty"`
	Of    *Task  `json:"of,omitempty"`
	// Tries and Millis bound a repetition or a shrink.
	Tries  int   `json:"tries,omitempty"`
	Millis int64 `json:"millis,omitempty"`
	// Spool is a file that holds the trace in hand before it runs: a task that ended a worker is done again with one.
	Spool string `json:"spool,omitempty"`

	attempt int // 0, or 1 after a worker was lost
}

// Found is a finding with its trace.
type Found struct {
	executor.Finding
	// Trace is its name, Hash its trace.ID, Text the trace itself.
	Trace string `json:"trace"`
	Hash  string `json:"hash"`
	Text  string `json:"text,omitempty"`
	// Capacity is the device's, in bytes.
	Capacity uint64 `json:"capacity"`
}

// Answer is what a task came to.
type Answer struct {
	// Runs and Operations were executed under all checks.
	Runs       int     `json:"runs"`
	Operations int     `json:"operations"`
	Found      []Found `json:"found,omitempty"`
	// Known counts the findings that a known upstream issue explains, by its id.
	Known    map[string]int `json:"known,omitempty"`
	Log      *Log           `json:"log,omitempty"`
	Repeated *Repeated      `json:"repeated,omitempty"`
	Shrunk   *Shrunk        `json:"shrunk,omitempty"`
	// Differences are those of a case to what its header says.
	Differences []Difference `json:"differences,omitempty"`
	// Fault is why the task could not be done: a fault of the harness or its environment. The worker is replaced after it.
	Fault string `json:"fault,omitempty"`
	// Skipped is why there was nothing to do.
	Skipped string `json:"skipped,omitempty"`
}

// Log is the decisions on a trace of the panel.
type Log struct {
	// Rows are the rows of a decision log, without its first line; those up to it if a finding ended the run (Broken).
	Rows   []string `json:"rows,omitempty"`
	Broken bool     `json:"broken,omitempty"`
	// Rejected is why the allocator does not take the settings.
	Rejected string `json:"rejected,omitempty"`
}

// Repeated is what became of a finding that was looked for again.
type Repeated struct {
	// Own says that its own trace showed it again.
	Own bool `json:"own"`
	// Tried fresh seeds were run, and Seen of them showed the same signature.
	Tried int `json:"tried"`
	Seen  int `json:"seen"`
}

// Shrunk is a finding's trace made small.
type Shrunk struct {
	Found  Found `json:"found"`
	Before int   `json:"before"` // operations
	After  int   `json:"after"`
	// Minimal says that nothing more can be removed; else Stopped says why it ended.
	Minimal bool   `json:"minimal"`
	Stopped string `json:"stopped,omitempty"`
}

// Beat is where a worker is.
type Beat struct {
	// Moves grows with all that happens: if it stands still, so does the worker.
	Moves uint64 `json:"moves"`
	// Doing is a trace and allocator, or a stage that has no operations.
	Doing string `json:"doing"`
	// Op is the operation being executed, -1 if none is; Operation is its text.
	Op        int    `json:"op"`
	Operation string `json:"operation,omitempty"`
	// Trace and Target name what is being executed, Capacity is the device's in bytes, 0 if the trace's own.
	Trace    string `json:"trace,omitempty"`
	Target   string `json:"target,omitempty"`
	Capacity uint64 `json:"capacity,omitempty"`
}

// message is a line from a worker.
type message struct {
	Ready  bool    `json:"ready,omitempty"` // the first line
	Beat   *Beat   `json:"beat,omitempty"`
	Answer *Answer `json:"answer,omitempty"`
}
