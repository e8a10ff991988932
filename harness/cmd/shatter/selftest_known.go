package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shrink"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// leastSeeds is of how many of ten seeds a known issue must be found.
const leastSeeds = 9

// soughtIssue is how a known upstream issue is found again as if nobody knew it.
type soughtIssue struct {
	ID    string `json:"id"`
	URL   string `json:"url"`
	Seeds int    `json:"seeds"`
	Found int    `json:"found"` // seeds with a finding in time
	// Sequences and Seconds are those until the first finding, of the seeds that have one, ascending.
	Sequences []int     `json:"sequences"`
	Seconds   []float64 `json:"seconds"` // of processor time
	Missed    []uint64  `json:"missed"`  // seeds without a finding
	// The smallest trace it was found in, and what it shrinks to.
	Signature string `json:"signature,omitempty"`
	Allocator string `json:"allocator,omitempty"`
	Before    int    `json:"before,omitempty"` // operations
	After     int    `json:"after,omitempty"`
	Text      string `json:"trace,omitempty"`

	smallest *trace.Trace
	capacity uint64
}

// explains tells whether a finding is of the issue. With known issues off, findings do not say so themselves.
func (i *soughtIssue) explains(f *executor.Finding) bool {
	switch i.ID {
	case properties.Known189504:
		return f.Property == executor.NoFalseOOM && (f.Rule == "repeat-served-by-pending" || f.Rule == "repeat-served-by-remainder")
	case properties.Known193400:
		return f.Property == properties.BoundedAlone.ID
	case properties.Known175015:
		return f.Property == properties.WorkDone.ID // nothing else breaks it
	case properties.Known159674:
		return f.Property == executor.NoFalseOOM && f.Rule == "repeat-bought-held"
	}
	return false
}

// knownIssuesAgain runs `shatter run --known off --seed N` for a number of seeds, without its measures and on one core, until it
// has found every known issue or the time is over.
func (f *selftestFlags) knownIssuesAgain(c *cobra.Command) error {
	if f.seeds < 1 {
		return fmt.Errorf("--seeds %d: must be at least 1", f.seeds)
	}
	var issues []*soughtIssue
	for _, k := range properties.KnownIssues {
		issues = append(issues, &soughtIssue{ID: k.ID, URL: k.URL, Missed: []uint64{}})
	}
	bar := newProgress(c.ErrOrStderr(), "seeds")
	for n := range f.seeds {
		if err := f.seekKnown(c, uint64(n)+1, issues); err != nil {
			return err
		}
		bar.set(n+1, f.seeds)
	}
	bar.done()
	failed := false
	for _, i := range issues {
		slices.Sort(i.Sequences)
		slices.Sort(i.Seconds)
		failed = failed || 10*i.Found < leastSeeds*i.Seeds
		if err := i.shrink(c); err != nil {
			return err
		}
	}
	if err := f.writeKnown(c.OutOrStdout(), issues); err != nil {
		return faultError{err}
	}
	if failed {
		return errFindings
	}
	return nil
}

// seekKnown runs one seed.
func (f *selftestFlags) seekKnown(c *cobra.Command, seed uint64, issues []*soughtIssue) error {
	run := runFlags{seed: seed, workers: 1, time: f.time}
	run.known, run.device = "off", "sim"
	cfg, err := run.resolve(c)
	if err != nil {
		return err
	}
	cfg.Measures, cfg.Sequences = false, 0
	start := processorTime()
	ctx, cancel := context.WithTimeout(c.Context(), 10*f.time) // the clock only ends what waits for ever
	defer cancel()
	left := map[*soughtIssue]bool{}
	for _, i := range issues {
		i.Seeds++
		left[i] = true
	}
	errOver := errors.New("over")
	err = campaign.Execute(ctx, cfg, func(s *campaign.Sequence) error {
		now := processorTime() - start
		if now > f.time {
			return errOver
		}
		for _, r := range s.Runs {
			for k := range r.Result.Findings {
				v := &r.Result.Findings[k]
				for _, i := range issues {
					if left[i] && i.explains(v) {
						delete(left, i)
						i.found(v, s, now)
					}
				}
			}
		}
		if len(left) == 0 {
			return errOver
		}
		return nil
	})
	if c.Context().Err() != nil {
		return errInterrupted
	}
	if err != nil && !errors.Is(err, errOver) && !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	for _, i := range issues {
		if left[i] {
			i.Missed = append(i.Missed, seed)
		}
	}
	return nil
}

// found enters the first finding of a seed.
func (i *soughtIssue) found(v *executor.Finding, s *campaign.Sequence, after time.Duration) {
	i.Found++
	i.Sequences = append(i.Sequences, s.Index+1)
	i.Seconds = append(i.Seconds, after.Seconds())
	if i.smallest == nil || shrink.Less(s.Trace, i.smallest) {
		i.smallest, i.capacity, i.Signature, i.Allocator, i.Before = s.Trace, s.Capacity, v.Signature(), v.Target, len(s.Trace.Ops)
	}
}

// shrink shrinks the smallest trace.
func (i *soughtIssue) shrink(c *cobra.Command) error {
	if i.smallest == nil {
		return nil
	}
	f := shrinkFlags{}
	f.known, f.device, f.allocs, f.capacity = "off", "sim", []string{i.Allocator}, fmt.Sprint(i.capacity)
	if err := f.resolve(c); err != nil {
		return err
	}
	jobs, err := f.jobsOf(i.smallest)
	if err != nil {
		return err
	}
	r, err := shrink.Minimise(c.Context(), jobs[0].trace, jobs[0].runs.Finding(i.Signature), shrink.Budget{Time: 2 * time.Minute})
	if err != nil {
		return err
	}
	i.After, i.Text = r.After, string(r.Trace.Format())
	return nil
}

func (f *selftestFlags) writeKnown(w io.Writer, issues []*soughtIssue) error {
	if f.json {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(struct {
			Schema string         `json:"schema"`
			Issues []*soughtIssue `json:"issues"`
		}{"shatter.known/1", issues})
	}
	fmt.Fprintf(w, "shatter run --known off, seeds 1 to %d, %s of processor time each, until the first finding:\n", f.seeds, f.time)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "issue\tfound\tmedian s\tworst s\tmedian sequences\tworst\tmissed by seeds\t")
	for _, i := range issues {
		fmt.Fprintf(t, "%s\t%d of %d\t", i.ID, i.Found, i.Seeds)
		if n := len(i.Seconds); n > 0 {
			fmt.Fprintf(t, "%.2f\t%.2f\t%g\t%d\t", (i.Seconds[(n-1)/2]+i.Seconds[n/2])/2, i.Seconds[n-1],
				float64(i.Sequences[(n-1)/2]+i.Sequences[n/2])/2, i.Sequences[n-1])
		} else {
			fmt.Fprint(t, "-\t-\t-\t-\t")
		}
		fmt.Fprintf(t, "%s\t\n", orNone(i.Missed))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, i := range issues {
		if i.smallest != nil {
			fmt.Fprintf(w, "\n%s: %s on %s, the smallest of these traces, shrunk from %d to %d operations:\n%s", i.ID, i.Signature, i.Allocator, i.Before, i.After, i.Text)
		}
	}
	return nil
}

func orNone(seeds []uint64) string {
	if len(seeds) == 0 {
		return "none"
	}
	return fmt.Sprint(seeds)
}
