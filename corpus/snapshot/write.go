package snapshot

import (
	"bufio"
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"strconv"
)

// Write writes a snapshot as PyTorch 2.6 does: a pickle of protocol 4, which Python, pytorch.org/memory_viz and _memory_viz.py read.
func Write(w io.Writer, s *Snapshot) error {
	p := &pickler{w: bufio.NewWriterSize(w, 1<<16), strings: map[string]uint32{}, stacks: map[uint32]uint32{}, frames: map[uint32]uint32{}}
	p.bytes(0x80, 4)
	p.dict(
		"segments", func() { p.segments(s) },
		"device_traces", func() { p.traces(s) },
		"allocator_settings", func() { p.settings(&s.Settings) },
		"external_annotations", func() { p.annotations(s.Annotations) },
	)
	p.bytes('.')
	if p.err == nil {
		p.err = p.w.Flush()
	}
	return p.err
}

// pickler writes values. Strings, stacks and frames that occur again are back references.
type pickler struct {
	w       *bufio.Writer
	err     error
	memo    uint32 // values remembered so far
	strings map[string]uint32
	stacks  map[uint32]uint32
	frames  map[uint32]uint32
}

func (p *pickler) bytes(b ...byte) {
	if p.err == nil {
		_, p.err = p.w.Write(b)
	}
}

// memoize remembers the value just written.
func (p *pickler) memoize() uint32 {
	p.bytes(0x94)
	p.memo++
	return p.memo - 1
}

func (p *pickler) get(n uint32) {
	if n < 256 {
		p.bytes('h', byte(n))
		return
	}
	p.bytes(binary.LittleEndian.AppendUint32([]byte{'j'}, n)...)
}

func (p *pickler) text(s string) {
	if n, ok := p.strings[s]; ok {
		p.get(n)
		return
	}
	if len(s) < 256 {
		p.bytes(0x8c, byte(len(s)))
	} else {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{'X'}, uint32(len(s)))...)
	}
	p.bytes([]byte(s)...)
	p.strings[s] = p.memoize()
}

func (p *pickler) number(n uint64) {
	switch {
	case n < 1<<8:
		p.bytes('K', byte(n))
	case n < 1<<16:
		p.bytes('M', byte(n), byte(n>>8))
	case n < 1<<31:
		p.bytes(binary.LittleEndian.AppendUint32([]byte{'J'}, uint32(n))...)
	default:
		size := bits.Len64(n)/8 + 1 // with room for the sign
		b := binary.LittleEndian.AppendUint64(nil, n)
		p.bytes(0x8a, byte(size))
		p.bytes(append(b, 0)[:size]...)
	}
}

func (p *pickler) signed(n int64) {
	if n >= 0 {
		p.number(uint64(n))
		return
	}
	if n >= math.MinInt32 {
		p.bytes(binary.LittleEndian.AppendUint32([]byte{'J'}, uint32(int32(n)))...)
		return
	}
	p.bytes(binary.LittleEndian.AppendUint64([]byte{0x8a, 8}, uint64(n))...)
}

func (p *pickler) boolean(b bool) {
	if b {
		p.bytes(0x88)
	} else {
		p.bytes(0x89)
	}
}

func (p *pickler) float(f float64) {
	p.bytes(binary.BigEndian.AppendUint64([]byte{'G'}, math.Float64bits(f))...)
}

// dict writes keys and what writes their values, in turn.
func (p *pickler) dict(items ...any) {
	p.bytes('}')
	p.memoize()
	p.bytes('(')
	for i := 0; i < len(items); i += 2 {
		p.text(items[i].(string))
		switch v := items[i+1].(type) {
		case func():
			v()
		case string:
			p.text(v)
		case uint64:
			p.number(v)
		case int64:
			p.signed(v)
		case bool:
			p.boolean(v)
		case float64:
			p.float(v)
		}
	}
	p.bytes('u')
}

// list writes n elements in batches of 1000, as Python does, so that no reader needs much room.
func (p *pickler) list(n int, element func(i int)) {
	p.bytes(']')
	p.memoize()
	for i := 0; i < n; {
		p.bytes('(')
		for end := min(i+1000, n); i < end; i++ {
			element(i)
		}
		p.bytes('e')
	}
}

