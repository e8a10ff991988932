package verify

import (
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/trace"
)

const (
	// fuzzCapacity is small beside the sizes that bytes decode to, so inputs run out of memory; maxCapacity keeps it so
	// when the bytes say a capacity.
	fuzzCapacity = 256 << 20
	maxCapacity  = 8 << 30
)

// FuzzCase is a trace made fit for one of the allocators: it carries the capacity and settings it runs under, so its text
// alone is enough to repeat the run.
type FuzzCase struct {
	Trace    *trace.Trace
	Spec     catalog.Spec
	Capacity uint64 // bytes
}

// NewFuzzCase bounds the capacity, pins the kind of segments at the start (in mid-trace settings may change it), and drops
// settings that do not read: those are usage errors, and an input must not end at one.
func NewFuzzCase(base string, t *trace.Trace) *FuzzCase {
	c := &FuzzCase{Capacity: fuzzCapacity}
	if n, ok, err := t.Capacity(); ok && err == nil {
		c.Capacity = min(max(n, simdev.MinCapacity), maxCapacity)
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
	c.Spec = spec
	c.Trace = &trace.Trace{Ops: readable(spec, fromEmpty(t.Ops))}
	c.Trace.Set(trace.KeyVersion, trace.Version)
	c.Trace.Set(trace.KeyCapacity, strconv.FormatUint(c.Capacity, 10))
	if pinned != "" {
		c.Trace.Set(trace.KeyConf, pinned)
	}
	if fraction != nil {
		c.Trace.Set(trace.KeyFraction, strconv.FormatFloat(*fraction, 'g', -1, 64))
	}
	return c
}

// pin makes settings say which kind of segments they mean; the last of several words counts.
func pin(conf, base string) string {
	const key = "expandable_segments"
	switch {
	case base == corpus.Classic && !strings.Contains(conf, key):
		return conf
	case conf != "":
		conf += ","
	}
	if base == corpus.Expandable {
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
