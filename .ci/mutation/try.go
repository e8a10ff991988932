package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// compare are the tests of a package that hold it against a brute-force twin at random. They are no fast tests; they are run on
// what those let through.
var compare = map[string]string{
	"./allocators/caching": "TestTwins|TestNextCapacity|TestFreeSet|TestAddrTable|TestRestoreGoesOnAsBefore|TestLockedHistoryReplays",
	"./properties":         "TestPredictionsOfEveryRequest|TestRecordedTracesAreClean|TestWitnessIsMinimal",
}

// mostMemory bounds what a changed program may take, in KiB of address space: an endless loop may append.
const mostMemory = 8 << 20

// try makes a change, runs the package's fast tests, then those that compare at random, then the search, until one notices it.
func try(c *change, limit time.Duration) (string, error) {
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(folder)
	overlay, err := c.overlay(folder)
	if err != nil {
		return "", err
	}
	tests := filepath.Join(folder, "tests")
	if err := quiet("", "go", "test", "-c", "-overlay", overlay, "-vet=off", "-o", tests, c.pkg); err != nil {
		if text := err.Error(); strings.Contains(text, c.file) {
			return notViable, nil
		}
		return "", err
	}
	random, ok := compare[c.pkg]
	if !ok {
		random = "^$"
	}
	for _, stage := range []struct{ which, means string }{{"-test.skip=" + random, killedByTests}, {"-test.run=" + random, killedByCompare}} {
		run, cancel := bounded(c.pkg, limit, tests, "-test.short", "-test.failfast", stage.which)
		err := run.Run()
		cancel()
		if err != nil {
			return stage.means, nil
		}
	}
	program := filepath.Join(folder, "shatter")
	if err := quiet("", "go", "build", "-ldflags=-s -w", "-overlay", overlay, "-o", program, "./harness/cmd/shatter"); err != nil {
		return "", err
	}
	return search(program, limit)
}

// search lets the changed program look for a finding in itself, as `shatter selftest` does with planted bugs.
func search(program string, limit time.Duration) (string, error) {
	c, cancel := bounded("", 2*limit, program, "selftest", "--seek", "--short", "--clean", "4000", "--generic", "0s", "--time", "10m")
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
func bounded(dir string, limit time.Duration, program string, args ...string) (*exec.Cmd, context.CancelFunc) {
	script := fmt.Sprintf(`ulimit -t %d; ulimit -v %d; exec "$0" "$@"`, int(limit.Seconds()), mostMemory)
	ctx, cancel := context.WithTimeout(context.Background(), 10*limit)
	c := exec.CommandContext(ctx, "sh", append([]string{"-c", script, program}, args...)...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800")
	return c, cancel
}

// quiet runs a command and returns what it printed if it fails.
func quiet(dir, program string, args ...string) error {
	c := exec.Command(program, args...)
	c.Dir = dir
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	if text, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", program, err, text)
	}
	return nil
}
