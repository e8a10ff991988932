package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"
)

// What becomes of a change.
const (
	killedByTests   = "killed by the fast tests"
	killedByCompare = "killed by random comparison"
	killedBySearch  = "killed by the search"
	survived        = "survived"
	notViable       = "did not compile"
)

// mostMemory bounds what a changed program may take, in KiB of address space: an endless loop may append.
const mostMemory = 8 << 20

// compare are the tests of a package that hold it against a brute-force twin at random. They are no fast tests; they are run on
// what those let through.
var compare = map[string]string{
	"./allocators/caching": "TestTwins|TestPoolTwins|TestNextCapacity|TestFreeSet|TestAddrTable|TestRestoreGoesOnAsBefore|TestLockedHistoryReplays",
	"./properties":         "TestJudgementsStay|TestLiesStaySeen|TestPredictionsOfEveryRequest|TestRecordedTracesAreClean|TestWitnessIsMinimal",
}

// subject is a package with changes in it, and its tests, compiled. The program is compiled when the first change needs it.
type subject struct {
	pkg, overlay, folder, tests string

	once    sync.Once
	program string
	err     error
}

func newSubject(pkg, overlay, folder string) (*subject, error) {
	s := &subject{pkg: pkg, overlay: overlay, folder: folder, tests: filepath.Join(folder, "tests")}
	return s, compile(overlay, s.tests, "test", "-c", "-vet=off", pkg)
}

// alone compiles a change that cannot be chosen at run time.
func alone(c *change, folder string) (*subject, error) {
	overlay, err := c.overlay(folder)
	if err != nil {
		return nil, err
	}
	return newSubject(c.pkg, overlay, folder)
}

// try runs the package's fast tests with a change, then those that compare at random, then the search, until one notices it.
func (s *subject) try(number int, limit time.Duration) (string, error) {
	if r, err := s.test(number, limit); err != nil || r != "" {
		return r, err
	}
	s.once.Do(func() {
		s.program = filepath.Join(s.folder, "shatter")
		s.err = compile(s.overlay, s.program, "build", "./harness/cmd/shatter")
	})
	if s.err != nil {
		return "", s.err
	}
	return s.search(number, limit)
}

// test runs the package's tests and says which kind notices a change, none if none does.
func (s *subject) test(number int, limit time.Duration) (string, error) {
	random, ok := compare[s.pkg]
	if !ok {
		random = "^$"
	}
	for _, stage := range []struct{ which, means string }{{"-test.skip=" + random, killedByTests}, {"-test.run=" + random, killedByCompare}} {
		run, cancel := bounded(s.pkg, number, limit, s.tests, "-test.short", "-test.failfast", stage.which)
		err := run.Run()
		cancel()
		if err != nil {
			return stage.means, nil
		}
	}
	return "", nil
}

// search lets the changed program look for a finding in itself, as `shatter selftest` does with planted bugs.
func (s *subject) search(number int, limit time.Duration) (string, error) {
	c, cancel := bounded("", number, 2*limit, s.program, "selftest", "--seek", "--short", "--clean", "8000", "--generic", "0s", "--exhaust", "2", "--time", "10m")
	defer cancel()
	out, err := c.Output()
	if err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return killedBySearch, nil
		}
		return "", err
	}
	var answer struct {
		Found  bool
		Broken int
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return "", err
	}
	if answer.Found || answer.Broken > 0 {
		return killedBySearch, nil
	}
	return survived, nil
}

// bounded is a command on one core that is ended after so much processor time, or if it waits for ever.
func bounded(dir string, number int, limit time.Duration, program string, args ...string) (*exec.Cmd, context.CancelFunc) {
	if !filepath.IsAbs(program) {
		panic("a relative path would be looked for in " + dir)
	}
	script := fmt.Sprintf(`ulimit -t %d; ulimit -v %d; exec "$0" "$@"`, int(limit.Seconds()), mostMemory)
	ctx, cancel := context.WithTimeout(context.Background(), 20*limit)
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", script, program}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800", fmt.Sprintf("%s=%d", chosen, number))
	return c, cancel
}
