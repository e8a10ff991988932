package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

type replayFlags struct {
	targetFlags
	json, history bool
	log, svg      string
	html          string
	snapshot      string
	at            int
}

func replayCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "replay FILE...",
		Short: "execute traces: what is refused and why, and the history",
		Long: `Replay executes traces on one or more allocators under all properties and says of each refusal what it was, who pins the
memory, and which blocks' absence would have served it. FILE is a trace (plain, .gz or .zst), a folder of them, - for
standard input, gen:WORKLOAD:SEED for a generated one, or a PyTorch memory snapshot. With --history the trace is printed with each operation's outcome
behind it, which is again a trace.`,
		Example: `  shatter replay --alloc classic --alloc expandable case.trace
  shatter replay --alloc classic@max_split_size_mb:128 --capacity 80GiB case.trace`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	c.Flags().BoolVar(&f.json, "json", false, "one JSON document a line (schema shatter.replay/1)")
	c.Flags().BoolVar(&f.history, "history", false, "print the history of each allocator behind its summary")
	c.Flags().StringVar(&f.log, "log", "", "write a decision log (TSV, the columns of conform) to this file; one trace and one allocator")
	c.Flags().StringVar(&f.svg, "map", "", "draw the memory maps of the allocators, one below the other, to this SVG file; one trace")
	c.Flags().StringVar(&f.html, "html", "", "write a page with the memory maps of the allocators, to step through, to this HTML file; one trace")
	c.Flags().StringVar(&f.snapshot, "snapshot", "", "write what PyTorch would have recorded to this file, a memory snapshot; one trace and one allocator")
	c.Flags().IntVar(&f.at, "at", -1, "operation whose state --map draws and --html shows first (default: the first refusal, else the last)")
	return c
}

