package nightly

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/shatter-gpu/shatter/harness/executor"
)

// Config is what a night is to do.
type Config struct {
	// Command makes the command of a worker, which serves tasks (Serve). Workers run at once; one that stands still for the
	// Watchdog's time is lost.
	Command  func() *exec.Cmd
	Workers  int
	Watchdog time.Duration
	// Start and Time are when the night began and how long all of it may take. Now is time.Now, but for tests.
	Start time.Time
	Time  time.Duration
	Now   func() time.Time
	// Panel are the tasks of the panel. Explore makes task k of the exploration; at most Explorations are done, 0 for no bound. Of
	// all of them this part does those with index % Shards == Shard.
	Panel         []Task
	Explore       func(k int) Task
	Explorations  int
	Shard, Shards int
	// Simulated says that nothing is left to chance in the panel: then its findings are red as they are.
	Simulated bool
	// Folder is where lost tasks spool their traces.
	Folder string
	// Decided is told what each task of the panel came to. Keep is told each finding when it is new and when it was shrunk, and
	// writes its trace. Progress is told after each task. All are called from one goroutine at a time.
	Decided  func(t Task, a *Answer) error
	Keep     func(*Finding) error
	Progress func(n *Night, outstanding int)
}

// The shares of a night's time, at least and at most.
var (
	reportShare = share{20, 500 * time.Millisecond, 15 * time.Second} // for the report at the end
	afterShare  = share{20, time.Second, time.Minute}                 // for repeating and shrinking what was found last
	repeatShare = share{20, time.Second, 30 * time.Second}            // for one repetition
	shrinkShare = share{20, time.Second, time.Minute}                 // for one shrink
)

type share struct {
	of          time.Duration
	least, most time.Duration
}

func (s share) in(t time.Duration) time.Duration { return min(max(t/s.of, s.least), s.most) }

const (
	// repeatTries is how many fresh seeds a finding is looked for on.
	repeatTries = 24
	// firstShrinks is how many findings are shrunk at once, before the panel has come to its end, and earlyShrinks how many while the
	// exploration goes on; the others wait for its end.
	firstShrinks, earlyShrinks = 2, 8
	// grace is what a worker may take for the task in hand when the night is interrupted.
	grace = time.Second
)

// night is a night on its way.
type night struct {
	Config
	mu   sync.Mutex
	cond *sync.Cond
	out  *Night
	err  error // what ended it early

	over        bool // no more tasks are given out
	panel       int  // the next task of each
	explored    int
	urgent      []Task
	shrinks     []Task
	shrunk      int
	outstanding int

	exploreUntil, cutoff time.Time
	found                map[string]*seen
	lost                 map[string]int // loss by task that is done again
}

// seen is what is known of a signature beside its Finding.
type seen struct {
	at     int             // in Night.Findings
	traces map[string]bool // by hash
}

// Run does a night, into out, until everything is done, the time is over or ctx ends. The error is one of the harness or its
// environment, such as a worker that cannot be started; out has what was finished until then.
func Run(ctx context.Context, c Config, out *Night) error {
	n := &night{Config: c, out: out, found: map[string]*seen{}, lost: map[string]int{}}
	n.cond = sync.NewCond(&n.mu)
	if n.Now == nil {
		n.Now = time.Now
	}
	n.Shards = max(n.Shards, 1)
	n.panel, n.explored = n.Shard, n.Shard
	n.cutoff = n.Start.Add(n.Time - reportShare.in(n.Time))
	n.exploreUntil = n.cutoff.Add(-afterShare.in(n.Time))
	out.Findings, out.Lost, out.Faults, out.Known = []Finding{}, []Loss{}, []string{}, []Count{}

	// Workers are cut off at the deadline, and a moment after an interruption.
	cut, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cutoff.Sub(n.Now()))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		n.end(nil)
		time.AfterFunc(grace, cancel)
	})
	defer stop()
	p := pool{
		command: c.Command, workers: c.Workers, watchdog: c.Watchdog, next: n.next, done: n.done,
		broken: n.end, started: func() { n.mu.Lock(); out.Timing.Starts++; n.mu.Unlock() },
	}
	p.run(cut)
	out.Interrupted = ctx.Err() != nil
	n.unfinished()
	out.sort()
	return n.err
}

// end gives out no more tasks.
func (n *night) end(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.over = true
	n.err = cmp.Or(n.err, err)
	n.cond.Broadcast()
}

// next is the next task; it waits while what others do may bring some.
func (n *night) next() (Task, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		if n.over {
			return Task{}, false
		}
		t, ok := n.pick()
		if ok {
			n.outstanding++
			return t, true
		}
		if n.outstanding == 0 {
			n.over = true
			n.cond.Broadcast()
			return Task{}, false
		}
		n.cond.Wait()
	}
}

// pick takes what is most urgent.
func (n *night) pick() (Task, bool) {
	now := n.Now()
	exploring := now.Before(n.exploreUntil) && (n.Explorations == 0 || n.explored < n.Explorations)
	switch {
	case len(n.urgent) > 0:
		t := n.urgent[0]
		n.urgent = n.urgent[1:]
		return t, true
	case n.panel < len(n.Panel) && (len(n.shrinks) == 0 || n.shrunk >= firstShrinks):
		t := n.Panel[n.panel]
		n.panel += n.Shards
		return t, true
	case len(n.shrinks) > 0 && (n.shrunk < earlyShrinks || !exploring):
		t := n.shrinks[0]
		n.shrinks = n.shrinks[1:]
		n.shrunk++
		t.Millis = max(min(shrinkShare.in(n.Time), n.cutoff.Sub(now)-500*time.Millisecond), 100*time.Millisecond).Milliseconds()
		return t, true
	case exploring:
		t := n.Explore(n.explored)
		n.explored += n.Shards
		return t, true
	}
	return Task{}, false
}

