package executor

import (
	"slices"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Retry replays a trace up to an operation that was refused and makes the same request again, unchanged. It tells whether
// the repetition was served. For allocators whose promise is not known this is how a false refusal shows.
func Retry(p *Program, t Target, dev device.Device, op int) (served bool, err error) {
	again := p.Trace.Ops[op]
	again.ID = unusedID(p.Trace)
	ops := append(slices.Clone(p.Trace.Ops[:op+1]), again)
	res, err := Execute(Compile(&trace.Trace{Name: p.Trace.Name, Header: p.Trace.Header, Ops: ops}), t, Options{Device: dev})
	if err != nil {
		return false, err
	}
	n := len(res.OOMs)
	return n > 0 && res.OOMs[n-1] == op, nil
}

// unusedID is an id that no allocation of the trace has.
func unusedID(t *trace.Trace) uint64 {
	var id uint64
	for i := range t.Ops {
		if t.Ops[i].Kind == trace.Alloc || t.Ops[i].Kind == trace.Block {
			id = max(id, t.Ops[i].ID+1)
		}
	}
	return id
}
