package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/whatif"
	"github.com/shatter-gpu/shatter/reports"
)

// ranksBest is for how many settings of a rank C_safe is found, besides its own, and ranksSure bounds the operations that make sure of
// it: there can be hundreds of ranks.
const (
	ranksBest = 2
	ranksSure = 1_500_000
)

// leastShare is the share of recorded decisions that a replay must reproduce before advice is given.
const leastShare = 0.95

type adviseFlags struct {
	historyFlags
	diedIn, needed string
	workers        int
	sets           []string

	leave uint64 // bytes of --needed
}

func adviseCommand() *cobra.Command {
	var f adviseFlags
	c := &cobra.Command{
		Use:   "advise FILE...",
		Short: "which settings, or how much memory, pass in replay",
		Long: `Advise replays the history in a PyTorch memory snapshot, or a trace, under every setting of the allocator that is worth trying, and
prints the line to export, or how much memory is missing if nothing helps. Settings are replayed over 20 orders of segment
addresses, the best also with jitter. A recommendation holds in replay, under the rules of the PyTorch version named, no more.
Many files, or a folder, are taken for the ranks of one job: only what passes on every rank is recommended.`,
		Example: `  shatter advise snapshot.pickle
  shatter advise --capacity 70GiB snapshot.pickle
  shatter advise --died-in nccl --needed 2GiB snapshot.pickle
  shatter advise rank*.pickle`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	fl := c.Flags()
	fl.StringVar(&f.diedIn, "died-in", "", "who was refused memory, if not PyTorch's allocator, for example nccl; needs --needed")
	fl.StringVar(&f.needed, "needed", "", "memory that must be free at the device at all times besides")
	fl.IntVar(&f.workers, "workers", runtime.NumCPU(), "replays at a time")
	fl.StringArrayVar(&f.sets, "try", nil, "try this settings string too; repeatable")
	return c
}

func (f *adviseFlags) resolve(c *cobra.Command) error {
	if err := f.historyFlags.resolve(c); err != nil {
		return err
	}
	var err error
	if f.leave, err = size("needed", f.needed); err != nil {
		return err
	}
	if f.diedIn != "" && f.leave == 0 {
		return hinted{fmt.Errorf("--died-in %s: how much it needed is not known", f.diedIn), "give --needed SIZE, for example --needed 2GiB"}
	}
	if f.workers < 1 {
		return fmt.Errorf("--workers %d: must be at least 1", f.workers)
	}
	return nil
}

func (f *adviseFlags) run(c *cobra.Command, args []string) error {
	if err := f.resolve(c); err != nil {
		return err
	}
	files, err := historyFiles(args)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.OutOrStdout())
	defer out.Flush()
	if len(files) > 1 {
		err = f.ranks(c.Context(), out, files)
	} else {
		err = f.single(c.Context(), out, files[0])
	}
	if err != nil {
		return err
	}
	if err := out.Flush(); err != nil {
		return faultError{err}
	}
	return nil
}

func (f *adviseFlags) single(ctx context.Context, out io.Writer, file string) error {
	list, err := f.histories(file)
	if err != nil {
		return err
	}
	for i, h := range list {
		if h.unfit != "" {
			if err := notReplayable(out, h, f.json, reports.AdviseSchema); err != nil {
				return err
			}
			continue
		}
		a, err := f.advise(ctx, h, f.settings(h), false)
		if err != nil {
			return err
		}
		if i > 0 && !f.json {
			fmt.Fprintln(out)
		}
		if f.json {
			err = json.NewEncoder(out).Encode(a)
		} else {
			err = a.WriteText(out)
		}
		if err != nil {
			return faultError{err}
		}
	}
	return nil
}

// settings are the settings to try on a history.
func (f *adviseFlags) settings(h *history) []whatif.Option {
	options := whatif.Options()
	for _, s := range f.sets {
		options = append(options, whatif.Option{Conf: s})
	}
	if total := h.basis.Capacity; f.leave > 0 && total > f.leave {
		share := float64((total-f.leave)*1000/total) / 1000
		for _, conf := range []string{"", "expandable_segments:True"} {
			options = append(options, whatif.Option{Conf: conf, Fraction: &share})
		}
	}
	return options
}

// withheld says why no advice is given, empty if it is.
func (h *history) withheld() string {
	if v := h.basis.Verified; v != nil && v.Decisions > 0 && v.Share() < leastShare {
		return fmt.Sprintf("only %.1f %% of the recorded decisions come out in replay, under 95 %%; shatter explain says what was recorded "+
			"(is --torch-version right?)", 100*v.Share())
	}
	return ""
}

