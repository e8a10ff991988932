package external

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/shatter-gpu/shatter/allocators"
)

// session is a conversation with a child about one allocator.
type session struct {
	p     *process
	reply reply
	// Of a script: writer sends it; stop asks the writer to end behind a whole line.
	writing sync.WaitGroup
	mu      sync.Mutex
	stop    bool
	broken  bool // the writer could not send everything
	dead    error
	hung    error // the watchdog's time was over; what comes still are replies from before
	line    []byte
}

// openSession starts a session: the child makes a new allocator on an empty device.
func openSession(pl *pool, capacity uint64, fraction *float64, retry bool, stats *statistics) (*session, error) {
	p, err := pl.take()
	if err != nil {
		return nil, err
	}
	s := &session{p: p}
	line := []byte("start capacity=")
	line = strconv.AppendUint(line, capacity, 10)
	if fraction != nil {
		line = append(line, " fraction="...)
		line = strconv.AppendFloat(line, *fraction, 'g', -1, 64)
	}
	if retry {
		line = append(line, " retry=yes"...)
	}
	if c := pl.command.Settings; c != "" {
		line = append(append(line, " conf="...), c...)
	}
	line = append(line, '\n')
	if err := p.write(line); err != nil {
		p.kill()
		return nil, environment("start of a session: %w", err)
	}
	if err := s.next(stats); err != nil {
		s.kill()
		return nil, err
	}
	if s.reply.outcome != replyOK {
		text := s.reply.message
		s.kill()
		return nil, fmt.Errorf("the allocator rejects its settings: %s", text)
	}
	p.session = s.reply.pid
	return s, nil
}

// next reads a reply. A death is returned once and for all.
func (s *session) next(stats *statistics) error {
	if s.dead != nil {
		return s.dead
	}
	err := s.read(stats)
	var d *allocators.Death
	if errors.As(err, &d) && d.Kind == allocators.Hung && s.hung == nil && s.p.session > 0 {
		// Replies to earlier operations may lie in the child's buffer: it sends them when it is told to end.
		s.hung = d
		_ = syscall.Kill(s.p.session, syscall.SIGTERM)
		_ = syscall.Kill(s.p.session, syscall.SIGCONT)
		err = s.read(stats)
	}
	if err != nil && s.hung != nil {
		err = s.hung
	}
	s.dead = err
	return err
}

func (s *session) read(stats *statistics) error {
	line, err := s.p.readLine()
	if err != nil {
		return err
	}
	if !s.reply.parse(line, stats) {
		return &allocators.Death{Kind: allocators.Garbled, Detail: fmt.Sprintf("it answered %q", shorten(string(line)))}
	}
	switch s.reply.outcome {
	case replyDone:
		return s.ended()
	case replyFatal:
		return environment("%s", s.reply.message)
	}
	return nil
}

// ended is what a `done` in mid-session means.
func (s *session) ended() error {
	d := &allocators.Death{Kind: allocators.Exited, Detail: fmt.Sprintf("exit code %d", s.reply.exit)}
	if s.reply.signal != 0 {
		d.Kind, d.Detail = allocators.Crashed, signalName(s.reply.signal)
	}
	return d
}

// ask sends one line and reads its reply.
func (s *session) ask(line []byte, stats *statistics) error {
	if s.dead != nil {
		return s.dead
	}
	if err := s.p.write(line); err != nil && !errors.Is(err, syscall.EPIPE) && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.dead = environment("write to the child: %w", err)
		return s.dead
	}
	return s.next(stats) // a child that does not read is found out here
}

// scriptChunk is how much of a script is sent at once, in bytes.
const scriptChunk = 16 << 10

// play sends requests [from, to) of a script without waiting for the replies.
func (s *session) play(script *allocators.Script, can *abilities, from, to int) {
	s.writing.Add(1)
	go func() {
		defer s.writing.Done()
		var chunk []byte
		for i := from; i < to; {
			chunk = chunk[:0]
			for ; i < to && len(chunk) < scriptChunk; i++ {
				chunk = appendRequest(chunk, script.At(i), can)
			}
			s.mu.Lock()
			stop := s.stop
			s.mu.Unlock()
			if stop {
				return
			}
			if err := s.p.write(chunk); err != nil {
				s.mu.Lock()
				s.broken = true
				s.mu.Unlock()
				return // the reader finds out why
			}
		}
	}()
}

