// Package hunt searches for the traces that are worst for an allocator.
//
// In go a target, traces to start from and a seed; out comes a population: for each of several figures the trace that drives it
// furthest. That is the feedback of PerfFuzz (Lemieux et al., ISSTA 2018): a trace is kept if it beats the best so far in any
// figure, not only in the one that is wanted, so that steps on the way are not lost. New traces come from kept ones by mutation
// and crossover that keep them legal.
//
// What is wanted is a low fill at refusal: the live bytes by the device's, when a request of 1 MiB + 1, 20 MiB or 1 GiB is refused
// by fragmentation or policy within 200 operations on a device of 8 GiB; and growth: what is held and not live rises from one
// repetition of the trace to the next.
//
// Files: hunt (the loop), judge (a trace's figures), mutate (new traces from old), store (the population on disk), shrunk.
package hunt

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// MaxOps is the length of a trace, its last request included; Capacity is the device's bytes.
const (
	MaxOps   = 200
	Capacity = 8 << 30
)

// Classes are the requests that are to be refused, in bytes.
var Classes = [...]uint64{1<<20 + 1, 20 << 20, 1 << 30}

// Config is a hunt.
type Config struct {
	// Target makes the allocator for a trace, whose header may have settings; Settings are settings strings to choose among for new
	// traces, none to leave all settings as they are.
	Target   func(*trace.Trace) (executor.Target, error)
	Settings []string
	// Alone lists for a settings string those that it is made of: growth that one of them shows too does not count.
	Alone     func(conf string) []string
	NewDevice measure.NewDevice
	NewJudge  func() executor.Judge
	Seeds     []*trace.Trace
	Seed      uint64
	// Evaluations so far, for a hunt that is taken up again.
	Evaluations int
	// Random makes a new trace from a number: instead of mutating, if Only is set, and now and then if not.
	Random func(*rand.Rand) *trace.Trace
	Only   bool
}

// Kept is a trace with its figures.
type Kept struct {
	Trace   *trace.Trace
	Figures Figures
}

// Hunter is a hunt on its way. It is used by one goroutine.
type Hunter struct {
	cfg  Config
	rng  *rand.Rand
	best [FigureCount]*Kept
	// growing has the trace with the largest growth under each of the settings.
	growing map[string]*Kept
	// Evaluations is how many traces were run.
	Evaluations int
	polishAt    int
	polished    [len(Classes)]*Kept
}