// stack writes a list of frames.
func (p *pickler) stack(s *Snapshot, stack uint32) {
	if m, ok := p.stacks[stack]; ok {
		p.get(m)
		return
	}
	n := p.memo
	var refs []uint32
	if stack > 0 && int(stack) <= len(s.spans) && s.spans[stack-1].kind == listStack {
		l := s.spans[stack-1]
		refs = s.refs[l.start : l.start+l.n]
	}
	p.list(len(refs), func(i int) {
		if m, ok := p.frames[refs[i]]; ok {
			p.get(m)
			return
		}
		m := p.memo
		f := &s.frames[refs[i]]
		p.dict("name", f.Name, "filename", f.File, "line", int64(f.Line))
		p.frames[refs[i]] = m
	})
	if stack > 0 {
		p.stacks[stack] = n
	}
}

func (p *pickler) pair(a, b uint64) {
	p.number(a)
	p.number(b)
	p.bytes(0x86)
	p.memoize()
}

func (p *pickler) segments(s *Snapshot) {
	p.list(len(s.Segments), func(i int) {
		g := &s.Segments[i]
		var allocated, active, requested uint64
		for _, b := range g.Blocks {
			switch b.State {
			case Live:
				allocated += b.Size
				fallthrough
			case Pending:
				active += b.Size
				requested += b.Requested
			}
		}
		kind := "large"
		if g.Small {
			kind = "small"
		}
		p.dict("device", int64(g.Device), "address", g.Addr, "total_size", g.Size, "allocated_size", allocated, "active_size", active,
			"requested_size", requested, "stream", g.Stream, "segment_type", kind,
			"segment_pool_id", func() { p.pair(g.Pool.Graph, g.Pool.User) }, "is_expandable", g.Expandable,
			"frames", func() { p.stack(s, g.Stack) },
			"blocks", func() {
				p.list(len(g.Blocks), func(k int) {
					b := &g.Blocks[k]
					p.dict("address", b.Addr, "size", b.Size, "requested_size", b.Requested, "state", b.State.String(),
						"frames", func() { p.stack(s, b.Stack) })
				})
			})
	})
}

func (p *pickler) traces(s *Snapshot) {
	p.list(len(s.Traces), func(d int) {
		t := s.Traces[d]
		p.list(len(t), func(i int) {
			e := &t[i]
			where := "addr"
			if e.Action == OOM {
				where = "device_free"
			}
			items := []any{"action", e.Action.String(), where, e.Addr, "size", e.Size, "stream", e.Stream, "time_us", e.TimeUS}
			if e.Stack > 0 {
				items = append(items, "frames", func() { p.stack(s, e.Stack) })
			}
			if e.Pool > 0 && int(e.Pool) < len(s.Pools) {
				items = append(items, "pool_id", func() { p.pair(s.Pools[e.Pool].Graph, s.Pools[e.Pool].User) })
			}
			p.dict(items...)
		})
	})
}

func (p *pickler) settings(s *Settings) {
	p.dict("PYTORCH_CUDA_ALLOC_CONF", s.Conf, "max_split_size", s.MaxSplit, "garbage_collection_threshold", s.GCThreshold,
		"expandable_segments", s.Expandable, "pinned_num_register_threads", int64(1), "release_lock_on_cudamalloc", false,
		"pinned_use_cuda_host_register", false, "roundup_power2_divisions", func() {
			var items []any
			for i, d := range s.Divisions {
				items = append(items, strconv.Itoa(1<<i), d)
			}
			p.dict(items...)
		})
}

func (p *pickler) annotations(list []Annotation) {
	p.list(len(list), func(i int) {
		a := &list[i]
		stage := "START"
		if a.End {
			stage = "END"
		}
		p.dict("name", a.Name, "stage", stage, "device", int64(a.Device), "time_us", a.TimeUS)
	})
}

// Anonymize takes out what tells about the program: stacks, annotations and times. Entries keep their order; their times count from 0, one
// microsecond each.
func (s *Snapshot) Anonymize() {
	s.Name, s.Annotations = "", nil
	s.frames, s.refs, s.spans, s.frameOf = nil, nil, nil, nil
	for i := range s.Segments {
		s.Segments[i].Stack = 0
		for k := range s.Segments[i].Blocks {
			s.Segments[i].Blocks[k].Stack = 0
		}
	}
	for _, t := range s.Traces {
		for i := range t {
			t[i].Stack, t[i].TimeUS = 0, int64(i)
		}
	}
}
