package gen_test

import (
	"bytes"
	"testing"

	"github.com/leanovate/gopter"
	"github.com/leanovate/gopter/prop"

	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// check runs one property with parameters of its own, so that no property's values depend on another's.
func check(t *testing.T, name string, property gopter.Prop) {
	p := gopter.DefaultTestParametersWithSeed(int64(testSeed(t)))
	p.Workers = 1
	p.MaxSize = 400
	p.MinSuccessfulTests = 60
	properties := gopter.NewProperties(p)
	properties.Property(name, property)
	if !properties.Run(gopter.NewFormatedReporter(false, 120, logger{t})) {
		t.Fail()
	}
}

// logger writes to the test's log.
type logger struct{ t *testing.T }

func (l logger) Write(b []byte) (int, error) {
	l.t.Logf("%s", b)
	return len(b), nil
}

func TestGopterTraces(t *testing.T) {
	for _, w := range gen.Workloads {
		check(t, w.Name+" traces are legal and survive their text and bytes", prop.ForAll(func(tr *trace.Trace) bool {
			again, err := trace.Parse("", bytes.NewReader(tr.Format()))
			return err == nil && tr.Validate() == nil && again.Hash() == tr.Hash() &&
				trace.Decode(trace.Encode(tr)).Hash() == tr.Hash()
		}, gen.Trace(w, gen.Params{})))
	}
}

// The model of live bytes is the sum over the live ids, whatever is generated: peaks stay where the workload says.
func TestGopterWorkingSet(t *testing.T) {
	check(t, "mixed stays below 75 percent of its device", prop.ForAll(func(tr *trace.Trace) bool {
		capacity, _, _ := tr.Capacity()
		live, sizes := uint64(0), map[uint64]uint64{}
		for _, op := range tr.Ops {
			switch op.Kind {
			case trace.Alloc:
				sizes[op.ID] = op.Bytes
				live += op.Bytes
			case trace.Free:
				live -= sizes[op.ID]
			}
			if live > capacity/4*3 {
				return false
			}
		}
		return true
	}, gen.Trace(find(t, "mixed"), gen.Params{Capacity: 256 << 20})))
}
