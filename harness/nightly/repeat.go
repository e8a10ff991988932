package nightly

import (
	"fmt"
	"os"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// finding enters a finding: a new signature is looked for again and shrunk; one that was seen on another trace is red.
func (n *night) finding(t Task, f *Found) {
	signature := f.Signature()
	s := n.found[signature]
	if s == nil {
		s = &seen{at: len(n.out.Findings), traces: map[string]bool{}}
		n.found[signature] = s
		n.out.Findings = append(n.out.Findings, Finding{
			Signature: signature, Status: Suspect, Why: "it was not looked for again", Found: *f, First: f.Trace, Source: source(&t),
		})
		g := &n.out.Findings[s.at]
		if (t.Kind == Panel || t.Kind == Case) && n.Simulated {
			g.Status, g.Why = Red, "in the panel, where nothing is left to chance"
		} else if t.Kind == Shrink {
			g.Why = "met while another finding was shrunk, and not looked for again"
		} else if t.Kind != Repeat {
			n.repeat(t, f)
		}
		n.keep(g)
		if f.Text != "" {
			n.shrinks = append(n.shrinks, Task{Kind: Shrink, Index: s.at, Found: f})
			g.NotShrunk = "it was not tried"
		} else {
			g.NotShrunk = "there is no trace to shrink"
		}
	}
	s.traces[f.Hash] = true
	g := &n.out.Findings[s.at]
	g.Traces = len(s.traces)
	if g.Status == Suspect && g.Traces > 1 {
		g.Status = Red
	}
	if g.Status == Red && g.Traces > 1 {
		g.Why = fmt.Sprintf("seen on %d traces", g.Traces)
	}
}

// source says what a task ran.
func source(t *Task) string {
	switch t.Kind {
	case Panel, Case:
		return "panel"
	case Repeat:
		return "repetition of " + source(t.Of)
	case Shrink:
		return "shrinking of " + t.Found.Signature()
	}
	return fmt.Sprintf("%s %d", t.Kind, t.Index)
}

// repeat has a finding looked for on fresh seeds.
func (n *night) repeat(t Task, f *Found) {
	of := t
	of.Found, of.Spool = nil, ""
	n.urgent = append(n.urgent, Task{
		Kind: Repeat, Index: n.found[f.Signature()].at, Seed: t.Seed, Found: f, Of: &of, Tries: repeatTries, Millis: repeatShare.in(n.Time).Milliseconds(),
	})
}

// repeated enters what a repetition came to.
func (n *night) repeated(t Task, r *Repeated) {
	g := &n.out.Findings[n.found[t.Found.Signature()].at]
	g.Repeated = r
	if g.Status == Red {
		return
	}
	switch {
	case r.Seen > 0:
		g.Status = Red
		g.Why = fmt.Sprintf("seen again on %d of %d fresh seeds", r.Seen, r.Tried)
	case r.Own:
		g.Why = fmt.Sprintf("its own trace shows it each time, none of %d fresh seeds does", r.Tried)
	default:
		g.Why = fmt.Sprintf("neither its own trace showed it again nor any of %d fresh seeds", r.Tried)
	}
}

// shrank enters a shrunk trace.
func (n *night) shrank(t Task, s *Shrunk) {
	g := &n.out.Findings[n.found[t.Found.Signature()].at]
	g.Found, g.Before, g.After, g.Minimal, g.NotShrunk = s.Found, s.Before, s.After, s.Minimal, ""
	n.keep(g)
}

// cutOff says of what was not finished why not.
func (n *night) cutOff(t Task, why string) {
	if t.Found == nil {
		return
	}
	g := &n.out.Findings[n.found[t.Found.Signature()].at]
	switch {
	case t.Kind == Shrink:
		g.NotShrunk = why
	case t.Kind == Repeat && g.Status == Suspect:
		g.Why = "it could not be looked for again: " + why
	}
}

// keep writes a finding's trace.
func (n *night) keep(g *Finding) {
	if n.Keep != nil {
		n.failed(n.Keep(g))
	}
	g.Text = "" // it is in the file
}

// fatal is the finding that a task ends workers.
func fatal(l *Loss) *Found {
	f := Found{Trace: l.At.Trace, Capacity: l.At.Capacity, Finding: executor.Finding{
		Property: executor.Survives, Rule: string(l.Kind), Target: l.At.Target, Op: max(l.At.Op, 0), Operation: l.At.Operation,
		At: "process", Detail: l.String(),
	}}
	if f.Target == "" {
		f.Target = "unknown"
	}
	return &f
}

// ended enters a task that ended two workers.
func (n *night) ended(t Task, l *Loss) {
	if t.Kind == Repeat {
		return
	}
	f := fatal(l)
	if tr, err := readSpool(t.Spool); err == nil {
		// What lies behind the operation was never executed. It is not shrunk further: each try would cost a worker.
		tr.Ops = tr.Ops[:min(f.Op+1, len(tr.Ops))]
		f.Text, f.Hash = string(tr.Format()), tr.ID()
		if own, ok, err := tr.Capacity(); f.Capacity == 0 && ok && err == nil {
			f.Capacity = own
		}
	}
	if s := n.found[f.Signature()]; s != nil {
		n.out.Findings[s.at].Traces++
		return
	}
	s := &seen{at: len(n.out.Findings), traces: map[string]bool{f.Hash: true}}
	n.found[f.Signature()] = s
	n.out.Findings = append(n.out.Findings, Finding{
		Signature: f.Signature(), Status: Red, Why: "the same task ended two workers", Found: *f, First: f.Trace, Source: source(&t), Traces: 1,
		NotShrunk: "cut behind the operation, no further: each try would end a worker",
	})
	n.keep(&n.out.Findings[s.at])
}

// readSpool reads the trace that a lost worker had in hand, and removes it.
func readSpool(path string) (*trace.Trace, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t, err := trace.Parse(path, f)
	if err == nil {
		err = os.Remove(path)
	}
	return t, err
}
