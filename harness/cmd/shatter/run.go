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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

// defaultSequences is enough for over a million operations on each of two allocators, and takes well under half a minute.
const defaultSequences = 245

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
	json      bool

	found campaign.Findings
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
  shatter run --seed 7 --seqs 1000 --json`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	fl := c.Flags()
	fl.StringArrayVar(&f.workloads, "workload", nil, "workload (see shatter list workloads); repeatable (default: those up to swarm in that list)")
	fl.IntVar(&f.seqs, "seqs", 0, fmt.Sprintf("number of sequences (default %d, without end with --time)", defaultSequences))
	fl.IntVar(&f.ops, "ops", 0, "operations of a sequence (default: the workload's)")
	fl.DurationVar(&f.time, "time", 0, "hard deadline for all that the command does, for example 10m")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the campaign")
	fl.IntVar(&f.workers, "workers", 0, "sequences run at once (default: one a core)")
	fl.StringVar(&f.shard, "shard", "", "i/n: run only the sequences whose index leaves i when divided by n")
	fl.StringVar(&f.out, "out", "", "folder for report.json, report.txt and the traces of findings")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON (schema "+reports.RunSchema+")")
	return c
}

// resolve checks all flags and makes the campaign.
func (f *runFlags) resolve(c *cobra.Command) (campaign.Config, error) {
	cfg := campaign.Config{
		Seed: f.seed, Workers: f.workers, Measures: true, Sequences: f.seqs,
		Properties: properties.All(), NewJudge: properties.NewJudge,
	}
	if err := f.targetFlags.resolve(c); err != nil {
		return cfg, err
	}
	cfg.NewDevice, cfg.MeasureDevice = f.dev.New, f.newDevice()
	cfg.Verify, cfg.Faults = f.bytesVerified, f.faults
	cfg.Simulated = f.dev.Kind == "sim"
	if f.dev.Kind == "cuda" {
		cfg.Workers = 1 // sequences at once would share the card, and each may take all of it
	}
	cfg.Capacity = f.bytes
	cfg.Params.Ops = f.ops
	cfg.NewJudge = f.judge()
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
	if f.shard != "" {
		i, n, ok := strings.Cut(f.shard, "/")
		var err1, err2 error
		cfg.Shard, err1 = strconv.Atoi(i)
		cfg.Shards, err2 = strconv.Atoi(n)
		if !ok || err1 != nil || err2 != nil || cfg.Shards < 1 || cfg.Shard < 0 || cfg.Shard >= cfg.Shards {
			return cfg, fmt.Errorf("--shard %s: must be i/n with 0 <= i < n", f.shard)
		}
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
			Name: s.Name,
			For: func(t *trace.Trace) (executor.Target, error) {
				return targetOf(s), checkSettings(t, s)
			},
		}
		if s.Settings != nil {
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
	if f.out != "" {
		if err := checkWritable(f.out); err != nil {
			return cfg, err
		}
	}
	return cfg, nil
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
	b := reports.NewBuilder(f.header(cfg), knownIssues(), start)
	kinds := map[string]gen.Kind{}
	for _, w := range cfg.Workloads {
		kinds[w.Name] = w.Kind
	}
	var falls medians
	bar := newProgress(c.ErrOrStderr(), "sequences")
	total := cfg.Sequences
	if cfg.Shards > 1 {
		total = (cfg.Sequences - cfg.Shard + cfg.Shards - 1) / cfg.Shards
	}
	err = campaign.Execute(ctx, cfg, func(s *campaign.Sequence) error {
		b.Add(s, kinds[s.Workload])
		falls.add(s)
		bar.set(b.Run.Sequences, total)
		return f.keep(s)
	})
	bar.done()
	interrupted := c.Context().Err() != nil
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		return err
	}
	workers := cfg.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if b.Run.Waterfalls, err = falls.waterfalls(ctx, cfg.MeasureDevice); err != nil {
		return err
	}
	r, err := b.Finish(interrupted, workers, time.Now())
	if err != nil {
		return faultError{err}
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

func (f *runFlags) header(cfg campaign.Config) reports.Run {
	r := reports.Run{Shatter: version, Seed: f.seed, Device: f.dev.Name, Shard: f.shard, ReplayFlags: f.replayFlags()}
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

// keep writes the trace of a finding, the smallest one of each signature.
func (f *runFlags) keep(s *campaign.Sequence) error {
	if f.out == "" {
		return nil
	}
	for _, r := range s.Runs {
		for i := range r.Result.Findings {
			v := &r.Result.Findings[i]
			if _, smallest := f.found.Add(*v, s.Trace, r.Allocator, s.Capacity); !smallest {
				continue
			}
			t := &trace.Trace{Header: append(s.Trace.Header[:len(s.Trace.Header):len(s.Trace.Header)],
				trace.Field{Key: "finding", Value: v.String()}, trace.Field{Key: "allocator", Value: r.Allocator}), Ops: s.Trace.Ops}
			if err := trace.WriteFile(filepath.Join(f.out, v.Signature()+".trace"), t); err != nil {
				return faultError{err}
			}
		}
	}
	return nil
}

// write prints the report, and writes it to the folder if one is given.
func (f *runFlags) write(c *cobra.Command, r *reports.Run) error {
	doc, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	doc = append(doc, '\n')
	var text strings.Builder
	if err := r.WriteText(&text); err != nil {
		return err
	}
	if f.out != "" {
		if err := writeFile(filepath.Join(f.out, "report.json"), doc); err != nil {
			return err
		}
		if err := writeFile(filepath.Join(f.out, "report.txt"), []byte(text.String())); err != nil {
			return err
		}
	}
	w := bufio.NewWriter(c.OutOrStdout())
	if f.json {
		_, err = w.Write(doc)
	} else {
		_, err = w.WriteString(text.String())
	}
	if err != nil {
		return err
	}
	return w.Flush()
}

// writeFile writes to a temporary name, syncs and renames, so that a file is there whole or not at all.
func writeFile(path string, data []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(data); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
