//go:build unix

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/harness/results"
)

// TestKill kills a run at random moments, and goes on with it after each: in the end every sequence is there, none twice, and all files
// have the bytes of a run that was left alone, and no others are there. SHATTER_KILLS is how many kills (50 for the whole, of a longer run; 3 else).
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some runs")
	}
	t.Parallel()
	kills, sequences := 3, 28
	if text := os.Getenv("SHATTER_KILLS"); text != "" {
		var err error
		kills, err = strconv.Atoi(text)
		require.NoError(t, err, "SHATTER_KILLS")
		sequences = 140
	}
	program, err := os.Executable()
	require.NoError(t, err)
	shatter := func(args ...string) *exec.Cmd {
		// TestMain makes the test binary the program when it is called by its name.
		c := exec.Command(program, args...)
		c.Args[0] = "shatter"
		return c
	}
	size := func(dir string) int64 {
		info, err := os.Stat(filepath.Join(dir, results.JournalFile))
		if err != nil {
			return 0
		}
		return info.Size()
	}
	dir := t.TempDir()
	alone, killed := filepath.Join(dir, "alone"), filepath.Join(dir, "killed")
	// Findings too: known issues count as such.
	flags := []string{"run", "--seed", "5", "--seqs", strconv.Itoa(sequences), "--ops", "200", "--known", "off"}
	out, err := shatter(append(flags, "--out", alone)...).CombinedOutput()
	require.Error(t, err, "there are findings")
	require.Equal(t, exitFindings, err.(*exec.ExitError).ExitCode(), string(out))

	seed := uint64(1)
	rng := rand.New(rand.NewPCG(seed, 0))
	var report strings.Builder
	first := true
	for done := 0; done < kills; {
		args := []string{"run", "--resume", killed, "--workers", strconv.Itoa(1 + rng.IntN(3))}
		if first {
			args = append(flags, "--out", killed)
		}
		c := shatter(args...)
		require.NoError(t, c.Start())
		ended := make(chan error, 1)
		go func() { ended <- c.Wait() }()
		// The moment: once the journal has grown by a random part of what a kill has on average, twice as much at most, and a random while
		// later. So the kills are spread over the run, however fast the machine is, and some come while the files are written at the end.
		target := size(killed) + int64(rng.Float64()*2*float64(size(alone))/float64(kills))
		for size(killed) < target && len(ended) == 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(time.Duration(rng.Float64() * float64(40*time.Millisecond)))
		if len(ended) > 0 { // it was faster: start again
			<-ended
			require.NoError(t, os.RemoveAll(killed))
			first = true
			report.WriteString(" (again)")
			continue
		}
		require.NoError(t, c.Process.Signal(syscall.SIGKILL))
		<-ended
		done++
		j, err := results.Read(killed)
		if err != nil {
			require.ErrorIs(t, err, os.ErrNotExist) // killed before it began
			first = true
			continue
		}
		first = false
		fmt.Fprintf(&report, " %d", len(j.Sequences))
		if j.Torn {
			report.WriteString("+")
		}
	}
	t.Logf("seed %d, %d sequences; there after each of %d kills (+: the last line cut short):%s", seed, sequences, kills, report.String())
	out, err = shatter("run", "--resume", killed).CombinedOutput()
	require.Error(t, err)
	require.Equal(t, exitFindings, err.(*exec.ExitError).ExitCode(), string(out))
	j, err := results.Read(killed)
	require.NoError(t, err)
	require.Len(t, j.Sequences, sequences)
	for i, s := range j.Sequences { // none twice: Read refuses those
		require.Equal(t, i, s.Index)
	}
	sameFolders(t, alone, killed)
}
