package counterexample

import (
	"context"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// shortenRuns bounds a shrink: what is left after so many runs is about as short as it gets.
const shortenRuns = 4000

// Shorten shrinks the trace of a case that breaks a level, on the device of the search.
func (s *Search) Shorten(ctx context.Context, c Case, level executor.Level) (Case, error) {
	r, err := shrink.Minimise(ctx, c.Trace, func(t *trace.Trace) shrink.Answer { return s.breaks(t, level, &c) }, shrink.Budget{Runs: shortenRuns})
	if err != nil {
		return c, err
	}
	s.breaks(r.Trace, level, &c)
	c.Trace = r.Trace
	return c, nil
}

// breaks tells whether a trace has a refusal that breaks the level, and fills in the figures of the first.
func (s *Search) breaks(t *trace.Trace, level executor.Level, c *Case) shrink.Answer {
	if capacity, ok, err := t.Capacity(); err != nil || !ok || capacity != s.Capacity {
		return shrink.Answer{Kind: shrink.Passes}
	}
	dev, err := s.NewDevice(s.Capacity)
	if err != nil {
		return shrink.Answer{Kind: shrink.Broken, Err: err}
	}
	res, err := executor.Execute(executor.Compile(t), s.Target, executor.Options{Device: dev, Judge: s.NewJudge()})
	if err != nil {
		return shrink.Answer{Kind: shrink.Broken, Err: err}
	}
	for i := range res.Judgements {
		if j := &res.Judgements[i]; j.Request >= s.Least && j.Demands.Broken.Has(level) {
			c.Free, c.Request, c.Fill = j.Demands.Free[level], j.Request, j.Demands.Fill
			return shrink.Answer{Kind: shrink.Same, Signature: level.String(), Op: j.Op}
		}
	}
	return shrink.Answer{Kind: shrink.Passes}
}
