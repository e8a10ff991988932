package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/panel"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

// panelTargets are the allocators of the panel unless others are named.
var panelTargets = []string{
	"classic", "expandable", "classic@max_split_size_mb:128", "classic@garbage_collection_threshold:0.8,x_memory_fraction:1.0",
	"classic@roundup_power2_divisions:4",
}

type panelFlags struct {
	targetFlags
	workloads []string
	seqs, ops int
	seed      uint64
	workers   int
	time      time.Duration
	out       string
}

func panelCommand() *cobra.Command {
	var f panelFlags
	kinds := []string{"workloads", "adversaries", "bounds", "settings"}
	c := &cobra.Command{
		Use:   "panel [workloads|adversaries|bounds|settings]",
		Short: "tables: jobs and adversaries by setting, the bounds of theory, which settings harm one another",
		Long: `Panel prints one of four tables.
  workloads    how much memory each setting needs for each job, over many seeds (the default)
  adversaries  the same for each adversary, exact; adaptive ones play against each allocator
  bounds       what Robson's adversary and carve-and-pin take from the controls, beside what theory says
  settings     all pairs of settings: safe, or the shortest trace that grows, refuses or thrashes where neither setting alone does
When --time is over, a table has what was finished until then.`,
		ValidArgs: kinds,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			kind := "workloads"
			if len(args) > 0 {
				kind = args[0]
			}
			return f.run(c, kind)
		},
	}
	f.register(c)
	fl := c.Flags()
	fl.StringArrayVar(&f.workloads, "workload", nil, "workload; repeatable (default: all of kind distribution)")
	fl.IntVar(&f.seqs, "seqs", 200, "traces of each workload")
	fl.IntVar(&f.ops, "ops", 0, "operations of a trace (default: the workload's)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the campaign")
	fl.IntVar(&f.workers, "workers", 0, "traces run at once (default: one a core)")
	fl.DurationVar(&f.time, "time", 0, "hard deadline, for example 15m")
	fl.StringVar(&f.out, "out", "", "folder for the traces that settings finds")
	return c
}

func (f *panelFlags) run(c *cobra.Command, kind string) error {
	if len(f.allocs) == 0 {
		f.allocs = panelTargets
	}
	if err := f.resolve(c); err != nil {
		return err
	}
	if f.seqs < 1 {
		return fmt.Errorf("--seqs %d: must be at least 1", f.seqs)
	}
	if f.workers == 0 {
		f.workers = runtime.GOMAXPROCS(0)
	}
	if f.out != "" {
		if err := checkWritable(f.out); err != nil {
			return err
		}
	}
	ctx := c.Context()
	if f.time > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.time)
		defer cancel()
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	var err error
	switch kind {
	case "workloads":
		err = f.tableOfWorkloads(ctx, c, w)
	case "adversaries":
		err = f.tableOfAdversaries(ctx, w)
	case "bounds":
		err = f.tableOfBounds(w)
	case "settings":
		err = f.tableOfSettings(ctx, w)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		if c.Context().Err() != nil {
			return errors.Join(w.Flush(), errInterrupted)
		}
		return err
	}
	return w.Flush()
}

func (f *panelFlags) tableOfWorkloads(ctx context.Context, c *cobra.Command, w io.Writer) error {
	cfg := panel.Config{Seeds: f.seqs, Seed: f.seed, Ops: f.ops, Workers: f.workers, NewDevice: f.newDevice()}
	for _, g := range gen.All() {
		if g.Kind == gen.Distribution && len(f.workloads) == 0 {
			cfg.Workloads = append(cfg.Workloads, g)
		}
	}
	for _, name := range f.workloads {
		g, err := gen.Find(name)
		if err != nil {
			return err
		}
		cfg.Workloads = append(cfg.Workloads, g)
	}
	for _, s := range f.specs {
		cfg.Targets = append(cfg.Targets, targetOf(s))
	}
	bar := newProgress(c.ErrOrStderr(), "traces")
	cfg.Done = bar.set
	rows, failure := panel.Run(ctx, cfg)
	bar.done()
	if failure != nil && ctx.Err() == nil {
		return failure
	}
	fmt.Fprintln(w, "workload\tallocator\tn\texact\tkappa\tkappa p95\tlost\tlost p95\tidle cache\tpinned\tpinned p95\toperations at 1.05 L*\tp5\trefused")
	for i := range rows {
		if err := writeRow(w, &rows[i]); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "Medians and 95th percentiles with 95 % order-statistic intervals; a limit of ? means that n is too small for one. exact: traces "+
		"whose C_safe is exact, the others are lower bounds. Idle cache and pinned at the peak of live bytes. Operations at 1.05 L*: served "+
		"before the first refusal, the whole trace if none; refused: traces with one, of n.")
	return failure
}

