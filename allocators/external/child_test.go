package external_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/external"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// childMode says, in the environment, that the test binary is to be a child, and what it does wrong at its tenth operation.
const childMode = "SHATTER_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		child(mode)
		return
	}
	code := m.Run()
	removeCache()
	os.Exit(code)
}

// childCommand runs this test binary as a child: our own caching allocator behind the protocol.
func childCommand(mode string) external.Command {
	return external.Command{Path: os.Args[0], Env: []string{childMode + "=" + mode}}
}

// child speaks the protocol. It is also the example of a child in Go.
func child(mode string) {
	in := bufio.NewReader(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	switch mode {
	case "no-greeting":
		fmt.Println("hello")
		return
	case "old":
		fmt.Println("shatter-child 0")
		return
	case "unable":
		fmt.Println(`error message=no licence\nask for one`)
		return
	case "silent-exit":
		fmt.Fprintln(os.Stderr, "the reason")
		os.Exit(3)
	}
	sessions, pools := " sessions=many", ""
	switch mode {
	case "once":
		sessions = ""
	case "pools", "held", "assertion":
		pools = " pools=yes"
	}
	fmt.Fprintf(out, "shatter-child 1%s record=yes empty_cache=yes stats=yes conf=yes fraction=yes%s later=word\n", sessions, pools)
	out.Flush()
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		if s := newServer(line, mode); s.serve(in, out) != nil || mode == "once" {
			return
		}
	}
}

// server is one session.
type server struct {
	mode  string
	dev   *telling
	alloc *caching.Allocator
	live  map[uint64]device.Addr
	gone  map[uint64]bool
	ops   int
	open  int // pools
	reply bytes.Buffer
}

func newServer(start, mode string) *server {
	field := func(key string) string {
		_, v, _ := strings.Cut(start, " "+key+"=")
		v, _, _ = strings.Cut(strings.TrimSpace(v), " ")
		return v
	}
	capacity, _ := strconv.ParseUint(field("capacity"), 10, 64)
	sim, err := simdev.New(simdev.Options{Capacity: capacity})
	if err != nil {
		panic(err)
	}
	if mode == "elsewhere" { // addresses of its own
		if _, err := sim.Reserve(1 << 30); err != nil {
			panic(err)
		}
		a, err := sim.Malloc(simdev.Granule)
		if err == nil {
			err = sim.Free(a)
		}
		if err != nil {
			panic(err)
		}
	}
	s := &server{mode: mode, dev: &telling{Device: sim}, live: map[uint64]device.Addr{}, gone: map[uint64]bool{}}
	set, _, err := caching.ParseSettings(field("conf"))
	if err != nil {
		fmt.Printf("error message=%v\n", err)
		os.Exit(0)
	}
	if f := field("fraction"); f != "" {
		set.HasFraction = true
		set.Fraction, _ = strconv.ParseFloat(f, 64)
	}
	if s.alloc, err = caching.New(s.dev, set); err != nil {
		panic(err)
	}
	fmt.Fprintf(&s.reply, "ok")
	return s
}

func (s *server) serve(in *bufio.Reader, out *bufio.Writer) error {
	for {
		s.reply.Write(s.dev.text)
		s.dev.text = s.dev.text[:0]
		s.reply.WriteByte('\n')
		out.Write(s.reply.Bytes())
		s.reply.Reset()
		if in.Buffered() == 0 {
			out.Flush()
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return err
		}
		line = strings.TrimSpace(line)
		switch line {
		case "end":
			fmt.Fprintln(out, "done")
			return out.Flush()
		case "stats":
			s.reply.WriteString("ok")
			s.stats()
			continue
		}
		s.misbehave(out)
		t, err := trace.ParseString("child", s.legal(line))
		if err != nil {
			panic(err)
		}
		s.do(&t.Ops[len(t.Ops)-1])
	}
}

