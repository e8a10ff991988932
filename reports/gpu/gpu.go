// Package gpu is the report of a run on a real GPU: health, device conformance, traces with their bytes verified, decisions
// against those on the simulated device, and the latency of driver calls. What was not measured is not in it.
package gpu

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/allocators/device/cudadev"
	"github.com/shatter-gpu/shatter/allocators/device/devicetest"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/ondevice"
)

// Schema is the name and version of the document that Report is.
const Schema = "shatter.gpu/1"

// Report is what a run on a GPU came to. Sizes are bytes.
type Report struct {
	Schema  string `json:"schema"`
	Shatter string `json:"shatter"`
	Device  string `json:"device"`
	// Real is false on a stand-in for the driver: then nothing here says anything about a GPU.
	Real bool `json:"real"`
	// Total and Free are what the driver said at the start, Limit what was used at most.
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
	Limit uint64 `json:"limit"`
	// Holds: streams could be held, so that traces with record ran.
	Holds bool `json:"holds"`
	// Health is what was looked at before the start, a line each.
	Health []string `json:"health"`

	Conformance []devicetest.Outcome `json:"conformance"`
	Traces      []Trace              `json:"traces"`
	Sequences   Sequences            `json:"sequences"`
	Findings    []executor.Finding   `json:"findings"`
	// Skipped has what was left out, and why.
	Skipped []string `json:"skipped"`
	Timing  Timing   `json:"timing"`
}

// Trace is a named trace on an allocator.
type Trace struct {
	Trace         string `json:"trace"`
	Allocator     string `json:"allocator"`
	Operations    int    `json:"operations"`
	OOMs          []int  `json:"ooms"`
	SimulatedOOMs []int  `json:"simulated_ooms"`
	SameDecisions bool   `json:"same_decisions"`
	// FirstDifference is the first operation decided otherwise than on the simulated device, -1 if none.
	FirstDifference int `json:"first_difference"`
}

// Sequences sums up the generated traces, each on each allocator.
type Sequences struct {
	Sequences  int    `json:"sequences"`
	Runs       int    `json:"runs"`
	Operations int    `json:"operations"`
	Verified   uint64 `json:"verified_bytes"`
	OOMs       int    `json:"ooms"`
	// SameOutcomes and SameDecisions are runs that went as on the simulated device.
	SameOutcomes  int `json:"same_outcomes"`
	SameDecisions int `json:"same_decisions"`
}

// Timing is what varies from run to run.
type Timing struct {
	Seconds float64   `json:"seconds"`
	Latency []Latency `json:"latency"`
}

// Latency is how long a driver call took, in microseconds.
type Latency struct {
	Call   string  `json:"call"`
	Size   uint64  `json:"size"`
	Calls  int     `json:"calls"`
	Median float64 `json:"median_us"`
	P99    float64 `json:"p99_us"`
	Min    float64 `json:"min_us"`
}

// AddTrace adds a named trace.
func (r *Report) AddTrace(p *ondevice.Pair) {
	r.Findings = append(r.Findings, p.Real.Findings...)
	r.Traces = append(r.Traces, Trace{
		Trace: p.Trace, Allocator: p.Target, Operations: p.Real.Ops, OOMs: nonNil(p.Real.OOMs), SimulatedOOMs: nonNil(p.Simulated.OOMs),
		SameDecisions: p.SameDecisions, FirstDifference: p.FirstDifference,
	})
}

func nonNil(list []int) []int { return append([]int{}, list...) }

// AddRun adds a run of a generated trace.
func (r *Report) AddRun(p *ondevice.Pair) {
	s := &r.Sequences
	s.Runs++
	s.Operations += p.Real.Ops
	s.Verified += p.Real.Verified
	s.OOMs += len(p.Real.OOMs)
	if p.SameOutcomes {
		s.SameOutcomes++
	}
	if p.SameDecisions {
		s.SameDecisions++
	}
	r.Findings = append(r.Findings, p.Real.Findings...)
}

// AddLatency adds the times of a call. The 99th percentile is the nearest rank, the largest value below 100 calls.
func (r *Report) AddLatency(l cudadev.Latency) {
	n := len(l.Calls)
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	r.Timing.Latency = append(r.Timing.Latency, Latency{
		Call: l.Call, Size: l.Size, Calls: n, Min: us(l.Calls[0]), Median: us(l.Calls[(n-1)/2]), P99: us(l.Calls[(n*99+99)/100-1]),
	})
}

// Failed tells whether something was found: a broken property, or a rule of devices that does not hold.
func (r *Report) Failed() bool {
	for i := range r.Conformance {
		if r.Conformance[i].Word == devicetest.Fail.String() {
			return true
		}
	}
	return len(r.Findings) > 0
}

// WriteText prints the summary as Markdown.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("# %s\n", r.Device)
	if !r.Real {
		line("**This was not run on a GPU.** The device is a stand-in for the driver over host memory, so that the times below are those of\n" +
			"this machine's memory management, and nothing here was measured on a GPU.\n")
	}
	line("%d of %d bytes free at the start, at most %d used.", r.Free, r.Total, r.Limit)
	for _, h := range r.Health {
		line("- %s", h)
	}
	line("\n## Device rules\n")
	for _, o := range r.Conformance {
		line("- %s: %s%s", o.Rule, o.Word, colon(o.Detail))
	}
	line("\n## Traces\n\n| trace | allocator | operations | refused at | simulated | decisions |\n|---|---|---|---|---|---|")
	for _, t := range r.Traces {
		same := "the same"
		if !t.SameDecisions {
			same = fmt.Sprintf("differ from operation %d on", t.FirstDifference)
		}
		line("| %s | %s | %d | %v | %v | %s |", t.Trace, t.Allocator, t.Operations, t.OOMs, t.SimulatedOOMs, same)
	}
	s := &r.Sequences
	line("\n## Generated sequences\n\n%d sequences in %d runs, %d operations, %d bytes verified, %d refusals.", s.Sequences, s.Runs, s.Operations,
		s.Verified, s.OOMs)
	line("%d of %d runs had the outcomes of the simulated device (the same refusals), %d the same decisions.", s.SameOutcomes, s.Runs, s.SameDecisions)
	line("\n## Latency of driver calls\n\n| call | bytes | calls | min us | median us | p99 us |\n|---|---|---|---|---|---|")
	for _, l := range r.Timing.Latency {
		line("| %s | %d | %d | %.1f | %.1f | %.1f |", l.Call, l.Size, l.Calls, l.Min, l.Median, l.P99)
	}
	line("\n## Findings\n")
	for i := range r.Findings {
		line("- %s", &r.Findings[i])
	}
	if len(r.Findings) == 0 {
		line("None.")
	}
	if len(r.Skipped) > 0 {
		line("\n## Left out\n")
		for _, k := range r.Skipped {
			line("- %s", k)
		}
	}
	line("\nTook %.1f s.", r.Timing.Seconds)
	_, err := io.WriteString(w, b.String())
	return err
}

func colon(s string) string {
	if s == "" {
		return ""
	}
	return ": " + s
}
