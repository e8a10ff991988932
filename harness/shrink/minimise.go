package shrink

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Kind is what a predicate says of a trace.
type Kind uint8

const (
	Passes    Kind = iota // it does not fail
	Same                  // it fails in the way that is looked for
	Different             // it fails in another way, which is a finding of its own
	Broken                // the harness failed: this says nothing about the trace
)

// Answer is what a predicate says of a trace.
type Answer struct {
	Kind Kind
	// Signature is that of the failure (Same, Different).
	Signature string
	// Op is the operation that failed (Same); all behind it is superfluous. The number of operations or more means the end.
	Op int
	// Used is the capacity below which the run would have gone otherwise, in bytes: what was taken from the device at most.
	// 0 means that it is not known. (Same, Passes)
	Used uint64
	// Err is what broke (Broken).
	Err error
}

// Predicate executes a trace. It must be deterministic.
type Predicate func(*trace.Trace) Answer

// Budget bounds a shrink; zero fields mean no bound, and one run is always made. Only a budget in runs gives the same result everywhere.
type Budget struct {
	Runs int
	Time time.Duration
}

// Other is a failure of another signature that was met.
type Other struct {
	Signature string
	// Trace is the smallest one met that fails so, Count how many did.
	Trace *trace.Trace
	Count int
}

// Result is what a shrink came to.
type Result struct {
	// Trace is the smallest trace found, with the header of the original and a line shrunk-from. Comments are gone.
	Trace *trace.Trace
	// Signature is that of its failure.
	Signature string
	// Before and After are numbers of operations.
	Before, After int
	// Runs is how often the predicate was asked.
	Runs int
	// Minimal says that nothing more can be removed; else Stopped says what came first: OutOfRuns, OutOfTime or Interrupted.
	Minimal bool
	Stopped string
	// Others are other failures that were met, in that order, with headers like Trace's.
	Others []Other
	// Broken counts the runs that broke; FirstBroken is the error of the first.
	Broken      int
	FirstBroken error
}

// What ends a shrink early.
const (
	OutOfRuns   = "out of runs"
	OutOfTime   = "out of time"
	Interrupted = "interrupted"
)

// KeyShrunkFrom is the header key for where a shrunk trace came from.
const KeyShrunkFrom = "shrunk-from"

// staleKeys are header lines that speak of the operations, settings or failure of the original: a result's, a case's of the
// corpus, a hunt's.
var staleKeys = []string{"expect", "right", "bites", "hash", "finding", "allocator", "hunt", KeyShrunkFrom}

// Minimise looks for the smallest trace that still fails in the same way. When the budget or the context ends, the result is
// the smallest one found until then. A legal trace on which the predicate does not answer Same is an error, one that wraps
// executor.ErrHarness if it answers Broken.
func Minimise(ctx context.Context, t *trace.Trace, predicate Predicate, budget Budget) (*Result, error) {
	m := &minimiser{
		ctx: ctx, predicate: predicate, budget: budget, cache: map[[32]byte]Answer{}, others: map[string]int{},
		result: Result{Before: len(t.Ops)},
	}
	if budget.Time > 0 {
		m.deadline = time.Now().Add(budget.Time)
	}
	start := with(t, distinct(t.Ops))
	switch a := m.ask(start); {
	case m.result.Stopped != "":
		return nil, fmt.Errorf("%s was not shrunk: %s before the first run", t.Name, m.result.Stopped)
	case a.Kind == Broken:
		return nil, fmt.Errorf("%w: %s cannot be shrunk: %w", executor.ErrHarness, t.Name, a.Err)
	case a.Kind != Same:
		was := "passes"
		if a.Kind == Different {
			was = "fails as " + a.Signature
		}
		return nil, fmt.Errorf("%s does not fail in the way that is to be kept: it %s", t.Name, was)
	default:
		m.take(start, a)
	}
	m.rounds()
	r := &m.result
	r.Trace, r.Signature, r.After = m.best, m.answer.Signature, len(m.best.Ops)
	r.Trace.Header = fromHeader(r.Trace.Header, t)
	for _, o := range r.Others {
		o.Trace.Header = fromHeader(o.Trace.Header, t)
	}
	return r, nil
}

