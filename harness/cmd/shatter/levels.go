package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/counterexample"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

type levelsFlags struct {
	targetFlags
	seqs, ops, workers int
	seed               uint64
	least              string
	time               time.Duration
}

func levelsCommand() *cobra.Command {
	var f levelsFlags
	c := &cobra.Command{
		Use:   "levels",
		Short: "how far each allocator is from each literal promise: shortest counterexample, worst ratio",
		Long: `Levels searches for refusals that break 'no request is refused while the free memory is at least the request', for each way
to count free memory (see shatter list properties). It prints, for each allocator and level, the shortest trace found, shrunk, and
the worst ratio of free memory to the request with the fill at which it happens, and what three allocations a segment come to, of
which one is kept: the pin that the search must not fall behind.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return f.run(c) },
	}
	f.register(c)
	fl := c.Flags()
	fl.IntVar(&f.seqs, "seqs", 20_000, "number of sequences for each allocator")
	fl.IntVar(&f.ops, "ops", 100, "operations of a sequence, at most; combs have as many as fill the device")
	fl.IntVar(&f.workers, "workers", 0, "sequences run at once (default: one a core)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the search")
	fl.StringVar(&f.least, "least", "1MiB", "smallest request that counts")
	fl.DurationVar(&f.time, "time", 0, "end the search of each allocator after this time")
	return c
}

// levelsCapacity is the device of the search: the ratio grows with it, so it is always said.
const levelsCapacity = 1 << 30

func (f *levelsFlags) run(c *cobra.Command) error {
	if len(f.allocs) == 0 {
		f.allocs = []string{"classic", "expandable"}
	}
	if err := f.resolve(c); err != nil {
		return err
	}
	if f.seqs < 1 || f.ops < 2 {
		return fmt.Errorf("--seqs %d --ops %d: must be at least 1 and 2", f.seqs, f.ops)
	}
	least, err := trace.ParseSize(f.least)
	if err != nil || least == 0 {
		return fmt.Errorf("--least %s: must be a size, for example 1MiB", f.least)
	}
	capacity := f.bytes
	if capacity == 0 {
		capacity = levelsCapacity
	}
	broken := false
	for i, spec := range f.specs {
		s := &counterexample.Search{
			Target: targetOf(spec), NewDevice: f.newDevice(), NewJudge: f.judge(), Capacity: capacity, Least: least,
			Sequences: f.seqs, Ops: f.ops, Seed: f.seed, Workers: f.workers,
		}
		ctx, cancel := c.Context(), func() {}
		if f.time > 0 {
			ctx, cancel = context.WithTimeout(ctx, f.time)
		}
		bar := newProgress(c.ErrOrStderr(), "sequences")
		start := time.Now()
		r, err := s.Run(ctx, bar.set)
		bar.done()
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		took := time.Since(start)
		if i > 0 {
			fmt.Fprintln(c.OutOrStdout())
		}
		if err := writeLevels(c.Context(), c.OutOrStdout(), s, r, took); err != nil {
			return err
		}
		broken = broken || r.Promise > 0
	}
	if broken {
		return errFindings
	}
	return nil
}

// writeLevels prints a table, below it the shortest traces, and the yardstick.
func writeLevels(ctx context.Context, out io.Writer, s *counterexample.Search, r *counterexample.Result, took time.Duration) error {
	fmt.Fprintf(out, "%s on a device of %s, requests of at least %s: %d sequences, %d operations, %d refusals, %.0f s\n",
		s.Target.Name, reports.Size(s.Capacity), reports.Size(s.Least), r.Sequences, r.Operations, r.Refusals, took.Seconds())
	none := fmt.Sprintf("none in %d sequences", r.Sequences)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "level\trefusals\tshortest\tworst free : request\tat a fill of\tafter")
	var traces strings.Builder
	for _, info := range properties.Levels {
		rec := &r.Levels[info.Level]
		if rec.Refusals == 0 {
			fmt.Fprintf(w, "%s (%s)\t0\t%s\n", info.Level, info.Contract, none)
			continue
		}
		short, err := s.Shorten(ctx, rec.Shortest, info.Level)
		if err != nil {
			return err
		}
		worst := &rec.Worst
		fmt.Fprintf(w, "%s (%s)\t%d\t%d operations\t%.7g : 1 (%s : %s)\t%.4g %%\t%d operations\n", info.Level, info.Contract, rec.Refusals,
			len(short.Trace.Ops), worst.Ratio(), reports.Size(worst.Free), reports.Size(worst.Request), 100*worst.Fill, len(worst.Trace.Ops))
		fmt.Fprintf(&traces, "%s: %s free, %s refused\n", info.Level, reports.Size(short.Free), reports.Size(short.Request))
		for _, op := range short.Trace.Ops {
			fmt.Fprintf(&traces, "  %s\n", op)
		}
	}
	promise := none
	if r.Promise > 0 {
		promise = "BROKEN, see below"
		fmt.Fprintf(&traces, "the declared promise, broken by\n%s", r.PromiseBroken.Format())
	}
	if r.Known > 0 {
		promise += fmt.Sprintf(" (and %d refusals that %s explains)", r.Known, properties.Known189504)
	}
	fmt.Fprintf(w, "declared promise\t%d\t%s\n", r.Promise, promise)
	if err := w.Flush(); err != nil {
		return faultError{err}
	}
	if _, err := io.WriteString(out, traces.String()); err != nil {
		return faultError{err}
	}
	return writePins(out, s, r)
}

// writePins runs the three-call pins on the device of the search and holds them against what it found.
func writePins(out io.Writer, s *counterexample.Search, r *counterexample.Result) error {
	fmt.Fprintln(out, "three-call pins on that device: all filled, the blocks that are not kept freed, one request")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "pin\trequest\toperations\tverdict\tbreaks\tfree : request\tat a fill of\tthe search")
	for _, p := range counterexample.Pins {
		m, err := s.Measure(p)
		if err != nil {
			return err
		}
		verdict := "served"
		if m.Refused {
			verdict = m.Verdict.String()
		}
		row := fmt.Sprintf("%s\t%s\t%d\t%s", p.Name, reports.Size(p.Request), m.Operations, verdict)
		if m.Demands.Broken == 0 {
			fmt.Fprintf(w, "%s\tnone\n", row)
		}
		for _, l := range executor.Levels() {
			if !m.Demands.Broken.Has(l) {
				continue
			}
			found := "no worse"
			if worst := &r.Levels[l]; p.Request < s.Least {
				found = "looked for larger requests"
			} else if worst.Refusals > 0 && worst.Worst.Ratio() >= m.Ratio(l) {
				found = fmt.Sprintf("%.7g : 1", worst.Worst.Ratio())
			}
			fmt.Fprintf(w, "%s\t%s (%s)\t%.7g : 1\t%.4g %%\t%s\n", row, l, properties.Levels[l].Contract, m.Ratio(l), 100*m.Demands.Fill, found)
			row = "\t\t\t"
		}
	}
	if err := w.Flush(); err != nil {
		return faultError{err}
	}
	return nil
}

// writeLevelMeanings explains the levels, for list properties.
func writeLevelMeanings(w io.Writer) {
	fmt.Fprintf(w, "levels of --promise, for %s:\n", executor.NoFalseOOM)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, l := range properties.Levels {
		fmt.Fprintf(t, "  %s\t%s\tfree is: %s\tmust be at least %s\tdoes not see: %s\n", l.Level, l.Contract, l.Free, l.Needed, l.Ignores)
	}
	_ = t.Flush()
	fmt.Fprintln(w, "  along a chain the free bytes only fall, so that the demand of an earlier level is the stronger:")
	for _, c := range properties.LevelChains {
		fmt.Fprintf(w, "    %s\n", c)
	}
	fmt.Fprintln(w, "  purchase and lookup are conditions of their own: that one of them holds is what is promised")
}