func writeRow(w io.Writer, r *panel.Row) error {
	var kappa, lost, idle, pinned, served []float64
	exact, refused := 0, 0
	for _, c := range r.Cells {
		kappa, lost = append(kappa, c.Kappa), append(lost, float64(c.Lost))
		idle, pinned = append(idle, c.IdleCache), append(pinned, float64(c.Pinned))
		served = append(served, float64(c.Life.Served))
		if c.Safe.Exact {
			exact++
		}
		if c.Life.OOM {
			refused++
		}
	}
	cell := func(values []float64, unit string, p float64) string {
		s, err := stats.NewSample(stats.Measure{Name: unit, Unit: "1"}, stats.Population{}, values)
		if err != nil {
			return "-"
		}
		q, err := s.Quantile(p, stats.DefaultLevel)
		if err != nil || q.Value == nil {
			return "-"
		}
		limit := func(v *float64) string {
			if v == nil {
				return "?"
			}
			return panelFigure(*v, unit)
		}
		return fmt.Sprintf("%s (%s to %s)", panelFigure(*q.Value, unit), limit(q.Interval.Lower), limit(q.Interval.Upper))
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\n", r.Workload, r.Target, len(r.Cells), exact,
		cell(kappa, "1", 0.5), cell(kappa, "1", 0.95), cell(lost, "GiB", 0.5), cell(lost, "GiB", 0.95), cell(idle, "share", 0.5),
		cell(pinned, "GiB", 0.5), cell(pinned, "GiB", 0.95), cell(served, "", 0.5), cell(served, "", 0.05), refused)
	return err
}

