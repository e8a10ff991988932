package external

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/shatter-gpu/shatter/allocators"
)

// maxLine is the longest reply, in bytes: all statistics and a message take less than 8 KiB.
const maxLine = 1 << 20

// tailSize is how much of a child's standard error is kept, in bytes.
const tailSize = 4 << 10

// process is a running child.
type process struct {
	cmd     *exec.Cmd
	in, out *os.File
	timeout time.Duration
	stderr  tail
	waited  chan struct{} // closed once the child is reaped
	waitErr error

	buf      []byte // read and not consumed: buf[at:]
	at       int
	session  int // process id of the session, 0 if unknown
	many     bool
	can      abilities
	greeting string
}

// abilities are what a child's greeting says that it has.
type abilities struct {
	record, emptyCache, stats, conf, fraction, pools bool
	abandon                                          bool
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
	cut  bool // the first line is no whole one
}

// Write implements io.Writer; it never fails, so the child is never held up.
func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := max(0, len(p)-tailSize)
	t.data = append(t.data, p[from:]...)
	n := max(0, len(t.data)-tailSize)
	t.data = append(t.data[:0], t.data[n:]...)
	t.cut = t.cut || from+n > 0
	return len(p), nil
}

// String returns whole lines, as long as there is more than one.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, rest, more := bytes.Cut(t.data, []byte{'\n'}); t.cut && more && len(rest) > 0 {
		return string(rest)
	}
	return string(t.data)
}

func (t *tail) reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data, t.cut = t.data[:0], false
}

// startProcess starts a child and reads its greeting.
func startProcess(c *Command) (*process, error) {
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = environ(os.Environ(), c.Env)
	// A group of its own: all of it can be killed, and an interrupt on the terminal is the harness's business.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	childIn, in, err := os.Pipe()
	if err != nil {
		return nil, environment("start %s: %w", c.Path, err)
	}
	out, childOut, err := os.Pipe()
	if err != nil {
		childIn.Close()
		in.Close()
		return nil, environment("start %s: %w", c.Path, err)
	}
	p := &process{cmd: cmd, in: in, out: out, timeout: c.timeout(), waited: make(chan struct{})}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = childIn, childOut, &p.stderr
	// A session that outlives the first process may hold the standard error open; it is not waited for longer than this.
	cmd.WaitDelay = time.Second
	err = cmd.Start()
	childIn.Close()
	childOut.Close()
	if err != nil {
		in.Close()
		out.Close()
		return nil, environment("start %s: %w", c.Path, err)
	}
	go func() {
		p.waitErr = cmd.Wait()
		close(p.waited)
	}()
	line, err := p.readLine()
	if err != nil {
		p.kill()
		if out := strings.TrimSpace(p.stderr.String()); out != "" {
			return nil, environment("%s does not start: %s", c.Path, out)
		}
		return nil, environment("%s does not start: %w", c.Path, err)
	}
	if err := p.greet(string(line)); err != nil {
		p.kill()
		return nil, environment("%s: %w", c.Path, err)
	}
	return p, nil
}

// environ applies changes to an environment: KEY=VALUE sets, KEY alone removes.
func environ(env, changes []string) []string {
	var out []string
	for _, e := range env {
		key, _, _ := strings.Cut(e, "=")
		if !slices.ContainsFunc(changes, func(c string) bool { k, _, _ := strings.Cut(c, "="); return k == key }) {
			out = append(out, e)
		}
	}
	for _, c := range changes {
		if strings.Contains(c, "=") {
			out = append(out, c)
		}
	}
	return out
}

func environment(format string, args ...any) error {
	return fmt.Errorf("%w: %w", allocators.ErrEnvironment, fmt.Errorf(format, args...))
}

