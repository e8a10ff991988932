package main

import (
	"bytes"
	"fmt"
	"path/filepath"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

// writeMap draws the state of every allocator after one operation: op, or with -1 the first that any of them refused, else
// the last.
func (f *replayFlags) writeMap(p *executor.Program, targets []executor.Target, capacity uint64, op int, answers []*reports.ReplayReport) error {
	if op < 0 {
		op = p.Len() - 1
		for _, a := range answers {
			if len(a.Refusals) > 0 {
				op = min(op, a.Refusals[0].Op)
			}
		}
	}
	if op >= p.Len() {
		return fmt.Errorf("--at %d: the trace has operations 0 to %d", op, p.Len()-1)
	}
	var maps []reports.MemoryMap
	for i, t := range targets {
		m, err := f.mapAfter(p, t, capacity, op)
		if err != nil {
			return err
		}
		m.Note = "served"
		if op >= 0 && p.Trace.Ops[op].Kind.String() != "alloc" {
			m.Note = "done"
		}
		for _, r := range answers[i].Refusals {
			if r.Op == op {
				m.Note = fmt.Sprintf("refused: %s asked, %s not live; %s; %d live blocks pin %s",
					reports.Size(r.Request), reports.Size(r.Capacity-min(r.Capacity, r.Live)), r.Verdict, r.PinnedBy, reports.Size(r.Pinned))
			}
		}
		maps = append(maps, m)
	}
	var svg bytes.Buffer
	when := fmt.Sprintf("a device of %s, after operation %d (%s)", reports.Size(capacity), op, p.Trace.Ops[op])
	if err := reports.WriteMemoryMaps(&svg, filepath.Base(p.Trace.Name), when, maps); err != nil {
		return err
	}
	if err := results.WriteFile(f.svg, svg.Bytes()); err != nil {
		return hinted{fmt.Errorf("cannot write %s: %w", f.svg, err), "name a file in a folder that can be written"}
	}
	return nil
}

func (f *replayFlags) mapAfter(p *executor.Program, t executor.Target, capacity uint64, op int) (reports.MemoryMap, error) {
	m := reports.MemoryMap{Title: t.Name, Capacity: capacity}
	dev, err := f.dev.New(capacity)
	if err != nil {
		return m, err
	}
	r, err := executor.Start(p, t, executor.Options{Device: dev})
	if err != nil {
		return m, err
	}
	for r.More() && r.Position() <= op {
		if err := r.Step(); err != nil {
			return m, err
		}
	}
	s, ok := r.Allocator().(allocators.Snapshotter)
	if !ok {
		return m, fmt.Errorf("%s does not list its blocks, so there is no map of them", t.Name)
	}
	s.Snapshot(&m.Snapshot)
	m.DeviceFree, _ = dev.Info()
	return m, nil
}
