package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/whatif"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

type explainFlags struct {
	historyFlags
	time time.Duration
}

func explainCommand() *cobra.Command {
	var f explainFlags
	c := &cobra.Command{
		Use:   "explain FILE...",
		Short: "why did this OOM happen, and who pins the memory",
		Long: `Explain replays the history in a PyTorch memory snapshot (torch.cuda.memory._dump_snapshot; .pickle, .gz, or the page of
_memory_viz.py) or a trace, and says of each OOM, or of the worst moment, where the device's memory is, what the refusal was,
which blocks pin memory, by call site, and what a change at a call site would save. Nothing in the file is executed.`,
		Example: `  shatter explain snapshot.pickle
  shatter explain --total 80GiB --torch-version 2.9 rank*.pickle
  shatter explain --capacity 11GiB --request 32MiB old-snapshot.pickle`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	c.Flags().DurationVar(&f.time, "time", 2*time.Second, "for replays of changes to the code, for each history; 0 for none")
	return c
}

func (f *explainFlags) run(c *cobra.Command, args []string) error {
	if err := f.resolve(c); err != nil {
		return err
	}
	files, err := historyFiles(args)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(c.OutOrStdout())
	defer out.Flush()
	for i, file := range files {
		list, err := f.histories(file)
		if err != nil {
			return err
		}
		for k, h := range list {
			if c.Context().Err() != nil {
				return errInterrupted
			}
			if i+k > 0 && !f.json {
				fmt.Fprintln(out)
			}
			if err := f.one(c.Context(), out, h); err != nil {
				return err
			}
		}
	}
	if err := out.Flush(); err != nil {
		return faultError{err}
	}
	return nil
}

func (f *explainFlags) one(ctx context.Context, out io.Writer, h *history) error {
	start := time.Now()
	if h.unfit != "" {
		return notReplayable(out, h, f.json, reports.ExplainSchema)
	}
	cs, err := h.explained(f.bytes)
	if err != nil {
		return err
	}
	x, err := whatif.Explain(ctx, cs)
	if err != nil {
		return err
	}
	e := &reports.Explained{Schema: reports.ExplainSchema, Basis: h.basis, Explanation: x, HasTimes: h.time != nil, Refused: []reports.Refusal{}}
	p := executor.Compile(h.trace)
	for i := range x.Moments {
		j := x.Moments[i].Refusal
		if j == nil {
			continue
		}
		r := reports.NewRefusal(p, j)
		if i == 0 && (j.Verdict == executor.Fragmentation || j.Verdict == executor.Policy) && len(h.trace.Ops) < 50_000 {
			w, err := properties.FindWitness(p, cs.Target, cs.NewDevice, cs.Capacity, j.Op)
			if err != nil {
				return err
			}
			if w != nil {
				r.Witness, r.WitnessText = w, w.Text(reports.Size)
			}
		}
		e.Refused = append(e.Refused, r)
	}
	if f.time > 0 && len(x.Moments) > 0 && x.Moments[0].Bar.Pinned > 0 {
		timed, cancel := context.WithTimeout(ctx, f.time)
		defer cancel()
		if x.Changes, x.Unevaluated, err = whatif.FindChanges(timed, cs, &x.Moments[0]); err != nil {
			return err
		}
	}
	e.Timing.Seconds = time.Since(start).Seconds()
	if f.json {
		err = json.NewEncoder(out).Encode(e)
	} else {
		err = e.WriteText(out)
	}
	if err != nil {
		return faultError{err}
	}
	return nil
}

// notReplayable says so, and why.
func notReplayable(out io.Writer, h *history, asJSON bool, schema string) error {
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(map[string]any{"schema": schema, "basis": h.basis, "not_replayable": h.unfit})
	} else {
		_, err = fmt.Fprintf(out, "%s: device %d is not replayable, because %s\n", h.basis.File, h.basis.Device, h.unfit)
	}
	if err != nil {
		return faultError{err}
	}
	return nil
}
