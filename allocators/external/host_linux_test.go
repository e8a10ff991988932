package external_test

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// fragile builds the host around testdata/fragile.cpp and returns the program.
func fragile(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "extra.inc"), nil, 0o644))
	host := filepath.Join(dir, "host")
	args := []string{"-std=c++17", "-O1", "-w", "-I" + dir, "-Inative", "-o", host, "testdata/fragile.cpp"}
	for _, name := range []string{"host.cpp", "simgpu.cpp", "quarantine.cpp"} {
		args = append(args, filepath.Join("native", name))
	}
	text, err := exec.Command(compiler(t), append(args, "-ldl")...).CombinedOutput()
	require.NoError(t, err, "%s", text)
	return host
}

// answers runs the host on a number of equal sessions, whose lines arrive all at once or with pauses, and returns what it wrote.
func answers(t *testing.T, host string, lines []string, sessions int, pause time.Duration) string {
	t.Helper()
	cmd := exec.Command(host)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	if pause == 0 {
		lines = []string{strings.Join(lines, "\n")}
	}
	out := bufio.NewReader(stdout)
	var all strings.Builder
	for range sessions {
		for _, l := range lines {
			_, err := io.WriteString(in, l+"\n")
			require.NoError(t, err)
			time.Sleep(pause)
		}
		for {
			line, err := out.ReadString('\n')
			require.NoError(t, err)
			all.WriteString(line)
			if strings.Contains(line, "done") {
				break
			}
		}
	}
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	return regexp.MustCompile(`pid=\d+`).ReplaceAllString(all.String(), "pid=N")
}

// session is the lines of one that comes to an end, and begun of one that dies.
var (
	session = []string{"start capacity=67108864", "alloc 0 100", "alloc 1 5000", "free 0", "alloc 2 300", "alloc 3 90", "end"}
	begun   = []string{"start capacity=67108864", "alloc 0 100", "alloc 1 5000", "alloc 2 300", "alloc 3 90", "alloc 4 100",
		"alloc 5 5000", "alloc 6 300", "alloc 7 90", "alloc 8 77", "alloc 9 512"}
)

// TestHostRepeats: where the objects of an allocator lie depends on the operations alone, not on the process, on the sessions before or
// on when the lines arrive. Else what a use after a free comes to would change from run to run.
func TestHostRepeats(t *testing.T) {
	t.Parallel()
	if !fixedAddresses() {
		t.Skip("addresses cannot be fixed here (personality with ADDR_NO_RANDOMIZE)")
	}
	host := fragile(t)
	want := answers(t, host, session, 1, 0)
	require.Regexp(t, `(?s)^shatter-child 1 sessions=many\nok pid=N\nok addr=\w+ later=1\n.*\ndone\n$`, want)
	require.Equal(t, want, answers(t, host, session, 1, 3*time.Millisecond))
	_, one, _ := strings.Cut(want, "\n")
	require.Equal(t, want+one, answers(t, host, session, 2, 0))
}

// fixedAddresses tells whether a program may be run with addresses that are not random.
func fixedAddresses() bool {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const noRandomize, ask = 0x0040000, 0xffffffff
	now, _, _ := syscall.RawSyscall(syscall.SYS_PERSONALITY, ask, 0, 0)
	_, _, failed := syscall.RawSyscall(syscall.SYS_PERSONALITY, now|noRandomize, 0, 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PERSONALITY, now, 0, 0)
	return failed == 0
}

// TestHostDiesInAReply: the replies before it are told, what was written of this one is not, and the death is a crash at its operation
// with what was said last, each time.
func TestHostDiesInAReply(t *testing.T) {
	t.Parallel()
	host := fragile(t)
	out := answers(t, host, begun, 1, 0)
	require.Equal(t, 9, strings.Count(out, "ok addr="))
	require.Regexp(t, `later=9\ndone signal=11\n$`, out)

	x := target(t, external.Command{Path: host})
	tr := allocs(20)
	for i := range tr.Ops {
		tr.Ops[i].Bytes = 4096
	}
	for range 10 {
		dev, err := sim(1 << 30)
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: "child", New: x.New}, executor.Options{
			Device: dev, Properties: []executor.Property{{ID: "none"}},
		})
		require.NoError(t, err)
		require.Len(t, res.Findings, 1)
		f := res.Findings[0]
		require.Equal(t, []any{"crashed", `the allocator crashed: SIGSEGV (its last output: "the reason")`, 9}, []any{f.Rule, f.Detail, f.Op})
	}
}
