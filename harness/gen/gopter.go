package gen

import "github.com/leanovate/gopter"

// Trace is the gopter generator of a workload's traces. Their length follows gopter's size ramp (MaxSize operations), whatever
// p.Ops is. It has no shrinker: traces are minimised by operations, not by the choices that made them.
func Trace(w Workload, p Params) gopter.Gen {
	return func(g *gopter.GenParameters) *gopter.GenResult {
		sized := p
		sized.Ops = max(g.MaxSize, 1)
		src := drawn{g}
		t := signed(w.Generate(src, src, sized), w, "gopter", sized)
		return gopter.NewGenResult(t, gopter.NoShrinker)
	}
}

// drawn reads choices from gopter's generator.
type drawn struct{ g *gopter.GenParameters }

func (d drawn) Uint64n(n uint64) uint64 { return d.g.NextUint64() % n }
