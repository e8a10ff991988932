package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/reports"
)

// nightFlags are the flags of nightly. A worker of it has the same, but for what concerns the whole.
type nightFlags struct {
	targetFlags
	seed     uint64
	seedFrom string
	panel    string

	time     time.Duration
	watchdog time.Duration
	workers  int
	shard    string
	out      string
	baseline string
	json     bool

	i, n int // of the shard
}

func nightlyCommand() *cobra.Command {
	var f nightFlags
	c := &cobra.Command{
		Use:   "nightly --out DIR",
		Short: "panel, exploration, comparison and report within a budget of time",
		Long: `Nightly runs two things. The panel is committed traces, identical every night: decision logs and the cases of the corpus. On the
simulated device any difference to earlier decisions is real, and the first operation that differs is shown. The exploration runs
generated sequences of all workloads, adversaries, and hunts, also among settings, from a seed: it yields findings, never trends.

Red (exit code 1) is only what repeats: a difference of the panel, or a finding that shows again on fresh seeds, on another trace, or
on one of an earlier night. Others are suspects: listed and kept, exit code 0. Known upstream issues are green. A night that has no
time for its whole panel is not done: exit code 3.

The panel's decisions are held against those recorded from PyTorch 2.6.0, or with --baseline against an earlier night's folder or a
folder of decision logs; and against the last night in --out. There it leaves nightly.json, junit.xml, summary.md, report.html, panel
(decision logs) and pending (a trace a finding, shrunk; a corpus, so that shatter corpus review --dir DIR works on it).

Workers are processes: a device that hangs or an error that sticks ends a worker and not the night. --time holds for all of it,
shrinking and report included. After SIGINT or SIGTERM the report comes within 5 seconds.`,
		Example: `  shatter nightly --time 20m --out nightly
  shatter nightly --time 20m --out nightly --baseline pinned --seed 7
  shatter nightly --time 20m --device cuda:0:8GiB --out nightly-gpu
  sbatch --array=0-3 harness/deploy/slurm.sbatch nightly --time 20m --seed 7 --out /shared/nightly`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.registerWorker(c)
	fl := c.Flags()
	fl.DurationVar(&f.time, "time", 20*time.Minute, "hard deadline for all that the command does")
	fl.StringVar(&f.out, "out", "", "folder for the results; the last night in it is compared with")
	fl.StringVar(&f.baseline, "baseline", "", "pinned earlier night, or folder of decision logs, to compare with")
	fl.StringVar(&f.shard, "shard", "", shardHelp)
	fl.IntVar(&f.workers, "workers", 0, "worker processes at once (default: one a core; on cuda one)")
	fl.DurationVar(&f.watchdog, "watchdog", 30*time.Second, "a worker in which nothing moves for so long is ended")
	fl.BoolVar(&f.json, "json", false, "print the report as JSON (schema "+nightly.Schema+")")
	c.AddCommand(nightlyWorkerCommand())
	return c
}

// nightlyWorkerCommand is what nightly starts as a process of its own; it is not for people.
func nightlyWorkerCommand() *cobra.Command {
	var f nightFlags
	c := &cobra.Command{
		Use:    "worker",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			// Who started it says when to end: a signal for the whole group is for that.
			signal.Ignore(os.Interrupt, syscall.SIGTERM)
			w, err := newNightWorker(c, &f)
			if err != nil {
				return err
			}
			if err := nightly.Serve(context.WithoutCancel(c.Context()), os.Stdin, c.OutOrStdout(), w.do); err != nil {
				return faultError{err}
			}
			return nil
		},
	}
	f.registerWorker(c)
	return c
}

// registerWorker registers the flags that a worker has too.
func (f *nightFlags) registerWorker(c *cobra.Command) {
	f.register(c)
	c.Flags().Uint64Var(&f.seed, "seed", 0, "seed of the exploration (default: the date, as 20261130)")
	c.Flags().StringVar(&f.panel, "panel", "", "folder of decision logs whose traces are the panel (default: those built in)")
}

