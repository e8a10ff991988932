package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/shatter-gpu/shatter/allocators/mutants"
)

// write prints the table, what failed, and which bugs break which rule; or all of it as JSON.
func (f *selftestFlags) write(to io.Writer, r *selfTested) error {
	w := bufio.NewWriter(to)
	if f.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		if err := e.Encode(r); err != nil {
			return err
		}
		return w.Flush()
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "bug\trules\tgeneric\tfound by\tsequences\tCPU s\tbefore\tshrunk\tminimum\t")
	for i := range r.Bugs {
		b := &r.Bugs[i]
		by, generic, minimum := "-", "no", fmt.Sprintf("<= %d", b.Minimum)
		if b.Found {
			switch by = b.Property + "/" + b.Rule; {
			case b.Named > 0:
				by += fmt.Sprintf("; %s after %d", b.Expected, b.Named)
			case by != b.Expected:
				by += "; not " + b.Expected
			}
		}
		if b.Generic > 0 {
			generic = fmt.Sprintf("after %d", b.Generic)
		}
		if b.Proved {
			minimum = strconv.Itoa(b.Minimum)
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%.2f\t%d\t%d\t%s\t\n", b.Name, strings.Join(b.Rules, ", "), generic, by,
			b.Sequences+b.Enumerated, b.Timing.FoundAfter, b.Before, b.After, minimum)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nplanted %d, found %d, by the generic checks alone %d, by the property named for it %d; shrunk to %g operations in the median\n",
		r.Planted, r.Found, r.Generic, r.AsNamed, r.Median)
	writeClean(w, &r.Clean)
	for _, s := range r.Failed {
		fmt.Fprintf(w, "FAILED %s\n", s)
	}
	if len(f.names) == 0 && f.sample == 0 {
		fmt.Fprintln(w, "\nrule: bugs that break it")
		for _, s := range mutants.Sections(r.Rules) {
			fmt.Fprintf(w, "  %s: %s\n", s, strings.Join(r.Rules[s], ", "))
		}
	}
	return w.Flush()
}
