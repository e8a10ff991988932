package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the project's.
const root = "../.."

var program struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if program.dir != "" {
		os.RemoveAll(program.dir)
	}
	os.Exit(code)
}

// shatter runs the project's command in its root and returns what it prints. It is built once.
func shatter(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t, args...).Output()
	require.NoError(t, err, "shatter %s", strings.Join(args, " "))
	return string(out)
}

func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "shatter-browser-"); program.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", filepath.Join(program.dir, "shatter"), "./harness/cmd/shatter")
		build.Dir, build.Stderr = root, os.Stderr
		program.err = build.Run()
	})
	require.NoError(t, program.err)
	c := exec.Command(filepath.Join(program.dir, "shatter"), args...)
	c.Dir, c.Stderr = root, os.Stderr
	return c
}

var counters = regexp.MustCompile(`# \d+: .* allocated=(\d+) reserved=(\d+)`)

// history is what an allocator has after each operation by its own counters: allocated and reserved bytes.
func history(t *testing.T, alloc string, args ...string) [][2]string {
	t.Helper()
	out := [][2]string{{"0", "0"}}
	for _, m := range counters.FindAllStringSubmatch(shatter(t, append([]string{"replay", "--history", "--alloc", alloc}, args...)...), -1) {
		out = append(out, [2]string{m[1], m[2]})
	}
	return out
}
