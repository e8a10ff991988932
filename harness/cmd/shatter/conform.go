package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/properties"
)

func conformCommand() *cobra.Command {
	var traces []string
	var alloc string
	c := &cobra.Command{
		Use:   "conform FOLDER|TRACE...",
		Short: "compare decisions with recorded ones",
		Long: `Conform replays what was recorded from PyTorch's own allocator and compares: a folder of decision logs (index.tsv, traces/,
logs/), row by row and column by column; traces with '# expect:' lines, figure by figure; a folder of *.json with OOM
messages and memory_stats, every message and value. Exit 1 if anything differs.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			different := false
			for _, a := range args {
				if _, err := os.Stat(a); err != nil {
					return hinted{fmt.Errorf("%w", err), "name a folder of decision logs, or traces with '# expect:' lines"}
				}
			}
			var target *catalog.Spec
			if alloc != "" {
				s, err := catalog.Parse(alloc)
				if err != nil {
					return err
				}
				target = &s
			}
			for _, a := range args {
				d, err := conformOne(c, a, traces, target)
				if err != nil {
					return err
				}
				different = different || d
			}
			if different {
				return errFindings
			}
			return nil
		},
	}
	c.Flags().StringVar(&alloc, "alloc", "",
		"compare another allocator with a folder of decision logs, under the settings of each log: torch:PATH, so:PATH, direct ... (default: the model)")
	c.Flags().StringArrayVar(&traces, "traces", nil,
		"folder with the traces that recorded *.json name (default: ../../cases and ../../decisions/traces beside the folder)")
	return c
}

func conformOne(c *cobra.Command, path string, traces []string, target *catalog.Spec) (different bool, err error) {
	out := c.OutOrStdout()
	if conform.IsLogFolder(path) {
		bar := newProgress(c.ErrOrStderr(), "logs")
		rep, err := conform.CompareLogsOn(path, target, bar.set)
		bar.done()
		if err != nil {
			return false, err
		}
		for i := range rep.Differences {
			if i == 10 {
				fmt.Fprintf(out, "and %d more logs\n", len(rep.Differences)-i)
				break
			}
			fmt.Fprintln(out, &rep.Differences[i])
		}
		if rep.Rejected > 0 {
			fmt.Fprintf(out, "%d of the divergent logs were not run: the allocator rejects their settings\n", rep.Rejected)
		}
		fmt.Fprintf(out, "not covered by decision logs: %s\n", conform.NotCovered(rep.Pools))
		fmt.Fprintf(out, "%d logs, %d rows, %d divergent\n", rep.Logs, rep.Rows, rep.Divergent)
		return rep.Divergent > 0, nil
	}
	if target != nil {
		return false, fmt.Errorf("--alloc compares with folders of decision logs, and %s is none", path)
	}
	if recorded, _ := filepath.Glob(filepath.Join(path, "*.json")); len(recorded) > 0 {
		return conformRecorded(out, path, traces)
	}
	rep, err := conform.CompareExpectations([]string{path}, properties.NewJudge(), properties.All()...)
	if err != nil {
		return false, err
	}
	for i := range rep.Failures {
		fmt.Fprintln(out, &rep.Failures[i])
	}
	if rep.Expectations == 0 {
		return false, fmt.Errorf("%s: no trace has an '# expect:' line", filepath.Clean(path))
	}
	fmt.Fprintf(out, "%d traces, %d expectations, %d failed\n", rep.Traces, rep.Expectations, rep.Failed)
	return rep.Failed > 0, nil
}

func conformRecorded(out io.Writer, dir string, traces []string) (different bool, err error) {
	if len(traces) == 0 {
		traces = []string{filepath.Join(dir, "../../cases"), filepath.Join(dir, "../../decisions/traces")}
	}
	rep, err := conform.CompareRecorded(dir, traces)
	if err != nil {
		return false, err
	}
	for i := range rep.Differences {
		fmt.Fprintln(out, &rep.Differences[i])
	}
	for _, s := range rep.Skipped {
		fmt.Fprintf(out, "not compared: %s\n", s)
	}
	fmt.Fprintf(out, "%d recorded runs, %d messages, %d values, %d different\n", rep.Files, rep.Messages, rep.Values, len(rep.Differences))
	return len(rep.Differences) > 0, nil
}