// done enters what a task came to.
func (n *night) done(t Task, a *Answer, loss *Loss) {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer n.cond.Broadcast()
	n.outstanding--
	switch {
	case loss != nil:
		n.losing(t, loss)
	case a == nil:
		n.unreached(t, "the night's end cut it off")
	default:
		n.answered(t, a)
	}
	if n.Progress != nil {
		n.Progress(n.out, n.outstanding)
	}
}

// again has a task done once more, in another worker, which spools its traces.
func (n *night) again(t Task) {
	t.attempt++
	t.Spool = filepath.Join(n.Folder, fmt.Sprintf("lost-%s-%d.trace", t.Kind, t.Index))
	n.urgent = append(n.urgent, t)
}

func key(t *Task) string { return fmt.Sprintf("%s %d %d", t.Kind, t.Index, t.Seed) }

// losing enters the loss of a worker. The second one at a task is a finding.
func (n *night) losing(t Task, l *Loss) {
	l.Task.Found, l.Task.Of, l.Task.Spool = nil, nil, "" // what is found stands among the findings
	n.out.Lost = append(n.out.Lost, *l)
	switch {
	case t.Kind == Shrink:
		n.cutOff(t, l.String())
		n.out.Lost[len(n.out.Lost)-1].Again = "not done again: the trace stays as it was found"
	case t.attempt == 0 && n.found[fatal(l).Signature()] != nil:
		// Each try would take the watchdog's time, and show what is known.
		n.out.Lost[len(n.out.Lost)-1].Again = "not done again: it is " + fatal(l).Signature()
		n.out.Findings[n.found[fatal(l).Signature()].at].Traces++
		n.cutOff(t, l.String())
	case t.attempt == 0:
		n.lost[key(&t)] = len(n.out.Lost) - 1
		n.again(t)
	default:
		n.out.Lost[n.lost[key(&t)]].Again = "lost another worker"
		n.out.Lost[len(n.out.Lost)-1].Again = "not done again"
		n.cutOff(t, l.String())
		n.ended(t, l)
	}
}

// answered enters an answer.
func (n *night) answered(t Task, a *Answer) {
	if at, lost := n.lost[key(&t)]; lost && t.attempt > 0 {
		n.out.Lost[at].Again = "passed"
		if a.Fault != "" {
			n.out.Lost[at].Again = "failed: " + a.Fault
		}
		_ = os.Remove(t.Spool) // it may not be there
	}
	if a.Fault != "" {
		if t.attempt == 0 && t.Kind != Shrink {
			n.again(t)
			return
		}
		n.out.Faults = append(n.out.Faults, fmt.Sprintf("%s %d: %s", t.Kind, t.Index, a.Fault))
		n.cutOff(t, a.Fault)
		return
	}
	n.count(t, a)
	for i := range a.Found {
		n.finding(t, &a.Found[i])
	}
	switch {
	case (t.Kind == Panel || t.Kind == Case) && n.Decided != nil:
		n.failed(n.Decided(t, a))
	case a.Repeated != nil:
		n.repeated(t, a.Repeated)
	case a.Shrunk != nil:
		n.shrank(t, a.Shrunk)
	}
}

// failed ends the night if its results cannot be written.
func (n *night) failed(err error) {
	if err != nil {
		n.over = true
		n.err = cmp.Or(n.err, fmt.Errorf("%w: %w", executor.ErrHarness, err))
	}
}

func (n *night) count(t Task, a *Answer) {
	e := &n.out.Explored
	e.Runs += a.Runs
	e.Operations += a.Operations
	switch t.Kind {
	case Sequence:
		e.Sequences++
	case Adversary:
		e.Adversaries++
	case Hunt, Settings:
		e.Hunts++
	case Repeat:
		e.Repeats++
	case Shrink:
		e.Shrinks++
	}
	for id, k := range a.Known {
		i := slices.IndexFunc(n.out.Known, func(c Count) bool { return c.Name == id })
		if i < 0 {
			i = len(n.out.Known)
			n.out.Known = append(n.out.Known, Count{Name: id})
		}
		n.out.Known[i].Count += k
	}
	slices.SortFunc(n.out.Known, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
}

// unreached enters a task that was not done.
func (n *night) unreached(t Task, why string) {
	n.out.Unfinished++
	if t.Kind == Panel || t.Kind == Case {
		n.out.Panel.Unreached++
	}
	n.cutOff(t, why)
}

// unfinished enters what was still to be done. A panel that has not come to its end is no green night.
func (n *night) unfinished() {
	left := append(n.urgent, n.shrinks...)
	for ; n.panel < len(n.Panel); n.panel += n.Shards {
		left = append(left, n.Panel[n.panel])
	}
	for _, t := range left {
		n.unreached(t, "the night's end came first")
	}
	if k := n.out.Panel.Unreached; k > 0 && !n.out.Interrupted && n.err == nil {
		n.out.Faults = append(n.out.Faults, fmt.Sprintf("%d of the panel's %d tasks were not reached within %s: give the night more time", k, n.out.Panel.Logs, n.Time))
	}
	if errors.Is(n.err, errNoWorkers) {
		n.err = fmt.Errorf("%w: %w", executor.ErrHarness, n.err)
	}
}
