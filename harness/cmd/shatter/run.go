package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

// defaultSequences is enough for over a million operations on each of two allocators, and takes well under half a minute.
const defaultSequences = 245

// timeForPages is how much of --time is kept for waterfalls and the page, at most; a tenth of less time.
const timeForPages = 15 * time.Second

// relateEvery is which sequences of a workload relations are asked about: all of them, since they look at the beginning only.
const relateEvery = 1

type runFlags struct {
	targetFlags
	workloads []string
	seqs, ops int
	time      time.Duration
	seed      uint64
	workers   int
	shard     string
	out       string
	resume    string
	json      bool

	journal *results.Journal // of --resume
}

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "generate, execute, check, report (the main job; no flag needed)",
		Long: `Run generates sequences of long- and short-lived allocations, executes them on the allocators, checks every operation
against all properties, judges every refusal, and reports how memory fragments. Without --alloc each sequence runs on
classic and expandable with the settings that were drawn for it. The same seed gives the same result, whatever the number
of workers.`,
		Example: `  shatter run
  shatter run --time 10m --workload streams --alloc expandable --out results
  shatter run --seed 7 --seqs 1000 --json
  shatter run --resume results`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.registerRun(c)
	return c
}

func (f *runFlags) registerRun(c *cobra.Command) {
	f.register(c)
	fl := c.Flags()
	fl.StringArrayVar(&f.workloads, "workload", nil, "workload (see shatter list workloads); repeatable (default: those up to graphs in that list)")
	fl.IntVar(&f.seqs, "seqs", 0, fmt.Sprintf("number of sequences (default %d, without end with --time)", defaultSequences))
	fl.IntVar(&f.ops, "ops", 0, "operations of a sequence (default: the workload's)")
	fl.DurationVar(&f.time, "time", 0, "hard deadline for all that the command does, for example 10m")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the campaign")
	fl.IntVar(&f.workers, "workers", 0, "sequences run at once (default: one a core)")
	fl.StringVar(&f.shard, "shard", "", shardHelp)
	fl.StringVar(&f.out, "out", "", "folder for the results (layout "+results.Schema+", see go doc ./harness/results)")
	fl.StringVar(&f.resume, "resume", "", "go on with the run in this folder; with --seqs or --time to another end")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON (schema "+reports.RunSchema+")")
}

// resolve checks all flags and makes the campaign.
func (f *runFlags) resolve(c *cobra.Command) (campaign.Config, error) {
	if err := f.reopen(c); err != nil {
		return campaign.Config{}, err
	}
	cfg := campaign.Config{
		Seed: f.seed, Decisions: true, Workers: f.workers, Measures: true, Sequences: f.seqs,
		Properties: properties.All(), NewJudge: properties.NewJudge,
	}
	if err := f.targetFlags.resolve(c); err != nil {
		return cfg, err
	}
	cfg.NewDevice, cfg.MeasureDevice, cfg.RelationDevice = f.dev.New, f.newDevice(), f.relationDevice()
	cfg.Verify, cfg.Faults = f.bytesVerified, f.faults
	cfg.Simulated = f.dev.Kind == "sim"
	if f.dev.Kind == "cuda" {
		cfg.Workers = 1 // sequences at once would share the card, and each may take all of it
	}
	cfg.Capacity = f.bytes
	cfg.Params.Ops = f.ops
	cfg.NewJudge, cfg.Properties = f.judge(), f.properties()
	cfg.Relations, cfg.RelateEvery = f.relations(), relateEvery
	for _, v := range []struct {
		flag string
		n    int
	}{{"seqs", f.seqs}, {"ops", f.ops}, {"workers", f.workers}} {
		if v.n < 0 || v.n == 0 && c.Flags().Changed(v.flag) {
			return cfg, fmt.Errorf("--%s %d: must be at least 1", v.flag, v.n)
		}
	}
	if f.time < 0 || f.time == 0 && c.Flags().Changed("time") {
		return cfg, fmt.Errorf("--time %s: must be more than nothing", f.time)
	}
	if f.seqs == 0 && f.time == 0 {
		cfg.Sequences = defaultSequences
	}
	var err error
	if cfg.Shard, cfg.Shards, err = parseShard(f.shard, os.Getenv); err != nil {
		return cfg, err
	}
	if f.shard != "" {
		f.shard = fmt.Sprintf("%d/%d", cfg.Shard, cfg.Shards)
	}
	if f.journal != nil {
		done := f.journal.Indices() // not the journal itself, which grows meanwhile
		cfg.Done = func(index int) bool { return done[index] }
	}
	cfg.Workloads = gen.Workloads
	if len(f.workloads) > 0 {
		cfg.Workloads = nil
		for _, name := range f.workloads {
			w, err := gen.Find(name)
			if err != nil {
				return cfg, err
			}
			cfg.Workloads = append(cfg.Workloads, w)
		}
	}
	for _, s := range f.specs {
		t := campaign.Target{
			Name: s.Name, Remote: s.Remote != nil,
			For: func(t *trace.Trace) (executor.Target, error) {
				return targetOf(s), checkSettings(t, s)
			},
		}
		if settingsFor(s) != nil {
			t.Settings = func(*trace.Trace) (string, func(string) (executor.Target, error), error) {
				return confOf(s), settingsFor(s), nil
			}
		}
		cfg.Targets = append(cfg.Targets, t)
	}
	if len(f.specs) == 0 {
		for _, base := range []string{"classic", "expandable"} {
			cfg.Targets = append(cfg.Targets, campaign.Target{
				Name: base, For: fromHeader(base),
				Settings: func(t *trace.Trace) (string, func(string) (executor.Target, error), error) {
					s, err := headerSpec(t, base)
					return confOf(s), settingsFor(s), err
				},
			})
		}
	}
	return cfg, f.checkFolder()
}

