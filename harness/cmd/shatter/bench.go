package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// benchResult is a line of `shatter bench --json`, schema shatter.bench/1.
type benchResult struct {
	Schema    string `json:"schema"`
	Trace     string `json:"trace"`
	Allocator string `json:"allocator"`
	Checked   bool   `json:"checked"`
	Timing    struct {
		Min    float64 `json:"min_ns"`
		Median float64 `json:"median_ns"`
		Allocs float64 `json:"heap_allocs_per_operation"`
		Passes int     `json:"passes"`
	} `json:"timing"`
}

func benchCommand() *cobra.Command {
	var f targetFlags
	var asJSON bool
	var span time.Duration
	c := &cobra.Command{
		Use:   "bench FILE...",
		Short: "nanoseconds per operation of a trace",
		Long: `Bench replays a trace again and again on a warm allocator, unchecked and with all properties, and prints the time per
operation (the smallest and the median pass) and the Go heap allocations per operation. An absolute figure drifts with
the machine; compare figures of one call.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(f.allocs) == 0 {
				f.allocs = []string{"classic", "expandable"}
			}
			if err := f.resolve(c); err != nil {
				return err
			}
			traces, err := readTraces(args)
			if err != nil {
				return err
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			if !asJSON {
				fmt.Fprintln(w, "trace\tallocator\tmode\tmin ns/op\tmedian ns/op\theap allocs/op\tpasses")
			}
			for _, t := range traces {
				targets, err := f.targetsOf(t)
				if err != nil {
					return err
				}
				capacity, err := f.capacityOf(t)
				if err != nil {
					return err
				}
				for _, target := range targets {
					for _, checked := range []bool{false, true} {
						if c.Context().Err() != nil {
							return errInterrupted
						}
						r, err := bench(t, target, &f, capacity, checked, span)
						if err != nil {
							return err
						}
						if asJSON {
							if err := json.NewEncoder(c.OutOrStdout()).Encode(r); err != nil {
								return faultError{err}
							}
							continue
						}
						mode := "unchecked"
						if checked {
							mode = "checked"
						}
						m := &r.Timing
						fmt.Fprintf(w, "%s\t%s\t%s\t%.0f\t%.0f\t%.4f\t%d\n", filepath.Base(t.Name), target.Name, mode, m.Min, m.Median, m.Allocs, m.Passes)
					}
				}
			}
			return w.Flush()
		},
	}
	f.register(c)
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document a line (schema shatter.bench/1)")
	c.Flags().DurationVar(&span, "time", 2*time.Second, "how long to measure each trace, allocator and mode")
	return c
}

func bench(t *trace.Trace, target executor.Target, f *targetFlags, capacity uint64, checked bool, span time.Duration) (*benchResult, error) {
	p := executor.Compile(t)
	dev, err := f.dev.New(capacity)
	if err != nil {
		return nil, err
	}
	defer closeDevice(dev)
	opts := executor.Options{Device: dev, Verify: f.bytesVerified}
	if checked {
		opts.Properties, opts.Judge = properties.All(), properties.NewJudge()
	}
	r, err := executor.Start(p, target, opts)
	if err != nil {
		return nil, err
	}
	var passes []float64
	var before, after runtime.MemStats
	var mallocs uint64
	const warm = 2 // passes that are not counted: they fill the allocator's spares
	for start := time.Now(); len(passes) < warm+3 || time.Since(start) < span; {
		runtime.ReadMemStats(&before)
		begin := time.Now()
		for r.More() {
			if err := r.Step(); err != nil {
				return nil, err
			}
		}
		took := time.Since(begin)
		runtime.ReadMemStats(&after)
		if found := r.Result().Findings; len(found) > 0 {
			return nil, fmt.Errorf("%s: %s", t.Name, &found[0])
		}
		if len(passes) >= warm {
			mallocs += after.Mallocs - before.Mallocs
		}
		passes = append(passes, float64(took.Nanoseconds())/float64(p.Len()))
		if err := r.Rewind(); err != nil {
			return nil, err
		}
	}
	passes = passes[warm:]
	slices.Sort(passes)
	out := &benchResult{Schema: "shatter.bench/1", Trace: t.Name, Allocator: target.Name, Checked: checked}
	out.Timing.Min, out.Timing.Median = passes[0], passes[len(passes)/2]
	out.Timing.Allocs = float64(mallocs) / float64(len(passes)) / float64(p.Len())
	out.Timing.Passes = len(passes)
	return out, nil
}
