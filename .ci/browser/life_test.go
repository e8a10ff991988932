package browser

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// plantedBug gives a stream a free block of stream 0. Few cases know it; they are taken away, so that fuzzing finds it anew.
const plantedBug = "block-of-another-stream"

// life is a copy of the module in which a finding lives.
type life struct {
	*testing.T
	dir, overlay string
}

// run runs a program in the copy, which must end with an exit code, and returns what it wrote.
func (l *life) run(code int, name string, args ...string) string {
	l.Helper()
	start := time.Now()
	c := exec.Command(name, args...)
	c.Dir = l.dir
	c.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		require.NoError(l, err)
	}
	require.Equal(l, code, c.ProcessState.ExitCode(), "%s %s\n%s", name, strings.Join(args, " "), out.String())
	l.Logf("%4.1f s  %s %s", time.Since(start).Seconds(), filepath.Base(name), strings.Join(args, " "))
	return out.String()
}

// copyModule copies the module's files, as they are now, and commits them.
func copyModule(t *testing.T) *life {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	l := &life{T: t, dir: t.TempDir(), overlay: t.TempDir()}
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		name, err := filepath.Rel(root, path)
		require.NoError(t, err)
		if d.IsDir() {
			if name == ".git" || name == "bin" {
				return filepath.SkipDir
			}
			return os.MkdirAll(filepath.Join(l.dir, name), 0o755)
		}
		if !d.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return os.WriteFile(filepath.Join(l.dir, name), data, 0o644)
	}))
	return l
}

var (
	failedSeed = regexp.MustCompile(`--- FAIL: FuzzClassic/(\S+)`)
	crasher    = regexp.MustCompile(`Failing input written to (\S+)`)
)

// fuzz fuzzes the program with the bug until it crashes, and returns the crasher's path.
func (l *life) fuzz() string {
	l.Helper()
	out := l.run(1, "go", "test", "-overlay", l.overlay+"/overlay.json", "-vet=off", "-run=^$", "-fuzz=^FuzzClassic$", "-fuzztime=60s",
		"-fuzzminimizetime=0x", "-parallel=2", "./corpus")
	m := crasher.FindStringSubmatch(out)
	require.NotNil(l, m, out)
	return "corpus/" + m[1]
}

