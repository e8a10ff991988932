package counterexample

import (
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Pin is a three-call pin: the device is filled with its parts in turn, which fill each segment exactly; the holes are freed, and
// one request follows for more than lies between two pins. It is the yardstick of the search, cheap and exact.
type Pin struct {
	Name    string
	Request uint64 // bytes
	comb    comb
}

// Pins are those of the small and of the large pool.
var Pins = []Pin{
	{"1 MiB, 1 MiB - 512, 512 kept", mib + 1, combs[0]},
	{"9.5 MiB, 9.5 MiB - 512, 1 MiB + 512 kept", 19 * mib, combs[1]},
}

// Measured is what a pin came to.
type Measured struct {
	Operations int // up to the refusal
	// Refused tells whether the request was; only then the rest says something.
	Refused bool
	Verdict executor.Verdict
	Demands executor.Demands
	Request uint64 // bytes
}

// Ratio is free : request at a level.
func (m *Measured) Ratio(l executor.Level) float64 {
	return float64(m.Demands.Free[l]) / float64(m.Request)
}

// Measure runs a pin on the device of the search.
func (s *Search) Measure(p Pin) (Measured, error) {
	b := &builder{capacity: s.Capacity}
	b.pin(p.comb)
	b.alloc(p.Request, 0)
	t := &trace.Trace{
		Name: "pin", Header: []trace.Field{{Key: trace.KeyCapacity, Value: fmt.Sprint(s.Capacity)}}, Ops: b.ops,
	}
	m := Measured{Operations: len(t.Ops), Request: p.Request}
	dev, err := s.NewDevice(s.Capacity)
	if err != nil {
		return m, err
	}
	res, err := executor.Execute(executor.Compile(t), s.Target, executor.Options{Device: dev, Judge: s.NewJudge()})
	if err != nil {
		return m, err
	}
	if n := len(res.Judgements); n > 0 && res.Judgements[n-1].Op == len(t.Ops)-1 {
		j := &res.Judgements[n-1]
		m.Refused, m.Verdict, m.Demands = true, j.Verdict, j.Demands
	}
	return m, nil
}