func panelFigure(v float64, unit string) string {
	switch unit {
	case "GiB":
		return strconv.FormatFloat(v/(1<<30), 'f', 2, 64) + " GiB"
	case "share":
		return strconv.FormatFloat(100*v, 'f', 1, 64) + " %"
	case "1":
		return strconv.FormatFloat(v, 'f', 3, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// exactRuns is how many runs C_safe of an adversary's trace may take beyond its halving.
const exactRuns = 400

func (f *panelFlags) tableOfAdversaries(ctx context.Context, w io.Writer) error {
	fmt.Fprintln(w, "adversary\tallocator\toperations\tL*\tkappa\tlost\tpinned at L*\tmost pinned\toperations at 1.05 L*\trefused on its device\tfill")
	for i := range adversary.All {
		a := &adversary.All[i]
		specs := f.specs
		if a.Conf != "" || a.Fraction != 0 { // the settings that it attacks, too
			var fraction *float64
			if a.Fraction != 0 {
				fraction = &a.Fraction
			}
			s, err := catalog.FromSettings(a.Conf, fraction)
			if err != nil {
				return err
			}
			specs = append(specs[:len(specs):len(specs)], s)
		}
		for _, s := range specs {
			p, err := playAdversary(a, s, adversary.Params{})
			if err != nil {
				return err
			}
			program := executor.Compile(p.Trace)
			cell, err := panel.Exactly(ctx, program, targetOf(s), f.newDevice(), exactRuns)
			if err != nil {
				return err
			}
			about, served := "", "all"
			if !cell.Safe.Exact {
				about = ">= "
			}
			if cell.Life.OOM {
				served = strconv.Itoa(cell.Life.Served)
			}
			refused, err := f.firstRefusal(program, s)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s%.3f\t%s\t%s\t%s\t%s\t%s\n", a.Name, s.Name, len(p.Trace.Ops), reports.Size(cell.PeakLive), about,
				cell.Kappa, reports.Size(cell.Lost), reports.Size(cell.Pinned), reports.Size(cell.PeakPinned), served, refused)
		}
	}
	fmt.Fprintln(w, "Exact: kappa is a lower bound where >= stands before it. Most pinned: at any time. Refused: the first request on the adversary's "+
		"own device, its verdict, and the live bytes by the device's.")
	return nil
}

// firstRefusal is the first refused request of a trace on the device of its header.
func (f *panelFlags) firstRefusal(p *executor.Program, s catalog.Spec) (string, error) {
	capacity, err := f.capacityOf(p.Trace)
	if err != nil {
		return "", err
	}
	dev, err := f.dev.New(capacity)
	if err != nil {
		return "", err
	}
	r, err := executor.Start(p, targetOf(s), executor.Options{Device: dev, Judge: properties.NewJudge()})
	if err != nil {
		return "", err
	}
	for r.More() {
		if err := r.Step(); err != nil {
			return "", err
		}
		if list := r.Result().Judgements; len(list) > 0 {
			j := &list[0]
			return fmt.Sprintf("%s of %s, %s\t%.4f", reports.Size(j.Request), reports.Size(capacity), j.Verdict, float64(j.LiveRequested)/float64(capacity)), nil
		}
	}
	return "-\t-", nil
}

func (f *panelFlags) tableOfBounds(w io.Writer) error {
	controls := []string{"first-fit", "best-fit", "worst-fit", "next-fit", "buddy"}
	fmt.Fprint(w, "adversary\tM\tn\tbound\taligned")
	for _, c := range controls {
		fmt.Fprintf(w, "\t%s", c)
	}
	fmt.Fprintln(w)
	for _, mn := range [][2]int{{256, 16}, {512, 64}, {1024, 128}, {2048, 256}} {
		if err := boundsRow(w, "robson", mn[0], mn[1], controls,
			fmt.Sprint(adversary.RobsonBound(mn[0], mn[1])), fmt.Sprint(adversary.AlignedBound(mn[0], mn[1]))); err != nil {
			return err
		}
	}
	for _, m := range []int{16, 32, 64, 128} {
		if err := boundsRow(w, "carve-and-pin", 4096, m, controls, fmt.Sprintf("0.40 n M = %.0f", 0.4*float64(m)*4096), "-"); err != nil {
			return err
		}
	}
	fmt.Fprintln(w, "N, the highest end address, in units; M units are live at most, n is the largest block. Robson's bound is M(1 + log2(n)/2) - n + 1, "+
		"for blocks at multiples of their size M(1 + log2(n)/2). Carve-and-pin is made for best fit.")
	return nil
}

func boundsRow(w io.Writer, name string, m, n int, controls []string, bound, aligned string) error {
	a, err := adversary.Find(name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%s", name, m, n, bound, aligned)
	for _, c := range controls {
		s, err := catalog.Parse(c)
		if err != nil {
			return err
		}
		const unit = 512
		p, err := playAdversary(a, s, adversary.Params{Unit: unit, Live: m, Largest: n})
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "\t%d", p.Reached/unit)
	}
	fmt.Fprintln(w)
	return nil
}

func (f *panelFlags) tableOfSettings(ctx context.Context, w io.Writer) error {
	traces := panel.Cycles(panel.CycleSizes, 3, panel.CycleRepeats)
	cycles := len(traces)
	for _, g := range gen.All() {
		if g.Kind == gen.Distribution {
			ops := f.ops
			if ops == 0 {
				ops = 4000
			}
			cfg := panel.Config{Seed: f.seed, Ops: ops}
			for i := range uint64(2) {
				traces = append(traces, cfg.Trace(g, i))
			}
		}
	}
	pairs, failure := panel.Map(ctx, traces, panel.Settings, func(name string) (executor.Target, error) {
		s, err := catalog.Parse(name)
		return targetOf(s), err
	}, f.newDevice(), f.workers)
	if failure != nil && ctx.Err() == nil {
		return failure
	}
	fmt.Fprintf(w, "%d traces: all %d cycles of up to 3 blocks of %d sizes, %d times each, and %d of jobs\n", len(traces), cycles, len(panel.CycleSizes),
		panel.CycleRepeats, len(traces)-cycles)
	fmt.Fprintln(w, "settings\tand\ttraces\tharm\tpair\tothers\tshortest trace")
	for i := range pairs {
		p := &pairs[i]
		safe := true
		for _, c := range p.Cases {
			if c == nil {
				continue
			}
			safe = false
			pair, others := fmt.Sprint(c.Pair), fmt.Sprint(c.Others)
			switch c.Harm {
			case panel.Grows:
				pair, others = reports.Size(c.Pair)+" held", reports.Size(c.Others)
			case panel.Refuses:
				pair, others = fmt.Sprintf("operation %d refused at %s", c.Pair, reports.Size(c.Capacity)), "pass"
			case panel.Thrashes:
				pair += fmt.Sprintf(" device calls at %s", reports.Size(c.Capacity))
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\n", p.A, p.B, p.Traces, c.Harm, pair, others, describe(c.Trace))
			if f.out != "" {
				t := &trace.Trace{Ops: c.Trace.Ops, Header: []trace.Field{{Key: trace.KeyVersion, Value: trace.Version},
					{Key: "source", Value: fmt.Sprintf("panel settings: %s with %s %s", p.A, p.B, c.Harm)}, {Key: "allocator", Value: p.Name}}}
				if c.Capacity > 0 {
					t.Set(trace.KeyCapacity, strconv.FormatUint(c.Capacity, 10))
				}
				if err := trace.WriteFile(filepath.Join(f.out, fmt.Sprintf("%s-%d.trace", c.Harm, i)), t); err != nil {
					return faultError{err}
				}
			}
		}
		if safe {
			fmt.Fprintf(w, "%s\t%s\t%d\tsafe\t\t\t\n", p.A, p.B, p.Traces)
		}
	}
	return failure
}

// describe shows a cycle by its first operations.
func describe(t *trace.Trace) string {
	if len(t.Name) > 4 && t.Name[:4] == "gen:" {
		return fmt.Sprintf("%s, %d operations", t.Name, len(t.Ops))
	}
	s := t.Name + ":"
	sizes := map[uint64]uint64{}
	for _, op := range t.Ops[:len(t.Ops)/panel.CycleRepeats] {
		if op.Kind == trace.Alloc {
			sizes[op.ID] = op.Bytes
			s += " +" + reports.Size(op.Bytes)
		} else {
			s += " -" + reports.Size(sizes[op.ID])
		}
	}
	return s
}