// legal makes a line that needs a block or a private pool a whole trace.
func (s *server) legal(line string) string {
	f := strings.Fields(line)
	switch {
	case f[0] == "free" || f[0] == "record":
		return "alloc " + f[1] + " 1\n" + line
	case f[0] == "pool" && f[1] == "end":
		return "pool begin " + f[2] + "\n" + line
	case f[0] == "pool" && f[1] == "release":
		return "pool begin " + f[2] + "\npool end " + f[2] + "\n" + line
	case f[0] == "empty_cache" && len(f) > 1:
		return "pool begin " + strings.TrimPrefix(f[1], "pool=") + "\n" + line
	}
	return line
}

func (s *server) misbehave(out *bufio.Writer) {
	s.ops++
	if s.mode == "noisy" {
		fmt.Fprintln(os.Stderr, strings.Repeat("noise ", 2000))
	}
	if s.ops != 10 {
		return
	}
	out.Flush()
	switch s.mode {
	case "exit":
		fmt.Fprintln(os.Stderr, "cannot go on")
		os.Exit(4)
	case "killed":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stopped":
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	case "garbage":
		fmt.Fprintln(out, "what?")
	case "raise":
		fmt.Fprintln(out, "error message=assertion failed\\nmore of it")
	case "endless":
		fmt.Fprint(out, strings.Repeat("x", 2<<20))
	case "fatal":
		fmt.Fprintln(out, "fatal the library calls cudaSecret, which the simulated GPU does not have")
	case "greedy": // a device that gives what it has not
		fmt.Fprintln(out, "ok addr=7f0000000000 malloc=70368744177664@7f0000000000")
	}
	out.Flush()
}

func (s *server) do(op *trace.Op) {
	word := "ok"
	var err error
	switch op.Kind {
	case trace.Alloc:
		var b allocators.Block
		b, err = s.alloc.Alloc(op.Bytes, op.Stream)
		if errors.Is(err, device.ErrOutOfMemory) {
			s.gone[op.ID] = true
			s.reply.WriteString("oom")
			s.stats()
			s.reply.Write(s.dev.text)
			s.dev.text = s.dev.text[:0]
			fmt.Fprintf(&s.reply, " message=%v", err)
			return
		}
		delete(s.gone, op.ID)
		s.live[op.ID] = b.Addr
		word = fmt.Sprintf("ok addr=%x size=%d", uint64(b.Addr), b.Size)
	case trace.Free:
		if s.gone[op.ID] {
			word = "skip"
			break
		}
		err = s.alloc.Free(s.live[op.ID])
	case trace.Record:
		if s.gone[op.ID] {
			word = "skip"
		} else if s.live[op.ID] != 0 {
			err = s.alloc.Record(s.live[op.ID], op.Stream)
		}
	case trace.Sync:
		if op.Stream == trace.AllStreams {
			err = s.dev.Device.SyncAll()
		} else {
			err = s.dev.Device.Sync(op.Stream)
		}
	case trace.EmptyCache:
		if op.Pool != 0 {
			err = s.alloc.EmptyPool(op.Pool)
		} else {
			err = s.alloc.EmptyCache()
		}
		switch {
		case s.mode == "held" && s.open > 0:
			err = errors.New(`captures_underway.empty() INTERNAL ASSERT FAILED at "/c10/cuda/CUDACachingAllocator.cpp":3085`)
		case s.mode == "assertion" && s.open > 0:
			err = errors.New(`pool->cudaMalloc_count > 0 INTERNAL ASSERT FAILED at "/c10/captured.cpp":3031`)
		}
	case trace.PoolBegin:
		s.open++
		err = s.alloc.BeginPool(allocators.Redirection{Pool: op.Pool, Stream: op.Stream, Capture: op.Capture})
	case trace.PoolEnd:
		s.open--
		err = s.alloc.EndPool(op.Pool)
	case trace.PoolRelease:
		err = s.alloc.ReleasePool(op.Pool)
	case trace.Conf:
		err = s.alloc.Configure(op.Conf)
	case trace.Fraction:
		err = s.alloc.SetFraction(op.Fraction)
	case trace.Foreign:
		if s.dev.Device.(device.Foreigner).SetForeign(op.Bytes) != nil {
			word = "skip"
		}
	}
	if err != nil {
		fmt.Fprintf(&s.reply, "error message=%v", err)
		return
	}
	s.reply.WriteString(word)
	if op.Kind == trace.EmptyCache {
		s.stats()
		return
	}
	t := s.alloc.Stats()
	fmt.Fprintf(&s.reply, " allocated=%d active=%d reserved=%d requested=%d inactive_split=%d segments=%d alloc_retries=%d ooms=%d live_blocks=%d active_blocks=%d",
		t.AllocatedBytes.All.Current, t.ActiveBytes.All.Current, t.ReservedBytes.All.Current, t.RequestedBytes.All.Current,
		t.InactiveSplitBytes.All.Current, t.Segment.All.Current, t.NumAllocRetries, t.NumOOMs, t.Allocation.All.Current, t.Active.All.Current)
}

