package record_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRecorder runs the recorder's own tests, which need no torch.
func TestRecorder(t *testing.T) {
	if testing.Short() {
		t.Skip("replays whole logs in Python")
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("SHATTER_REQUIRE_TOOLS") == "1" {
			t.Fatal("python3 is missing, and SHATTER_REQUIRE_TOOLS=1")
		}
		t.Skip("python3 is missing")
	}
	cmd := exec.Command(python, "-B", "test_record_torch.py")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
