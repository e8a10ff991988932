package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/reports"
)

// capacityAnswer is a line of `shatter capacity --json`, schema shatter.capacity/1. Sizes are bytes; an interval without end
// ends at the largest uint64.
type capacityAnswer struct {
	Schema    string  `json:"schema"`
	Trace     string  `json:"trace"`
	Allocator string  `json:"allocator"`
	Safe      uint64  `json:"safe"`
	Min       uint64  `json:"min"`
	Kappa     float64 `json:"kappa"`
	Lost      uint64  `json:"lost"`
	*measure.Spectrum
	// Waterfall is there with --waterfall, for the caching allocator.
	Waterfall *measure.Waterfall `json:"waterfall,omitempty"`
}

func capacityCommand() *cobra.Command {
	var f targetFlags
	var asJSON, waterfall bool
	c := &cobra.Command{
		Use:   "capacity FILE...",
		Short: "the capacities at which a trace passes, exactly",
		Long: `Capacity finds the exact set of device capacities at which a trace passes without a refusal: C_min, the smallest; C_safe,
from which on every capacity passes; and the gaps between, where more memory hurts. L* is the peak of live bytes.
The device's size is what is asked for, so --capacity and the size in --device do not matter here.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.resolve(c); err != nil {
				return err
			}
			traces, err := readTraces(args)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			enc := json.NewEncoder(out)
			for _, t := range traces {
				targets, err := f.targetsOf(t)
				if err != nil {
					return err
				}
				p := executor.Compile(t)
				for i, target := range targets {
					s, err := measure.Capacities(c.Context(), p, target, f.newDevice())
					if err != nil {
						if c.Context().Err() != nil {
							return errInterrupted
						}
						return err
					}
					var fall *measure.Waterfall
					if spec, err := catalog.Parse(target.Name); waterfall && err == nil && spec.Settings != nil {
						if fall, err = measure.WaterfallOf(c.Context(), t, *spec.Settings, f.newDevice(), waterfallRuns); err != nil {
							return err
						}
					}
					if asJSON {
						if err := enc.Encode(capacityAnswer{
							"shatter.capacity/1", t.Name, target.Name, s.Safe(), s.Min(), s.Kappa(), s.Lost(), s, fall,
						}); err != nil {
							return faultError{err}
						}
						continue
					}
					if i == 0 {
						fmt.Fprintf(out, "%s: %d operations, peak live L* = %s\n", filepath.Base(t.Name), len(t.Ops), reports.Size(s.PeakLive))
					}
					fmt.Fprintf(out, "  %s: C_safe = %s, kappa = %.3f, lost %s; passes %s (%d runs)\n",
						target.Name, reports.Size(s.Safe()), s.Kappa(), reports.Size(s.Lost()), intervals(s.Passes), s.Runs)
					if fall != nil {
						fmt.Fprintf(out, "    %s\n", fall.Format(reports.Size))
					}
				}
			}
			return nil
		},
	}
	f.register(c)
	c.Flags().BoolVar(&waterfall, "waterfall", false, "say what C_safe is made of, by switching rules of the allocator off one after the other: streams, "+
		"pools, purchase size")
	c.Flags().BoolVar(&asJSON, "json", false, "one JSON document a line (schema shatter.capacity/1)")
	return c
}

func intervals(list []measure.Interval) string {
	var words []string
	for _, v := range list {
		if v.To == measure.Infinite {
			words = append(words, "from "+reports.Size(v.From))
		} else {
			words = append(words, fmt.Sprintf("in [%s, %s)", reports.Size(v.From), reports.Size(v.To)))
		}
	}
	if len(words) > 8 {
		words = append(append(words[:4:4], fmt.Sprintf("%d more intervals", len(words)-5)), words[len(words)-1])
	}
	return strings.Join(words, " and ")
}