// fromHeader is the header of a shrunk trace.
func fromHeader(fields []trace.Field, from *trace.Trace) []trace.Field {
	out := keepFields(fields, func(f trace.Field) bool {
		for _, k := range staleKeys {
			if f.Key == k {
				return false
			}
		}
		return true
	})
	value := fmt.Sprintf("%s, %d operations", from.ID(), len(from.Ops))
	if from.Name != "" {
		value = filepath.Base(from.Name) + ", " + value
	}
	return append(out, trace.Field{Key: KeyShrunkFrom, Value: value})
}

// minimiser is a shrink on its way.
type minimiser struct {
	ctx       context.Context
	predicate Predicate
	budget    Budget
	deadline  time.Time

	best   *trace.Trace
	answer Answer // on best
	fits   bool   // the failure depends on the capacity: with less to hold, it may take less of it
	cache  map[[32]byte]Answer
	others map[string]int // index in result.Others
	result Result
}

// rounds goes through the passes until none of them finds anything.
func (m *minimiser) rounds() {
	m.fits = m.dependsOnCapacity()
	m.closure()
	for m.result.Stopped == "" {
		before := m.best
		for _, pass := range []func(){
			func() { m.chunks(pairs) }, func() { m.chunks(units) }, func() { m.chunks(loose) }, m.two, m.fill, m.retarget,
			m.streams, m.pools, m.settings, m.sizes, m.capacity, m.order,
		} {
			if pass(); m.result.Stopped != "" {
				return
			}
		}
		if m.best == before {
			m.result.Minimal = true
			return
		}
	}
}

// ask asks the predicate, unless it was asked already or the budget is spent: then the answer is Broken without an error.
func (m *minimiser) ask(t *trace.Trace) Answer {
	key := t.Hash()
	if a, ok := m.cache[key]; ok {
		return a
	}
	if m.spent() {
		return Answer{Kind: Broken}
	}
	m.result.Runs++
	a := m.predicate(t)
	m.cache[key] = a
	switch a.Kind {
	case Different:
		m.other(a.Signature, t)
	case Broken:
		if m.result.Broken++; m.result.Broken == 1 {
			m.result.FirstBroken = a.Err
		}
	}
	return a
}

// spent tells whether the budget allows no further run.
func (m *minimiser) spent() bool {
	switch {
	case m.ctx.Err() != nil:
		m.result.Stopped = Interrupted
	case m.budget.Runs > 0 && m.result.Runs >= m.budget.Runs:
		m.result.Stopped = OutOfRuns
	case m.budget.Time > 0 && m.result.Runs > 0 && !time.Now().Before(m.deadline):
		m.result.Stopped = OutOfTime
	}
	return m.result.Stopped != ""
}

// other remembers a failure of another signature by its smallest trace.
func (m *minimiser) other(signature string, t *trace.Trace) {
	i, ok := m.others[signature]
	if !ok {
		i = len(m.result.Others)
		m.others[signature] = i
		m.result.Others = append(m.result.Others, Other{Signature: signature, Trace: t})
	}
	o := &m.result.Others[i]
	o.Count++
	if Less(t, o.Trace) {
		o.Trace = t
	}
}

// maxFits bounds how often a trace that passes is tried on a smaller device.
const maxFits = 16

// adopt makes a smaller trace the best one if it fails in the same way. If it passes, since there is less to hold, it is tried
// with less capacity: just below what the run took, where it first goes otherwise.
func (m *minimiser) adopt(t *trace.Trace) bool {
	for range maxFits {
		if !Less(t, m.best) {
			return false
		}
		a := m.ask(t)
		if a.Kind == Same {
			m.take(t, a)
			return true
		}
		capacity, ok, err := t.Capacity()
		if a.Kind != Passes || !m.fits || a.Used == 0 || !ok || err != nil {
			return false
		}
		lower := (a.Used - 1) / granule * granule
		if lower < granule || lower >= capacity {
			return false
		}
		t = withCapacity(t, lower)
	}
	return false
}

// take makes a trace the best one, less what lies behind the failure.
func (m *minimiser) take(t *trace.Trace, a Answer) {
	m.best, m.answer = t, a
	if a.Op+1 >= len(t.Ops) || a.Op < 0 {
		return
	}
	cut := with(t, t.Ops[:a.Op+1])
	if a := m.ask(cut); a.Kind == Same {
		m.best, m.answer = cut, a
	}
}
