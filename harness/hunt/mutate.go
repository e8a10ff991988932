package hunt

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// legal makes a legal trace of any operations by dropping what cannot be: frees and records of what is not live, and what is over
// the length; an allocation under the id of a live one gets a new id, and what follows means that one.
func legal(ops []trace.Op) []trace.Op {
	out := make([]trace.Op, 0, min(len(ops), MaxOps-1))
	live := map[uint64]uint64{} // id in ops -> id in out
	var next uint64
	for _, op := range ops {
		if len(out) == MaxOps-1 {
			break
		}
		switch op.Kind {
		case trace.Alloc:
			if op.Bytes == 0 || op.Bytes > Capacity {
				continue
			}
			live[op.ID] = next
			op.ID = next
			next++
		case trace.Free, trace.Record:
			id, ok := live[op.ID]
			if !ok {
				continue
			}
			if op.Kind == trace.Free {
				delete(live, op.ID)
			}
			op.ID = id
		case trace.Conf, trace.Fraction, trace.Foreign, trace.PoolBegin, trace.PoolEnd, trace.PoolRelease, trace.Use:
			continue // the settings are the header's, the device is the allocator's alone, and private pools are no matter of the search
		case trace.EmptyCache:
			op.Pool = 0
		}
		out = append(out, op)
	}
	return out
}

func newID(ops []trace.Op) (id uint64) {
	for i := range ops {
		if ops[i].Kind == trace.Alloc {
			id = max(id, ops[i].ID+1)
		}
	}
	return id
}

// mutate makes a new trace of two.
func (h *Hunter) mutate(a, b *trace.Trace) *trace.Trace {
	ops := append([]trace.Op(nil), a.Ops...)
	for range 1 + h.rng.IntN(4) {
		ops = h.change(ops, b.Ops)
	}
	return &trace.Trace{Header: a.Header, Ops: legal(ops)}
}

// size draws a size: at a class edge, any, or one of the trace's own.
func (h *Hunter) size(ops []trace.Op) uint64 {
	r := h.rng
	switch r.IntN(4) {
	case 0:
		edges := [...]uint64{512, 1 << 20, 1<<20 + 1, 2 << 20, 10<<20 - 512, 10 << 20, 18 << 20, 20 << 20, 128 << 20, 1 << 30}
		return edges[r.IntN(len(edges))]
	case 1:
		if len(ops) > 0 {
			if op := ops[r.IntN(len(ops))]; op.Kind == trace.Alloc {
				return op.Bytes
			}
		}
	case 2:
		return uint64(r.IntN(64)+1) * (Capacity / 64)
	}
	return (512 << r.IntN(25)) * uint64(2+r.IntN(3)) / 2
}

