package main

import (
	"bytes"
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/html"
	"github.com/shatter-gpu/shatter/reports/recording"
)

// writePage writes the page of a trace: the answers, and what the allocators held after every operation.
func (f *replayFlags) writePage(p *executor.Program, targets []executor.Target, capacity uint64, answers []*reports.ReplayReport) error {
	at := f.at
	if at >= p.Len() {
		return fmt.Errorf("--at %d: the trace has operations 0 to %d", at, p.Len()-1)
	}
	if at < 0 {
		at = firstRefusal(p, answers)
	}
	c, err := newCase(p, targets, f.dev.New, f.newDevice(), capacity, at, answers, recording.Limits{})
	if err != nil {
		return err
	}
	in := html.Replay{Case: *c, Version: version}
	for _, a := range answers {
		in.Commands = append(in.Commands, reports.Replay(p.Trace.Name, a.Allocator, capacity, f.replayFlags()...))
	}
	var page bytes.Buffer
	if err := html.WriteReplay(&page, &in); err != nil {
		return err
	}
	if err := results.WriteFile(f.html, page.Bytes()); err != nil {
		return hinted{fmt.Errorf("cannot write %s: %w", f.html, err), "name a file in a folder that can be written"}
	}
	return nil
}

// firstRefusal is the first operation that any allocator refused, else the one with the peak of live bytes.
func firstRefusal(p *executor.Program, answers []*reports.ReplayReport) int {
	at := -1
	for _, a := range answers {
		if len(a.Refusals) > 0 && (at < 0 || a.Refusals[0].Op < at) {
			at = a.Refusals[0].Op
		}
	}
	if at < 0 {
		_, at = measure.PeakLive(p.Trace)
	}
	return max(at, 0)
}

// newCase records a trace on targets for a page. What is too large for one is left out, and the case says so.
func newCase(p *executor.Program, targets []executor.Target, newDevice, simulated measure.NewDevice, capacity uint64, at int,
	answers []*reports.ReplayReport, limits recording.Limits) (*html.Case, error) {
	c := &html.Case{Trace: p.Trace, Capacity: capacity, At: at, Answers: answers}
	var err error
	if c.Group, err = recording.Record(p, targets, newDevice, capacity, at, limits); err != nil {
		c.Missing = fmt.Sprintf("There is no memory map: %v.", err)
	}
	for i, t := range targets {
		if i < len(answers) && len(answers[i].Findings) > 0 {
			c.Curves = append(c.Curves, nil) // what it would do next means nothing
			continue
		}
		curve, err := measure.RefusalCurve(p, t, simulated, capacity, at, measure.CurveSizes)
		if err != nil {
			curve = nil // it keeps no statistics
		}
		c.Curves = append(c.Curves, curve)
	}
	return c, nil
}
