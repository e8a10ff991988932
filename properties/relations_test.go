package properties_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/properties"
)

// generatedCase is a generated trace on an allocator, under the settings that were drawn for it.
func generatedCase(t *testing.T, w gen.Workload, seed uint64, ops int, expandable bool) *executor.Case {
	t.Helper()
	tr := gen.Generate(w, gen.Seed(seed, w.Name, 0), gen.Params{Ops: ops})
	tr.Name = fmt.Sprintf("%s-%d", w.Name, seed)
	capacity, _, err := tr.Capacity()
	require.NoError(t, err)
	conf, _ := tr.Settings()
	if expandable {
		conf = strings.TrimSuffix("expandable_segments:True,"+conf, ",")
	}
	fraction, ok, err := tr.HeaderFraction()
	require.NoError(t, err)
	with := func(conf string) (executor.Target, error) {
		f := &fraction
		if !ok {
			f = nil
		}
		spec, err := catalog.FromSettings(conf, f)
		return executor.Target{Name: spec.Name, New: spec.New}, err
	}
	on, err := with(conf)
	require.NoError(t, err)
	return &executor.Case{Trace: tr, Target: on, Capacity: capacity, NewDevice: simulated, Conf: conf, With: with}
}

// TestRelationsHold asks every relation about generated traces of every workload.
func TestRelationsHold(t *testing.T) {
	n := uint64(8)
	if testing.Short() {
		n = 2
	}
	for _, w := range gen.Workloads {
		for seed := range n {
			for _, expandable := range []bool{false, true} {
				c := generatedCase(t, w, seed, 400, expandable)
				f, err := executor.Relate(c, properties.Relations())
				require.NoError(t, err)
				if f != nil && f.Known == "" {
					require.Fail(t, "finding", "%s on %s: %s", c.Trace.Name, c.Target.Name, f)
				}
			}
		}
	}
}
