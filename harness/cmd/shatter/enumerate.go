package main

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/smallscope"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

func enumerateCommand() *cobra.Command {
	var f targetFlags
	var ops, streams, workers int
	c := &cobra.Command{
		Use:   "enumerate",
		Short: "run every trace of a small scope",
		Long: `Enumerate executes every trace of up to --ops operations over six sizes at class edges (four with several streams) under all
properties, and prints how many there are. Operations are allocations, frees, empty_cache and, with several streams, uses on
another stream and a sync of all.`,
		Example: `  shatter enumerate --alloc classic --ops 7
  shatter enumerate --alloc expandable --ops 6 --streams 2`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := f.resolve(c); err != nil {
				return err
			}
			if ops < 1 || ops > 10 || streams < 1 || streams > 4 {
				return fmt.Errorf("--ops %d --streams %d: must be 1 to 10 and 1 to 4", ops, streams)
			}
			if len(f.specs) != 1 {
				return fmt.Errorf("give one allocator, with --alloc")
			}
			s := smallscope.Scope{Ops: ops, Sizes: smallscope.EdgeSizes, Streams: streams, Capacity: smallscope.EdgeCapacity}
			if streams > 1 {
				s.Sizes = smallscope.FewSizes
			}
			if f.bytes > 0 {
				s.Capacity = f.bytes
			}
			// Each of some million runs makes an allocator of its own; memory is there to let the collector run less often.
			defer debug.SetGCPercent(debug.SetGCPercent(1000))
			bar := newProgress(c.ErrOrStderr(), "traces")
			r, err := smallscope.Run(c.Context(), s, smallscope.Check{
				Target: targetOf(f.specs[0]), NewDevice: f.newDevice(), Properties: f.properties(), NewJudge: f.judge(),
			}, workers, func(done, total uint64) { bar.set(int(done), int(total)) })
			bar.done()
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			var sizes []string
			for _, n := range s.Sizes {
				sizes = append(sizes, fmt.Sprint(n))
			}
			traces := fmt.Sprintf("all %d traces", r.Traces)
			if r.Finding != nil {
				traces = fmt.Sprintf("%d of the traces", r.Traces) // the search ended there
			}
			fmt.Fprintf(out, "%s on a device of %s: %s of up to %d operations over the sizes %s on %d streams, in %.0f s\n",
				f.specs[0].Name, reports.Size(s.Capacity), traces, ops, strings.Join(sizes, ", "), streams, r.Seconds)
			fmt.Fprintf(out, "%d runs, %d operations, %d refusals, each foreseen; %d of them a known issue\n", r.Runs, r.Operations, r.Refused, r.Known)
			if r.Finding == nil {
				fmt.Fprintf(out, "no findings: all %d properties held\n", len(properties.All())+1)
				return nil
			}
			fmt.Fprintf(out, "FINDING %s\n  %s\n%s", r.Finding.Signature(), r.Finding, r.Trace.Format())
			return errFindings
		},
	}
	f.register(c)
	fl := c.Flags()
	fl.IntVar(&ops, "ops", 5, "operations of a trace, at most")
	fl.IntVar(&streams, "streams", 1, "streams")
	fl.IntVar(&workers, "workers", 0, "traces run at once (default: one a core)")
	return c
}
