package corpus_test

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// FuzzClassic hunts for broken properties of the caching allocator on plain segments.
func FuzzClassic(f *testing.F) { fuzz(f, corpus.Classic) }

// FuzzExpandable hunts for broken properties of the caching allocator on expandable segments.
func FuzzExpandable(f *testing.F) { fuzz(f, corpus.Expandable) }

const (
	// maxInput bounds what an input may cost; Decode bounds the operations too, so no input runs for long.
	maxInput = 16 << 10
	// minSeeds is how many seeds a target must start with: fewer means that they were not found.
	minSeeds = 24
)

func fuzz(f *testing.F, base string) {
	seeds, err := corpus.ReadInputs("testdata/fuzz/" + corpus.FuzzTargets[base])
	if err != nil {
		f.Fatal(err)
	}
	if len(seeds) < minSeeds {
		f.Fatalf("%d seeds found, at least %d must be there", len(seeds), minSeeds)
	}
	props, judge := properties.All(), properties.NewJudge()
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > maxInput {
			t.Skip("over 16 KiB")
		}
		c := verify.NewFuzzCase(base, trace.Decode(in))
		defer func() {
			if p := recover(); p != nil {
				t.Fatalf("panic.%s\n%v\n\n%s\n%s", base, p, c.Trace.Format(), debug.Stack())
			}
		}()
		res, err := runFuzz(c, props, judge)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.Trace.Format())
		}
		if len(res.Findings) > 0 {
			t.Fatal(report(c, &res.Findings[0]))
		}
	})
}

// runFuzz executes the trace under all properties. An error is a fault of the harness.
func runFuzz(c *verify.FuzzCase, props []executor.Property, judge executor.Judge) (*executor.Result, error) {
	dev, err := simdev.New(simdev.Options{Capacity: c.Capacity})
	if err != nil {
		return nil, err
	}
	return executor.Execute(executor.Compile(c.Trace), executor.Target{Name: c.Spec.Name, New: c.Spec.New},
		executor.Options{Device: dev, Properties: props, Judge: judge})
}

// report begins with the signature, which is the same for all findings of one cause.
func report(c *verify.FuzzCase, f *executor.Finding) string {
	return fmt.Sprintf("%s\n%s\n\n%s\nput it among the pending cases: shatter corpus add --adopt corpus/testdata/fuzz/TARGET/FILE", f.Signature(), f, c.Trace.Format())
}