// Start makes a hunt and runs its seeds.
func Start(cfg Config) (*Hunter, error) {
	h := &Hunter{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, uint64(cfg.Evaluations))), Evaluations: cfg.Evaluations, growing: map[string]*Kept{}}
	h.polishAt = h.Evaluations + polishEvery
	for _, t := range cfg.Seeds {
		if _, err := h.try(fitted(t)); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// fitted cuts a trace to length and puts it on the hunt's device.
func fitted(t *trace.Trace) *trace.Trace {
	out := &trace.Trace{Ops: legal(t.Ops)}
	if conf, ok := t.Settings(); ok && conf != "" {
		out.Set(trace.KeyConf, conf)
	}
	return out
}

// Run tries traces until more says no or the context ends.
func (h *Hunter) Run(ctx context.Context, more func() bool) error {
	for more() && ctx.Err() == nil {
		if !h.cfg.Only && h.Evaluations >= h.polishAt {
			h.polishAt = h.Evaluations + polishEvery
			for c := range Classes {
				if err := h.polish(ctx, c, more); err != nil {
					return err
				}
			}
			continue
		}
		t := h.next()
		if _, err := h.try(t); err != nil {
			return err
		}
	}
	return nil
}

// polishEvery is how many traces are tried between two attempts to improve the best ones in small steps.
const polishEvery = 1000

// polish improves the best trace of a class in small steps, from its end: without an operation, with a smaller block. It is what
// chance is slow at once a trace has the right shape. What was polished without success is not polished again.
func (h *Hunter) polish(ctx context.Context, class int, more func() bool) error {
	k := h.best[class]
	if k == nil || k == h.polished[class] {
		return nil
	}
	for i := len(k.Trace.Ops) - 1; i >= 0 && more() && ctx.Err() == nil; i-- {
		k = h.best[class] // an earlier step may have found a better one, which is shorter by what was left out
		if i >= len(k.Trace.Ops) {
			continue
		}
		ops := k.Trace.Ops
		steps := [][]trace.Op{append(ops[:i:i], ops[i+1:]...)}
		if ops[i].Kind == trace.Alloc {
			for _, n := range []uint64{512, 1<<20 + 512, ops[i].Bytes / 2} {
				if n < ops[i].Bytes && n > 0 {
					smaller := slices.Clone(ops)
					smaller[i].Bytes = n
					steps = append(steps, smaller)
				}
			}
		}
		for _, s := range steps {
			if better, err := h.try(&trace.Trace{Header: k.Trace.Header, Ops: legal(s)}); err != nil {
				return err
			} else if better && h.best[class] != k {
				break
			}
		}
	}
	h.polished[class] = h.best[class]
	return nil
}

// freshEvery is how many traces come from others for one that is new.
const freshEvery = 50

// next makes a trace to try.
func (h *Hunter) next() *trace.Trace {
	parents := h.Population()
	if h.cfg.Only || len(parents) == 0 || h.rng.IntN(freshEvery) == 0 {
		return fitted(h.cfg.Random(h.rng))
	}
	// Half of the time the parent is the holder of one of the figures that are wanted.
	var wanted []*Kept
	for f := range Wanted {
		if h.best[f] != nil {
			wanted = append(wanted, h.best[f])
		}
	}
	pick := func() *Kept {
		if len(wanted) > 0 && h.rng.IntN(2) == 0 {
			return wanted[h.rng.IntN(len(wanted))]
		}
		return parents[h.rng.IntN(len(parents))]
	}
	t := h.mutate(pick().Trace, pick().Trace)
	if n := len(h.cfg.Settings); n > 0 && h.rng.IntN(8) == 0 {
		t.Set(trace.KeyConf, h.cfg.Settings[h.rng.IntN(n)])
	}
	return t
}

// try runs a trace and keeps it if it is best in anything.
func (h *Hunter) try(t *trace.Trace) (bool, error) {
	h.Evaluations++
	f, err := h.figures(t)
	if err != nil {
		return false, err
	}
	conf, _ := t.Settings()
	better := f[Growth] > 0 && (h.growing[conf] == nil || f[Growth] > h.growing[conf].Figures[Growth])
	if better {
		h.growing[conf] = &Kept{t, f}
	}
	for i := range f {
		if f[i] > h.value(i) || f[i] == h.value(i) && h.best[i] != nil && len(t.Ops) < len(h.best[i].Trace.Ops) {
			better = true
		}
	}
	if !better {
		return false, nil
	}
	// A refusal counts only if the judge agrees that it was neither genuine nor by rounding, nor a broken promise.
	for c := range Classes {
		if f[c] > h.value(c) {
			ok, err := h.confirmed(t, c)
			if err != nil {
				return false, err
			}
			if !ok {
				f[c] = math.Inf(-1)
			}
		}
	}
	k := &Kept{t, f}
	for i := range f {
		if f[i] > h.value(i) || f[i] == h.value(i) && h.best[i] != nil && len(t.Ops) < len(h.best[i].Trace.Ops) {
			h.best[i] = k
		}
	}
	return true, nil
}

// value is the best so far of a figure; a figure that nobody has is beaten by anything above nothing.
func (h *Hunter) value(i int) float64 {
	if h.best[i] == nil {
		if i < len(Classes) {
			return math.Inf(-1)
		}
		return 0
	}
	return h.best[i].Figures[i]
}

// Population are the kept traces, each once, in order of the first figure in which they are best.
func (h *Hunter) Population() []*Kept {
	var out []*Kept
	for _, k := range h.best {
		if k != nil && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	for _, conf := range h.cfg.Settings {
		if k := h.growing[conf]; k != nil && !slices.Contains(out, k) {
			out = append(out, k)
		}
	}
	return out
}

// Growing are the traces with the largest growth under each of the settings, in their order.
func (h *Hunter) Growing() []*Kept {
	var out []*Kept
	for _, conf := range h.cfg.Settings {
		if k := h.growing[conf]; k != nil {
			out = append(out, k)
		}
	}
	return out
}

// Best is the holder of a figure, nil if there is none.
func (h *Hunter) Best(figure int) *Kept { return h.best[figure] }

// Fill is the lowest fill at refusal of a class, 0 to 1; 1 if none was refused.
func (h *Hunter) Fill(class int) float64 {
	if k := h.best[class]; k != nil {
		return -k.Figures[class]
	}
	return 1
}

// Score is the mean of log2(fill) over the classes: lower is worse for the allocator; 0 if nothing was refused. A fill of
// less than a granule in the device counts as that.
func (h *Hunter) Score() float64 {
	var sum float64
	for c := range Classes {
		sum += math.Log2(max(h.Fill(c), 512.0/Capacity))
	}
	return sum / float64(len(Classes))
}