func (f *replayFlags) run(c *cobra.Command, args []string) error {
	if err := f.resolve(c); err != nil {
		return err
	}
	traces, err := readTraces(args)
	if err != nil {
		return err
	}
	if f.log != "" && (len(traces) != 1 || len(f.specs) > 1) {
		return fmt.Errorf("--log takes one trace and one allocator, not %d and %d", len(traces), max(len(f.specs), 1))
	}
	if f.snapshot != "" && (len(traces) != 1 || len(f.specs) > 1) {
		return fmt.Errorf("--snapshot takes one trace and one allocator, not %d and %d", len(traces), max(len(f.specs), 1))
	}
	if f.svg != "" && len(traces) != 1 {
		return fmt.Errorf("--map takes one trace, not %d", len(traces))
	}
	if f.html != "" && len(traces) != 1 {
		return fmt.Errorf("--html takes one trace, not %d", len(traces))
	}
	targets := make([][]executor.Target, len(traces))
	capacities := make([]uint64, len(traces))
	for i, t := range traces { // all of them before the first one runs
		if targets[i], err = f.targetsOf(t); err != nil {
			return err
		}
		if capacities[i], err = f.capacityOf(t); err != nil {
			return err
		}
	}
	out := bufio.NewWriter(c.OutOrStdout())
	defer out.Flush()
	found := false
	for i, t := range traces {
		p := executor.Compile(t)
		var answers []*reports.ReplayReport
		for k, target := range targets[i] {
			if c.Context().Err() != nil {
				return errInterrupted
			}
			r, history, err := f.one(c.Context(), p, target, capacities[i])
			if err != nil {
				return err
			}
			found = found || len(r.Findings) > 0
			answers = append(answers, r)
			if f.json {
				if err := json.NewEncoder(out).Encode(r); err != nil {
					return faultError{err}
				}
				continue
			}
			if k == 0 && i > 0 {
				fmt.Fprintln(out)
			}
			if err := r.WriteText(out, k == 0); err != nil {
				return faultError{err}
			}
			if f.history {
				if _, err := out.Write(history); err != nil {
					return faultError{err}
				}
			}
		}
		if f.snapshot != "" {
			spec, err := f.specOf(t)
			if err != nil {
				return err
			}
			if err := writeSnapshot(f.snapshot, t, spec, capacities[i]); err != nil {
				return err
			}
		}
		if f.html != "" {
			if err := f.writePage(p, targets[i], capacities[i], answers); err != nil {
				return err
			}
		}
		if f.svg != "" {
			if err := f.writeMap(p, targets[i], capacities[i], f.at, answers); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return faultError{err}
	}
	if found {
		return errFindings
	}
	return nil
}

// one replays a trace on an allocator.
func (f *replayFlags) one(ctx context.Context, p *executor.Program, t executor.Target, capacity uint64) (*reports.ReplayReport, []byte, error) {
	dev, err := f.dev.New(capacity)
	if err != nil {
		return nil, nil, err
	}
	defer closeDevice(dev)
	judge := f.judge()()
	var history historyWriter
	var log *logWriter
	if f.log != "" {
		if log, err = createLog(f.log); err != nil {
			return nil, nil, err
		}
		defer log.abandon()
	}
	opts := executor.Options{Device: dev, Properties: f.properties(), Judge: judge, Verify: f.bytesVerified, Faults: f.faults}
	if f.history || log != nil {
		opts.OnRow = func(w *executor.Row) {
			if f.history {
				history.add(p.Trace, w)
			}
			if log != nil {
				log.add(w)
			}
		}
	}
	res, err := executor.Execute(p, t, opts)
	if err != nil {
		return nil, nil, err
	}
	if log != nil {
		if err := log.commit(); err != nil {
			return nil, nil, faultError{err}
		}
	}
	if err := f.relate(p.Trace, t, capacity, res); err != nil {
		return nil, nil, err
	}
	r := &reports.ReplayReport{
		Schema: reports.ReplaySchema, Trace: p.Trace.Name, Operations: p.Len(), Capacity: capacity, Allocator: t.Name,
		Executed: res.Ops, End: reports.NewEnd(res), Findings: []reports.Finding{}, Known: []reports.Known{}, Refusals: []reports.Refusal{},
	}
	r.PeakLive, _ = measure.PeakLive(p.Trace)
	line := reports.Replay(p.Trace.Name, t.Name, capacity, f.replayFlags()...)
	for _, v := range res.Findings {
		r.Findings = append(r.Findings, reports.Finding{
			Finding: v, Signature: v.Signature(), Trace: p.Trace.Name, Capacity: capacity, Replay: line, Count: 1,
			Shrink: reports.Shrink(&v, p.Trace.Name, t.Name, capacity, f.replayFlags()...),
		})
	}
	for _, k := range knownIssues() {
		for _, v := range res.Known {
			if v.Known == k.ID {
				k.Count++
			}
		}
		if k.Count > 0 {
			k.Sequences, k.Replay = 1, line
			r.Known = append(r.Known, k)
		}
	}
	for i := range res.Judgements {
		r.Refusals = append(r.Refusals, reports.NewRefusal(p, &res.Judgements[i]))
	}
	if len(r.Refusals) > 0 && ctx.Err() == nil {
		err = f.explainFirst(p, t, capacity, &r.Refusals[0])
	}
	return r, history.text, err
}

// explainFirst adds the witness and the refusal curve to the first refusal.
func (f *replayFlags) explainFirst(p *executor.Program, t executor.Target, capacity uint64, r *reports.Refusal) error {
	if r.Verdict == executor.Fragmentation.String() || r.Verdict == executor.Policy.String() {
		w, err := properties.FindWitness(p, t, f.newDevice(), capacity, r.Op)
		if err != nil {
			return err
		}
		if w != nil {
			r.Witness, r.WitnessText = w, w.Text(reports.Size)
		}
	}
	if r.Verdict == executor.Genuine.String() {
		return nil
	}
	curve, err := measure.RefusalCurve(p, t, f.newDevice(), capacity, r.Op, measure.CurveSizes)
	r.Curve = curve
	return err
}

func knownIssues() []reports.Known {
	var out []reports.Known
	for _, k := range properties.KnownIssues {
		out = append(out, reports.Known{ID: k.ID, URL: k.URL, Summary: k.Summary})
	}
	return out
}

// historyWriter writes operations with their outcome behind them.
type historyWriter struct {
	text []byte
}

func (h *historyWriter) add(t *trace.Trace, w *executor.Row) {
	start := len(h.text)
	h.text = trace.Append(h.text, t.Ops[w.Op])
	for len(h.text)-start < 40 {
		h.text = append(h.text, ' ')
	}
	h.text = fmt.Appendf(h.text, "  # %d: %s", w.Op, w.Outcome)
	if w.HasBlock {
		h.text = fmt.Appendf(h.text, " s%d+%d:%d", w.Segment, w.Offset, w.BlockSize)
	}
	if s := w.Stats; s != nil {
		h.text = fmt.Appendf(h.text, " allocated=%d reserved=%d", s.AllocatedBytes.All.Current, s.ReservedBytes.All.Current)
		if s.ActiveBytes.All.Current != s.AllocatedBytes.All.Current {
			h.text = fmt.Appendf(h.text, " active=%d", s.ActiveBytes.All.Current)
		}
	}
	mark := len(h.text)
	h.text = append(h.text, ' ')
	h.text = w.AppendEvents(h.text)
	if string(h.text[mark:]) == " -" {
		h.text = h.text[:mark]
	}
	h.text = append(h.text, '\n')
}

// logWriter writes a decision log to a temporary name, which takes its place once it is whole.
type logWriter struct {
	file *os.File
	w    *bufio.Writer
	path string
	line []byte
	err  error
}

func createLog(path string) (*logWriter, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, hinted{fmt.Errorf("cannot write %s: %w", path, err), "name a file in a folder that can be written"}
	}
	l := &logWriter{file: f, w: bufio.NewWriter(f), path: path}
	for i, c := range executor.Columns {
		if i > 0 {
			l.line = append(l.line, '\t')
		}
		l.line = append(l.line, c...)
	}
	l.flushLine()
	return l, nil
}

func (l *logWriter) flushLine() {
	if l.err == nil {
		_, l.err = l.w.Write(append(l.line, '\n'))
	}
}

func (l *logWriter) add(w *executor.Row) {
	l.line = w.Append(l.line[:0])
	l.flushLine()
}

func (l *logWriter) commit() error {
	for _, step := range []func() error{
		func() error { return l.err }, l.w.Flush, l.file.Sync, l.file.Close,
		func() error { return os.Rename(l.file.Name(), l.path) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("writing %s: %w", l.path, err)
		}
	}
	l.file = nil
	return nil
}

// abandon removes what was not committed.
func (l *logWriter) abandon() {
	if l.file != nil {
		l.file.Close()
		os.Remove(l.file.Name())
	}
}
