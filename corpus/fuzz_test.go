package corpus_test

import (
	"fmt"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// FuzzClassic hunts for broken properties of the caching allocator on plain segments.
func FuzzClassic(f *testing.F) { fuzz(f, classic) }

// FuzzExpandable hunts for broken properties of the caching allocator on expandable segments.
func FuzzExpandable(f *testing.F) { fuzz(f, expandable) }

// The targets' allocators.
const (
	classic    = "classic"
	expandable = "expandable"
)

// fuzzTargets are the fuzz targets by the allocator they try.
var fuzzTargets = map[string]string{classic: "FuzzClassic", expandable: "FuzzExpandable"}

const (
	// maxInput bounds what an input may cost; Decode bounds the operations too, so no input runs for long.
	maxInput = 16 << 10
	// defaultCapacity is small beside the sizes that bytes decode to, so inputs run out of memory; maxCapacity keeps it so
	// when the bytes say a capacity.
	defaultCapacity = 256 << 20
	maxCapacity     = 8 << 30
	// minSeeds is how many seeds a target must start with: fewer means that they were not found.
	minSeeds = 24
)

func fuzz(f *testing.F, base string) {
	seeds, err := corpus.ReadInputs("testdata/fuzz/" + fuzzTargets[base])
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
		c := newCase(base, trace.Decode(in))
		defer func() {
			if p := recover(); p != nil {
				t.Fatalf("panic.%s\n%v\n\n%s\n%s", base, p, c.trace.Format(), debug.Stack())
			}
		}()
		res, err := c.run(props, judge)
		if err != nil {
			t.Fatalf("%v\n%s", err, c.trace.Format())
		}
		if len(res.Findings) > 0 {
			t.Fatal(c.report(&res.Findings[0]))
		}
	})
}

// fuzzCase is a trace made fit for one of the allocators: it carries the capacity and settings it runs under, so its text
// alone is enough to repeat the run.
type fuzzCase struct {
	trace    *trace.Trace
	spec     catalog.Spec
	capacity uint64
}

// newCase bounds the capacity, pins the kind of segments at the start (in mid-trace settings may change it), and drops
// settings that do not read: those are usage errors, and an input must not end at one.
func newCase(base string, t *trace.Trace) *fuzzCase {
	c := &fuzzCase{capacity: defaultCapacity}
	if n, ok, err := t.Capacity(); ok && err == nil {
		c.capacity = min(max(n, simdev.MinCapacity), maxCapacity)
	}
	var fraction *float64
	if x, ok, err := t.HeaderFraction(); ok && err == nil {
		fraction = &x
	}
	conf, _ := t.Settings()
	pinned := pin(conf, base)
	spec, err := catalog.FromSettings(pinned, fraction)
	if err != nil {
		pinned = pin("", base)
		if spec, err = catalog.FromSettings(pinned, fraction); err != nil {
			panic(err) // the defaults always read
		}
	}
	c.spec = spec
	c.trace = &trace.Trace{Ops: readable(spec, fromEmpty(t.Ops))}
	c.trace.Set(trace.KeyVersion, trace.Version)
	c.trace.Set(trace.KeyCapacity, strconv.FormatUint(c.capacity, 10))
	if pinned != "" {
		c.trace.Set(trace.KeyConf, pinned)
	}
	if fraction != nil {
		c.trace.Set(trace.KeyFraction, strconv.FormatFloat(*fraction, 'g', -1, 64))
	}
	return c
}

// pin makes settings say which kind of segments they mean; the last of several words counts.
func pin(conf, base string) string {
	const key = "expandable_segments"
	switch {
	case base == classic && !strings.Contains(conf, key):
		return conf
	case conf != "":
		conf += ","
	}
	if base == expandable {
		return conf + key + ":True"
	}
	return conf + key + ":False"
}

// fromEmpty drops a state to start from, with what becomes of its blocks: these targets are about runs from an empty device, and
// a made-up state need not be one that an allocator can come to.
func fromEmpty(ops []trace.Op) []trace.Op {
	if len(ops) == 0 || ops[0].Kind != trace.Segment {
		return ops
	}
	var keep []trace.Op
	dropped := map[uint64]bool{}
	for _, op := range ops {
		switch op.Kind {
		case trace.Segment:
			continue
		case trace.Block:
			dropped[op.ID] = true
			continue
		case trace.Record, trace.Free:
			if dropped[op.ID] {
				if op.Kind == trace.Free {
					delete(dropped, op.ID)
				}
				continue
			}
		}
		keep = append(keep, op)
	}
	return keep
}

// readable drops the conf operations that the allocator refuses. It asks an allocator of its own, on which nothing else runs.
func readable(spec catalog.Spec, ops []trace.Op) []trace.Op {
	var asked *caching.Allocator
	var keep []trace.Op
	for i, op := range ops {
		if op.Kind != trace.Conf {
			if keep != nil {
				keep = append(keep, op)
			}
			continue
		}
		if asked == nil {
			asked = newAllocator(spec)
		}
		switch err := asked.Configure(op.Conf); {
		case err == nil && keep != nil:
			keep = append(keep, op)
		case err != nil && keep == nil:
			keep = append(make([]trace.Op, 0, len(ops)), ops[:i]...)
		}
	}
	if keep == nil {
		return ops
	}
	return keep
}

func newAllocator(spec catalog.Spec) *caching.Allocator {
	dev, err := simdev.New(simdev.Options{Capacity: simdev.MinCapacity})
	if err != nil {
		panic(err)
	}
	a, err := caching.New(dev, *spec.Settings)
	if err != nil {
		panic(err)
	}
	return a
}

// run executes the trace under all properties. An error is a fault of the harness.
func (c *fuzzCase) run(props []executor.Property, judge executor.Judge) (*executor.Result, error) {
	dev, err := simdev.New(simdev.Options{Capacity: c.capacity})
	if err != nil {
		return nil, err
	}
	return executor.Execute(executor.Compile(c.trace), executor.Target{Name: c.spec.Name, New: c.spec.New},
		executor.Options{Device: dev, Properties: props, Judge: judge})
}

// report begins with the signature, which is the same for all findings of one cause.
func (c *fuzzCase) report(f *executor.Finding) string {
	return fmt.Sprintf("%s\n%s\n\n%s\nput this trace into a file and run: shatter replay FILE", f.Signature(), f, c.trace.Format())
}