// fromHeader makes the target that a trace's header asks for, on classic or expandable.
func fromHeader(base string) func(*trace.Trace) (executor.Target, error) {
	return func(t *trace.Trace) (executor.Target, error) {
		var s catalog.Spec
		s, err := headerSpec(t, base)
		return targetOf(s), err
	}
}

// checkWritable makes the folder and tries to write in it, before anything runs.
func checkWritable(dir string) error {
	const hint = "name a folder that can be written"
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return hinted{fmt.Errorf("--out %s: %w", dir, err), hint}
	}
	f, err := os.CreateTemp(dir, ".write-test-*")
	if err != nil {
		return hinted{fmt.Errorf("--out %s: %w", dir, err), hint}
	}
	f.Close()
	return os.Remove(f.Name())
}

func (f *runFlags) run(c *cobra.Command) error {
	start := time.Now()
	cfg, err := f.resolve(c)
	if err != nil {
		return err
	}
	ctx := c.Context()
	if f.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, start.Add(f.time))
		defer cancel()
	}
	header := f.journalHeader(c, cfg)
	if f.journal != nil {
		was := f.journal.Header
		was.Sequences = header.Sequences // it may go on to another end
		if err := was.Same(&header); err != nil {
			return fmt.Errorf("%s: what was run and what is asked for: %w", f.resume, err)
		}
	}
	j, w, err := f.openJournal(header)
	if err != nil {
		return faultError{err}
	}
	kinds := map[string]gen.Kind{}
	for _, w := range cfg.Workloads {
		kinds[w.Name] = w.Kind
	}
	before, executed := len(j.Sequences), 0
	bar := newProgress(c.ErrOrStderr(), "sequences")
	total := cfg.Sequences
	if cfg.Shards > 1 {
		total = (cfg.Sequences - cfg.Shard + cfg.Shards - 1) / cfg.Shards
	}
	var kept campaign.Findings
	runs := ctx // the sequences end earlier, so that what is made of them is ready in time
	if f.time > 0 && f.out != "" {
		var cancel context.CancelFunc
		runs, cancel = context.WithDeadline(ctx, start.Add(f.time-min(f.time/10, timeForPages)))
		defer cancel()
	}
	err = campaign.Execute(runs, cfg, func(s *campaign.Sequence) error {
		done := results.Of(s, kinds[s.Workload], cfg.Params)
		j.Sequences = append(j.Sequences, done)
		for _, r := range s.Runs {
			executed += r.Result.Ops
		}
		bar.set(len(j.Sequences), total)
		if w == nil {
			done.Forget()
			return nil
		}
		if err := keep(&kept, f.out, s); err != nil {
			return faultError{err}
		}
		if err := w.Append(done); err != nil {
			return faultError{err}
		}
		done.Forget()
		return nil
	})
	bar.done()
	if w != nil {
		if err := w.Close(); err != nil {
			return faultError{err}
		}
	}
	interrupted := c.Context().Err() != nil
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	j.Sort()
	r, found, err := f.report(ctx, cfg, j, interrupted)
	if err != nil {
		return err
	}
	workers := cfg.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	seconds := time.Since(start).Seconds()
	r.Timing = &reports.Timing{Seconds: seconds, OperationsPerSecond: float64(executed) / seconds, Workers: workers, Resumed: before}
	if f.out != "" {
		if err := writeFolder(f.out, j, r, found); err != nil {
			return faultError{err}
		}
		if err := writePage(ctx, &reports.Folder{Dir: f.out, Run: r, Journal: j}); err != nil {
			return faultError{err}
		}
	}
	if err := f.write(c, r); err != nil {
		return faultError{err}
	}
	switch {
	case len(r.Findings) > 0:
		return errFindings
	case interrupted:
		return errInterrupted
	}
	return nil
}

