package whatif

import (
	"context"
	"math/rand/v2"
	"slices"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// sturdy replays the options that pass on other address orders, and the best of them with jitter.
func (a *Advising) sturdy(ctx context.Context, out *Advice, program map[string]*executor.Program) error {
	var passing []*Outcome
	for i := range out.Outcomes {
		if o := &out.Outcomes[i]; o.Passes && o.Need != nil {
			passing = append(passing, o)
		}
	}
	type task struct {
		o      *Outcome
		seed   uint64
		jitter bool
	}
	var tasks []task
	most := jittered
	if len(a.Case.Trace.Ops) <= smallTrace {
		most = len(passing)
	}
	for i, o := range passing {
		o.OrdersTried = orders
		for seed := range uint64(orders) {
			tasks = append(tasks, task{o, seed + 1, false})
		}
		if i < most {
			for seed := range uint64(jitters) {
				tasks = append(tasks, task{o, seed + 1, true})
			}
		}
	}
	wins, counted := make([]bool, len(tasks)), make([]bool, len(tasks))
	err := a.each(ctx, len(tasks), func(i int) error {
		k := &tasks[i]
		p, newDevice := program[k.o.Name], a.Case.NewDevice
		if k.jitter {
			t := Jitter(p.Trace, k.seed)
			if Deficit(t, a.Case.Capacity) > 0 {
				return nil // no setting could serve it, so it says nothing about this one
			}
			p = executor.Compile(t)
		} else {
			newDevice = a.RandomDevice(k.seed)
		}
		t, err := a.Target(k.o.Option)
		if err != nil {
			return err
		}
		r, err := runAt(p, t, newDevice, a.Case.Capacity)
		if err != nil {
			return err
		}
		wins[i], counted[i] = r.Passes, true
		return nil
	})
	if err != nil {
		return err
	}
	won, of := map[*Outcome]int{}, map[*Outcome]int{}
	for i, k := range tasks {
		if counted[i] && k.jitter {
			of[k.o]++
		}
		if wins[i] && k.jitter {
			won[k.o]++
		} else if wins[i] {
			k.o.Orders++
		}
	}
	for _, o := range passing[:min(len(passing), most)] {
		p, err := stats.Wilson(won[o], of[o], 0.95)
		if err != nil {
			return err
		}
		o.Jitter = &p
	}
	rank(out.Outcomes)
	return nil
}

// Jitter delays one free in five by up to three operations, as another run of the same program might: reference counts and garbage
// collection do not come at the same moment twice. The seed makes it again.
func Jitter(t *trace.Trace, seed uint64) *trace.Trace {
	r := rand.New(rand.NewPCG(seed, 5))
	ops := slices.Clone(t.Ops)
	for i := len(ops) - 2; i >= 0; i-- {
		if ops[i].Kind != trace.Free || r.IntN(5) > 0 {
			continue
		}
		for k, n := i, 1+r.IntN(3); n > 0 && k+1 < len(ops); k, n = k+1, n-1 {
			next := &ops[k+1]
			if next.Kind == trace.Alloc && next.ID == ops[k].ID {
				break // the id is used again
			}
			ops[k], ops[k+1] = ops[k+1], ops[k]
		}
	}
	return derived(t, ops)
}
