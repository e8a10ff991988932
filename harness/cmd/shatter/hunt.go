package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	hunting "github.com/shatter-gpu/shatter/harness/hunt"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

// settingsOfHunt are what --settings chooses among: settings that people use, alone and in pairs.
var settingsOfHunt = []string{
	"", "expandable_segments:True", "max_split_size_mb:128", "garbage_collection_threshold:0.8", "roundup_power2_divisions:4",
	"expandable_segments:True,max_split_size_mb:128", "expandable_segments:True,garbage_collection_threshold:0.8",
	"expandable_segments:True,roundup_power2_divisions:4", "max_split_size_mb:128,garbage_collection_threshold:0.8",
	"max_split_size_mb:128,roundup_power2_divisions:4",
}

// shrinkRuns bounds the shrink of each trace that hunt prints; a bound in time would make the result depend on the machine.
const shrinkRuns = 20000

type huntFlags struct {
	targetFlags
	seed     uint64
	time     time.Duration
	cpu      time.Duration
	tries    int
	pairs    int
	out      string
	settings bool
	without  []string
}

func huntCommand() *cobra.Command {
	var f huntFlags
	c := &cobra.Command{
		Use:   "hunt [FILE...]",
		Short: "search for the worst trace",
		Long: `Hunt searches, by mutation and crossover, for traces that are worst for an allocator: a request of 1 MiB + 1, 20 MiB or 1 GiB
is refused by fragmentation or policy within 200 operations on a device of 8 GiB while as few bytes as possible are live (fill
at refusal). It starts from the adversaries and from FILEs. With --settings it also searches among settings, for pairs under
which each repetition of a trace adds memory although neither setting alone does. With --out the population is kept in a folder,
and the same command goes on from there. With --pairs the hunt is compared with plain random generation in as much processor time.
The same seed and number of --tries give the same result.`,
		Example: `  shatter hunt --alloc classic --alloc expandable --cpu 60s
  shatter hunt --settings --without fence --tries 200000
  shatter hunt --pairs 20 --cpu 60s`,
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	fl := c.Flags()
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the hunt")
	fl.DurationVar(&f.cpu, "cpu", 0, "processor time of each hunt (default 20s unless --tries is given)")
	fl.IntVar(&f.tries, "tries", 0, "traces to try in each hunt")
	fl.DurationVar(&f.time, "time", 0, "hard deadline for all that the command does")
	fl.IntVar(&f.pairs, "pairs", 0, "compare this many hunts with plain random generation")
	fl.StringVar(&f.out, "out", "", "folder for the population, a folder an allocator in it")
	fl.BoolVar(&f.settings, "settings", false, "search among settings too")
	fl.StringArrayVar(&f.without, "without", nil, "adversary to leave out of the seeds; repeatable; all leaves out every one")
	return c
}

func (f *huntFlags) resolve(c *cobra.Command) error {
	if err := f.targetFlags.resolve(c); err != nil {
		return err
	}
	if f.settings && len(f.specs) > 0 {
		return hinted{errors.New("--settings chooses the allocator's settings itself"), "leave out --alloc"}
	}
	if f.settings && f.pairs > 0 {
		return errors.New("--pairs compares hunts on an allocator; leave out --settings")
	}
	if f.tries < 0 || f.pairs < 0 || f.cpu < 0 {
		return errors.New("--tries, --pairs and --cpu must be more than nothing")
	}
	if f.tries == 0 && f.cpu == 0 {
		f.cpu = 20 * time.Second
	}
	if len(f.specs) == 0 && !f.settings {
		for _, name := range []string{"classic", "expandable"} {
			s, err := catalog.Parse(name)
			if err != nil {
				return err
			}
			f.specs = append(f.specs, s)
		}
	}
	for _, s := range f.specs {
		if s.Settings == nil {
			return fmt.Errorf("--alloc %s: hunt needs an allocator that lists its blocks and declares a promise: classic or expandable", s.Name)
		}
	}
	for _, name := range f.without {
		if name != "all" {
			if _, err := adversary.Find(name); err != nil {
				return err
			}
		}
	}
	if f.out != "" {
		return checkWritable(f.out)
	}
	return nil
}

func (f *huntFlags) run(c *cobra.Command, args []string) error {
	if err := f.resolve(c); err != nil {
		return err
	}
	files, err := readTraces(args)
	if err != nil {
		return err
	}
	ctx := c.Context()
	if f.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.time)
		defer cancel()
	}
	out := c.OutOrStdout()
	if f.settings {
		err = f.huntSettings(ctx, out, files)
	}
	for _, s := range f.specs {
		switch {
		case err != nil:
		case f.pairs > 0:
			err = f.compare(ctx, out, s, files)
		default:
			err = f.huntOne(ctx, out, s, files)
		}
	}
	if err == nil && c.Context().Err() != nil {
		return errInterrupted
	}
	return err
}

