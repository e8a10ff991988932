package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/reports"
)

type compareFlags struct {
	alloc, against, margin string
	level                  float64
	json, benchstat        bool
}

func compareCommand() *cobra.Command {
	var f compareFlags
	c := &cobra.Command{
		Use:   "compare BASELINE CANDIDATE",
		Short: "two results: what changed",
		Long: `Compare says what changed from one results folder to another. Traces that both have run on the same allocator, as a panel of
one seed has, are compared exactly: decisions and C_safe, without statistics. Other ones are compared as samples of one population, with
intervals; with --alloc and --against, traces that two allocators ran as pairs. Exit 1 if anything is worse beyond the margin.`,
		Example: `  shatter compare last-night tonight
  shatter compare results results --alloc classic --against expandable
  shatter compare a b --benchstat >both.txt; benchstat -col side both.txt`,
		Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.alloc, "alloc", "", "compare this allocator of the baseline (default: all that both have)")
	fl.StringVar(&f.against, "against", "", "with this allocator of the candidate (default: --alloc)")
	fl.StringVar(&f.margin, "margin", "1%", fmt.Sprintf("change of C_safe that is let pass, a share of it; the price may change %d times as much",
		reports.PriceFactor))
	fl.Float64Var(&f.level, "level", stats.DefaultLevel, "confidence level of all intervals together")
	fl.BoolVar(&f.json, "json", false, "print the comparison as JSON (schema "+reports.CompareSchema+")")
	fl.BoolVar(&f.benchstat, "benchstat", false, "print both runs as Go benchmark lines instead, for benchstat -col side")
	return c
}

func (f *compareFlags) run(c *cobra.Command, args []string) error {
	if f.json && f.benchstat {
		return errors.New("--json and --benchstat: give one of them")
	}
	margin, err := shareFlag("margin", f.margin)
	if err != nil {
		return err
	}
	if !(f.level > 0 && f.level < 1) {
		return fmt.Errorf("--level %v: must be between 0 and 1", f.level)
	}
	var runs [2]*results.Journal
	for i, dir := range args {
		if runs[i], err = readRun(dir); err != nil {
			return err
		}
		if runs[i].Torn {
			fmt.Fprintf(c.ErrOrStderr(), "shatter: warning: %s was cut short: what is finished is compared\n", dir)
		}
	}
	names := [2]string{args[0], args[1]}
	if f.benchstat {
		return writeOut(c, "", func(w io.Writer) error { return reports.WriteBenchstat(w, runs) })
	}
	r, err := reports.Compare(names, runs[0], runs[1], reports.Options{Margin: margin, Level: f.level, Alloc: f.alloc, Against: f.against})
	if err != nil {
		return err
	}
	if err := writeOut(c, "", func(w io.Writer) error {
		if !f.json {
			return r.WriteText(w, terminalOf(c.OutOrStdout()))
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(r)
	}); err != nil {
		return err
	}
	if r.Verdict == reports.Worse {
		return errFindings
	}
	return nil
}

// shareFlag reads a share, as 1% or 0.01.
func shareFlag(flag, text string) (float64, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v >= 0 && v <= 1) {
		return 0, fmt.Errorf("--%s %s: must be a share from 0 to 1, as 1%% or 0.01", flag, text)
	}
	return v, nil
}
