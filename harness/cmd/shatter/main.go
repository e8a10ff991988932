// Command shatter breaks GPU memory allocators on purpose: it generates adversarial allocation sequences, executes them,
// checks what must hold, and measures how badly memory fragments.
//
// Exit codes: 0 clean, 1 findings, 2 usage (found before anything runs), 3 a fault of the harness or its environment,
// 130 interrupted without findings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/harness/executor"
)

// The exit codes.
const (
	exitClean       = 0
	exitFindings    = 1
	exitUsage       = 2
	exitFault       = 3
	exitInterrupted = 130
)

// errFindings ends a command that reported findings already.
var errFindings = errors.New("findings")

// errInterrupted ends a command that reported what was finished when it was interrupted.
var errInterrupted = errors.New("interrupted")

// faultError is a fault of the harness or its environment, as against a mistake of the user.
type faultError struct{ err error }

func (e faultError) Error() string { return e.err.Error() }
func (e faultError) Unwrap() error { return e.err }

// hinted adds a line that says what to do.
type hinted struct {
	err  error
	hint string
}

func (e hinted) Error() string { return e.err.Error() }
func (e hinted) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes a command line and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return exitCode(root.ExecuteContext(ctx), stderr)
}

func exitCode(err error, stderr io.Writer) int {
	var fault faultError
	switch {
	case err == nil:
		return exitClean
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, errInterrupted):
		return exitInterrupted
	}
	fmt.Fprintf(stderr, "shatter: %s\n", strings.TrimSuffix(err.Error(), "\n"))
	var h hinted
	if errors.As(err, &h) {
		fmt.Fprintln(stderr, h.hint)
	}
	if errors.As(err, &fault) || errors.Is(err, executor.ErrHarness) {
		return exitFault
	}
	return exitUsage
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "shatter",
		Short: "Break GPU memory allocators on purpose",
		Long: `Shatter generates adversarial sequences of long- and short-lived GPU allocations, executes them on real allocator
implementations, checks what must hold, and measures how badly memory fragments.

  shatter run                          generate, execute, check, report (no flag needed)
  shatter compare DIR DIR              what changed from one run to another
  shatter replay FILE                  what does this trace do, and why was it refused
  shatter capacity FILE                at which capacities does it pass
  shatter shrink FILE                  the smallest trace that fails in the same way
  shatter explain SNAPSHOT             why did this OOM happen, and who pins the memory
  shatter advise SNAPSHOT              which settings, or how much memory, pass in replay
  shatter conform FOLDER               are the decisions those that were recorded
  shatter nightly --out FOLDER         what changed, and what is broken, every night
  shatter corpus check                 do the cases of the regression corpus come out as recorded

Exit codes: 0 clean, 1 findings, 2 usage, 3 harness or environment fault, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return hinted{err, fmt.Sprintf("see %s --help", c.CommandPath())}
	})
	root.AddCommand(runCommand(), reportCommand(), compareCommand(), replayCommand(), conformCommand(), capacityCommand(), shrinkCommand(), explainCommand(), adviseCommand(), anonymizeCommand(), selftestCommand(), huntCommand(), panelCommand(), benchCommand(), gpuCommand(), versionsCommand(), recordCommand(), levelsCommand(), enumerateCommand(), corpusCommand(), nightlyCommand(), listCommand(), versionCommand())
	return root
}
