package campaign

import (
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Distinct is what findings of one signature come to: the one with the smallest trace stands for all of them.
type Distinct struct {
	executor.Finding
	Signature string
	Trace     *trace.Trace
	Allocator string
	Capacity  uint64 // bytes
	// First is the name of the trace that showed it first, Count how many findings had the signature.
	First string
	Count int
}

// Findings keeps one finding a signature. The zero value is empty; it is used by one goroutine at a time.
type Findings struct {
	list  []Distinct
	index map[string]int
}

// Add enters a finding, with what shows it. It returns its place in All, and whether it is the one that stands there now: the
// first of its signature, or the one with the smallest trace (shrink.Less).
func (f *Findings) Add(v executor.Finding, t *trace.Trace, allocator string, capacity uint64) (place int, kept bool) {
	if f.index == nil {
		f.index = map[string]int{}
	}
	signature := v.Signature()
	i, ok := f.index[signature]
	if !ok {
		i = len(f.list)
		f.index[signature] = i
		f.list = append(f.list, Distinct{First: t.Name})
	}
	d := &f.list[i]
	d.Count++
	if ok && !shrink.Less(t, d.Trace) {
		return i, false
	}
	d.Finding, d.Signature, d.Trace, d.Allocator, d.Capacity = v, signature, t, allocator, capacity
	return i, true
}

// All are the findings, in the order in which their signatures came up.
func (f *Findings) All() []Distinct { return f.list }
