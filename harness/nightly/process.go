package nightly

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// Loss is how a worker was lost, and at what.
type Loss struct {
	Kind   LossKind `json:"kind"`
	Detail string   `json:"detail"`
	// Task is what it was asked, At where it was.
	Task Task `json:"task"`
	At   Beat `json:"at"`
	// Again says what became of the same task in another worker.
	Again string `json:"again,omitempty"`
}

// LossKind says how a worker ended.
type LossKind string

// The ways in which a worker ends.
const (
	Hung   LossKind = "hung"   // it stood still for the watchdog's time
	Died   LossKind = "died"   // its process ended
	Babble LossKind = "babble" // it wrote what is no answer
)

func (l *Loss) String() string {
	where := l.At.Doing
	if l.At.Op >= 0 {
		where = fmt.Sprintf("operation %d (%s) of %s", l.At.Op, l.At.Operation, l.At.Doing)
	}
	return fmt.Sprintf("a worker %s at %s: %s", map[LossKind]string{Hung: "hung", Died: "died", Babble: "babbled"}[l.Kind], where, l.Detail)
}

// maxLine bounds a worker's line: an answer may hold a trace of millions of operations.
const maxLine = 1 << 30

// process is a running worker.
type process struct {
	cmd      *exec.Cmd
	in       io.WriteCloser
	out      io.ReadCloser
	messages chan message // closed when its output ends
	garbled  error        // why, if what it wrote was no message; read it once messages is closed
	stderr   tail
	moves    uint64
	last     Beat
}

// startProcess starts a worker and waits until it is ready.
func startProcess(ctx context.Context, command func() *exec.Cmd, watchdog time.Duration) (*process, error) {
	p := &process{cmd: command(), messages: make(chan message, 16)}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = time.Second // a grandchild may hold its standard error open
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if p.out, err = p.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read()
	timer := time.NewTimer(watchdog)
	defer timer.Stop()
	select {
	case m, ok := <-p.messages:
		if ok && m.Ready {
			return p, nil
		}
		p.kill()
		return nil, fmt.Errorf("a worker does not start: %s", p.why())
	case <-timer.C:
		p.kill()
		return nil, fmt.Errorf("a worker does not start: it said nothing for %s", watchdog)
	case <-ctx.Done():
		p.kill()
		return nil, context.Cause(ctx)
	}
}

// read hands over messages until the output ends.
func (p *process) read() {
	defer close(p.messages)
	s := bufio.NewScanner(p.out)
	s.Buffer(make([]byte, 0, 1<<16), maxLine)
	for s.Scan() {
		var m message
		if err := json.Unmarshal(s.Bytes(), &m); err != nil {
			p.garbled = fmt.Errorf("it wrote %q", shorten(s.Text()))
			return
		}
		p.messages <- m
	}
	p.garbled = s.Err()
}

// ask gives the worker a task and returns its answer, or how it was lost. When ctx ends, both are nil and the worker is in the
// midst of it: it must be killed.
func (p *process) ask(ctx context.Context, t Task, watchdog time.Duration) (*Answer, *Loss) {
	p.last = Beat{Doing: fmt.Sprintf("%s %d", t.Kind, t.Index), Op: -1}
	line, err := json.Marshal(t)
	if err != nil {
		return &Answer{Fault: err.Error()}, nil
	}
	written := make(chan error, 1) // a worker that hangs does not read either
	go func() {
		_, err := p.in.Write(append(line, '\n'))
		written <- err
	}()
	timer := time.NewTimer(watchdog)
	defer timer.Stop()
	for {
		select {
		case err := <-written:
			if err != nil {
				return nil, p.lost(t, Died)
			}
		case m, ok := <-p.messages:
			switch {
			case !ok && p.garbled != nil:
				return nil, p.lost(t, Babble)
			case !ok:
				return nil, p.lost(t, Died)
			case m.Answer != nil:
				return m.Answer, nil
			case m.Beat != nil:
				if p.last = *m.Beat; m.Beat.Moves != p.moves {
					p.moves = m.Beat.Moves
					timer.Reset(watchdog)
				}
			}
		case <-timer.C:
			l := p.lost(t, Hung)
			l.Detail = fmt.Sprintf("nothing moved for %s; it was killed", watchdog)
			return nil, l
		case <-ctx.Done():
			return nil, nil
		}
	}
}

// lost ends the worker and says how it was lost.
func (p *process) lost(t Task, kind LossKind) *Loss {
	p.kill()
	return &Loss{Kind: kind, Detail: p.why(), Task: t, At: p.last}
}

// kill ends the worker, whatever state it is in, and reaps it. One that has ended already keeps its own exit status.
func (p *process) kill() {
	_ = p.in.Close()
	_ = p.cmd.Process.Kill()
	// Its output ends with it, unless a grandchild holds it open.
	stop := time.AfterFunc(time.Second, func() { _ = p.out.Close() })
	for range p.messages {
	}
	stop.Stop()
	_ = p.cmd.Wait()
}

// why says how a process that was reaped has ended.
func (p *process) why() string {
	what := p.cmd.ProcessState.String()
	if p.garbled != nil {
		what = p.garbled.Error()
	}
	if text := p.stderr.last(); text != "" {
		what += ": " + text
	}
	return what
}

// tailSize is how much of a worker's standard error is kept, in bytes.
const tailSize = 4 << 10

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	data []byte
}

// Write implements io.Writer; it never fails, so the worker is never held up.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, b...)
	if n := len(t.data) - tailSize; n > 0 {
		t.data = append(t.data[:0], t.data[n:]...)
	}
	return len(b), nil
}

// last is the first line of the last thing that was written there: of a crash of Go, what it says before its stacks.
func (t *tail) last() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text := string(bytes.TrimSpace(t.data))
	for _, mark := range []string{"fatal error: ", "panic: ", "SIGSEGV: "} {
		if i := strings.LastIndex(text, mark); i >= 0 {
			text = text[i:]
			break
		}
	}
	text, _, _ = strings.Cut(text, "\n")
	return shorten(text)
}

func shorten(s string) string {
	if len(s) > 160 {
		return s[:160] + "..."
	}
	return s
}

var errNoWorkers = errors.New("no worker can be started")
