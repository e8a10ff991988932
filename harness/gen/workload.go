package gen

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// Version is the version of the generators: a seed means the same trace only under the same version. It changes with every
// change of any output.
const Version = 1

// Kind says what the results of a workload are good for.
type Kind uint8

const (
	// Distribution workloads imitate programs; their measures may be counted and compared.
	Distribution Kind = iota
	// Findings workloads look for broken promises; their rates mean nothing.
	Findings
)

// String returns distribution or findings.
func (k Kind) String() string {
	if k == Distribution {
		return "distribution"
	}
	return "findings"
}

// Params size a workload. Zero fields mean the workload's default, and where that is zero too, the value is drawn.
type Params struct {
	// Ops is the length of the trace in operations.
	Ops int
	// Capacity is the device's bytes.
	Capacity uint64
	// Long is the share of the live bytes that long-lived blocks may hold, 0 to 1. Since zero means the default, "hardly
	// any" is written as a small number.
	Long float64
	// Streams is how many streams are used, at most 32.
	Streams int
}

// The devices that make sense, as simdev has them: 2 MiB to 16 TiB.
const (
	minCapacity = 2 << 20
	maxCapacity = 16 << 40
)

// or fills what is zero from the defaults, and brings the rest into range.
func (p Params) or(defaults Params) Params {
	if p.Ops <= 0 {
		p.Ops = defaults.Ops
	}
	if p.Capacity == 0 {
		p.Capacity = defaults.Capacity
	}
	if p.Capacity != 0 {
		p.Capacity = min(max(p.Capacity, minCapacity), maxCapacity)
	}
	if !(p.Long > 0) {
		p.Long = defaults.Long
	}
	p.Long = min(p.Long, 1)
	if p.Streams <= 0 {
		p.Streams = defaults.Streams
	}
	p.Streams = min(p.Streams, maxStreams)
	return p
}

// String lists the fields that are not zero, as ` ops=100 capacity=2097152 long=0.5 streams=2`.
func (p Params) String() string {
	var s strings.Builder
	if p.Ops != 0 {
		fmt.Fprintf(&s, " ops=%d", p.Ops)
	}
	if p.Capacity != 0 {
		fmt.Fprintf(&s, " capacity=%d", p.Capacity)
	}
	if p.Long != 0 {
		fmt.Fprintf(&s, " long=%g", p.Long)
	}
	if p.Streams != 0 {
		fmt.Fprintf(&s, " streams=%d", p.Streams)
	}
	return s.String()
}

// Workload makes traces of one character.
type Workload struct {
	Name, Summary string
	Kind          Kind
	Defaults      Params
	// Generate makes a trace with the header lines capacity and, where drawn, conf and fraction. The configuration is read
	// from cfg and the operations from ops, which may be one and the same source.
	Generate func(cfg, ops Source, p Params) *trace.Trace
}

// Workloads are those that run without being asked for, in the order in which they are listed; the others are Jobs.
var Workloads = []Workload{
	{"mixed", "long- and short-lived tensors interleaved, in phases of build-up, churn and release",
		Distribution, mixedDefaults, mixed},
	{"step", "training steps of a transformer, sequence lengths varying, with evaluations and checkpoints",
		Distribution, stepDefaults, step},
	{"waves", "live bytes in waves up to and over the capacity of a small device",
		Findings, findingsDefaults, waves},
	{"edges", "sizes at the edges of size classes, one byte and one granule to either side",
		Findings, findingsDefaults, edges},
	{"streams", "blocks used on several streams and freed with the uses outstanding, on a full device",
		Findings, findingsDefaults, streams},
	{"pins", "small long-lived remainders that pin segments and pages, then larger requests",
		Findings, pinsDefaults, pins},
	{"swarm", "random subsets and weights of all operations, sizes and settings, drawn anew for each trace",
		Findings, findingsDefaults, swarm},
	{"graphs", "as swarm, with private pools that open and close as captures of CUDA graphs and pools of the user's do, and queued work",
		Findings, findingsDefaults, graphs},
}

// Find returns the workload or job of a name. The error lists the names.
func Find(name string) (Workload, error) {
	var names []string
	for _, w := range All() {
		if w.Name == name {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return Workload{}, fmt.Errorf("unknown workload %q; there are %s (see shatter list workloads)", name, strings.Join(names, ", "))
}

// Generate makes the trace of a seed. Its header says how to make it again.
func Generate(w Workload, seed uint64, p Params) *trace.Trace {
	t := w.Generate(NewSeeded(seed, streamConfig), NewSeeded(seed, streamOps), p)
	return signed(t, w, "seed="+strconv.FormatUint(seed, 10), p)
}

// signed puts the format version and the origin in front of a generated header.
func signed(t *trace.Trace, w Workload, origin string, p Params) *trace.Trace {
	source := fmt.Sprintf("gen %s %s version=%d%s", w.Name, origin, Version, p)
	t.Header = append([]trace.Field{
		{Key: trace.KeyVersion, Value: trace.Version},
		{Key: "source", Value: source},
	}, t.Header...)
	return t
}
