package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/adversary"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

func listCommand() *cobra.Command {
	kinds := []string{"allocators", "devices", "workloads", "adversaries", "properties", "verdicts"}
	return &cobra.Command{
		Use:       "list [allocators|devices|workloads|adversaries|properties|verdicts]",
		Short:     "list allocators, devices, workloads, adversaries, properties, verdicts",
		ValidArgs: kinds,
		Args:      cobra.MatchAll(cobra.MaximumNArgs(1), cobra.OnlyValidArgs),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				kinds = args
			}
			for i, k := range kinds {
				if i > 0 {
					fmt.Fprintln(c.OutOrStdout())
				}
				if len(kinds) > 1 {
					fmt.Fprintf(c.OutOrStdout(), "%s:\n", k)
				}
				if err := list(c.OutOrStdout(), k); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func list(w io.Writer, kind string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	switch kind {
	case "allocators":
		for _, e := range catalog.Entries {
			name := e.Name
			if e.Settings {
				name += "[@CONF]"
			}
			fmt.Fprintf(t, "%s\t%s\n", name, e.Summary)
		}
		for _, e := range catalog.Remote {
			name := e.Name
			if e.Settings {
				name += "[@CONF]"
			}
			fmt.Fprintf(t, "%s\t%s\n", name, e.Summary)
		}
		for _, why := range catalog.Needs() {
			fmt.Fprintf(t, "\tnot here: %s\n", why)
		}
	case "devices":
		for _, e := range catalog.Devices {
			fmt.Fprintf(t, "%s\t%s\n", e.Name, e.Summary)
			if err := catalog.Missing(e.Name); err != nil {
				fmt.Fprintf(t, "\tnot here: %v\n", err)
			}
		}
	case "workloads":
		for _, g := range gen.All() {
			fmt.Fprintf(t, "%s\t%s\t%s\n", g.Name, g.Kind, g.Summary)
		}
	case "adversaries":
		for i := range adversary.All {
			a := &adversary.All[i]
			fmt.Fprintf(t, "%s\t%s\t(%s)\n", a.Name, a.Summary, a.Source)
		}
	case "properties":
		for _, p := range properties.All() {
			fmt.Fprintf(t, "%s\t%s\t(%s)\n", p.ID, p.Claim, p.Source)
		}
		fmt.Fprintf(t, "%s\t%s\t(%s)\n", executor.NoFalseOOM,
			"No request is refused that the allocator's promise covers, or that succeeds when repeated unchanged.", "contracts 3; see verdicts")
		fmt.Fprintf(t, "%s\t%s\t(%s)\n", executor.DataIntegrity,
			"A live block holds the bytes that were written into it until it is freed.", "contracts E5; devices with bytes, see --verify")
		fmt.Fprintf(t, "%s\t%s\t(%s)\n", executor.FaultRecovery,
			"After a device call failed the allocator is consistent, nothing leaks, and a retry without the fault succeeds.",
			"pytorch#188008; see --fault")
		fmt.Fprintln(t, "\nbetween several runs of a trace and its variants, asked about a sample of the sequences of shatter run, and by replay:")
		for _, r := range properties.Relations() {
			fmt.Fprintf(t, "%s\t%s\t(%s)\n", r.ID, r.Claim, r.Source)
		}
		fmt.Fprintln(t, "\nknown upstream issues, counted apart (--known off makes findings of them):")
		for _, k := range properties.KnownIssues {
			fmt.Fprintf(t, "%s\t%s\t(%s)\n", k.ID, k.Summary, k.URL)
		}
		fmt.Fprintln(t, "\nnot promised by any allocator here, and not checked:")
		for _, n := range properties.NotInvariants {
			fmt.Fprintf(t, "%s\t%s For example on %s: %s.\t(%s)\n", n.ID, n.Claim, n.Alloc, n.Shows, n.Source)
		}
		if err := t.Flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
		writeLevelMeanings(w)
	case "verdicts":
		for _, v := range executor.Verdicts {
			fmt.Fprintf(t, "%s\t%s\n", v, reports.VerdictMeaning[v.String()])
		}
	}
	return t.Flush()
}
