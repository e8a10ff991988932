package main

import (
	"bytes"
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInterruptedExitCode: a run that is interrupted without findings ends with 130, and its report says so.
func TestInterruptedExitCode(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	require.Equal(t, exitInterrupted, run(ctx, []string{"run", "--json"}, &out, &errs))
	require.Contains(t, out.String(), `"interrupted": true`)
	require.Empty(t, errs.String())
}