// config is a hunt on one allocator.
func (f *huntFlags) config(s catalog.Spec, files []*trace.Trace, seed uint64) (hunting.Config, error) {
	cfg := hunting.Config{
		Seed: seed, NewDevice: f.newDevice(), NewJudge: properties.NewJudge, Random: random,
		Target: func(*trace.Trace) (executor.Target, error) { return targetOf(s), nil },
	}
	cfg.Seeds = append(cfg.Seeds, files...)
	for i := range adversary.All {
		a := &adversary.All[i]
		if slices.Contains(f.without, a.Name) || slices.Contains(f.without, "all") {
			continue
		}
		if s.Settings == nil { // adaptive ones play against classic
			s, _ = catalog.Parse("classic")
		}
		p, err := playAdversary(a, s, adversary.Params{Capacity: hunting.Capacity})
		if err != nil {
			return cfg, err
		}
		cfg.Seeds = append(cfg.Seeds, p.Trace)
	}
	return cfg, nil
}

// random makes a trace as shatter run would, on the hunt's device: of any workload that looks for findings.
func random(r *rand.Rand) *trace.Trace {
	var list []gen.Workload
	for _, w := range gen.Workloads {
		if w.Kind == gen.Findings {
			list = append(list, w)
		}
	}
	w := list[r.IntN(len(list))]
	return gen.Generate(w, r.Uint64(), gen.Params{Ops: hunting.MaxOps - 1, Capacity: hunting.Capacity})
}

// spend runs a hunt for its tries or processor time.
func (f *huntFlags) spend(ctx context.Context, h *hunting.Hunter) error {
	start, end := processorTime(), h.Evaluations+f.tries
	return h.Run(ctx, func() bool {
		if f.tries > 0 {
			return h.Evaluations < end
		}
		return processorTime()-start < f.cpu
	})
}

// begin starts a hunt, or takes one up that is in the folder.
func (f *huntFlags) begin(cfg hunting.Config, name string) (*hunting.Hunter, string, error) {
	dir := ""
	if f.out != "" {
		dir = filepath.Join(f.out, strings.NewReplacer(":", "-", ",", "_", "/", "-").Replace(name))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, "", err
		}
		seeds, n, err := hunting.Load(dir, cfg.Seed, tracefile.Read)
		if err != nil {
			return nil, "", err
		}
		if n > 0 {
			cfg.Seeds, cfg.Evaluations = seeds, n
		}
	}
	h, err := hunting.Start(cfg)
	return h, dir, err
}

func save(h *hunting.Hunter, dir string) error {
	if dir == "" {
		return nil
	}
	if err := h.Save(dir); err != nil {
		return faultError{err}
	}
	return nil
}