// workerArgs are the arguments of a worker, with the flags that were given.
func (f *nightFlags) workerArgs(c *cobra.Command) []string {
	args := []string{"nightly", "worker", "--seed", strconv.FormatUint(f.seed, 10)}
	for _, name := range []string{"device", "capacity", "promise", "known", "verify", "fault", "panel"} {
		if c.Flags().Changed(name) {
			args = append(args, "--"+name, c.Flags().Lookup(name).Value.String())
		}
	}
	for _, a := range f.allocs {
		args = append(args, "--alloc", a)
	}
	return args
}

// openPanel opens the panel's folder.
func (f *nightFlags) openPanel() (fs.FS, []conform.Log, error) {
	folder := conform.Committed()
	if f.panel != "" {
		folder = os.DirFS(f.panel)
	}
	logs, err := conform.ReadFolder(folder)
	if err != nil {
		return nil, nil, hinted{fmt.Errorf("--panel %s: %w", f.panel, err), "name a folder of decision logs, with index.tsv and traces/ (shatter record-decisions)"}
	}
	return folder, logs, nil
}

// panelCases are the cases of the corpus, if the panel is that which is built in and the allocator is what they speak of.
func (f *nightFlags) panelCases() ([]*corpus.Case, error) {
	if f.panel != "" || len(f.specs) > 0 {
		return nil, nil
	}
	return corpus.Embedded().Cases(corpus.Accepted, corpus.Known)
}

// panelTask is the allocator and the log of a task of the panel; no allocator is the one that the log's settings ask for.
func (f *nightFlags) panelTask(index int, logs []conform.Log) (*catalog.Spec, *conform.Log) {
	l := &logs[index%len(logs)]
	if len(f.specs) == 0 {
		return nil, l
	}
	return &f.specs[index/len(logs)], l
}

// tasks are the panel, and what makes the tasks of the exploration.
func (f *nightFlags) tasks(logs []conform.Log, cases []*corpus.Case) (panel []nightly.Task, explore func(int) nightly.Task) {
	for i := range max(len(f.specs), 1) * len(logs) {
		panel = append(panel, nightly.Task{Kind: nightly.Panel, Index: i})
	}
	for i := range cases {
		panel = append(panel, nightly.Task{Kind: nightly.Case, Index: i})
	}
	// Of 16 tasks 13 are sequences, two adversaries, and one a hunt: on an allocator or among settings, by turns.
	hunts := !slices.ContainsFunc(f.specs, func(s catalog.Spec) bool { return s.Settings == nil })
	return panel, func(k int) nightly.Task {
		t := nightly.Task{Seed: f.seed}
		round, place := k/16, k%16
		switch {
		case place >= 13 && place < 15:
			t.Kind, t.Index = nightly.Adversary, 2*round+place-13
		case place == 15 && hunts && round%2 == 1 && len(f.specs) == 0:
			t.Kind, t.Index = nightly.Settings, round/2
		case place == 15 && hunts:
			t.Kind, t.Index = nightly.Hunt, round
		case place == 15:
			t.Kind, t.Index = nightly.Sequence, 14*round+13
		case hunts:
			t.Kind, t.Index = nightly.Sequence, 13*round+place
		default:
			t.Kind, t.Index = nightly.Sequence, 14*round+place
		}
		return t
	}
}

// check resolves the flags before anything runs.
func (f *nightFlags) check(c *cobra.Command) error {
	if err := f.resolve(c); err != nil {
		return err
	}
	switch {
	case f.out == "":
		return hinted{errors.New("--out is missing"), "name a folder for the results: --out DIR"}
	case f.time < 2*time.Second:
		return fmt.Errorf("--time %s: a night has at least 2s", f.time)
	case f.watchdog < time.Second:
		return fmt.Errorf("--watchdog %s: must be at least 1s", f.watchdog)
	case f.workers < 0 || f.workers == 0 && c.Flags().Changed("workers"):
		return fmt.Errorf("--workers %d: must be at least 1", f.workers)
	}
	if f.workers == 0 {
		f.workers = runtime.GOMAXPROCS(0)
		if f.dev.Kind == "cuda" {
			f.workers = 1 // workers at once would share the card, and each may take all of it
		}
	}
	if f.seedFrom = "--seed"; !c.Flags().Changed("seed") {
		now := time.Now().UTC()
		f.seed, f.seedFrom = uint64(now.Year()*10000+int(now.Month())*100+now.Day()), "the date"
	}
	var err error
	if f.i, f.n, err = parseShard(f.shard, os.Getenv); err != nil {
		return err
	}
	if f.baseline != "" && !conform.IsLogFolder(f.baseline) {
		if _, err := nightly.ReadNight(f.baseline); err != nil {
			return hinted{fmt.Errorf("--baseline: %w", err), "name the folder of an earlier night, or a folder of decision logs"}
		}
	}
	return checkWritable(f.out)
}

