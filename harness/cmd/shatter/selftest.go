package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/mutants"
)

// selfTested is the answer of `shatter selftest --json`, schema shatter.selftest/1.
type selfTested struct {
	Schema  string      `json:"schema"`
	Planted int         `json:"planted"`
	Found   int         `json:"found"`
	Generic int         `json:"generic"`
	AsNamed int         `json:"as_named"`          // found by the very property that must see them, if need be when it alone is asked
	Median  float64     `json:"median_operations"` // of the shrunk traces
	Bugs    []testedBug `json:"bugs"`
	// Clean is what the program without a bug came to.
	Clean  sought              `json:"clean"`
	Rules  map[string][]string `json:"rules"` // bugs by section of the specification
	Failed []string            `json:"failed"`
}

type testedBug struct {
	Name     string   `json:"name"`
	Rules    []string `json:"rules"`
	Upstream string   `json:"upstream,omitempty"`
	Expected string   `json:"expected"` // the property that must see it
	Minimum  int      `json:"minimum"`
	Proved   bool     `json:"proved"`
	sought
	Built float64 `json:"-"` // seconds
	fault error
}

type selftestFlags struct {
	names   []string
	sample  int
	seed    uint64
	time    time.Duration
	generic time.Duration
	workers int
	clean   int
	exhaust int
	json    bool
	known   bool
	seeds   int
	overlay string

	seek    bool
	short   bool
	minimum int
	named   string
}

