package nightly

import (
	"context"
	"fmt"
	"os/exec"
	"sync"
	"time"
)

// startTries is how often in a row a worker may fail to start.
const startTries = 3

// pool keeps workers busy.
type pool struct {
	command  func() *exec.Cmd
	workers  int
	watchdog time.Duration
	// next gives the next task and waits for it if need be; false ends a worker.
	next func() (Task, bool)
	// done is told what each task came to; both nil: it was cut off. broken is told that no worker can be started.
	done    func(Task, *Answer, *Loss)
	broken  func(error)
	started func()
}

// run works until next says that nothing is left. When ctx ends, workers are killed in the midst of what they do.
func (p *pool) run(ctx context.Context) {
	var wg sync.WaitGroup
	for range p.workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			p.work(ctx)
		}()
	}
	wg.Wait()
}

// work keeps one worker busy, and replaces it when it is lost.
func (p *pool) work(ctx context.Context) {
	var w *process
	defer func() {
		if w != nil {
			w.kill()
		}
	}()
	for {
		t, ok := p.next()
		if !ok {
			return
		}
		if w == nil {
			var err error
			if w, err = p.start(ctx); err != nil {
				p.done(t, nil, nil)
				if ctx.Err() == nil {
					p.broken(err)
				}
				return
			}
		}
		a, loss := w.ask(ctx, t, p.watchdog)
		switch {
		case loss != nil:
			w = nil // it is gone
		case a == nil || a.Fault != "":
			w.kill() // in the midst of something, or perhaps with a device that is broken for this process
			w = nil
		}
		p.done(t, a, loss)
	}
}

func (p *pool) start(ctx context.Context) (*process, error) {
	for tries := 1; ; tries++ {
		w, err := startProcess(ctx, p.command, p.watchdog)
		switch {
		case err == nil:
			p.started()
			return w, nil
		case ctx.Err() != nil || tries == startTries:
			return nil, fmt.Errorf("%w: %w", errNoWorkers, err)
		}
	}
}