// change makes one change.
func (h *Hunter) change(ops, other []trace.Op) []trace.Op {
	r := h.rng
	n := len(ops)
	at := r.IntN(n + 1)
	insert := func(add ...trace.Op) []trace.Op {
		return append(ops[:at:at], append(add, ops[at:]...)...)
	}
	const fresh = 1 << 40 // ids that no kept trace has
	id := fresh + uint64(r.IntN(1<<30))
	if n == 0 {
		return insert(trace.Op{Kind: trace.Alloc, ID: id, Bytes: h.size(ops)})
	}
	i := r.IntN(n)
	switch r.IntN(16) {
	case 0: // an allocation
		return insert(trace.Op{Kind: trace.Alloc, ID: id, Bytes: h.size(ops), Stream: h.stream()})
	case 1: // a free of something allocated before
		if k := r.IntN(n); ops[k].Kind == trace.Alloc && k < at {
			return insert(trace.Op{Kind: trace.Free, ID: ops[k].ID})
		}
	case 2: // without an operation
		return append(ops[:i:i], ops[i+1:]...)
	case 3, 4: // another size
		if ops[i].Kind == trace.Alloc {
			op := &ops[i]
			switch r.IntN(5) {
			case 0:
				op.Bytes = max(op.Bytes/2, 1)
			case 1:
				op.Bytes *= 2
			case 2:
				op.Bytes += 512
			case 3:
				op.Bytes = max(op.Bytes, 1024) - 512
			default:
				op.Bytes = h.size(ops)
			}
		}
	case 5: // one size everywhere becomes another
		if ops[i].Kind == trace.Alloc {
			from, to := ops[i].Bytes, h.size(ops)
			for k := range ops {
				if ops[k].Kind == trace.Alloc && ops[k].Bytes == from {
					ops[k].Bytes = to
				}
			}
		}
	case 6: // a part once more, or a few times
		length := 1 + r.IntN(min(n-i, 24))
		part := ops[i : i+length]
		var add []trace.Op
		for k := range 1 + r.IntN(6) {
			for _, op := range part {
				if op.Kind <= trace.Record {
					op.ID += uint64(k+1) << 42
				}
				add = append(add, op)
			}
		}
		at = i + length
		return insert(add...)
	case 7: // two change places
		k := r.IntN(n)
		ops[i], ops[k] = ops[k], ops[i]
	case 8: // without the end
		return ops[:1+r.IntN(n)]
	case 9: // the end of another
		if len(other) > 0 {
			k := r.IntN(len(other))
			for _, op := range other[k:] {
				if op.Kind <= trace.Record {
					op.ID += 1 << 41
				}
				ops = append(ops[:len(ops):len(ops)], op)
			}
			return ops
		}
	case 10: // a block, and others of its size, on another stream
		if ops[i].Kind == trace.Alloc {
			s := h.stream()
			for k := range ops {
				if ops[k].Kind == trace.Alloc && ops[k].Bytes == ops[i].Bytes && (k == i || r.IntN(2) == 0) {
					ops[k].Stream = s
				}
			}
		}
	case 11: // frees all blocks of one size, or all but every few
		if ops[i].Kind == trace.Alloc {
			each, k := 1+r.IntN(4), 0
			var add []trace.Op
			for _, op := range ops[:at] {
				if op.Kind == trace.Alloc && op.Bytes == ops[i].Bytes {
					if k++; each == 1 || k%each != 0 {
						add = append(add, trace.Op{Kind: trace.Free, ID: op.ID})
					}
				}
			}
			return insert(add...)
		}
	case 12: // a block lives longer: its free goes
		if ops[i].Kind == trace.Free {
			return append(ops[:i:i], ops[i+1:]...)
		}
	case 13: // what is never freed gets small
		freed := map[uint64]bool{}
		for _, op := range ops {
			if op.Kind == trace.Free {
				freed[op.ID] = true
			}
		}
		least := [...]uint64{512, 1<<20 + 512}[r.IntN(2)]
		for k := range ops {
			if ops[k].Kind == trace.Alloc && !freed[ops[k].ID] && r.IntN(4) > 0 {
				ops[k].Bytes = min(ops[k].Bytes, least)
			}
		}
	case 14: // fill, free and carve: a large block goes, and a small one takes a part of its place
		large := uint64(1+r.IntN(64)) * (Capacity / 64)
		s := h.stream()
		return insert(trace.Op{Kind: trace.Alloc, ID: id, Bytes: large, Stream: s}, trace.Op{Kind: trace.Free, ID: id},
			trace.Op{Kind: trace.Alloc, ID: id + 1<<39, Bytes: h.size(ops), Stream: s})
	case 15:
		switch k := r.IntN(n); r.IntN(3) {
		case 0:
			return insert(trace.Op{Kind: trace.EmptyCache})
		case 1:
			return insert(trace.Op{Kind: trace.Sync, Stream: trace.AllStreams})
		default:
			if ops[k].Kind == trace.Alloc && k < at {
				return insert(trace.Op{Kind: trace.Record, ID: ops[k].ID, Stream: 1 + device.Stream(r.IntN(2))})
			}
		}
	}
	return ops
}

// stream is nearly always the default one.
func (h *Hunter) stream() device.Stream {
	if h.rng.IntN(4) > 0 {
		return 0
	}
	return device.Stream(h.rng.IntN(3))
}
