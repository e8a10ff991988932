package external

import (
	"sync"
	"time"
)

// DefaultTimeout is how long a child may take for an answer before it counts as hung.
const DefaultTimeout = 20 * time.Second

// Command is a program that speaks the line protocol.
type Command struct {
	// Path of the program, and its arguments without the name.
	Path string
	Args []string
	// Env changes the environment: KEY=VALUE sets a variable, KEY alone removes it.
	Env []string
	// Settings are told to the child at the start of a session, if not empty.
	Settings string
	// Timeout is the watchdog's; 0 means DefaultTimeout.
	Timeout time.Duration
}

func (c *Command) timeout() time.Duration {
	if c.Timeout > 0 {
		return c.Timeout
	}
	return DefaultTimeout
}

const (
	maxIdle = 4  // processes kept warm
	maxOpen = 16 // sessions open at once; beyond that the one that was used longest ago is parked
)

// pool keeps the processes of a command.
type pool struct {
	command Command
	mu      sync.Mutex
	idle    []*process
	open    []*Allocator // with a session, used longest ago first
}

// take returns a process that waits for a session.
func (p *pool) take() (*process, error) {
	p.mu.Lock()
	if n := len(p.idle); n > 0 {
		q := p.idle[n-1]
		p.idle = p.idle[:n-1]
		p.mu.Unlock()
		return q, nil
	}
	p.mu.Unlock()
	return startProcess(&p.command)
}

// give takes back a process that waits for a session.
func (p *pool) give(q *process) {
	q.stderr.reset()
	q.session = 0
	p.mu.Lock()
	keep := q.many && len(p.idle) < maxIdle
	if keep {
		p.idle = append(p.idle, q)
	}
	p.mu.Unlock()
	if !keep {
		q.stop()
	}
}

// opened notes that an allocator has a session, and parks others if there are too many. An allocator that is at work is left
// alone.
func (p *pool) opened(a *Allocator) {
	p.mu.Lock()
	p.open = append(p.open, a)
	var victims []*Allocator
	if n := len(p.open) - maxOpen; n > 0 {
		victims = append(victims, p.open[:n]...)
	}
	p.mu.Unlock()
	for _, v := range victims {
		if v != a && v.mu.TryLock() {
			v.park()
			v.mu.Unlock()
		}
	}
}

func (p *pool) closed(a *Allocator) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, o := range p.open {
		if o == a {
			p.open = append(p.open[:i], p.open[i+1:]...)
			return
		}
	}
}

// close ends all idle processes.
func (p *pool) close() {
	p.mu.Lock()
	idle := p.idle
	p.idle = nil
	p.mu.Unlock()
	for _, q := range idle {
		q.stop()
	}
}
