package snapshot

// Keys that the schema knows; their string numbers are fixed.
const (
	keyAction uint32 = iota
	keyAddr
	keySize
	keyStream
	keyTime
	keyFrames
	keyDeviceFree
	keyPoolID
	keyFilename
	keyLine
	keyName
	keyAddress
	keyTotalSize
	keyAllocatedSize
	keyActiveSize
	keyRequestedSize
	keySegmentType
	keySegmentPool
	keyExpandable
	keyBlocks
	keyState
	keyHistory
	keyRealSize
	keyDevice
	keyStage
	keySegments
	keyTraces
	keySettings
	keyAnnotations
	keyContext
	keyMetadata
	keyForward
	keyOverflowed
	keyMaxEntries
	keyReuse
)

var keyNames = []string{
	"action", "addr", "size", "stream", "time_us", "frames", "device_free", "pool_id", "filename", "line", "name", "address",
	"total_size", "allocated_size", "active_size", "requested_size", "segment_type", "segment_pool_id", "is_expandable", "blocks",
	"state", "history", "real_size", "device", "stage", "segments", "device_traces", "allocator_settings", "external_annotations",
	"compile_context", "user_metadata", "forward_frames", "trace_alloc_overflowed", "trace_alloc_max_entries",
	"graph_capture_record_stream_reuse",
}

type dictKind uint8

const (
	dictEmpty dictKind = iota
	dictGeneric
	dictEvent
	dictFrame
	dictBlock
	dictSegment
	dictNote
)

// dict says what became of a dict: what has the keys of the schema is stored as a record at once, at a tenth of the size.
type dict struct {
	kind dictKind
	at   uint32
}

type pair struct{ key, value value }

type listKind uint8

const (
	listEmpty listKind = iota
	listStack          // frames: span of refs
	listValues
)

type list struct {
	kind  listKind
	start uint32 // in refs, or index in values
	n     uint32
}

// blockRecord is a block with what is resolved at the end.
type blockRecord struct {
	Block
	hasAddr bool
	history value
}

type segmentRecord struct {
	Segment
	blocks value
}

// builder makes records of dicts as they come.
type builder struct {
	d       *decoder
	strings []string
	known   map[string]uint32
	seen    [64]bool // schema keys that occur in entries, by number

	dicts    []dict
	generics [][]pair
	lists    []list
	refs     []uint32 // frames of stacks
	values   [][]value

	events   []Event
	frames   []Frame
	frameOf  map[Frame]uint32
	blocks   []blockRecord
	segments []segmentRecord
	notes    []Annotation
	pools    []Pool
}

func newBuilder(d *decoder) *builder {
	b := &builder{d: d, known: map[string]uint32{}, frameOf: map[Frame]uint32{}, pools: []Pool{{}}}
	for _, k := range keyNames {
		b.intern([]byte(k))
	}
	return b
}

func (b *builder) intern(s []byte) uint32 {
	if n, ok := b.known[string(s)]; ok {
		return n
	}
	n := uint32(len(b.strings))
	b.strings = append(b.strings, string(s))
	b.known[b.strings[n]] = n
	return n
}

func (b *builder) newDict() value {
	b.dicts = append(b.dicts, dict{})
	return makeValue(kindDict, uint64(len(b.dicts)-1))
}

func (b *builder) newList() value {
	b.lists = append(b.lists, list{})
	return makeValue(kindList, uint64(len(b.lists)-1))
}

// classify tells what a dict with these keys is.
func classify(items []value) dictKind {
	var has uint64
	for i := 0; i < len(items); i += 2 {
		if k := items[i]; k.kind() == kindStr && k.index() < 64 {
			has |= 1 << k.index()
		}
	}
	all := func(keys ...uint32) bool {
		for _, k := range keys {
			if has>>k&1 == 0 {
				return false
			}
		}
		return true
	}
	switch {
	case all(keyAction):
		return dictEvent
	case all(keyFilename, keyLine), all(keyFilename, keyName):
		return dictFrame
	case all(keyBlocks, keyTotalSize):
		return dictSegment
	case all(keyState, keySize):
		return dictBlock
	case all(keyStage, keyName):
		return dictNote
	}
	return dictGeneric
}

// setItems stores pairs in a dict. The answer says what is wrong, empty if nothing is.
func (b *builder) setItems(i uint32, items []value) string {
	d := &b.dicts[i]
	switch d.kind {
	case dictEmpty:
		if d.kind = classify(items); d.kind == dictGeneric {
			d.at = uint32(len(b.generics))
			b.generics = append(b.generics, nil)
			return b.addPairs(d.at, items)
		}
		b.newRecord(d)
	case dictGeneric:
		// A dict of the schema may come item by item; then it becomes a record once its keys say so.
		old := b.generics[d.at]
		if len(old) > 32 {
			return b.addPairs(d.at, items)
		}
		all := make([]value, 0, 2*len(old)+len(items))
		for _, p := range old {
			all = append(all, p.key, p.value)
		}
		all = append(all, items...)
		k := classify(all)
		if k == dictGeneric {
			return b.addPairs(d.at, items)
		}
		b.generics[d.at] = nil
		d.kind, items = k, all
		b.newRecord(d)
	case dictFrame:
		// A frame that was made may be shared by now: another dict must not change with it.
		f := b.frames[d.at]
		b.newRecord(d)
		b.frames[d.at] = f
	}
	for k := 0; k < len(items); k += 2 {
		key, v := items[k], items[k+1]
		if key.kind() != kindStr {
			continue
		}
		n := key.index()
		if n < 64 {
			b.seen[n] = true
		}
		var ok bool
		switch d.kind {
		case dictEvent:
			ok = b.setEvent(&b.events[d.at], n, v)
		case dictFrame:
			ok = b.setFrame(d, n, v)
		case dictBlock:
			ok = b.setBlock(&b.blocks[d.at], n, v)
		case dictSegment:
			ok = b.setSegment(&b.segments[d.at], n, v)
		case dictNote:
			ok = b.setNote(&b.notes[d.at], n, v)
		}
		if !ok {
			return "key " + quoted(b.strings[n]) + " has a value of another type than it must have"
		}
	}
	if d.kind == dictFrame {
		b.shareFrame(d)
	}
	return ""
}

func (b *builder) addPairs(at uint32, items []value) string {
	for k := 0; k < len(items); k += 2 {
		b.generics[at] = append(b.generics[at], pair{items[k], items[k+1]})
	}
	return ""
}

func (b *builder) newRecord(d *dict) {
	n := 0
	switch d.kind {
	case dictEvent:
		n = len(b.events)
		b.events = append(b.events, Event{})
	case dictFrame:
		n = len(b.frames)
		b.frames = append(b.frames, Frame{})
	case dictBlock:
		n = len(b.blocks)
		b.blocks = append(b.blocks, blockRecord{})
	case dictSegment:
		n = len(b.segments)
		b.segments = append(b.segments, segmentRecord{})
	case dictNote:
		n = len(b.notes)
		b.notes = append(b.notes, Annotation{})
	}
	d.at = uint32(n)
}

// shareFrame lets the frame just made be one with an equal one.
func (b *builder) shareFrame(d *dict) {
	f := b.frames[d.at]
	if n, ok := b.frameOf[f]; ok {
		b.frames = b.frames[:d.at]
		d.at = n
		return
	}
	b.frameOf[f] = d.at
}
