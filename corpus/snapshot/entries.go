package snapshot

var actions = map[string]Action{
	"alloc": Alloc, "free_requested": FreeRequested, "free_completed": FreeCompleted, "segment_alloc": SegmentAlloc,
	"segment_free": SegmentFree, "segment_map": SegmentMap, "segment_unmap": SegmentUnmap, "oom": OOM, "snapshot": Taken,
}

func (b *builder) number(v value, into *uint64) bool {
	n, ok := b.d.number(v)
	*into = n
	return ok
}

func (b *builder) text(v value) (string, bool) {
	if v.kind() != kindStr {
		return "", false
	}
	return b.strings[v.index()], true
}

func (b *builder) setEvent(e *Event, key uint32, v value) bool {
	ok := true
	switch key {
	case keyAction:
		var s string
		if s, ok = b.text(v); ok {
			e.Action = actions[s] // unknown ones become Other
		}
	case keyAddr, keyDeviceFree:
		ok = b.number(v, &e.Addr)
	case keySize:
		ok = b.number(v, &e.Size)
	case keyStream:
		ok = b.number(v, &e.Stream)
	case keyTime:
		var n uint64
		ok = b.number(v, &n)
		e.TimeUS = int64(n)
	case keyFrames:
		e.Stack = b.stack(v)
	case keyPoolID:
		e.Pool = b.pool(v)
	}
	return ok
}

func (b *builder) setFrame(d *dict, key uint32, v value) bool {
	f := &b.frames[d.at]
	ok := true
	switch key {
	case keyFilename:
		f.File, ok = b.text(v)
	case keyName:
		f.Name, ok = b.text(v)
	case keyLine:
		var n uint64
		ok = b.number(v, &n)
		f.Line = int(int64(n))
	}
	return ok
}

func (b *builder) setBlock(r *blockRecord, key uint32, v value) bool {
	ok := true
	switch key {
	case keyAddress, keyAddr:
		ok = b.number(v, &r.Addr)
		r.hasAddr = true
	case keySize:
		ok = b.number(v, &r.Size)
	case keyRequestedSize:
		ok = b.number(v, &r.Requested)
	case keyState:
		var s string
		s, ok = b.text(v)
		switch s {
		case "active_allocated":
			r.State = Live
		case "active_pending_free", "active_awaiting_free":
			r.State = Pending
		default:
			r.State = Inactive
		}
	case keyFrames:
		r.Stack = b.stack(v)
	case keyHistory:
		r.history = v
	}
	return ok
}

func (b *builder) setSegment(r *segmentRecord, key uint32, v value) bool {
	ok := true
	var n uint64
	switch key {
	case keyDevice:
		ok = b.number(v, &n)
		r.Device = int(int64(n))
	case keyAddress:
		ok = b.number(v, &r.Addr)
	case keyTotalSize:
		ok = b.number(v, &r.Size)
	case keyStream:
		ok = b.number(v, &r.Stream)
	case keySegmentType:
		var s string
		s, ok = b.text(v)
		r.Small = s == "small"
	case keySegmentPool:
		r.Pool = b.pools[b.pool(v)]
	case keyExpandable:
		ok = b.number(v, &n)
		r.Expandable = n != 0
	case keyFrames:
		r.Stack = b.stack(v)
	case keyBlocks:
		ok = v.kind() == kindList
		r.blocks = v
	}
	return ok
}

func (b *builder) setNote(a *Annotation, key uint32, v value) bool {
	ok := true
	var n uint64
	switch key {
	case keyName:
		a.Name, ok = b.text(v)
	case keyStage:
		var s string
		s, ok = b.text(v)
		a.End = s == "END"
	case keyDevice:
		ok = b.number(v, &n)
		a.Device = int(int64(n))
	case keyTime:
		ok = b.number(v, &n)
		a.TimeUS = int64(n)
	}
	return ok
}