// report makes the document of a run.
func (f *runFlags) report(ctx context.Context, cfg campaign.Config, j *results.Journal, interrupted bool) (*reports.Run, []campaign.Distinct, error) {
	b := reports.NewBuilder(f.header(cfg), knownIssues())
	for _, s := range j.Sequences {
		if err := b.Add(s); err != nil {
			return nil, nil, err
		}
	}
	var err error
	if b.Run.Waterfalls, err = waterfalls(ctx, j.Sequences, cfg.MeasureDevice); err != nil {
		return nil, nil, err
	}
	r, err := b.Finish(interrupted)
	if err != nil {
		return nil, nil, faultError{err}
	}
	return r, b.Found(), nil
}

func (f *runFlags) header(cfg campaign.Config) reports.Run {
	r := reports.Run{Shatter: version, Seed: f.seed, Device: f.dev.Name, Params: strings.TrimSpace(cfg.Params.String()), Shard: f.shard, ReplayFlags: f.replayFlags()}
	for _, t := range cfg.Targets {
		r.Allocators = append(r.Allocators, t.Name)
	}
	for _, p := range cfg.Properties {
		r.Properties = append(r.Properties, p.ID)
	}
	r.Properties = append(r.Properties, executor.NoFalseOOM)
	for _, l := range cfg.Relations {
		r.Properties = append(r.Properties, l.ID)
	}
	if f.bytesVerified != executor.VerifyOff {
		r.Properties = append(r.Properties, executor.DataIntegrity)
	}
	if f.faults != nil {
		r.Properties = append(r.Properties, executor.FaultRecovery)
	}
	return r
}

// keep writes the trace of a finding at once, the smallest one of each signature.
func keep(found *campaign.Findings, dir string, s *campaign.Sequence) error {
	for _, r := range s.Runs {
		for _, v := range r.Result.Findings {
			place, smallest := found.Add(v, s.Trace, r.Allocator, s.Capacity)
			if !smallest {
				continue
			}
			if err := os.MkdirAll(filepath.Join(dir, results.FindingsDir), 0o755); err != nil {
				return err
			}
			if err := writeFinding(dir, &found.All()[place]); err != nil {
				return err
			}
		}
	}
	return nil
}

// write prints the report.
func (f *runFlags) write(c *cobra.Command, r *reports.Run) error {
	w := bufio.NewWriter(c.OutOrStdout())
	if f.json {
		doc, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if _, err := w.Write(append(doc, '\n')); err != nil {
			return err
		}
	} else if err := r.WriteTerminal(w, terminalOf(c.OutOrStdout())); err != nil {
		return err
	}
	return w.Flush()
}