func (f *nightFlags) run(c *cobra.Command) error {
	start := time.Now()
	if err := f.check(c); err != nil {
		return err
	}
	folder, logs, err := f.openPanel()
	if err != nil {
		return err
	}
	cases, err := f.panelCases()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return faultError{err}
	}
	panel, explore := f.tasks(logs, cases)
	out := &nightly.Night{
		Schema: nightly.Schema, Shatter: version, Seed: f.seed, SeedFrom: f.seedFrom, Generators: gen.Version, Device: f.dev.Name,
		Allocators: f.allocatorNames(), ReplayFlags: f.replayFlags(), Panel: nightly.PanelResult{Logs: len(panel)},
	}
	out.Timing.Started, out.Timing.Budget, out.Timing.Workers = start.UTC().Format(time.RFC3339), f.time.Seconds(), f.workers
	if f.n > 1 {
		out.Shard = fmt.Sprintf("%d/%d", f.i, f.n)
	}
	k, err := f.newKeeper(out, folder, logs)
	if err != nil {
		return err
	}
	args := f.workerArgs(c)
	bar := newProgress(c.ErrOrStderr(), "tasks")
	tasks := 0
	err = nightly.Run(c.Context(), nightly.Config{
		Command: func() *exec.Cmd {
			w := exec.Command(self, args...)
			w.Args[0] = os.Args[0]
			w.Env = append(os.Environ(), "GOMAXPROCS=1") // a core each
			return w
		},
		Workers: f.workers, Watchdog: f.watchdog, Start: start, Time: f.time, Panel: panel, Explore: explore, Shard: f.i, Shards: f.n,
		Simulated: f.dev.Kind == "sim", Folder: f.out, Decided: k.decided, Keep: k.keep,
		Progress: func(n *nightly.Night, _ int) {
			tasks++
			bar.set(tasks, 0)
			k.checkpoint(n)
		},
	}, out)
	bar.done()
	if e := k.close(); err == nil {
		err = e
	}
	if err != nil {
		out.Faults = append(out.Faults, err.Error())
	}
	out.Timing.Seconds = time.Since(start).Seconds()
	if err := writeNight(f.out, out); err != nil {
		return faultError{err}
	}
	limit := time.Until(start.Add(f.time)) - 100*time.Millisecond
	if out.Interrupted {
		limit = min(limit, 2*time.Second)
	}
	addMaps(f.out, out, min(limit, 10*time.Second))
	return f.show(c, out)
}

// allocatorNames are those of --alloc, or what runs without.
func (f *nightFlags) allocatorNames() []string {
	if len(f.specs) == 0 {
		return []string{"classic", "expandable"}
	}
	var names []string
	for _, s := range f.specs {
		names = append(names, s.Name)
	}
	return names
}

// show prints the report, and ends the command as the night came to.
func (f *nightFlags) show(c *cobra.Command, n *nightly.Night) error {
	format := "text"
	if f.json {
		format = "json"
	}
	if err := reports.WriteNight(c.OutOrStdout(), n, format); err != nil {
		return faultError{err}
	}
	switch {
	case n.Failed():
		return errFindings
	case len(n.Faults) > 0:
		return faultError{errors.New(strings.Join(n.Faults, "; "))}
	case n.Interrupted:
		return errInterrupted
	}
	return nil
}
