package executor_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// BenchmarkTrace runs the speed yardsticks, where they lie beside the project; ns/op is a whole trace of 20,000 operations.
func BenchmarkTrace(b *testing.B) {
	for _, name := range []string{"small", "llm", "nearoom"} {
		path := "../../../shared/bench/" + name + "_20k.trace.gz"
		if _, err := os.Stat(path); err != nil {
			b.Skipf("the yardsticks are not here: %v", err)
		}
		t, err := trace.ReadFile(path)
		require.NoError(b, err)
		capacity := map[string]uint64{"small": 150994944, "llm": 12631146496, "nearoom": 22110273536}[name]
		p := executor.Compile(t)
		for _, alloc := range []string{"classic", "expandable"} {
			spec, err := catalog.Parse(alloc)
			require.NoError(b, err)
			for _, mode := range []string{"unchecked", "checked"} {
				b.Run(name+"/"+alloc+"/"+mode, func(b *testing.B) {
					b.ReportAllocs()
					for b.Loop() {
						b.StopTimer()
						dev, err := simdev.New(simdev.Options{Capacity: capacity})
						require.NoError(b, err)
						o := executor.Options{Device: dev}
						if mode == "checked" {
							o.Properties, o.Judge = properties.All(), properties.NewJudge()
						}
						r, err := executor.Start(p, executor.Target{Name: alloc, New: spec.New}, o)
						require.NoError(b, err)
						b.StartTimer()
						for r.More() {
							if err := r.Step(); err != nil {
								b.Fatal(err)
							}
						}
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(p.Len()), "ns/operation")
				})
			}
		}
	}
}
