// Command mutation measures the tests by mutation: it lets gremlins (github.com/go-gremlins/gremlins) list the small changes that
// it would make to a package, draws a sample by a seed, compiles the package once with all of them in it, each to be chosen when
// the program starts, and runs the package's tests with each: the fast ones first, tables and scripts; on what these let through
// those that compare with a brute-force twin at random; on what is left the program looks for a finding in itself, as `shatter
// selftest` does. What nothing notices has survived.
//
// Usage, in the module's root: go run ./.ci/mutation [-seed N] [-sample N] [-jobs N] [-survivors FILE] [-log FILE [-again LOG]] PACKAGE...
//
// The file of survivors has a line for each known one, `PACKAGE FILE TYPE TEXT => why`, where why begins with equivalent: or
// killed by. It prints the raw score first, then the score without those that are argued to be equivalent. Exit 1: below 90 %
// adjusted, or more than 5 % argued away.
//
// Files: main (the sample and the score), gremlins (what is changed), schemata (all changes in one program), try (a change and its
// tests), known (the file of survivors).
package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Where the sample must come out: the score without what is argued to be equivalent, and how much may be argued away.
const (
	leastScore = 0.90
	mostArgued = 0.05
)

func main() {
	seed := flag.Uint64("seed", 1, "draws the sample")
	sample := flag.Int("sample", 80, "changes to a package; 0 for all")
	jobs := flag.Int("jobs", runtime.GOMAXPROCS(0), "changes at once, on one core each")
	known := flag.String("survivors", ".ci/mutation/survivors.txt", "known survivors")
	limit := flag.Duration("time", 10*time.Second, "processor time for the tests of one change; one that takes longer is killed")
	log := flag.String("log", "", "write a line for each change to this file")
	again := flag.String("again", "", "try only the changes of the sample that stand in this log as anything but killed by the fast tests")
	flag.Parse()
	if flag.NArg() == 0 {
		fail(fmt.Errorf("name a package, as ./allocators/caching"))
	}
	why, err := readKnown(*known)
	if err != nil {
		fail(err)
	}
	var lines io.Writer = io.Discard
	if *log != "" {
		f, err := os.Create(*log)
		if err != nil {
			fail(err)
		}
		defer f.Close()
		lines = f
	}
	total := score{}
	for _, pkg := range flag.Args() {
		list, err := changes(pkg)
		if err != nil {
			fail(err)
		}
		if what := moved(why, pkg, list); what != "" {
			fail(fmt.Errorf("%s: gremlins makes no such change now: %s", *known, what))
		}
		all := len(list)
		list = drawn(list, *sample, *seed)
		fmt.Printf("%s: %d changes, %d drawn by seed %d\n", pkg, all, len(list), *seed)
		if *again != "" {
			if list, err = stillOpen(list, *again); err != nil {
				fail(err)
			}
			fmt.Printf("%s: %d of them tried again\n", pkg, len(list))
		}
		s, err := tryAll(pkg, list, *jobs, *limit, why, lines)
		if err != nil {
			fail(err)
		}
		s.print(pkg)
		total.add(s)
	}
	total.print("all")
	if total.adjusted() < leastScore || float64(total.argued) > mostArgued*float64(total.viable()) {
		os.Exit(1)
	}
}

// drawn is a sample of changes, all of them if n is 0. Each has its place by a hash of what it is, so that an edit elsewhere in
// the source does not draw another sample.
func drawn(list []change, n int, seed uint64) []change {
	places := map[string]uint64{}
	for i := range list {
		sum := sha256.Sum256(fmt.Appendf(nil, "%d %s %d", seed, &list[i], list[i].column))
		places[list[i].at()] = binary.BigEndian.Uint64(sum[:])
	}
	slices.SortStableFunc(list, func(a, b change) int { return cmp.Compare(places[a.at()], places[b.at()]) })
	if n > 0 && n < len(list) {
		list = list[:n]
	}
	return list
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "mutation: %v\n", err)
	os.Exit(2)
}