func (f *huntFlags) huntOne(ctx context.Context, out io.Writer, s catalog.Spec, files []*trace.Trace) error {
	cfg, err := f.config(s, files, f.seed)
	if err != nil {
		return err
	}
	h, dir, err := f.begin(cfg, s.Name)
	if err != nil {
		return err
	}
	if err := f.spend(ctx, h); err != nil {
		return err
	}
	if err := save(h, dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d traces tried, seed %d; the worst, shrunk:\n", s.Name, h.Evaluations, f.seed)
	for c, n := range hunting.Classes {
		t, fill, err := h.Shrink(ctx, c, shrink.Budget{Runs: shrinkRuns})
		if err != nil {
			return err
		}
		if t == nil {
			fmt.Fprintf(out, "  %s is not refused by fragmentation or policy\n", reports.Size(n))
			continue
		}
		fmt.Fprintf(out, "  %s refused with %s live of %s (fill %.3g), %d operations:\n", reports.Size(n), reports.Size(uint64(math.Round(fill*hunting.Capacity))),
			reports.Size(hunting.Capacity), fill, len(t.Ops))
		for i := range t.Ops {
			fmt.Fprintf(out, "    %s\n", &t.Ops[i])
		}
		if dir != "" {
			if err := trace.WriteFile(filepath.Join(dir, fmt.Sprintf("shrunk-%s.trace.txt", hunting.FigureNames[c])), t); err != nil {
				return faultError{err}
			}
		}
	}
	return nil
}

// settingsConfig is a hunt among settings.
func (f *huntFlags) settingsConfig(files []*trace.Trace, seed uint64) (hunting.Config, error) {
	cfg, err := f.config(catalog.Spec{}, files, seed)
	cfg.Settings = settingsOfHunt
	cfg.Target = func(t *trace.Trace) (executor.Target, error) {
		s, err := headerSpec(t, "")
		return targetOf(s), err
	}
	cfg.Alone = func(conf string) []string {
		if parts := strings.Split(conf, ","); len(parts) > 1 && slices.Contains(settingsOfHunt, conf) {
			return append(parts, "")
		}
		return nil
	}
	return cfg, err
}

// huntSettings looks for growth among settings.
func (f *huntFlags) huntSettings(ctx context.Context, out io.Writer, files []*trace.Trace) error {
	cfg, err := f.settingsConfig(files, f.seed)
	if err != nil {
		return err
	}
	h, dir, err := f.begin(cfg, "settings")
	if err != nil {
		return err
	}
	if err := f.spend(ctx, h); err != nil {
		return err
	}
	if err := save(h, dir); err != nil {
		return err
	}
	fmt.Fprintf(out, "settings: %d traces tried, seed %d\n", h.Evaluations, f.seed)
	if len(h.Growing()) == 0 {
		fmt.Fprintln(out, "  no pair of settings grows where neither alone does")
	}
	for _, k := range h.Growing() {
		k, err := h.ShrinkGrowth(ctx, k, shrink.Budget{Runs: shrinkRuns})
		if err != nil {
			return err
		}
		conf, _ := k.Trace.Settings()
		fmt.Fprintf(out, "  %s: each repetition of these %d operations adds %s that are not live; with either setting alone it adds less than half of that:\n",
			conf, len(k.Trace.Ops), reports.Size(uint64(k.Figures[hunting.Growth])))
		for i := range k.Trace.Ops {
			fmt.Fprintf(out, "    %s\n", &k.Trace.Ops[i])
		}
	}
	return nil
}

// compare runs pairs of a hunt and plain random generation with the same seed and processor time; lower scores win.
func (f *huntFlags) compare(ctx context.Context, out io.Writer, s catalog.Spec, files []*trace.Trace) error {
	fmt.Fprintf(out, "%s: mean of log2(fill at refusal) over three classes, lower is worse for the allocator\n", s.Name)
	wins, done := 0, 0
	for i := range f.pairs {
		cfg, err := f.config(s, files, f.seed+uint64(i))
		if err != nil {
			return err
		}
		var score [2]float64
		var tries [2]int
		for k := range score {
			if k == 1 {
				cfg.Seeds, cfg.Only = nil, true
			}
			h, err := hunting.Start(cfg)
			if err != nil {
				return err
			}
			if err := f.spend(ctx, h); err != nil {
				return err
			}
			score[k], tries[k] = h.Score(), h.Evaluations
		}
		if ctx.Err() != nil {
			break
		}
		done++
		if score[0] < score[1] {
			wins++
		}
		fmt.Fprintf(out, "  seed %d: hunt %.2f (%d traces), random %.2f (%d traces)\n", f.seed+uint64(i), score[0], tries[0], score[1], tries[1])
	}
	p, err := stats.Wilson(wins, done, stats.DefaultLevel)
	if err != nil || p.Share == nil {
		return err
	}
	fmt.Fprintf(out, "  the hunt wins %d of %d: %.2f, 95 %% interval %.3f to %.3f\n", wins, done, *p.Share, *p.Lower, *p.Upper)
	return nil
}
