package nightly

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// beatEvery is how often a worker says where it is.
const beatEvery = 200 * time.Millisecond

// Serve is a worker: it answers tasks until in ends. ctx ends with it. An error is one of writing: whoever asked is gone. do's errors
// are faults of the harness or its environment.
func Serve(ctx context.Context, in io.Reader, out io.Writer, do func(context.Context, Task, *Pulse) (Answer, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var pulse Pulse
	w := &lines{enc: json.NewEncoder(out)}
	if err := w.write(message{Ready: true}); err != nil {
		return err
	}
	go beats(ctx, &pulse, w)
	for tasks := json.NewDecoder(bufio.NewReader(in)); ; {
		var t Task
		if err := tasks.Decode(&t); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return fmt.Errorf("a worker of shatter nightly reads tasks: %w", err)
		}
		pulse.before, pulse.tell = spooler(t.Spool), nil
		if t.Spool != "" { // a worker was lost at this: be exact rather than fast
			pulse.tell = func(b Beat) { _ = w.write(message{Beat: &b}) }
		}
		pulse.Stage("%s %d", t.Kind, t.Index)
		a := answer(ctx, t, &pulse, do)
		if err := w.write(message{Answer: &a}); err != nil {
			return err
		}
	}
}

// answer does a task. What panics here is the harness: the executor makes findings of an allocator's panics.
func answer(ctx context.Context, t Task, p *Pulse, do func(context.Context, Task, *Pulse) (Answer, error)) (a Answer) {
	defer func() {
		if r := recover(); r != nil {
			a.Fault = fmt.Sprintf("%v: panic: %v (%s)", executor.ErrHarness, r, p.beat().Doing)
		}
	}()
	a, err := do(ctx, t, p)
	if err != nil {
		a.Fault = err.Error()
	}
	return a
}

// beats says where the worker is, and ends the process once nobody reads it: a worker whose night is gone may hang for ever.
func beats(ctx context.Context, p *Pulse, w *lines) {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b := p.beat()
			if w.write(message{Beat: &b}) != nil {
				os.Exit(1)
			}
		}
	}
}

// lines writes a line at a time.
type lines struct {
	mu  sync.Mutex
	enc *json.Encoder
}

func (l *lines) write(m message) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.enc.Encode(m)
}

// spooler writes each trace to a file before it runs; nil if none is named.
func spooler(path string) func(*trace.Trace, string, uint64) {
	if path == "" {
		return nil
	}
	return func(t *trace.Trace, target string, capacity uint64) {
		c := &trace.Trace{Header: slices.Clone(t.Header), Ops: t.Ops}
		if target != "" {
			c.Set("allocator", target)
		}
		if capacity > 0 {
			c.Set(trace.KeyCapacity, strconv.FormatUint(capacity, 10))
		}
		_ = trace.WriteFile(path, c) // without it the finding names the trace, and has none beside it
	}
}
