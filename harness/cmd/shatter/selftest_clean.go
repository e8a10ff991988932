package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/harness/gen"
)

// runClean runs this program, which has no bug, once a worker, each with a seed of its own: all sequences that a search for a
// planted bug would run, in the same mix. The first worker enumerates the small traces, too.
func (f *selftestFlags) runClean(ctx context.Context, workers int) (sought, error) {
	self, err := os.Executable()
	if err != nil {
		return sought{}, err
	}
	parts := make([]*sought, workers)
	errs := make([]error, workers)
	done := make(chan int)
	for i := range workers {
		go func() {
			const long = 24 * time.Hour // the number of sequences is the bound
			n := f.clean / workers
			if i < f.clean%workers {
				n++
			}
			args := []string{"--seed", fmt.Sprint(f.seed), "--time", long.String(), "--clean", strconv.Itoa(n), "--generic", "0", "--exhaust", strconv.Itoa(f.exhaust)}
			if i > 0 {
				args[1], args[len(args)-1] = fmt.Sprint(gen.Seed(f.seed, "clean", uint64(i))), "0"
			}
			if n > 0 {
				parts[i], errs[i] = runSeek(ctx, self, long, args...)
			}
			done <- i
		}()
	}
	for range workers {
		<-done
	}
	total := sought{Mix: map[string]int{}}
	for _, p := range parts {
		if p != nil {
			total.add(p)
		}
	}
	return total, errors.Join(errs...)
}

// add enters what another search came to; of findings the first is kept.
func (r *sought) add(p *sought) {
	r.Sequences += p.Sequences
	r.Operations += p.Operations
	r.Enumerated += p.Enumerated
	r.Exhausted = max(r.Exhausted, p.Exhausted)
	for k, n := range p.Mix {
		r.Mix[k] += n
	}
	if p.Found && !r.Found {
		r.Found, r.Property, r.Rule, r.Detail, r.First, r.Text = true, p.Property, p.Rule, p.Detail, p.First, p.Text
	}
	if r.Broken += p.Broken; r.BrokenBy == "" {
		r.BrokenBy = p.BrokenBy
	}
	r.Timing.Seconds += p.Timing.Seconds
}

func writeClean(w io.Writer, r *sought) {
	what := "no finding"
	if r.Found {
		what = "a finding"
	}
	var mix []string
	for _, k := range kinds {
		if n := r.Mix[k]; n > 0 {
			mix = append(mix, fmt.Sprintf("%d %s", n, k))
		}
	}
	fmt.Fprintf(w, "without a bug: %d generated sequences (%s; %d operations) and %d enumerated traces, in %.0f s of processor time: %s\n",
		r.Sequences, strings.Join(mix, ", "), r.Operations, r.Enumerated, r.Timing.Seconds, what)
}