func selftestCommand() *cobra.Command {
	var f selftestFlags
	c := &cobra.Command{
		Use:   "selftest",
		Short: "planted bugs found / planted",
		Long: `Selftest plants bugs in the allocator, one at a time, and looks whether the harness finds each: it builds this program with
the bug, lets it run generated sequences and all small traces until a property is broken, and shrinks what it found. A bug
must be found within the time, also by the property that is named for it, and shrunk to at most its recorded minimum; what is found
must come back each time, and nowhere may the harness itself fail. The program without a bug must find nothing.
It needs the Go toolchain and the source of this module.

The seconds are processor time, so that they say the same on a busy machine. In the table, generic says whether checks find it that know nothing of the allocator's promise and blocks.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.seek {
				return seek(c.Context(), seekOptions{
					seed: f.seed, time: f.time, seqs: f.clean, minimum: f.minimum, generic: f.generic, named: f.named, exhaust: f.exhaust,
					short: f.short,
				}, c.OutOrStdout())
			}
			if f.known {
				return f.knownIssuesAgain(c)
			}
			return f.run(c)
		},
	}
	fl := c.Flags()
	fl.StringArrayVar(&f.names, "name", nil, "plant only the bug of this name; repeatable")
	fl.IntVar(&f.sample, "sample", 0, "plant only so many, drawn by the seed, and the canary (default: all)")
	fl.Uint64Var(&f.seed, "seed", 1, "seed of the sequences and of the sample")
	fl.DurationVar(&f.time, "time", time.Minute, "time for each bug, on one core; building it is not counted")
	fl.DurationVar(&f.generic, "generic", 5*time.Second, "time in which the checks that know no promise look for it")
	fl.IntVar(&f.workers, "workers", 0, "bugs at once (default: one a core)")
	fl.IntVar(&f.clean, "clean", 5000, "sequences that the program without a bug runs")
	fl.IntVar(&f.exhaust, "exhaust", 3, "enumerate all small traces up to so many operations, as far as they are shorter than what was found")
	fl.BoolVar(&f.known, "known-issues", false, "plant nothing: find the known upstream issues again, as shatter run --known off does, with --seeds seeds")
	fl.IntVar(&f.seeds, "seeds", 20, "with --known-issues: run seeds 1 to this one, each for at most --time")
	fl.BoolVar(&f.json, "json", false, "print one JSON document (schema shatter.selftest/1, of known issues shatter.known/1)")
	fl.StringVar(&f.overlay, "overlay", "", "only write what plants the bug --name to this folder: go test -overlay FOLDER/overlay.json ./...")
	fl.BoolVar(&f.seek, "seek", false, "look for a finding in this program itself")
	fl.BoolVar(&f.short, "short", false, "with --seek: short sequences only")
	fl.IntVar(&f.minimum, "minimum", 0, "with --seek: end with a trace as short as this")
	fl.StringVar(&f.named, "named", "", "with --seek: the property and rule that must see it")
	for _, hidden := range []string{"seek", "short", "minimum", "named"} {
		_ = fl.MarkHidden(hidden)
	}
	return c
}

func (f *selftestFlags) run(c *cobra.Command) error {
	bugs, err := f.choose()
	if err != nil {
		return err
	}
	root, err := moduleRoot(c.Context())
	if err != nil {
		return err
	}
	if f.overlay != "" {
		return f.writeOverlay(c, root, bugs)
	}
	folder, err := os.MkdirTemp("", "shatter-selftest-")
	if err != nil {
		return faultError{err}
	}
	defer os.RemoveAll(folder)
	workers := f.workers
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	bar := newProgress(c.ErrOrStderr(), "planted bugs")
	r := selfTested{Schema: "shatter.selftest/1", Planted: len(bugs), Bugs: make([]testedBug, len(bugs)), Rules: map[string][]string{}, Failed: []string{}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	next, done := 0, 0
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := next
				next++
				mu.Unlock()
				if i >= len(bugs) || c.Context().Err() != nil {
					return
				}
				r.Bugs[i] = f.test(c.Context(), root, filepath.Join(folder, strconv.Itoa(i)), &bugs[i])
				mu.Lock()
				done++
				bar.set(done, len(bugs))
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	bar.done()
	if c.Context().Err() != nil {
		return errInterrupted
	}
	if r.Clean, err = f.runClean(c.Context(), workers); err != nil {
		return faultError{err}
	}
	r.sum()
	if err := f.write(c.OutOrStdout(), &r); err != nil {
		return faultError{err}
	}
	for i := range r.Bugs {
		if err := r.Bugs[i].fault; err != nil {
			return faultError{fmt.Errorf("planted bug %s could not be tried: %w", r.Bugs[i].Name, err)}
		}
	}
	if len(r.Failed) > 0 {
		return errFindings
	}
	return nil
}

// writeOverlay writes what plants one bug.
func (f *selftestFlags) writeOverlay(c *cobra.Command, root string, bugs []mutants.Mutant) error {
	if len(f.names) != 1 {
		return hinted{fmt.Errorf("--overlay plants one bug, not %d", len(f.names)), "name it with --name"}
	}
	if err := os.MkdirAll(f.overlay, 0o755); err != nil {
		return hinted{err, "name a folder that can be written"}
	}
	folder, err := filepath.Abs(f.overlay)
	if err != nil {
		return faultError{err}
	}
	overlay, err := bugs[0].Overlay(root, folder)
	if err != nil {
		return faultError{err}
	}
	_, err = fmt.Fprintln(c.OutOrStdout(), overlay)
	return err
}

// choose picks the bugs to plant.
func (f *selftestFlags) choose() ([]mutants.Mutant, error) {
	all, err := mutants.All()
	if err != nil {
		return nil, faultError{err}
	}
	if len(f.names) > 0 {
		var out []mutants.Mutant
		for _, name := range f.names {
			i := slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == name })
			if i < 0 {
				return nil, fmt.Errorf("there is no planted bug %q; they are the files in allocators/mutants/bugs", name)
			}
			out = append(out, all[i])
		}
		return out, nil
	}
	if f.sample < 0 {
		return nil, fmt.Errorf("--sample %d: must be at least 1", f.sample)
	}
	if f.sample == 0 || f.sample >= len(all)-1 {
		return all, nil
	}
	rest := all[1:]
	rng := rand.New(rand.NewPCG(f.seed, 0))
	rng.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	return all[:1+f.sample], nil
}

// moduleRoot is the folder of this module's source, from which bugs are built.
func moduleRoot(ctx context.Context) (string, error) {
	const hint = "run shatter selftest in a checkout of github.com/shatter-gpu/shatter, with Go installed"
	if _, err := exec.LookPath("go"); err != nil {
		return "", hinted{fmt.Errorf("the Go toolchain is needed to build planted bugs: %w", err), hint}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/shatter-gpu/shatter").Output()
	root := strings.TrimSpace(string(out))
	if err == nil && root != "" {
		_, err = os.Stat(filepath.Join(root, "allocators", "mutants", "bugs"))
	}
	if err != nil || root == "" {
		return "", hinted{fmt.Errorf("the source of this program is needed to plant bugs in it, and is not here"), hint}
	}
	return root, nil
}

// test plants a bug and looks for it.
func (f *selftestFlags) test(ctx context.Context, root, folder string, m *mutants.Mutant) testedBug {
	t := testedBug{Name: m.Name, Rules: m.Rules, Upstream: m.Upstream, Expected: m.Property, Minimum: m.Minimum, Proved: m.Proved}
	fail := func(err error) testedBug {
		t.fault = err
		return t
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fail(err)
	}
	defer os.RemoveAll(folder)
	overlay, err := m.Overlay(root, folder)
	if err != nil {
		return fail(err)
	}
	start := time.Now()
	program := filepath.Join(folder, "shatter")
	build := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./harness/cmd/shatter")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fail(fmt.Errorf("%w: %s", err, out))
	}
	t.Built = time.Since(start).Seconds()
	h, err := runSeek(ctx, program, f.time, "--seed", fmt.Sprint(f.seed), "--time", f.time.String(), "--generic", f.generic.String(),
		"--named", m.Property, "--minimum", strconv.Itoa(m.Minimum), "--exhaust", strconv.Itoa(f.exhaust), "--clean", "0")
	if err != nil {
		return fail(err)
	}
	t.sought = *h
	return t
}

// grace is what a search may take beyond its time, which is that of the processor: to shrink what it found last, and for the
// generic checks. On a busy machine all of it may take a few times as long.
const grace = 30 * time.Second

// runSeek runs a program's search on one core. A program that never ends has found nothing.
func runSeek(ctx context.Context, program string, limit time.Duration, args ...string) (*sought, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*limit+grace)
	defer cancel()
	c := exec.CommandContext(ctx, program, append([]string{"selftest", "--seek"}, args...)...)
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800") // one core; many short runs make much garbage
	var failure strings.Builder
	c.Stderr = &failure
	out, err := c.Output()
	if ctx.Err() == context.DeadlineExceeded {
		return &sought{BrokenBy: "the program did not end", Broken: 1}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, failure.String())
	}
	var h sought
	return &h, json.Unmarshal(out, &h)
}

// longestMedian is how many operations a person is to read of most findings, at most; of few bugs the median says nothing.
const (
	longestMedian = 6
	manyBugs      = 12
)

// asNamed tells whether the property that must see a bug did.
func (b *testedBug) asNamed() bool { return b.Named > 0 || b.Property+"/"+b.Rule == b.Expected }

// sum judges the answers. Which property finds a bug first is not among what can fail: with other seeds it can be another one that
// sees the same trace. But the one named for it must see it, too.
func (r *selfTested) sum() {
	var lengths []int
	fail := func(format string, args ...any) { r.Failed = append(r.Failed, fmt.Sprintf(format, args...)) }
	for i := range r.Bugs {
		b := &r.Bugs[i]
		for _, s := range b.Rules {
			r.Rules[s] = append(r.Rules[s], b.Name)
		}
		switch {
		case b.fault != nil:
			fail("%s: could not be tried", b.Name)
			continue
		case !b.Found:
			fail("%s: not found in %d sequences and %d enumerated traces", b.Name, b.Sequences, b.Enumerated)
			continue
		case b.Broken > 0:
			fail("%s: the harness failed %d times, first in %s", b.Name, b.Broken, b.BrokenBy)
		case b.After > b.Minimum:
			fail("%s: shrunk to %d operations, %d are enough", b.Name, b.After, b.Minimum)
		case b.Proved && b.After < b.Minimum:
			fail("%s: shrunk to %d operations, fewer than the proved minimum of %d", b.Name, b.After, b.Minimum)
		case !b.asNamed():
			fail("%s: %s/%s sees it, but %s does not, which must", b.Name, b.Property, b.Rule, b.Expected)
		}
		r.Found++
		lengths = append(lengths, b.After)
		if b.Generic > 0 {
			r.Generic++
		}
		if b.asNamed() {
			r.AsNamed++
		}
	}
	if n := len(lengths); n > 0 {
		slices.Sort(lengths)
		r.Median = float64(lengths[(n-1)/2]+lengths[n/2]) / 2
	}
	if len(lengths) >= manyBugs && r.Median > longestMedian {
		fail("the shrunk traces have %g operations in the median, at most %d are enough", r.Median, longestMedian)
	}
	if r.Clean.Found {
		fail("without a planted bug: %s/%s: %s", r.Clean.Property, r.Clean.Rule, r.Clean.Detail)
	}
	if r.Clean.Broken > 0 {
		fail("without a planted bug the harness failed in %d sequences: %s", r.Clean.Broken, r.Clean.BrokenBy)
	}
}