// finish ends the session and gives the process back to the pool if it is fit for another one.
func (s *session) finish(pl *pool) {
	if s.dead != nil {
		s.kill()
		return
	}
	s.mu.Lock()
	s.stop = true
	s.mu.Unlock()
	if s.p.can.abandon && s.p.session > 0 {
		_ = syscall.Kill(s.p.session, syscall.SIGUSR1) // what was sent ahead need not be done
	}
	end := make(chan error, 1)
	go func() {
		s.writing.Wait()
		s.mu.Lock()
		broken := s.broken
		s.mu.Unlock()
		if broken {
			end <- errors.New("the script was not sent whole")
			return
		}
		end <- s.p.write([]byte("end\n"))
	}()
	scrap := newStatistics()
	for {
		// Replies to what was sent ahead come first.
		if err := s.next(scrap); err != nil {
			break
		}
	}
	if err := <-end; err != nil || s.reply.outcome != replyDone || s.reply.signal != 0 || s.reply.exit != 0 {
		s.kill()
		return
	}
	pl.give(s.p)
}

// kill ends the process. What it wrote to its standard error is known whole only then, and is told with its death.
func (s *session) kill() {
	s.mu.Lock()
	s.stop = true
	s.mu.Unlock()
	s.p.kill() // closes the input, which ends the writer
	s.writing.Wait()
	var d *allocators.Death
	if errors.As(s.dead, &d) {
		d.Output = s.p.stderr.String()
	}
}

// appendRequest appends a request as a line of the trace format, if the child can do it, and what it asks for behind it.
func appendRequest(dst []byte, r allocators.Request, can *abilities) []byte {
	num := func(n uint64) { dst = strconv.AppendUint(append(dst, ' '), n, 10) }
	stream := func() { dst = strconv.AppendInt(append(dst, " stream="...), int64(r.Stream), 10) }
	kind := r.Kind
	if !can.has(kind) {
		kind = allocators.RequestNone
	}
	switch kind {
	case allocators.RequestAlloc:
		dst = append(dst, "alloc"...)
		num(uint64(r.ID))
		num(r.Bytes)
		if r.Stream != 0 {
			stream()
		}
	case allocators.RequestFree:
		dst = append(dst, "free"...)
		num(uint64(r.ID))
	case allocators.RequestRecord:
		dst = append(dst, "record"...)
		num(uint64(r.ID))
		stream()
	case allocators.RequestSync:
		dst = append(dst, "sync"...)
		if r.Stream >= 0 {
			stream()
		}
	case allocators.RequestEmptyCache:
		dst = append(dst, "empty_cache"...)
	case allocators.RequestConf:
		dst = append(append(dst, "conf "...), r.Conf...)
	case allocators.RequestFraction:
		dst = strconv.AppendFloat(append(dst, "fraction "...), r.Fraction, 'g', -1, 64)
	case allocators.RequestForeign:
		dst = append(dst, "foreign"...)
		num(r.Bytes)
	case allocators.RequestPoolBegin:
		dst = append(dst, "pool begin"...)
		num(uint64(r.Pool))
		if r.Stream != allocators.AnyStream {
			stream()
		}
		if r.Capture {
			dst = append(dst, " capture"...)
		}
	case allocators.RequestPoolEnd:
		dst = append(dst, "pool end"...)
		num(uint64(r.Pool))
	case allocators.RequestPoolRelease:
		dst = append(dst, "pool release"...)
		num(uint64(r.Pool))
	case allocators.RequestEmptyPool:
		dst = strconv.AppendUint(append(dst, "empty_cache pool="...), uint64(r.Pool), 10)
	}
	if kind != allocators.RequestNone {
		dst = append(dst, '\n')
	}
	if r.StatsAfter && can.stats {
		dst = append(dst, "stats\n"...)
	}
	return dst
}

// has tells whether a child can do what is asked.
func (c *abilities) has(k allocators.RequestKind) bool {
	switch k {
	case allocators.RequestRecord:
		return c.record
	case allocators.RequestEmptyCache:
		return c.emptyCache
	case allocators.RequestConf:
		return c.conf
	case allocators.RequestFraction:
		return c.fraction
	case allocators.RequestPoolBegin, allocators.RequestPoolEnd, allocators.RequestPoolRelease, allocators.RequestEmptyPool:
		return c.pools
	case allocators.RequestNone:
		return false
	}
	return true
}
