// Package smallscope runs every trace of a small scope: all sequences of a few operations over a few sizes, up to the names of
// the blocks. What no such trace breaks is not thereby right, but most mistakes show in some small case, and here none is left
// out.
//
// In go a scope, a target and what is to hold; out come the number of traces and the first finding. Traces of fewer operations
// are beginnings of longer ones, so only those of full length are run.
package smallscope

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Scope is what traces are made of: allocations of each size on each stream, frees of each live block, empty_cache and, with
// several streams, records of each live block on each other stream and a sync of everything.
type Scope struct {
	Ops      int      // operations of a trace, at most
	Sizes    []uint64 // bytes
	Streams  int
	Capacity uint64 // bytes
}

// EdgeSizes are six sizes at class edges: the granule, the largest small request and one byte more, the largest that shares a
// segment of 20 MiB, the smallest that has its own, and that segment's size. FewSizes are four of them, for several streams.
var (
	EdgeSizes = []uint64{512, 1 << 20, 1<<20 + 1, 10<<20 - 512, 10 << 20, 20 << 20}
	FewSizes  = []uint64{1 << 20, 1<<20 + 1, 10 << 20, 20 << 20}
)

// EdgeCapacity is two segments of 20 MiB and two of 2 MiB.
const EdgeCapacity = 44 << 20

// Check is what must hold of every trace.
type Check struct {
	Target     executor.Target
	NewDevice  measure.NewDevice
	Properties []executor.Property
	NewJudge   func() executor.Judge
}

// Result is what a scope came to.
type Result struct {
	// Traces is how many there are, of every length from one operation on.
	Traces uint64
	// Runs is how many were executed, those of full length; Operations how many operations these had together.
	Runs, Operations uint64
	// Refused counts the allocations of the runs that were refused.
	Refused uint64
	// Known counts findings that a known upstream issue explains.
	Known uint64
	// Finding is the first one, in the order of the enumeration, with its trace; nil if there is none.
	Finding *executor.Finding
	Trace   *trace.Trace
	Seconds float64
}

// Count returns how many traces of 1 to s.Ops operations there are, and how many of exactly s.Ops.
func (s Scope) Count() (all, full uint64) {
	// ways[live] is how many traces of the present length leave so many blocks live.
	ways := make([]uint64, s.Ops+2)
	ways[0] = 1
	for range s.Ops {
		next := make([]uint64, s.Ops+2)
		full = 0
		for live, n := range ways {
			if n == 0 {
				continue
			}
			allocs := uint64(len(s.Sizes) * s.Streams)
			stay := uint64(1)
			if s.Streams > 1 {
				stay = uint64(live*(s.Streams-1)) + 2
			}
			next[live+1] += n * allocs
			next[live] += n * stay
			full += n * (allocs + stay + uint64(live))
			if live > 0 {
				next[live-1] += n * uint64(live)
			}
		}
		ways = next
		all += full
	}
	return all, full
}

// Run executes every trace of the scope, workers at once (0: one a core), and stops at the first finding.
func Run(ctx context.Context, s Scope, c Check, workers int, progress func(done, total uint64)) (*Result, error) {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	start := time.Now()
	res := &Result{}
	var full uint64
	res.Traces, full = s.Count()
	if progress == nil {
		progress = func(uint64, uint64) {}
	}
	// A task is a beginning; its extensions are enumerated by one worker.
	tasks := s.beginnings(min(3, s.Ops))
	results := make([]*walker, len(tasks))
	var mu sync.Mutex
	next, broken := 0, len(tasks)
	var failure error
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= len(tasks) || i > broken || failure != nil
				mu.Unlock()
				if stop {
					return
				}
				w := &walker{ctx: ctx, scope: s, check: c, program: tasks[i]}
				err := w.extend()
				mu.Lock()
				results[i] = w
				res.Runs += w.runs
				if err != nil && failure == nil {
					failure = err
				}
				if w.finding != nil {
					broken = min(broken, i)
				}
				progress(res.Runs, full)
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	res.Seconds = time.Since(start).Seconds()
	for _, w := range results {
		if w == nil {
			continue
		}
		res.Operations += w.operations
		res.Refused += w.refused
		res.Known += w.known
		if w.finding != nil && res.Finding == nil {
			res.Finding, res.Trace = w.finding, w.trace()
		}
	}
	return res, failure
}

