package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// shrinkAnswer is a line of `shatter shrink --json`, schema shatter.shrink/1.
type shrinkAnswer struct {
	Schema    string `json:"schema"`
	Trace     string `json:"trace"`
	Allocator string `json:"allocator"` // of the shrunk trace: settings may have been dropped
	Capacity  uint64 `json:"capacity"`  // bytes, of the shrunk trace
	Signature string `json:"signature"`
	Before    int    `json:"before"` // operations
	After     int    `json:"after"`
	Runs      int    `json:"runs"`
	Minimal   bool   `json:"minimal"`
	Stopped   string `json:"stopped,omitempty"`
	// Text is the shrunk trace, Others are other findings that were met.
	Text   string       `json:"text"`
	File   string       `json:"file,omitempty"`
	Others []otherTrace `json:"others"`
	Replay string       `json:"replay"`
	Timing struct {
		Seconds float64 `json:"seconds"`
	} `json:"timing"`

	broken  int
	failure error
}

type otherTrace struct {
	Signature  string `json:"signature"`
	Count      int    `json:"count"`
	Operations int    `json:"operations"`
	Text       string `json:"text"`
	File       string `json:"file,omitempty"`
}

type shrinkFlags struct {
	targetFlags
	verdict string
	keep    []string
	runs    int
	time    time.Duration
	out     string
	json    bool
}

