// Package panel measures workloads against settings: how much memory each setting needs for each job, over many seeds, and which
// pairs of settings do harm that neither does alone.
//
// In go workloads, targets and a seed; out come samples, of which callers make tables. Like campaign it knows no property and
// no report, and gives the same result whatever the number of workers.
package panel

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Cell is a trace on a target. Sizes are bytes.
type Cell struct {
	PeakLive uint64 // L*
	Safe     measure.SafeCapacity
	// Kappa is C_safe / L*; Lost is C_safe - L*.
	Kappa float64
	Lost  uint64
	// IdleCache and Pinned are taken at t* on a device that refuses nothing.
	IdleCache float64
	Pinned    uint64
	// Life is the operations served on a device of 1.05 L*.
	Life stats.Lifetime
	// PeakPinned is the most that is pinned after any operation of the run on a device that refuses nothing; only Exactly takes it.
	PeakPinned uint64
}

// Exactly takes the same figures for a single trace, with so many runs for C_safe, and the peak of pinned bytes, looked at 256
// times.
func Exactly(ctx context.Context, p *executor.Program, t executor.Target, newDevice measure.NewDevice, budget int) (Cell, error) {
	c, err := measureWithin(ctx, p, t, newDevice, budget)
	if err != nil {
		return c, err
	}
	dev, err := newDevice(measure.Unbounded)
	if err != nil {
		return c, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return c, err
	}
	every := max(p.Len()/256, 1)
	for r.More() {
		if err := r.Step(); err != nil {
			return c, err
		}
		if r.Position()%every == 0 || !r.More() {
			h, err := measure.HeldBy(r.Allocator(), r.Position()-1)
			if err != nil {
				return c, err
			}
			c.PeakPinned = max(c.PeakPinned, h.Pinned)
		}
	}
	return c, nil
}

// Budget is how many runs C_safe may take beyond its halving; see measure.Safe.
const Budget = 32

// Measure takes all figures of a trace on a target.
func Measure(ctx context.Context, p *executor.Program, t executor.Target, newDevice measure.NewDevice) (Cell, error) {
	return measureWithin(ctx, p, t, newDevice, Budget)
}

func measureWithin(ctx context.Context, p *executor.Program, t executor.Target, newDevice measure.NewDevice, budget int) (Cell, error) {
	var c Cell
	var err error
	if c.Safe, err = measure.Safe(ctx, p, t, newDevice, budget); err != nil {
		return c, err
	}
	profile, err := measure.ProfileOf(p, t, newDevice)
	if err != nil {
		return c, err
	}
	c.PeakLive, _ = measure.PeakLive(p.Trace)
	c.Kappa = float64(c.Safe.Bytes) / float64(max(c.PeakLive, 1))
	c.Lost = c.Safe.Bytes - min(c.Safe.Bytes, c.PeakLive)
	c.IdleCache, c.Pinned = profile.Peak.IdleCache(), profile.Peak.Pinned
	life, err := measure.LifeAt(p, t, newDevice, 1050)
	c.Life = stats.Lifetime{Served: life.Served, OOM: life.OOM}
	return c, err
}

// Config is what to measure.
type Config struct {
	Workloads []gen.Workload
	Targets   []executor.Target
	// Seeds is how many traces of each workload; Seed is the campaign's, as in campaign.Config.
	Seeds   int
	Seed    uint64
	Ops     int // operations of a trace; 0 for the workload's
	Workers int // 0 for one a core
	// NewDevice makes devices.
	NewDevice measure.NewDevice
	// Done is called after each trace, from one goroutine at a time.
	Done func(finished, total int)
}

// Row has the cells of a workload on a target, in order of the seeds; those that were not finished are missing.
type Row struct {
	Workload, Target string
	Cells            []Cell
}

// Run measures, seeds first: if the context ends early, all workloads have about as many. A refusal at every capacity is an error.
func Run(ctx context.Context, c Config) ([]Row, error) {
	if c.Workers <= 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	total := c.Seeds * len(c.Workloads)
	cells := make([][]Cell, total) // by index of the trace; by target
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	next, finished := 0, 0
	var wg sync.WaitGroup
	for range c.Workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= total || ctx.Err() != nil {
					return
				}
				got, err := c.trace(ctx, i)
				if err != nil {
					if ctx.Err() == nil {
						cancel(err)
					}
					return
				}
				mu.Lock()
				cells[i] = got
				finished++
				if c.Done != nil {
					c.Done(finished, total)
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	var rows []Row
	for w := range c.Workloads {
		for t := range c.Targets {
			row := Row{Workload: c.Workloads[w].Name, Target: c.Targets[t].Name}
			for i := w; i < total; i += len(c.Workloads) {
				if cells[i] != nil {
					row.Cells = append(row.Cells, cells[i][t])
				}
			}
			rows = append(rows, row)
		}
	}
	return rows, context.Cause(ctx)
}

// Trace is the trace of a workload with this index.
func (c *Config) Trace(w gen.Workload, index uint64) *trace.Trace {
	seed := gen.Seed(c.Seed, w.Name, index)
	t := gen.Generate(w, seed, gen.Params{Ops: c.Ops})
	t.Name = fmt.Sprintf("gen:%s:%d", w.Name, seed)
	return t
}

func (c *Config) trace(ctx context.Context, i int) ([]Cell, error) {
	p := executor.Compile(c.Trace(c.Workloads[i%len(c.Workloads)], uint64(i/len(c.Workloads))))
	var out []Cell
	for _, t := range c.Targets {
		cell, err := Measure(ctx, p, t, c.NewDevice)
		if err != nil {
			return nil, err
		}
		out = append(out, cell)
	}
	return out, nil
}