// greet reads `shatter-child VERSION [KEY=VALUE]...`.
func (p *process) greet(line string) error {
	if text, ok := strings.CutPrefix(line, "error message="); ok {
		return errors.New(unescape(text))
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "shatter-child" {
		return fmt.Errorf("the child must begin with `shatter-child %s`, it wrote %q", ProtocolVersion, shorten(line))
	}
	if words[1] != ProtocolVersion {
		return fmt.Errorf("the child speaks protocol version %s, this program version %s", words[1], ProtocolVersion)
	}
	p.greeting = line
	for _, w := range words[2:] {
		switch w {
		case "sessions=many":
			p.many = true
		case "abandon=yes":
			p.can.abandon = true
		case "record=yes":
			p.can.record = true
		case "empty_cache=yes":
			p.can.emptyCache = true
		case "stats=yes":
			p.can.stats = true
		case "conf=yes":
			p.can.conf = true
		case "pools=yes":
			p.can.pools = true
		case "fraction=yes":
			p.can.fraction = true
		default: // later versions may tell more
		}
	}
	return nil
}

// readLine returns the next line without its end; it is valid until the next call. The watchdog is counted from the last byte
// that came.
func (p *process) readLine() ([]byte, error) {
	for {
		if i := bytes.IndexByte(p.buf[p.at:], '\n'); i >= 0 {
			line := p.buf[p.at : p.at+i]
			p.at += i + 1
			return line, nil
		}
		if len(p.buf)-p.at > maxLine {
			return nil, &allocators.Death{Kind: allocators.Garbled, Detail: fmt.Sprintf("a line of more than %d bytes", maxLine)}
		}
		n := copy(p.buf, p.buf[p.at:])
		p.buf, p.at = p.buf[:n], 0
		if cap(p.buf)-n < 1<<15 {
			p.buf = append(make([]byte, 0, max(1<<16, 2*cap(p.buf))), p.buf...)
		}
		if err := p.out.SetReadDeadline(time.Now().Add(p.timeout)); err != nil {
			return nil, environment("watchdog: %w", err)
		}
		k, err := p.out.Read(p.buf[n:cap(p.buf)])
		p.buf = p.buf[:n+k]
		if k > 0 {
			continue
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil, &allocators.Death{Kind: allocators.Hung, Detail: fmt.Sprintf("no answer for %s", p.timeout)}
		}
		if err == nil {
			continue
		}
		return nil, p.ended(err)
	}
}

// ended says how a child ended whose output is closed.
func (p *process) ended(err error) error {
	if !errors.Is(err, io.EOF) {
		return environment("read from the child: %w", err)
	}
	select {
	case <-p.waited:
	case <-time.After(p.timeout):
		return &allocators.Death{Kind: allocators.Garbled, Detail: "it closed its output and goes on running"}
	}
	if s, ok := p.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return &allocators.Death{Kind: allocators.Crashed, Detail: signalName(int(s.Signal()))}
	}
	return &allocators.Death{Kind: allocators.Exited, Detail: fmt.Sprintf("exit code %d", p.cmd.ProcessState.ExitCode())}
}

// write sends whole lines.
func (p *process) write(lines []byte) error {
	if err := p.in.SetWriteDeadline(time.Now().Add(p.timeout)); err != nil {
		return environment("watchdog: %w", err)
	}
	_, err := p.in.Write(lines)
	return err
}

// kill ends the child and its session, whatever state they are in, and reaps the child.
func (p *process) kill() {
	p.in.Close()
	if p.session > 0 {
		// First the session: the first process then reaps it, and ends because its input is closed.
		_ = syscall.Kill(p.session, syscall.SIGKILL)
		select {
		case <-p.waited:
		case <-time.After(200 * time.Millisecond):
		}
	}
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.waited
	p.out.Close()
}

// stop ends an idle child: it leaves by itself once its input is closed.
func (p *process) stop() {
	p.in.Close()
	select {
	case <-p.waited:
	case <-time.After(p.timeout):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.waited
	}
	p.out.Close()
}

var signalNames = map[int]string{
	int(syscall.SIGSEGV): "SIGSEGV", int(syscall.SIGABRT): "SIGABRT", int(syscall.SIGBUS): "SIGBUS", int(syscall.SIGFPE): "SIGFPE",
	int(syscall.SIGILL): "SIGILL", int(syscall.SIGKILL): "SIGKILL", int(syscall.SIGTERM): "SIGTERM", int(syscall.SIGPIPE): "SIGPIPE",
	int(syscall.SIGTRAP): "SIGTRAP",
}

func signalName(n int) string {
	if s, ok := signalNames[n]; ok {
		return s
	}
	return "signal " + strconv.Itoa(n)
}

func shorten(s string) string {
	if len(s) > 120 {
		return s[:120] + "..."
	}
	return s
}
