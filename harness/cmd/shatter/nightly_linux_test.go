package main

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/reports"
)

// smallPanel is a panel of two logs.
func smallPanel(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "logs")
	file := filepath.Join(t.TempDir(), "checkerboard.trace")
	require.NoError(t, os.WriteFile(file, []byte(checkerboard), 0o644))
	var out, errs bytes.Buffer
	for _, conf := range []string{"", "expandable_segments:True"} {
		code := run(context.Background(), []string{"record-decisions", "classic", file, "--capacity", "100MiB", "--conf", conf, "--out", dir}, &out, &errs)
		require.Equal(t, exitClean, code, errs.String())
	}
	return dir
}

// night starts a night in a process of its own, this test binary under the program's name.
func night(t *testing.T, dir string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command(self, append([]string{"nightly", "--workers", "2", "--seed", "1", "--out", dir}, args...)...)
	c.Args[0] = "shatter"
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	require.NoError(t, c.Start())
	t.Cleanup(func() { _ = c.Process.Kill() })
	return c, &out
}

// children are the processes that a process has started.
func children(pid int) []int {
	var out []int
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, f := range files {
		stat, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, ...
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if fields[1] == strconv.Itoa(pid) && fields[0] != "Z" {
			out = append(out, child)
		}
	}
	return out
}

// exitOf waits for a process.
func exitOf(t *testing.T, c *exec.Cmd) int {
	err := c.Wait()
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
	}
	return c.ProcessState.ExitCode()
}

// TestNightLosesWorkers: a worker that is killed and one that hangs end themselves and not the night, which does their work again
// and says so.
func TestNightLosesWorkers(t *testing.T) {
	if testing.Short() {
		t.Skip("nights of some seconds, with deadlines")
	}
	t.Parallel()
	dir := t.TempDir()
	c, out := night(t, dir, "--time", "15s", "--watchdog", "3s", "--panel", smallPanel(t))
	var workers []int
	require.Eventually(t, func() bool { workers = children(c.Process.Pid); return len(workers) == 2 }, time.Minute, 10*time.Millisecond)
	busy := func(pid int) bool { // it has done something, so it is no more starting
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		ticks, _ := strconv.Atoi(fields[11])
		return err == nil && ticks > 20
	}
	require.Eventually(t, func() bool { return busy(workers[0]) && busy(workers[1]) }, time.Minute, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(workers[0], syscall.SIGSTOP))
	require.NoError(t, syscall.Kill(workers[1], syscall.SIGKILL))
	require.Equal(t, exitClean, exitOf(t, c), out.String())

	n, err := nightly.ReadNight(dir)
	require.NoError(t, err)
	require.Len(t, n.Lost, 2, out.String())
	kinds := map[nightly.LossKind]*nightly.Loss{n.Lost[0].Kind: &n.Lost[0], n.Lost[1].Kind: &n.Lost[1]}
	require.Contains(t, kinds[nightly.Died].Detail, "killed")
	require.Contains(t, kinds[nightly.Hung].Detail, "nothing moved for 3s")
	for _, l := range kinds {
		require.Equal(t, "passed", l.Again)
		require.NotEqual(t, "nothing", l.At.Doing)
		require.Contains(t, out.String(), "LOST "+l.String())
	}
	require.Equal(t, []int{2, 2, 0}, []int{n.Panel.Logs, n.Panel.Ran, n.Panel.Red()})
	require.Equal(t, 4, n.Timing.Starts)
	require.Contains(t, out.String(), "2 workers lost")
	require.NotContains(t, out.String(), "SUSPECT")
}

// TestNightInterrupted: SIGTERM ends a night within five seconds, with all documents and all that was done.
func TestNightInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("a night, with deadlines")
	}
	t.Parallel()
	dir := t.TempDir()
	c, out := night(t, dir, "--time", "1h", "--panel", smallPanel(t))
	require.Eventually(t, func() bool {
		logs, _ := filepath.Glob(filepath.Join(dir, ".panel", "pytorch", "logs", "*"))
		return len(logs) == 2
	}, time.Minute, 10*time.Millisecond, "the panel has not come to its end")
	workers := children(c.Process.Pid)
	start := time.Now()
	require.NoError(t, c.Process.Signal(syscall.SIGTERM))
	require.Equal(t, exitInterrupted, exitOf(t, c), out.String())
	require.Less(t, time.Since(start), 5*time.Second)
	require.Contains(t, out.String(), "interrupted")
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(workers, func(pid int) bool { return syscall.Kill(pid, 0) == nil })
	}, 5*time.Second, 10*time.Millisecond, "a worker outlives the night")

	n, err := nightly.ReadNight(dir)
	require.NoError(t, err)
	require.True(t, n.Interrupted)
	require.Equal(t, 2, n.Panel.Ran)
	rep, err := conform.CompareLogs(filepath.Join(dir, "panel", "pytorch"), nil)
	require.NoError(t, err)
	require.Equal(t, []int{2, 0}, []int{rep.Logs, rep.Divergent})
	text, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	require.NoError(t, err)
	var j reports.JUnit
	require.NoError(t, xml.Unmarshal(text, &j))
	require.Equal(t, []int{1, 0}, []int{j.Errors, j.Failures}, "an interruption is no finding")
}