func (f *adviseFlags) advise(ctx context.Context, h *history, options []whatif.Option, quick bool) (*reports.Advised, error) {
	start := time.Now()
	a := &reports.Advised{
		Schema: reports.AdviseSchema, Basis: h.basis, Needed: f.leave, Variable: h.rules.Variable, Conflicts: map[string][]reports.ConflictNote{},
	}
	if a.Withheld = h.withheld(); a.Withheld != "" {
		return a, nil
	}
	cs, err := h.explained(f.bytes)
	if err != nil {
		return nil, err
	}
	for _, s := range f.sets {
		if _, err := h.target(s, nil); err != nil {
			return nil, fmt.Errorf("--try: %w", err)
		}
	}
	best, sure := 0, 0
	if quick {
		best, sure = ranksBest, ranksSure
	}
	a.Advice, err = whatif.Advise(ctx, &whatif.Advising{
		Case: cs, Current: h.conf, Needed: f.leave, Workers: f.workers, RandomDevice: randomDevice, Quick: quick, Best: best, Sure: sure,
		Target: func(o whatif.Option) (executor.Target, error) {
			fraction := o.Fraction
			if fraction == nil {
				fraction = h.fraction
			}
			return h.target(o.Conf, fraction)
		},
	}, options)
	if err != nil {
		return nil, err
	}
	if current := a.Advice.CurrentOutcome(); current != nil && !current.Passes && cs.Capacity > 0 && !quick {
		x, err := whatif.Explain(ctx, cs)
		if err != nil {
			return nil, err
		}
		if len(x.Moments) > 0 && x.Moments[0].Refusal != nil {
			a.Refused = x.Moments[0].Refusal.Verdict.String()
		}
	}
	for _, o := range a.Advice.Recommended() {
		if a.Conflicts[o.Conf] != nil {
			continue
		}
		for _, k := range corpus.Conflicts(o.Conf) {
			a.Conflicts[o.Conf] = append(a.Conflicts[o.Conf], reports.ConflictNote{
				With: k.With, Versions: k.Versions, Effect: k.Effect, Link: k.Link, Read: k.Read,
			})
		}
	}
	a.Timing.Seconds = time.Since(start).Seconds()
	return a, nil
}

// rank is a history with what became of it.
type rank struct {
	h       *history
	advised *reports.Advised
	like    int
}

// ranks advises on many files at once: histories that are alike are replayed once.
func (f *adviseFlags) ranks(ctx context.Context, out io.Writer, files []string) error {
	answer := &reports.Ranks{Schema: "shatter.ranks/1", Ranks: []reports.Rank{}, Everywhere: []string{}, Withheld: []string{}}
	var groups []*rank
	known := map[string]*rank{}
	for _, file := range files {
		list, err := f.histories(file)
		if err != nil {
			return err
		}
		for _, h := range list {
			if h.unfit != "" {
				answer.Withheld = append(answer.Withheld, fmt.Sprintf("%s: not replayable, because %s", file, h.unfit))
				continue
			}
			key := fmt.Sprintf("%x %d %v", h.trace.Hash(), h.basis.Capacity, h.withheld())
			if r := known[key]; r != nil {
				r.like++
				continue
			}
			if ctx.Err() != nil {
				return errInterrupted
			}
			r := &rank{h: h, like: 1}
			known[key] = r
			groups = append(groups, r)
			if r.advised, err = f.advise(ctx, h, f.settings(h), true); err != nil {
				return err
			}
			if r.advised.Withheld != "" {
				answer.Withheld = append(answer.Withheld, file+": "+r.advised.Withheld)
			}
			h.trace, h.site, h.time = nil, nil, nil // large, and not needed any more
		}
	}
	f.tabulate(answer, groups)
	var err error
	if f.json {
		err = json.NewEncoder(out).Encode(answer)
	} else {
		err = answer.WriteText(out)
	}
	if err != nil {
		return faultError{err}
	}
	return nil
}

// tabulate sorts ranks by headroom, marks outliers, and finds what passes on all of them.
func (f *adviseFlags) tabulate(answer *reports.Ranks, groups []*rank) {
	passes := map[string]int{}
	judged := 0
	var order []whatif.Option
	for _, r := range groups {
		if r.advised.Advice == nil {
			continue
		}
		judged++
		answer.Variable = r.advised.Variable
		for _, o := range r.advised.Advice.Recommended() {
			if o.Option.EmptyCache {
				continue // that is no setting
			}
			if passes[o.Option.Name()] == 0 {
				order = append(order, o.Option)
			}
			passes[o.Option.Name()]++
		}
		c := r.advised.Advice.CurrentOutcome()
		k := reports.Rank{File: r.h.basis.File, Like: r.like, Verdict: "passes"}
		if r.h.basis.Device > 0 {
			k.File += fmt.Sprintf(" (device %d)", r.h.basis.Device)
		}
		if !c.Passes {
			k.Verdict = fmt.Sprintf("refused at operation %d", c.FirstOOM)
		}
		if c.Need != nil {
			k.Need, k.Exact = c.Need.Safe, c.Need.Exact
			k.Headroom = int64(r.h.basis.Capacity) - int64(c.Need.Safe)
		}
		answer.Ranks = append(answer.Ranks, k)
	}
	slices.SortStableFunc(answer.Ranks, func(a, b reports.Rank) int { return cmp.Compare(a.Headroom, b.Headroom) })
	markOutliers(answer.Ranks)
	for _, o := range order {
		if name := o.Name(); passes[name] == judged && len(answer.Withheld) == 0 {
			answer.Everywhere, answer.Options = append(answer.Everywhere, name), append(answer.Options, o)
		}
	}
}

// markOutliers marks ranks whose need lies far from the median of all: over three times the median distance, and 5 % of it.
func markOutliers(ranks []reports.Rank) {
	var needs []uint64
	for i := range ranks {
		for range ranks[i].Like {
			needs = append(needs, ranks[i].Need)
		}
	}
	if len(needs) < 4 {
		return
	}
	middle := func(list []uint64) uint64 {
		slices.Sort(list)
		return list[len(list)/2]
	}
	distance := func(a, b uint64) uint64 { return max(a, b) - min(a, b) }
	m := middle(slices.Clone(needs))
	var far []uint64
	for _, n := range needs {
		far = append(far, distance(n, m))
	}
	limit := max(3*middle(far), m/20)
	for i := range ranks {
		ranks[i].Outlier = distance(ranks[i].Need, m) > limit
	}
}