// tryAll tries changes of a package, several at once, and prints what survived in the order of the sample.
func tryAll(pkg string, list []change, jobs int, limit time.Duration, why map[string]string, log io.Writer) (score, error) {
	var s score
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return s, err
	}
	defer os.RemoveAll(folder)
	made, err := newSchemata(pkg, folder, list)
	if err != nil {
		return s, err
	}
	all, err := newSubject(pkg, made.overlay, folder)
	if err != nil {
		return s, err
	}
	if r, err := all.test(0, limit); err != nil || r != "" {
		return s, fmt.Errorf("%s without a change: %s, %w", pkg, r, err)
	}
	var mu sync.Mutex
	var failure error
	texts := make([]string, len(list))
	next, printed := 0, 0
	var wg sync.WaitGroup
	for range max(jobs, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				mu.Lock()
				i := next
				next++
				stop := i >= len(list) || failure != nil
				mu.Unlock()
				if stop {
					return
				}
				r, err := tryOne(made, all, &list[i], i, limit)
				mu.Lock()
				if err != nil {
					failure = err
				} else {
					texts[i] = s.count(&list[i], r, why)
				}
				for ; printed < len(list) && texts[printed] != ""; printed++ {
					fmt.Fprintln(log, texts[printed])
					if !strings.HasPrefix(texts[printed], killedByTests) && !strings.HasPrefix(texts[printed], notViable) {
						fmt.Println(texts[printed])
					}
				}
				mu.Unlock()
			}
		}()
	}
	wg.Wait()
	return s, failure
}

// tryOne tries change i of the list.
func tryOne(made *schemata, all *subject, c *change, i int, limit time.Duration) (string, error) {
	switch {
	case slices.Contains(made.broken, c):
		return notViable, nil
	case !slices.Contains(made.alone, c):
		return all.try(i+1, limit)
	}
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	s, err := alone(c, folder)
	if errors.Is(err, errCompile) {
		return notViable, nil
	}
	if err != nil {
		return "", err
	}
	return s.try(0, limit)
}

// score counts what became of changes.
type score struct{ tests, compare, search, survived, argued, notViable int }

// count enters a change and says what became of it, in a line.
func (s *score) count(c *change, r string, why map[string]string) string {
	switch r {
	case killedByTests:
		s.tests++
	case killedByCompare:
		s.compare++
	case killedBySearch:
		s.search++
	case notViable:
		s.notViable++
	default:
		if strings.HasPrefix(why[c.String()], equivalent) {
			s.argued++
			r += ", " + strings.TrimSuffix(equivalent, ": ")
		} else {
			s.survived++
		}
	}
	return fmt.Sprintf("%s: %s (line %d, column %d: %s becomes %s)", r, c, c.line, c.column, c.from, c.to)
}

func (s *score) add(o score) {
	s.tests += o.tests
	s.compare += o.compare
	s.search += o.search
	s.survived += o.survived
	s.argued += o.argued
	s.notViable += o.notViable
}

func (s *score) killed() int { return s.tests + s.compare + s.search }
func (s *score) viable() int { return s.killed() + s.survived + s.argued }

func (s *score) adjusted() float64 {
	if s.killed()+s.survived == 0 {
		return 0
	}
	return float64(s.killed()) / float64(s.killed()+s.survived)
}

func (s *score) print(name string) {
	if s.viable() == 0 {
		fmt.Printf("%s: nothing that compiles was drawn\n", name)
		return
	}
	percent := func(n int) float64 { return 100 * float64(n) / float64(s.viable()) }
	fmt.Printf("%s: raw score %d of %d, %.1f %% (%d by the fast tests, %d more by random comparison, %d more by the search); %d argued to be equivalent, %.1f %%; adjusted %.1f %%; %d did not compile\n",
		name, s.killed(), s.viable(), percent(s.killed()), s.tests, s.compare, s.search, s.argued, percent(s.argued), 100*s.adjusted(), s.notViable)
}
