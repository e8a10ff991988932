package main

import (
	"fmt"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/reports"
)

func versionsCommand() *cobra.Command {
	panel := "harness/conform/testdata/decisions"
	var capacities bool
	var shrinkTime time.Duration
	c := &cobra.Command{
		Use:   "versions TARGET TARGET...",
		Short: "one panel on several targets: which decisions differ",
		Long: `Versions runs one panel of traces and settings on several allocators, compares the decisions of each with those of the first,
row by row, and says what is different, where it begins, and which change between PyTorch versions explains it, or that none
is known to. The first difference of each kind is shrunk. The panel is a folder of decision logs (index.tsv, traces/); the logs
themselves are not read. A target is NAME[@CONF], as with --alloc; each runs under the settings of the panel in addition.`,
		Example: `  shatter versions torch:venv-2.6 torch:venv-2.13
  shatter versions classic classic@x_rules:2.13 --panel ../shared/decisions`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if !conform.IsLogFolder(panel) {
				return hinted{fmt.Errorf("--panel %s: no folder of decision logs (it has no index.tsv)", panel), "name one, or run this in the project's folder"}
			}
			var specs []catalog.Spec
			for _, a := range args {
				s, err := catalog.Parse(a)
				if err != nil {
					return err
				}
				specs = append(specs, s)
			}
			bar := newProgress(c.ErrOrStderr(), "logs")
			v, err := conform.CompareVersions(panel, specs, bar.set)
			bar.done()
			if err != nil {
				return err
			}
			return writeVersions(c, v, specs, panel, capacities, shrinkTime)
		},
	}
	c.Flags().StringVar(&panel, "panel", panel, "folder with index.tsv and traces/")
	c.Flags().BoolVar(&capacities, "capacities", true, "find C_safe of each trace under default settings on each target")
	c.Flags().DurationVar(&shrinkTime, "shrink-time", 20*time.Second, "how long to shrink each kind of difference; 0 for not at all")
	return c
}

func writeVersions(c *cobra.Command, v *conform.Versions, specs []catalog.Spec, panel string, capacities bool, shrinkTime time.Duration) error {
	out := c.OutOrStdout()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "target\tlabel\tidentical\tdifferent\tsettings rejected\n")
	for i := range v.Targets {
		t := &v.Targets[i]
		label := "-"
		if specs[i].Remote != nil && specs[i].Remote.Label != "" {
			label = specs[i].Remote.Label
		}
		if i == 0 {
			fmt.Fprintf(w, "%s\t%s\t(reference, %d logs)\t\t\n", t.Name, label, v.Logs)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\n", t.Name, label, t.Same, t.Different, t.Rejected)
	}
	if err := w.Flush(); err != nil {
		return faultError{err}
	}
	unexplained := false
	for i := range v.Targets {
		t := &v.Targets[i]
		for k := range t.Differences {
			d := &t.Differences[k]
			why := d.Explanation
			if why == "" {
				why, unexplained = "unexplained", true
			}
			fmt.Fprintf(out, "\n%s: %d logs: %s\n%s\n", t.Name, d.Count, why, &d.First)
			if shrinkTime <= 0 || c.Context().Err() != nil {
				continue
			}
			small, err := d.Shrink(c.Context(), specs[0], specs[i], shrinkTime)
			if err != nil {
				return err
			}
			const most = 30 // operations that are printed
			switch {
			case small == nil:
			case len(small.Ops) > most:
				fmt.Fprintf(out, "shrunk to %d operations (too many to print)\n", len(small.Ops))
			default:
				fmt.Fprintf(out, "shrunk:\n%s", small.Format())
			}
		}
	}
	if capacities {
		if err := writeSafe(c, specs, panel); err != nil {
			return err
		}
	}
	if unexplained {
		return errFindings
	}
	return nil
}

// writeSafe prints C_safe of each trace of the panel on each target, under default settings.
func writeSafe(c *cobra.Command, specs []catalog.Spec, panel string) error {
	files, err := filepath.Glob(filepath.Join(panel, "traces", "*"))
	if err != nil {
		return err
	}
	traces, err := readTraces(files)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\nC_safe")
	for _, s := range specs {
		fmt.Fprintf(w, "\t%s", s.Name)
	}
	fmt.Fprintln(w)
	for _, t := range traces {
		p := executor.Compile(t)
		fmt.Fprintf(w, "%s", filepath.Base(t.Name))
		for _, s := range specs {
			spectrum, err := measure.Capacities(c.Context(), p, executor.Target{Name: s.Name, New: s.New}, simulated)
			if err != nil {
				return err
			}
			fmt.Fprintf(w, "\t%s", reports.Size(spectrum.Safe()))
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func recordCommand() *cobra.Command {
	var f targetFlags
	var dir, conf, fraction string
	c := &cobra.Command{
		Use:   "record-decisions TARGET TRACE...",
		Short: "write decision logs from an allocator, for conform",
		Long: `Record-decisions runs traces on an allocator and writes what it decides as a folder of decision logs: index.tsv, traces/ and logs/,
which shatter conform reads. So the decisions of another PyTorch version become a standard to hold others against.`,
		Example: `  shatter record-decisions torch:venv-2.13 cases/*.trace --out decisions-2.13
  shatter record-decisions torch:venv-2.13 a.trace --conf max_split_size_mb:128 --out decisions-2.13`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if dir == "" {
				return hinted{fmt.Errorf("--out is missing"), "name a folder for the logs: --out DIR"}
			}
			spec, err := catalog.Parse(args[0])
			if err != nil {
				return err
			}
			if err := f.resolve(c); err != nil {
				return err
			}
			traces, err := readTraces(args[1:])
			if err != nil {
				return err
			}
			var share *float64
			if fraction != "" {
				v, err := parseFraction(fraction)
				if err != nil {
					return err
				}
				share = &v
			}
			rec, err := conform.NewRecorder(dir)
			if err != nil {
				return hinted{err, "name a folder that can be written"}
			}
			for _, t := range traces {
				capacity, err := f.capacityOf(t)
				if err != nil {
					return err
				}
				if err := rec.Record(spec, t, conf, share, capacity); err != nil {
					return err
				}
			}
			if err := rec.Close(); err != nil {
				return faultError{err}
			}
			fmt.Fprintf(c.OutOrStdout(), "%d logs of %s in %s\n", len(traces), spec.Name, dir)
			return nil
		},
	}
	f.register(c)
	c.Flags().StringVar(&dir, "out", "", "folder for index.tsv, traces/ and logs/; logs are added to one that is there")
	c.Flags().StringVar(&conf, "conf", "", "settings string")
	c.Flags().StringVar(&fraction, "fraction", "", "memory fraction, 0 to 1 (default: the call is not made)")
	return c
}

func parseFraction(text string) (float64, error) {
	var f float64
	if _, err := fmt.Sscan(text, &f); err != nil || f < 0 || f > 1 {
		return 0, fmt.Errorf("--fraction %s: must be a number from 0 to 1", text)
	}
	return f, nil
}
