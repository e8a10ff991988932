package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the project's.
const root = "../.."

var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "shatter-browser-")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "shatter")
	build := exec.Command("go", "build", "-o", program, "./harness/cmd/shatter")
	build.Dir = root
	build.Stderr = os.Stderr
	return program, build.Run()
})

func TestMain(m *testing.M) {
	code := m.Run()
	if program, err := built(); err == nil {
		os.RemoveAll(filepath.Dir(program))
	}
	os.Exit(code)
}

// shatter runs the command in the project's root and returns what it prints.
func shatter(t *testing.T, args ...string) string {
	t.Helper()
	program, err := built()
	require.NoError(t, err)
	c := exec.Command(program, args...)
	c.Dir = root
	c.Stderr = os.Stderr
	out, err := c.Output()
	require.NoError(t, err, "shatter %s", strings.Join(args, " "))
	return string(out)
}

var article = []string{"--alloc", "classic", "--alloc", "expandable", "--alloc", "classic@max_split_size_mb:128",
	"corpus/accepted/46-article-12gib-free-2gib-refused.trace"}

// TestCase46 looks at the page of the founding case.
func TestCase46(t *testing.T) {
	Program(t)
	file := filepath.Join(t.TempDir(), "46.html")
	shatter(t, append([]string{"replay", "--html", file}, article...)...)
	p := Open(t, file, 1600, 1000)
	p.Eval(`shatter.figures.forEach((f, i) => shatter.player(i))`, nil)
	p.Settle()
	p.Screenshot("46-1600.png")
	p.Legible()
	p.Resize(1000, 900)
	p.Screenshot("46-1000.png")
	p.Legible()
	p.Dark(true)
	p.Screenshot("46-dark.png")
	p.Quiet()
}

// TestRun looks at the page of a run.
func TestRun(t *testing.T) {
	Program(t)
	dir := filepath.Join(t.TempDir(), "results")
	file := os.Getenv("SHATTER_RUN_PAGE") // another page to look at
	if file == "" {
		shatter(t, "run", "--seqs", "14", "--out", dir)
		file = filepath.Join(t.TempDir(), "run.html")
		shatter(t, "report", "render", dir, "--format", "html", "--out", file)
	}
	p := Open(t, file, 1600, 1000)
	p.Eval(`shatter.figures.forEach((f, i) => shatter.player(i))`, nil)
	p.Settle()
	p.Screenshot("run-1600.png")
	p.Legible()
	p.Resize(1000, 900)
	p.Screenshot("run-1000.png")
	p.Legible()
	p.Dark(true)
	p.Screenshot("run-dark.png")
	p.Quiet()
}
