package external

import (
	"bytes"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// outcome is the first word of a reply.
type outcome uint8

const (
	replyOK outcome = iota
	replyOOM
	replySkip
	replyError
	replyFatal
	replyDone
)

var outcomeWords = [...]string{"ok", "oom", "skip", "error", "fatal", "done"}

// reply is a parsed reply; message and calls are valid until the next one.
type reply struct {
	outcome  outcome
	addr     device.Addr
	size     uint64
	hasSize  bool
	pid      int
	exit     int
	signal   int
	retry    string
	message  string
	calls    []call
	detailed bool // it carried all statistics
}

// callKind is a device call of a child.
type callKind uint8

const (
	callMalloc callKind = iota
	callMallocFail
	callFree
	callReserve
	callUnreserve
	callCreate
	callCreateFail
	callRelease
	callMap
	callUnmap
	callEvent
	callWait
	callSync
	callSyncAll
	callInvalid
)

var callWords = map[string]callKind{
	"malloc": callMalloc, "mallocfail": callMallocFail, "free": callFree, "reserve": callReserve, "unreserve": callUnreserve,
	"create": callCreate, "createfail": callCreateFail, "release": callRelease, "map": callMap, "unmap": callUnmap,
	"event": callEvent, "wait": callWait, "sync": callSync, "invalid": callInvalid,
}

// call is a device call. What n and m are depends on the kind.
type call struct {
	kind   callKind
	size   uint64
	addr   device.Addr
	handle uint64
	text   string // of an invalid call: which function
}

// statistics binds the keys of replies to the fields of a Stats.
type statistics struct {
	stats  allocators.Stats
	fields map[string]*uint64
}

// pools are the statistics that PyTorch keeps for all blocks and by pool, under PyTorch's names.
func (s *statistics) pools() map[string]*allocators.Pooled {
	t := &s.stats
	return map[string]*allocators.Pooled{
		"allocation": &t.Allocation, "segment": &t.Segment, "active": &t.Active, "inactive_split": &t.InactiveSplit,
		"allocated_bytes": &t.AllocatedBytes, "reserved_bytes": &t.ReservedBytes, "active_bytes": &t.ActiveBytes,
		"inactive_split_bytes": &t.InactiveSplitBytes, "requested_bytes": &t.RequestedBytes,
	}
}

func newStatistics() *statistics {
	s := &statistics{fields: map[string]*uint64{}}
	t := &s.stats
	t.MaxSplitSize = -1
	one := func(prefix string, v *allocators.Stat) {
		s.fields[prefix+".current"], s.fields[prefix+".peak"] = &v.Current, &v.Peak
		s.fields[prefix+".allocated"], s.fields[prefix+".freed"] = &v.Allocated, &v.Freed
	}
	for name, p := range s.pools() {
		one(name+".all", &p.All)
		one(name+".small_pool", &p.Small)
		one(name+".large_pool", &p.Large)
	}
	one("oversize_allocations", &t.OversizeAllocations)
	one("oversize_segments", &t.OversizeSegments)
	for key, f := range map[string]*uint64{
		"num_alloc_retries": &t.NumAllocRetries, "num_ooms": &t.NumOOMs, "num_sync_all_streams": &t.NumSyncAllStreams,
		"num_device_alloc": &t.NumDeviceAlloc, "num_device_free": &t.NumDeviceFree,
		// The short names of the columns of a decision log.
		"allocated": &t.AllocatedBytes.All.Current, "active": &t.ActiveBytes.All.Current, "reserved": &t.ReservedBytes.All.Current,
		"requested": &t.RequestedBytes.All.Current, "inactive_split": &t.InactiveSplitBytes.All.Current,
		"segments": &t.Segment.All.Current, "alloc_retries": &t.NumAllocRetries, "ooms": &t.NumOOMs,
		"live_blocks": &t.Allocation.All.Current, "active_blocks": &t.Active.All.Current,
	} {
		s.fields[key] = f
	}
	return s
}

// parse reads a reply line into r and its statistics into s. It returns false if the line is no reply.
func (r *reply) parse(line []byte, s *statistics) bool {
	calls := r.calls[:0]
	*r = reply{calls: calls}
	word, rest, _ := bytes.Cut(line, space)
	found := false
	for i, w := range outcomeWords {
		if string(word) == w {
			r.outcome, found = outcome(i), true
			break
		}
	}
	if !found {
		return false
	}
	if r.outcome == replyFatal {
		r.message = string(rest)
		return true
	}
	for len(rest) > 0 {
		eq := bytes.IndexByte(rest, '=')
		if eq < 0 {
			return false
		}
		key := rest[:eq]
		rest = rest[eq+1:]
		if string(key) == "message" { // always the last word
			r.message = unescape(string(rest))
			return true
		}
		var value []byte
		if end := bytes.IndexByte(rest, ' '); end >= 0 {
			value, rest = rest[:end], rest[end+1:]
		} else {
			value, rest = rest, nil
		}
		if !r.word(key, value, s) {
			return false
		}
	}
	return true
}

var space = []byte{' '}

// word takes one KEY=VALUE.
func (r *reply) word(key, value []byte, s *statistics) (ok bool) {
	if f, known := s.fields[string(key)]; known {
		n, ok := signed(value)
		*f = uint64(n)
		if len(key) > 20 && string(key) == "allocated_bytes.all.freed" {
			r.detailed = true
		}
		return ok
	}
	var n uint64
	switch string(key) {
	case "addr":
		n, ok = hexadecimal(value)
		r.addr = device.Addr(n)
	case "size":
		r.size, ok = decimal(value)
		r.hasSize = ok
	case "pid":
		n, ok = decimal(value)
		r.pid = int(n)
	case "exit":
		n, ok = decimal(value)
		r.exit = int(n)
	case "signal":
		n, ok = decimal(value)
		r.signal = int(n)
	case "retry":
		r.retry, ok = string(value), true
	case "max_split_size":
		s.stats.MaxSplitSize, ok = signed(value)
	default:
		kind, known := callWords[string(key)]
		if !known {
			return true // a later version may tell more
		}
		var c call
		if c, ok = parseCall(kind, value); ok {
			r.calls = append(r.calls, c)
		}
	}
	return ok
}

// parseCall reads the value of a device call: SIZE@ADDR, ADDR+SIZE, ADDR+SIZE#HANDLE, SIZE#HANDLE, SIZE, ADDR or HANDLE.
func parseCall(kind callKind, v []byte) (c call, ok bool) {
	c.kind = kind
	var a, b []byte
	var ok1, ok2 bool
	var n uint64
	switch kind {
	case callMalloc, callReserve:
		a, b, _ = bytes.Cut(v, []byte{'@'})
		c.size, ok1 = decimal(a)
		n, ok2 = hexadecimal(b)
		c.addr = device.Addr(n)
		return c, ok1 && ok2
	case callMallocFail, callCreateFail:
		c.size, ok = decimal(v)
		return c, ok
	case callFree:
		n, ok = hexadecimal(v)
		c.addr = device.Addr(n)
		return c, ok
	case callCreate, callEvent:
		a, b, _ = bytes.Cut(v, []byte{'#'})
		c.size, ok1 = decimal(a)
		c.handle, ok2 = decimal(b)
		return c, ok1 && ok2
	case callRelease, callWait:
		c.handle, ok = decimal(v)
		return c, ok
	case callMap, callUnmap, callUnreserve:
		a, b, _ = bytes.Cut(v, []byte{'+'})
		n, ok1 = hexadecimal(a)
		c.addr = device.Addr(n)
		if kind == callMap {
			var h []byte
			b, h, _ = bytes.Cut(b, []byte{'#'})
			if c.handle, ok = decimal(h); !ok {
				return c, false
			}
		}
		c.size, ok2 = decimal(b)
		return c, ok1 && ok2
	case callSync:
		if string(v) == "all" {
			c.kind = callSyncAll
			return c, true
		}
		c.size, ok = decimal(v)
		return c, ok
	default: // invalid=FUNCTION@ADDR
		a, b, _ = bytes.Cut(v, []byte{'@'})
		c.text = string(a)
		n, ok = hexadecimal(b)
		c.addr = device.Addr(n)
		return c, ok && c.text != ""
	}
}

func decimal(v []byte) (n uint64, ok bool) {
	if len(v) == 0 || len(v) > 20 {
		return 0, false
	}
	for _, d := range v {
		if d < '0' || d > '9' {
			return 0, false
		}
		n = n*10 + uint64(d-'0')
	}
	return n, true
}

func signed(v []byte) (n int64, ok bool) {
	if len(v) > 0 && v[0] == '-' {
		u, ok := decimal(v[1:])
		return -int64(u), ok
	}
	u, ok := decimal(v)
	return int64(u), ok
}

func hexadecimal(v []byte) (n uint64, ok bool) {
	if len(v) == 0 || len(v) > 16 {
		return 0, false
	}
	for _, d := range v {
		switch {
		case d >= '0' && d <= '9':
			d -= '0'
		case d >= 'a' && d <= 'f':
			d -= 'a' - 10
		default:
			return 0, false
		}
		n = n<<4 | uint64(d)
	}
	return n, true
}

func unescape(s string) string {
	return strings.NewReplacer(`\n`, "\n", `\\`, `\`).Replace(s)
}