// program is the beginning of a trace.
type program struct {
	ops  []trace.Op
	live []uint64 // ids, oldest first
	made uint64   // allocations so far
}

// moves visits every operation that may follow, with the program that it leads to.
func (s Scope) moves(p *program, visit func(op trace.Op) bool) {
	for _, n := range s.Sizes {
		for k := range s.Streams {
			if !visit(trace.Op{Kind: trace.Alloc, ID: p.made, Bytes: n, Stream: device.Stream(k)}) {
				return
			}
		}
	}
	for _, id := range p.live {
		if !visit(trace.Op{Kind: trace.Free, ID: id}) {
			return
		}
	}
	if !visit(trace.Op{Kind: trace.EmptyCache}) || s.Streams < 2 {
		return
	}
	for _, id := range p.live {
		for k := 1; k < s.Streams; k++ {
			home := p.streamOf(id)
			if !visit(trace.Op{Kind: trace.Record, ID: id, Stream: device.Stream((int(home) + k) % s.Streams)}) {
				return
			}
		}
	}
	visit(trace.Op{Kind: trace.Sync, Stream: trace.AllStreams})
}

func (p *program) streamOf(id uint64) device.Stream {
	for i := range p.ops {
		if p.ops[i].Kind == trace.Alloc && p.ops[i].ID == id {
			return p.ops[i].Stream
		}
	}
	return 0
}

// push appends an operation; pop takes it off again, at being where the freed id stood.
func (p *program) push(op trace.Op) (at int) {
	p.ops = append(p.ops, op)
	switch op.Kind {
	case trace.Alloc:
		p.live = append(p.live, op.ID)
		p.made++
	case trace.Free:
		for at = range p.live {
			if p.live[at] == op.ID {
				break
			}
		}
		p.live = append(p.live[:at], p.live[at+1:]...)
	}
	return at
}

func (p *program) pop(at int) {
	op := p.ops[len(p.ops)-1]
	p.ops = p.ops[:len(p.ops)-1]
	switch op.Kind {
	case trace.Alloc:
		p.live = p.live[:len(p.live)-1]
		p.made--
	case trace.Free:
		p.live = append(p.live, 0)
		copy(p.live[at+1:], p.live[at:])
		p.live[at] = op.ID
	}
}

// beginnings are all programs of a length.
func (s Scope) beginnings(length int) []program {
	out := []program{{}}
	for range length {
		var longer []program
		for i := range out {
			p := &out[i]
			s.moves(p, func(op trace.Op) bool {
				q := program{ops: append([]trace.Op(nil), p.ops...), live: append([]uint64(nil), p.live...), made: p.made}
				q.push(op)
				longer = append(longer, q)
				return true
			})
		}
		out = longer
	}
	return out
}

// walker runs all extensions of a beginning.
type walker struct {
	ctx   context.Context
	scope Scope
	check Check
	program

	runs, operations, refused, known uint64
	finding                          *executor.Finding
}

func (w *walker) extend() (err error) {
	if len(w.ops) == w.scope.Ops {
		return w.run()
	}
	// moves reads the live ids while they change and change back, so each operation is taken from a list of its own.
	var ops []trace.Op
	w.scope.moves(&w.program, func(op trace.Op) bool { ops = append(ops, op); return true })
	for _, op := range ops {
		at := w.push(op)
		err := w.extend()
		if err != nil || w.finding != nil {
			return err
		}
		w.pop(at)
	}
	return nil
}

func (w *walker) trace() *trace.Trace {
	return &trace.Trace{
		Name: "small", Header: []trace.Field{{Key: trace.KeyCapacity, Value: strconv.FormatUint(w.scope.Capacity, 10)}}, Ops: w.ops,
	}
}

func (w *walker) run() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	dev, err := w.check.NewDevice(w.scope.Capacity)
	if err != nil {
		return err
	}
	o := executor.Options{Device: dev, Properties: w.check.Properties}
	if w.check.NewJudge != nil {
		o.Judge = w.check.NewJudge()
	}
	res, err := executor.Execute(executor.Compile(&trace.Trace{Ops: w.ops}), w.check.Target, o)
	if err != nil {
		return fmt.Errorf("%s: %w", w.trace().Format(), err)
	}
	w.runs++
	w.operations += uint64(res.Ops)
	w.refused += uint64(len(res.OOMs))
	w.known += uint64(len(res.Known))
	if len(res.Findings) > 0 {
		w.finding = &res.Findings[0]
	}
	return nil
}
