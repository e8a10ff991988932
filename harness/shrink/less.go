package shrink

import (
	"cmp"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// size is what makes a trace small, the most important first.
type size struct {
	ops, streams    int
	bytes, settings uint64
	capacity        uint64
	numbers         uint64 // sum of stream numbers
}

func sizeOf(t *trace.Trace) size {
	s := size{ops: len(t.Ops)}
	used := map[device.Stream]bool{}
	for _, op := range t.Ops {
		s.bytes += op.Bytes
		s.settings += uint64(len(op.Conf))
		switch op.Kind {
		case trace.Alloc, trace.Record, trace.Use, trace.Sync, trace.PoolBegin, trace.Segment:
			if op.Stream != trace.AllStreams && !used[op.Stream] {
				used[op.Stream] = true
				s.numbers += uint64(op.Stream)
			}
		}
	}
	s.streams = len(used)
	for _, f := range t.Header {
		switch f.Key {
		case trace.KeyConf, trace.KeyFraction:
			s.settings += uint64(len(f.Key) + len(f.Value))
		}
	}
	s.capacity, _, _ = t.Capacity()
	return s
}

// Less orders traces by operations, streams, bytes asked for, settings and capacity; then by the numbers of the streams, and
// last by the operations and settings themselves, so that it is a total order: which of several is smallest does not depend on
// which came first.
func Less(a, b *trace.Trace) bool {
	if len(a.Ops) != len(b.Ops) {
		return len(a.Ops) < len(b.Ops)
	}
	x, y := sizeOf(a), sizeOf(b)
	if c := cmp.Or(
		cmp.Compare(x.streams, y.streams), cmp.Compare(x.bytes, y.bytes), cmp.Compare(x.settings, y.settings),
		cmp.Compare(x.capacity, y.capacity), cmp.Compare(x.numbers, y.numbers),
	); c != 0 {
		return c < 0
	}
	for i := range a.Ops {
		p, q := &a.Ops[i], &b.Ops[i]
		if c := cmp.Or(
			cmp.Compare(p.Kind, q.Kind), cmp.Compare(p.Stream, q.Stream), cmp.Compare(p.Bytes, q.Bytes), cmp.Compare(p.ID, q.ID),
			cmp.Compare(p.Pool, q.Pool), compareBool(p.Capture, q.Capture),
		); c != 0 {
			return c < 0
		}
		if *p != *q {
			return p.String() < q.String()
		}
	}
	for _, key := range [...]string{trace.KeyConf, trace.KeyFraction} {
		p, _ := a.Get(key)
		q, _ := b.Get(key)
		if p != q {
			return p < q
		}
	}
	return false
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