// TestLifeOfAFinding follows a finding from the fuzz target that crashes to the case that every `go test` replays.
func TestLifeOfAFinding(t *testing.T) {
	Program(t) // skips at once where there is no browser
	if testing.Short() {
		t.Skip("it builds the program twice, and fuzzes")
	}
	l := copyModule(t)
	const clean, bent = "./bin/shatter", "./bin/shatter-bent"

	// Plant the bug; a corpus that does not know it yet.
	l.run(0, "go", "build", "-o", clean, "./harness/cmd/shatter")
	l.run(0, clean, "selftest", "--name", plantedBug, "--overlay", l.overlay)
	l.run(0, "go", "build", "-overlay", l.overlay+"/overlay.json", "-o", bent, "./harness/cmd/shatter")
	seeds := l.run(1, "go", "test", "-overlay", l.overlay+"/overlay.json", "-vet=off", "-run=^FuzzClassic$", "./corpus")
	for _, m := range failedSeed.FindAllStringSubmatch(seeds, -1) {
		for _, pattern := range []string{"corpus/*/" + m[1] + ".trace", "corpus/testdata/fuzz/*/" + m[1]} {
			files, err := filepath.Glob(filepath.Join(l.dir, pattern))
			require.NoError(t, err)
			for _, f := range files {
				require.NoError(t, os.Remove(f))
			}
		}
	}
	l.run(0, "git", "init", "-q")
	l.run(0, "git", "add", "-A")
	l.run(0, "git", "commit", "-q", "-m", "before")

	// The fuzz target crashes; the crasher is adopted: run again, signed, shrunk, pending.
	first := l.fuzz()
	before := readFile(t, filepath.Join(l.dir, first))
	adopted := l.run(0, bent, "corpus", "add", "--adopt", first)
	require.Contains(t, adopted, "corpus/pending/placement.stream.classic.alloc-")
	require.NoFileExists(t, filepath.Join(l.dir, first))
	pending, err := filepath.Glob(filepath.Join(l.dir, "corpus/pending/*.trace"))
	require.NoError(t, err)
	require.Len(t, pending, 1)
	require.Less(t, strings.Count(readFile(t, pending[0]), "\nalloc "), 6, "it is shrunk")
	name := strings.TrimSuffix(filepath.Base(pending[0]), ".trace")
	require.NotEmpty(t, before)

	// A second crash of the same cause is told as such.
	again := l.run(0, bent, "corpus", "add", "--adopt", l.fuzz())
	require.Contains(t, again, "shows placement.stream.classic.alloc already")
	pending, err = filepath.Glob(filepath.Join(l.dir, "corpus/pending/*.trace"))
	require.NoError(t, err)
	require.Len(t, pending, 1)
	name = strings.TrimSuffix(filepath.Base(pending[0]), ".trace")

	// The page says what it is, and how to decide.
	l.run(0, bent, "corpus", "review", "--out", "review.html")
	page := Open(t, filepath.Join(l.dir, "review.html"), 1500, 1000)
	text := map[string]string{}
	page.Eval(`Object.fromEntries(["h2", "dl", ".commands", "table", ".trace"].map(s => [s, document.querySelector("article " + s).innerText]))`, &text)
	require.Equal(t, name, text["h2"])
	require.Contains(t, text["dl"], "placement.stream.classic.alloc")
	require.Contains(t, text["dl"], "Nearest accepted")
	require.Contains(t, text[".commands"], "shatter corpus promote "+name)
	require.Contains(t, text[".commands"], "shatter corpus retire "+name)
	require.Contains(t, text["table"], "placement/stream on classic")
	require.Contains(t, text[".trace"], "stream=")
	var maps, beside int
	page.Eval(`document.querySelectorAll(".maps svg").length`, &maps)
	page.Eval(`new Set([...document.querySelectorAll(".maps svg")].map(e => Math.round(e.getBoundingClientRect().left))).size`, &beside)
	require.GreaterOrEqual(t, maps, 2)
	require.GreaterOrEqual(t, beside, 2, "the maps stand side by side")
	page.Legible()
	page.Dark(true)
	page.Legible()
	page.Resize(420, 800)
	page.Legible()
	page.Quiet()
	page.Screenshot("corpus-review.png")

	// While the fault is there it cannot be accepted; mended, it can.
	promote := []string{"corpus", "promote", name, "--name", "block-of-stream-0", "--class", "stream-stranded",
		"--about", "a free block of stream 0 must not serve another stream", "--note", "found by fuzzing", "--bites", "planted:" + plantedBug}
	require.Contains(t, l.run(2, bent, promote...), "the fault is still there")
	l.run(0, clean, promote...)
	require.FileExists(t, filepath.Join(l.dir, "corpus/accepted/block-of-stream-0.trace"))
	require.NoFileExists(t, pending[0])

	// The next go test replays it: as a case, and as an input of both targets; with the bug it fails.
	replayed := l.run(0, "go", "test", "-v", "-vet=off", "-run", "^(TestCases|TestInputs|FuzzClassic|FuzzExpandable)$", "./corpus")
	require.Contains(t, replayed, "--- PASS: FuzzClassic/block-of-stream-0")
	require.Contains(t, replayed, "--- PASS: FuzzExpandable/block-of-stream-0")
	failed := l.run(1, "go", "test", "-overlay", l.overlay+"/overlay.json", "-vet=off", "-run", "^(TestCases|FuzzClassic)$", "./corpus")
	require.Contains(t, failed, "accepted/block-of-stream-0.trace: classic: finding")
	require.Contains(t, failed, "--- FAIL: FuzzClassic/block-of-stream-0")
	require.Contains(t, l.run(1, bent, "corpus", "check", "block-of-stream-0"), "placement.stream.classic.alloc")
	l.run(0, clean, "corpus", "check")

	// What is to be committed can be read: a text file, and its two inputs.
	l.run(0, "git", "add", "-A", "corpus")
	require.Equal(t, "A\tcorpus/accepted/block-of-stream-0.trace\nA\tcorpus/testdata/fuzz/FuzzClassic/block-of-stream-0\n"+
		"A\tcorpus/testdata/fuzz/FuzzExpandable/block-of-stream-0\n", l.run(0, "git", "diff", "--cached", "--name-status"))
	diff := l.run(0, "git", "diff", "--cached", "--", "corpus/accepted")
	t.Log(diff)
	for _, want := range []string{"+# about: a free block of stream 0", "+# source: go test -fuzz FuzzClassic, input ", "+# bites: planted:" + plantedBug, "+alloc 0 "} {
		require.Contains(t, diff, want)
	}
	for _, line := range strings.Split(diff, "\n") {
		require.LessOrEqual(t, len(line), 600)
	}
	l.run(0, clean, "corpus", "review", "--git", "HEAD", "--out", "review.html")
	page = Open(t, filepath.Join(l.dir, "review.html"), 1500, 1000)
	var change string
	page.Eval(`document.querySelector(".diff").innerText`, &change)
	require.Contains(t, change, "+# about: a free block of stream 0")
	page.Legible()
	page.Quiet()
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}
