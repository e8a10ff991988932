// Package counterexample searches for refusals that break the literal promise 'no refusal while the free memory is at least the
// request', at each level of counting free memory: the shortest trace, and the worst ratio of free memory to the request.
//
// In go a target, a judge that holds refusals against the levels, a capacity and a smallest request; out comes a Record a level.
// The search is random and short-sighted but for its beginning: combs, as in the three-call pin, leave small blocks everywhere and
// then ask for more than lies between them.
//
// Files: counterexample (the search), sequence (what is tried), shorten (the shortest trace), pin (the yardstick).
package counterexample

import (
	"context"
	"runtime"
	"sync"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Search is what to look for.
type Search struct {
	Target    executor.Target
	NewDevice measure.NewDevice
	NewJudge  func() executor.Judge
	Capacity  uint64 // bytes
	// Least is the smallest request that counts, in bytes: below it any remainder makes a ratio as large as one likes.
	Least uint64
	// Sequences is how many are run, of Ops operations each but for the combs.
	Sequences, Ops int
	Seed           uint64
	Workers        int
}

// Record is what was found at a level.
type Record struct {
	// Refusals is how many broke the level's demand.
	Refusals uint64
	// Worst is the refusal with the largest ratio of free memory to the request, with its trace, cut behind it.
	Worst Case
	// Shortest is the refusal after the fewest operations.
	Shortest Case
}

// Case is a refusal.
type Case struct {
	Trace         *trace.Trace
	Free, Request uint64  // bytes
	Fill          float64 // requested bytes of live blocks by the capacity
	index         int
}

// Ratio is free : request.
func (c *Case) Ratio() float64 { return float64(c.Free) / float64(c.Request) }

// Result is what a search came to.
type Result struct {
	Levels [executor.LevelCount]Record
	// Promise are refusals that broke the declared promise, Known those that a known upstream issue explains.
	Promise, Known       uint64
	PromiseBroken        *trace.Trace
	Sequences            int
	Operations, Refusals uint64
}

// Run searches. When the context ends it returns what was found until then, and how many sequences that took.
func (s *Search) Run(ctx context.Context, progress func(done, total int)) (*Result, error) {
	workers := s.Workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	const chunk = 256
	var mu sync.Mutex
	var failure error
	total := &Result{}
	next := 0
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				from := next
				next += chunk
				stop := from >= s.Sequences || failure != nil || ctx.Err() != nil
				mu.Unlock()
				if stop {
					return
				}
				part := &Result{}
				var err error
				for i := from; i < min(from+chunk, s.Sequences) && err == nil && ctx.Err() == nil; i++ {
					err = s.one(i, part)
				}
				mu.Lock()
				if err != nil && failure == nil {
					failure = err
				}
				total.merge(part)
				if progress != nil {
					progress(total.Sequences, s.Sequences)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return total, failure
}

// one runs sequence i.
func (s *Search) one(i int, r *Result) error {
	t := s.sequence(i)
	dev, err := s.NewDevice(s.Capacity)
	if err != nil {
		return err
	}
	res, err := executor.Execute(executor.Compile(t), s.Target, executor.Options{Device: dev, Judge: s.NewJudge()})
	if err != nil {
		return err
	}
	r.Sequences++
	r.Operations += uint64(res.Ops)
	r.Refusals += uint64(len(res.OOMs))
	for k := range res.Judgements {
		j := &res.Judgements[k]
		if j.Verdict == executor.False {
			if j.Known != "" {
				r.Known++
			} else {
				r.Promise++
				r.PromiseBroken = t
			}
		}
		if j.Request < s.Least {
			continue
		}
		for l := range r.Levels {
			if !j.Demands.Broken.Has(executor.Level(l)) {
				continue
			}
			c := Case{Trace: t, Free: j.Demands.Free[l], Request: j.Request, Fill: j.Demands.Fill, index: i}
			rec := &r.Levels[l]
			rec.Refusals++
			if worse(&c, &rec.Worst) {
				rec.Worst = c
				rec.Worst.Trace = t.First(j.Op + 1)
			}
			if c.Trace = t.First(j.Op + 1); shorter(&c, &rec.Shortest) {
				rec.Shortest = c
			}
		}
	}
	return nil
}

// worse and shorter order cases; among equals the earlier sequence wins, so that the result does not depend on the workers.
func worse(a, b *Case) bool {
	if a.Trace == nil || b.Trace == nil {
		return a.Trace != nil
	}
	if a.Ratio() != b.Ratio() {
		return a.Ratio() > b.Ratio()
	}
	return a.index < b.index
}

func shorter(a, b *Case) bool {
	if a.Trace == nil || b.Trace == nil {
		return a.Trace != nil
	}
	if len(a.Trace.Ops) != len(b.Trace.Ops) {
		return len(a.Trace.Ops) < len(b.Trace.Ops)
	}
	return a.index < b.index
}

func (r *Result) merge(p *Result) {
	r.Sequences += p.Sequences
	r.Operations += p.Operations
	r.Refusals += p.Refusals
	r.Promise += p.Promise
	r.Known += p.Known
	if r.PromiseBroken == nil {
		r.PromiseBroken = p.PromiseBroken
	}
	for l := range r.Levels {
		a, b := &r.Levels[l], &p.Levels[l]
		a.Refusals += b.Refusals
		if worse(&b.Worst, &a.Worst) {
			a.Worst = b.Worst
		}
		if shorter(&b.Shortest, &a.Shortest) {
			a.Shortest = b.Shortest
		}
	}
}

// source is the choices of sequence i.
func (s *Search) source(i int) gen.Source {
	return gen.NewSeeded(gen.Seed(s.Seed, "counterexample", uint64(i)), 0)
}