func shrinkCommand() *cobra.Command {
	var f shrinkFlags
	c := &cobra.Command{
		Use:   "shrink FILE...",
		Short: "minimise a failing trace",
		Long: `Shrink cuts a trace down to the smallest that still fails in the same way: with a finding of the same signature, or, if there
is none, with a refusal of the same verdict (and for verdict policy, of the same rules in the way). It removes operations and
streams, lowers sizes to where allocators change their mind, drops settings and lowers the capacity. The result is printed as a
trace, with the shatter replay line that repeats it. Its header has settings and capacity, so classic and expandable need no
--alloc and --capacity there; other allocators do. FILE is as in replay.`,
		Example: `  shatter shrink failing.trace
  shatter shrink --alloc expandable --verdict fragmentation --keep capacity,sizes oom.trace`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	fl := c.Flags()
	fl.StringVar(&f.verdict, "verdict", "", "keep a refusal, even if there are findings: first, last, or the first of a verdict "+
		"(see shatter list verdicts)")
	fl.StringSliceVar(&f.keep, "keep", nil, "leave capacity, sizes or both as they are")
	fl.IntVar(&f.runs, "runs", 0, "end after this many runs (default: no bound)")
	fl.DurationVar(&f.time, "time", 2*time.Minute, "hard deadline for all that the command does, 0 for none")
	fl.StringVar(&f.out, "out", "", "folder for the shrunk traces, and those of other findings met on the way")
	fl.BoolVar(&f.json, "json", false, "one JSON document a line (schema shatter.shrink/1)")
	return c
}

func (f *shrinkFlags) resolve(c *cobra.Command) error {
	if err := f.targetFlags.resolve(c); err != nil {
		return err
	}
	words := []string{"first", "last"}
	for _, v := range executor.Verdicts {
		words = append(words, v.String())
	}
	if f.verdict != "" && !slices.Contains(words, f.verdict) {
		return fmt.Errorf("--verdict %s: must be one of %s", f.verdict, strings.Join(words, ", "))
	}
	for _, k := range f.keep {
		if k != "capacity" && k != "sizes" {
			return fmt.Errorf("--keep %s: must be capacity, sizes or capacity,sizes", k)
		}
	}
	if f.runs < 0 {
		return fmt.Errorf("--runs %d: must be at least 1, or 0 for no bound", f.runs)
	}
	if f.time < 0 {
		return fmt.Errorf("--time %s: must be more than nothing, or 0 for no bound", f.time)
	}
	if f.out != "" {
		return checkWritable(f.out)
	}
	return nil
}

// job is a trace with its allocator and capacity in the header.
type job struct {
	trace *trace.Trace
	runs  shrink.Runs
	// keep says what is to be kept of its failure, found that there is a finding in it.
	keep  shrink.Predicate
	found bool
}

func (f *shrinkFlags) run(c *cobra.Command, args []string) error {
	start := time.Now()
	if err := f.resolve(c); err != nil {
		return err
	}
	traces, err := readTraces(args)
	if err != nil {
		return err
	}
	var jobs []job
	for _, t := range traces { // all of them before the first one runs
		list, err := f.jobsOf(t)
		if err != nil {
			return err
		}
		jobs = append(jobs, list...)
	}
	found := false
	for i := range jobs { // what does not fail is said before others are shrunk
		if c.Context().Err() != nil {
			return errInterrupted
		}
		if err := f.choose(&jobs[i]); err != nil {
			return err
		}
		found = found || jobs[i].found
	}
	out := bufio.NewWriter(c.OutOrStdout())
	defer out.Flush()
	for i, j := range jobs {
		if c.Context().Err() != nil {
			return errInterrupted
		}
		budget := shrink.Budget{Runs: f.runs}
		if f.time > 0 { // an equal share of what is left
			budget.Time = max((f.time-time.Since(start))/time.Duration(len(jobs)-i), time.Nanosecond)
		}
		a, err := f.one(c, j, budget)
		if err != nil {
			return err
		}
		found = found || len(a.Others) > 0
		if f.json {
			err = json.NewEncoder(out).Encode(a)
		} else {
			if i > 0 {
				fmt.Fprintln(out)
			}
			a.write(out)
			err = out.Flush()
		}
		if err != nil {
			return faultError{err}
		}
	}
	if err := out.Flush(); err != nil {
		return faultError{err}
	}
	switch {
	case found:
		return errFindings
	case c.Context().Err() != nil:
		return errInterrupted
	}
	return nil
}

// jobsOf makes a job of each allocator for a trace.
func (f *shrinkFlags) jobsOf(t *trace.Trace) ([]job, error) {
	capacity, err := f.capacityOf(t)
	if err != nil {
		return nil, err
	}
	specs := f.specs
	if len(specs) == 0 {
		s, err := headerSpec(t, "")
		if err != nil {
			return nil, err
		}
		specs = []catalog.Spec{s}
	}
	var out []job
	for _, s := range specs {
		if err := checkSettings(t, s); err != nil {
			return nil, err
		}
		j := job{trace: &trace.Trace{Name: t.Name, Header: t.Header, Ops: t.Ops}}
		if len(f.specs) > 0 {
			j.trace.Header = settingsOf(s, t.Header)
		}
		j.trace.Set(trace.KeyCapacity, strconv.FormatUint(capacity, 10))
		j.runs = shrink.Runs{
			NewDevice: f.dev.New, Options: func() executor.Options {
				return executor.Options{Properties: f.properties(), Judge: f.judge()(), Verify: f.bytesVerified, Faults: f.faults}
			},
			Target: func(t *trace.Trace) (executor.Target, error) {
				if s.Settings == nil {
					return targetOf(s), nil
				}
				s, err := headerSpec(t, "")
				return targetOf(s), err
			},
		}
		if s.Configurable() {
			j.runs.Relations, j.runs.RelationDevice = f.relations(), f.relationDevice()
			j.runs.Settings = func(*trace.Trace) (string, func(string) (executor.Target, error), error) {
				return confOf(s), settingsFor(s), nil
			}
		}
		if s.Settings != nil {
			j.runs.Relations, j.runs.RelationDevice = f.relations(), f.relationDevice()
			j.runs.Settings = func(t *trace.Trace) (string, func(string) (executor.Target, error), error) {
				s, err := headerSpec(t, "")
				return confOf(s), settingsFor(s), err
			}
		}
		out = append(out, j)
	}
	return out, nil
}

// settingsOf is a header in which the allocator's settings replace those that stood there, so that they can be dropped one by
// one.
func settingsOf(s catalog.Spec, header []trace.Field) []trace.Field {
	var out []trace.Field
	for _, f := range header {
		if f.Key != trace.KeyConf && f.Key != trace.KeyFraction {
			out = append(out, f)
		}
	}
	if s.Settings == nil {
		return out
	}
	_, conf, _ := strings.Cut(s.Name, "@")
	if s.Settings.Expandable {
		conf = strings.TrimSuffix("expandable_segments:True,"+conf, ",")
	}
	if conf != "" {
		out = append(out, trace.Field{Key: trace.KeyConf, Value: conf})
	}
	return out
}

// one shrinks a trace on an allocator.
func (f *shrinkFlags) one(c *cobra.Command, j job, budget shrink.Budget) (*shrinkAnswer, error) {
	start := time.Now()
	r, err := shrink.Minimise(c.Context(), j.trace, f.keeping(j.trace, j.keep), budget)
	switch {
	case err == nil:
	case c.Context().Err() != nil:
		return nil, errInterrupted
	case errors.Is(err, executor.ErrHarness):
		return nil, err
	default:
		return nil, faultError{hinted{err, "it did a moment ago: what does not come back each time cannot be shrunk"}}
	}
	target, err := j.runs.Target(r.Trace)
	if err != nil {
		return nil, err
	}
	a := &shrinkAnswer{
		Schema: "shatter.shrink/1", Trace: j.trace.Name, Allocator: target.Name, Signature: r.Signature, Before: r.Before,
		After: r.After, Runs: r.Runs, Minimal: r.Minimal, Stopped: r.Stopped, Text: string(r.Trace.Format()), Others: []otherTrace{},
		broken: r.Broken, failure: r.FirstBroken,
	}
	a.Capacity, _, _ = r.Trace.Capacity()
	a.Timing.Seconds = time.Since(start).Seconds()
	if a.File, err = f.write(r.Signature, r.Trace); err != nil {
		return nil, err
	}
	for _, o := range r.Others {
		if strings.HasPrefix(o.Signature, "oom.") {
			continue // refusals of other verdicts are no findings
		}
		file, err := f.write(o.Signature, o.Trace)
		if err != nil {
			return nil, err
		}
		a.Others = append(a.Others, otherTrace{
			Signature: o.Signature, Count: o.Count, Operations: len(o.Trace.Ops), Text: string(o.Trace.Format()), File: file,
		})
	}
	name := a.File
	if name == "" {
		name = "FILE"
	}
	a.Replay = reports.Replay(name, a.Allocator, a.Capacity, f.replayFlags()...)
	return a, nil
}

// write writes a trace into the folder, if one is given, and returns its path.
func (f *shrinkFlags) write(signature string, t *trace.Trace) (string, error) {
	if f.out == "" {
		return "", nil
	}
	path := filepath.Join(f.out, signature+"-"+t.ID()+".trace")
	if err := trace.WriteFile(path, t); err != nil {
		return "", faultError{err}
	}
	return path, nil
}

// choose runs the trace once and chooses what is to be kept.
func (f *shrinkFlags) choose(j *job) error {
	res, target, err := j.runs.Execute(j.trace)
	if err != nil {
		return err
	}
	j.found = len(res.Findings) > 0
	if j.found && f.verdict == "" {
		v := &res.Findings[0]
		j.keep = j.runs.Finding(v.Signature())
		if f.dev.Kind != "sim" {
			return nil
		}
		return campaign.Deflake(v, j.trace, func() (*executor.Result, error) {
			res, _, err := j.runs.Execute(j.trace)
			return res, err
		})
	}
	list := res.Judgements
	if f.verdict == "last" {
		slices.Reverse(list)
	}
	for i := range list {
		if v := list[i].Verdict.String(); f.verdict == "" || f.verdict == "first" || f.verdict == "last" || f.verdict == v {
			j.keep = j.runs.Refusal(list[i].Signature(target))
			return nil
		}
	}
	if len(list) > 0 {
		return fmt.Errorf("%s on %s: none of its %d refusals has the verdict %s", j.trace.Name, target, len(list), f.verdict)
	}
	if j.found {
		return hinted{
			fmt.Errorf("%s on %s has no refusal, but the finding %s", j.trace.Name, target, res.Findings[0].Signature()),
			"leave out --verdict to keep that",
		}
	}
	return hinted{
		fmt.Errorf("%s on %s passes: there is no finding and no refusal to keep", j.trace.Name, target),
		"give the allocator and the capacity at which it fails, with --alloc and --capacity",
	}
}

// keeping narrows a predicate to traces that have the capacity of the original, or in which every allocation that is left has its
// size from there.
func (f *shrinkFlags) keeping(original *trace.Trace, p shrink.Predicate) shrink.Predicate {
	if len(f.keep) == 0 {
		return p
	}
	capacity, _, _ := original.Capacity()
	sizes := sizesOf(original)
	return func(t *trace.Trace) shrink.Answer {
		if c, _, _ := t.Capacity(); slices.Contains(f.keep, "capacity") && c != capacity {
			return shrink.Answer{}
		}
		if slices.Contains(f.keep, "sizes") && !isSubsequence(sizesOf(t), sizes) {
			return shrink.Answer{}
		}
		return p(t)
	}
}

// sizesOf are the sizes of a trace in order, in bytes.
func sizesOf(t *trace.Trace) []uint64 {
	var sizes []uint64
	for _, op := range t.Ops {
		switch op.Kind {
		case trace.Alloc, trace.Foreign, trace.Segment, trace.Block:
			sizes = append(sizes, op.Bytes)
		}
	}
	return sizes
}

// isSubsequence tells whether part is what is left of whole when some of it is removed.
func isSubsequence(part, whole []uint64) bool {
	for _, n := range whole {
		if len(part) > 0 && part[0] == n {
			part = part[1:]
		}
	}
	return len(part) == 0
}

// write prints the answer as a trace with comments before it.
func (a *shrinkAnswer) write(w io.Writer) {
	state := "nothing more can be removed"
	if !a.Minimal {
		state = a.Stopped + ": perhaps more can be removed"
	}
	fmt.Fprintf(w, "# %s on %s\n", a.Signature, a.Allocator)
	fmt.Fprintf(w, "# from %d to %d operations in %d runs; %s\n", a.Before, a.After, a.Runs, state)
	for _, o := range a.Others {
		fmt.Fprintf(w, "# also met, %d times: %s, at least with %d operations%s\n", o.Count, o.Signature, o.Operations, inFile(o.File))
	}
	if a.broken > 0 {
		fmt.Fprintf(w, "# %d runs broke, the first with this harness fault, which was left aside: %v\n", a.broken, a.failure)
	}
	fmt.Fprintf(w, "# %s\n%s", a.Replay, a.Text)
}

func inFile(path string) string {
	if path == "" {
		return ""
	}
	return " (" + path + ")"
}