func (s *server) stats() {
	for _, v := range s.alloc.Stats().MemoryStats() {
		fmt.Fprintf(&s.reply, " %s=%d", v.Key, v.Value)
	}
}

// telling is a device that writes down the calls in the words of the protocol.
type telling struct {
	device.Device
	text    []byte
	handles map[device.Handle]int
	events  map[device.Event]int
}

func (t *telling) say(format string, args ...any) { t.text = fmt.Appendf(t.text, " "+format, args...) }

func number[K comparable](m *map[K]int, k K) int {
	if *m == nil {
		*m = map[K]int{}
	}
	n, ok := (*m)[k]
	if !ok {
		n = len(*m) + 1
		(*m)[k] = n
	}
	return n
}

func (t *telling) Malloc(size uint64) (device.Addr, error) {
	a, err := t.Device.Malloc(size)
	if err != nil {
		t.say("mallocfail=%d", size)
	} else {
		t.say("malloc=%d@%x", size, uint64(a))
	}
	return a, err
}

func (t *telling) Free(a device.Addr) error {
	t.say("free=%x", uint64(a))
	return t.Device.Free(a)
}

func (t *telling) Reserve(size uint64) (device.Addr, error) {
	a, err := t.Device.Reserve(size)
	t.say("reserve=%d@%x", size, uint64(a))
	return a, err
}

func (t *telling) Unreserve(a device.Addr, size uint64) error {
	t.say("unreserve=%x+%d", uint64(a), size)
	return t.Device.Unreserve(a, size)
}

func (t *telling) Create(size uint64) (device.Handle, error) {
	h, err := t.Device.Create(size)
	if err != nil {
		t.say("createfail=%d", size)
	} else {
		t.say("create=%d#%d", size, number(&t.handles, h))
	}
	return h, err
}

func (t *telling) Release(h device.Handle) error {
	t.say("release=%d", number(&t.handles, h))
	return t.Device.Release(h)
}

func (t *telling) Map(a device.Addr, size uint64, h device.Handle) error {
	t.say("map=%x+%d#%d", uint64(a), size, number(&t.handles, h))
	return t.Device.Map(a, size, h)
}

func (t *telling) Unmap(a device.Addr, size uint64) error {
	t.say("unmap=%x+%d", uint64(a), size)
	return t.Device.Unmap(a, size)
}

func (t *telling) Record(s device.Stream) (device.Event, error) {
	e, err := t.Device.Record(s)
	t.say("event=%d#%d", s, number(&t.events, e))
	return e, err
}

func (t *telling) Wait(e device.Event) error {
	t.say("wait=%d", number(&t.events, e))
	return t.Device.Wait(e)
}

func (t *telling) Sync(s device.Stream) error {
	t.say("sync=%d", s)
	return t.Device.Sync(s)
}

func (t *telling) SyncAll() error {
	t.say("sync=all")
	return t.Device.SyncAll()
}
