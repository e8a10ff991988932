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
	dir := t.TempDir()
	alone, killed := filepath.Join(dir, "alone"), filepath.Join(dir, "killed")
	// Findings too: known issues count as such.
	flags := []string{"run", "--seed", "5", "--seqs", strconv.Itoa(sequences), "--ops", "200", "--known", "off"}
	start := time.Now()
	out, err := shatter(append(flags, "--out", alone)...).CombinedOutput()
	took := time.Since(start)
	require.Error(t, err, "there are findings")
	require.Equal(t, exitFindings, err.(*exec.ExitError).ExitCode(), string(out))

	seed := uint64(1)
	t.Logf("seed %d, an undisturbed run takes %v", seed, took)
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
		// Most kills come early in what is left, so that there are enough; some while the files are written at the end.
		after := time.Duration(rng.Float64() * float64(took) / float64(2+kills/4))
		select {
		case <-time.After(after):
			require.NoError(t, c.Process.Signal(syscall.SIGKILL))
			<-ended
		case <-ended: // it was faster: start again
			require.NoError(t, os.RemoveAll(killed))
			first = true
			continue
		}
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
	t.Logf("sequences after each of %d kills (+: the last line cut short):%s", kills, report.String())
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
