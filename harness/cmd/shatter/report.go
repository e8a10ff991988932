package main

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/reports"
)

func reportCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "report",
		Short: "render results, merge shards",
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(reportRenderCommand(), reportMergeCommand())
	return c
}

func reportMergeCommand() *cobra.Command {
	var out string
	var json bool
	c := &cobra.Command{
		Use:   "merge DIR... --out DIR",
		Short: "make one results folder of shards",
		Long: `Merge joins the results of the shards of one run (shatter run --shard i/n --out DIR), or takes what there is of a run that was cut
short. The summary is that of a single run, to the last digit. The shards of a night (shatter nightly --shard i/n) are merged too.`,
		Example: `  shatter run --seqs 2000 --shard 0/2 --out a
  shatter run --seqs 2000 --shard 1/2 --out b
  shatter report merge a b --out all`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(c *cobra.Command, dirs []string) error {
			if out == "" {
				return fmt.Errorf("give --out DIR, a folder for the whole")
			}
			if isNight(dirs[0]) {
				return mergeNights(c, dirs, out, json)
			}
			f := runFlags{out: out, json: json}
			return f.merge(c, dirs)
		},
	}
	c.Flags().StringVar(&out, "out", "", "folder for the whole")
	c.Flags().BoolVar(&json, "json", false, "print the report as JSON")
	return c
}

// merge writes the whole of some shards.
func (f *runFlags) merge(c *cobra.Command, dirs []string) error {
	if n := len(dirs); n != len(slices.Compact(slices.Sorted(slices.Values(dirs)))) {
		return fmt.Errorf("a folder is named twice")
	}
	var parts []*results.Journal
	interrupted := false
	for _, dir := range dirs {
		j, err := readRun(dir)
		if err != nil {
			return err
		}
		parts = append(parts, j)
		folder, err := readFolder(dir)
		interrupted = interrupted || err != nil || folder.Run.Interrupted
	}
	whole, err := results.Merge(dirs, parts)
	if err != nil {
		return err
	}
	if err := sameProgram(dirs[0], &whole.Header); err != nil {
		return err
	}
	// The flags of the run are those of the journals, not of this command.
	as := &cobra.Command{Use: "run"}
	as.SetErr(c.ErrOrStderr())
	out, json := f.out, f.json
	f.registerRun(as)
	f.out, f.json = out, json
	if err := restore(as, dirs[0], &whole.Header); err != nil {
		return err
	}
	f.seqs = whole.Header.Sequences
	cfg, err := f.resolve(as)
	if err != nil {
		return err
	}
	if err := results.Rewrite(f.out, whole); err != nil {
		return faultError{err}
	}
	r, found, err := f.report(c.Context(), cfg, whole, interrupted)
	if err != nil {
		return err
	}
	if err := writeFolder(f.out, whole, r, found); err != nil {
		return faultError{err}
	}
	if err := writePage(c.Context(), &reports.Folder{Dir: f.out, Run: r, Journal: whole}); err != nil {
		return faultError{err}
	}
	if err := f.write(c, r); err != nil {
		return faultError{err}
	}
	if len(r.Findings) > 0 {
		return errFindings
	}
	return nil
}
