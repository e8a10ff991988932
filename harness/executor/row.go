package executor

import (
	"strconv"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Columns are the columns of a decision log, in order (the recorded logs' format; all figures after the operation, in bytes).
var Columns = []string{
	"op", "kind", "outcome", "segment", "offset", "block_size", "allocated", "active", "reserved", "requested",
	"inactive_split", "device_free", "segments", "alloc_retries", "ooms", "driver_events",
}

// Row is what one operation came to.
type Row struct {
	Op      int
	Kind    trace.Kind
	Outcome Outcome
	// HasBlock: Segment, Offset and BlockSize are the block's.
	HasBlock  bool
	Segment   int // ordinal of the region by creation
	Offset    uint64
	BlockSize uint64
	// Stats are the allocator's counters, nil if it keeps none.
	Stats      *allocators.Stats
	DeviceFree uint64
	Judgement  *Judgement // filled in by callers that have it
	run        *Run
	known      []place // by slot: free and record repeat the place of the alloc
}

// place is where a slot's block lies. A classic region may be gone by the time that a row asks, so it is kept.
type place struct {
	segment int
	offset  uint64
}

// Block is what an alloc returned, or what a free or record was given; zero if there is none.
func (w *Row) Block() allocators.Block { return w.run.block }

func (w *Row) set(r *Run, s *step) {
	w.run = r
	w.Op, w.Kind, w.Outcome, w.Stats, w.DeviceFree = r.next, s.kind, r.outcome, r.stats, r.state.DeviceFree
	w.HasBlock = r.outcome == OK && r.block.Addr != 0
	w.Segment, w.Offset, w.BlockSize = 0, 0, r.block.Size
	if !w.HasBlock {
		return
	}
	if w.known == nil {
		w.known = make([]place, r.prog.slots)
	}
	if s.kind == trace.Alloc || s.kind == trace.Block {
		p := place{segment: -1}
		if g := r.state.Region; g != nil {
			p = place{g.Ordinal, uint64(r.block.Addr - g.Addr)}
		}
		w.known[s.slot] = p
	}
	w.Segment, w.Offset = w.known[s.slot].segment, w.known[s.slot].offset
}

// Append appends the row as a line of a decision log, without its line end.
func (w *Row) Append(dst []byte) []byte {
	dst = strconv.AppendInt(dst, int64(w.Op), 10)
	dst = append(dst, '\t')
	dst = append(dst, w.Kind.String()...)
	dst = append(dst, '\t')
	dst = append(dst, w.Outcome.String()...)
	if w.HasBlock {
		for _, v := range [...]uint64{uint64(w.Segment), w.Offset, w.BlockSize} {
			dst = strconv.AppendUint(append(dst, '\t'), v, 10)
		}
	} else {
		dst = append(dst, "\t-\t-\t-"...)
	}
	if s := w.Stats; s != nil {
		for _, v := range [...]uint64{
			s.AllocatedBytes.All.Current, s.ActiveBytes.All.Current, s.ReservedBytes.All.Current, s.RequestedBytes.All.Current,
			s.InactiveSplitBytes.All.Current, w.DeviceFree, s.Segment.All.Current, s.NumAllocRetries, s.NumOOMs,
		} {
			dst = strconv.AppendUint(append(dst, '\t'), v, 10)
		}
	} else {
		dst = append(dst, "\t?\t?\t?\t?\t?\t"...)
		dst = strconv.AppendUint(dst, w.DeviceFree, 10)
		dst = append(dst, "\t?\t?\t?"...)
	}
	dst = append(dst, '\t')
	return w.AppendEvents(dst)
}

// AppendEvents appends the device calls of the operation, `-` if there were none: as in the recorded logs, map and unmap
// calls of one segment that directly follow each other upwards are one event, and what a failed create took before is
// its number only.
func (w *Row) AppendEvents(dst []byte) []byte {
	r := w.run
	start := len(dst)
	var run device.Call // map or unmap calls being joined
	flush := func() {
		if run.Size > 0 {
			verb := "map:s"
			if run.Kind == device.CallUnmap {
				verb = "unmap:s"
			}
			seg, base := r.ordinal(run.Addr)
			dst = append(dst, verb...)
			dst = strconv.AppendInt(dst, int64(seg), 10)
			dst = strconv.AppendUint(append(dst, '+'), uint64(run.Addr-base), 10)
			dst = strconv.AppendUint(append(dst, '+'), run.Size, 10)
			dst = append(dst, ';')
			run = device.Call{}
		}
	}
	created := 0
	for _, c := range r.recorder.Calls {
		switch c.Kind {
		case device.CallMap, device.CallUnmap:
			created = 0
			if run.Size > 0 && run.Kind == c.Kind && run.Addr+device.Addr(run.Size) == c.Addr {
				if a, _ := r.ordinal(run.Addr); a == first(r.ordinal(c.Addr)) {
					run.Size += c.Size
					continue
				}
			}
			flush()
			run = c
			continue
		case device.CallCreate:
			created++
			continue
		case device.CallRelease, device.CallWait:
			continue
		}
		flush()
		switch c.Kind {
		case device.CallMalloc, device.CallReserve:
			word := "malloc:"
			if c.Kind == device.CallReserve {
				word = "reserve:"
			}
			seg, _ := r.ordinal(c.Addr)
			dst = strconv.AppendUint(append(dst, word...), c.Size, 10)
			dst = strconv.AppendInt(append(dst, "=s"...), int64(seg), 10)
		case device.CallMallocFail:
			dst = strconv.AppendUint(append(dst, "mallocfail:"...), c.Size, 10)
		case device.CallCreateFail:
			dst = strconv.AppendUint(append(dst, "createfail:"...), c.Size, 10)
			dst = strconv.AppendInt(append(dst, '@'), int64(created), 10)
			created = 0
		case device.CallFree, device.CallUnreserve:
			word := "free:s"
			if c.Kind == device.CallUnreserve {
				word = "unreserve:s"
			}
			seg, _ := r.ordinal(c.Addr)
			dst = strconv.AppendInt(append(dst, word...), int64(seg), 10)
		}
		dst = append(dst, ';')
	}
	flush()
	if len(dst) == start {
		return append(dst, '-')
	}
	return dst[:len(dst)-1]
}

func first(seg int, _ device.Addr) int { return seg }

// ordinal returns the number and base of the region that holds addr, be it live or gone since.
func (r *Run) ordinal(addr device.Addr) (int, device.Addr) {
	if g := r.ledger.find(addr); g != nil {
		return g.Ordinal, g.Addr
	}
	return r.ledger.gone(addr)
}
