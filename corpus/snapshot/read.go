package snapshot

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"io"
	"os"
	"strconv"
)

// ReadFile reads a snapshot from a file. An error of its contents is an *Error.
func ReadFile(path string) (*Snapshot, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(path, f)
}

// Read reads a snapshot: a pickle, an HTML page with one inside, or either in gzip. The name is shown in errors. Memory stays under
// about 30 bytes for each byte of the pickle for any input, under 4 for real ones.
func Read(name string, r io.Reader) (*Snapshot, error) {
	in := bufio.NewReaderSize(r, 1<<16)
	if head, _ := in.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, &Error{Name: name, Offset: -1, Msg: "gzip: " + err.Error(), Hint: truncatedHint}
		}
		defer z.Close()
		in = bufio.NewReaderSize(z, 1<<16)
	}
	if isPage(in) {
		var err error
		if in, err = unpackPage(name, in); err != nil {
			return nil, err
		}
	}
	d := &decoder{name: name, in: in}
	d.b = newBuilder(d)
	root, err := d.run()
	if err != nil {
		return nil, err
	}
	return d.b.finish(root)
}

// isPage tells whether an HTML page begins here.
func isPage(in *bufio.Reader) bool {
	head, _ := in.Peek(64)
	head = bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\xef\xbb\xbf")), " \t\r\n")
	return len(head) > 0 && head[0] == '<'
}

// unpackPage finds the pickle of a page: base64 text behind "base64":.
func unpackPage(name string, in *bufio.Reader) (*bufio.Reader, error) {
	none := &Error{Name: name, Offset: -1, Msg: "the page has no snapshot in it", Hint: "give the page that _memory_viz.py trace_plot wrote, or the pickle"}
	const mark = `base64`
	matched := 0
	for matched < len(mark) {
		c, err := in.ReadByte()
		if err != nil {
			return nil, none
		}
		switch {
		case c == mark[matched]:
			matched++
		case c == mark[0]:
			matched = 1
		default:
			matched = 0
		}
	}
	// What stands between is `": "`, with spaces or without.
	for range 8 {
		c, err := in.ReadByte()
		if err != nil {
			return nil, none
		}
		if next, _ := in.Peek(1); (c == '"' || c == '\'') && len(next) == 1 && isBase64(next[0]) {
			return bufio.NewReaderSize(base64.NewDecoder(base64.StdEncoding, &untilQuote{in: in, quote: c}), 1<<16), nil
		}
	}
	return nil, none
}

func isBase64(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '+' || c == '/'
}

// untilQuote ends where the text's quote ends it.
type untilQuote struct {
	in    *bufio.Reader
	quote byte
	done  bool
}

func (u *untilQuote) Read(p []byte) (int, error) {
	if u.done {
		return 0, io.EOF
	}
	n, err := u.in.Read(p)
	if i := bytes.IndexByte(p[:n], u.quote); i >= 0 {
		u.done = true
		return i, nil
	}
	return n, err
}

// finish makes the snapshot of the root value.
func (b *builder) finish(root value) (*Snapshot, error) {
	s := &Snapshot{
		Name: b.d.name, Bytes: b.d.at, Pools: b.pools, frames: b.frames, refs: b.refs, spans: b.lists,
		Settings: Settings{MaxSplit: -1},
	}
	var segments, traces value
	hasTraces := false
	switch {
	case root.kind() == kindList: // a legacy file
		segments = root
	case root.kind() == kindDict && (b.dicts[root.index()].kind == dictGeneric || b.dicts[root.index()].kind == dictEmpty):
		if b.dicts[root.index()].kind == dictEmpty {
			break
		}
		for _, p := range b.generics[b.dicts[root.index()].at] {
			if p.key.kind() != kindStr {
				continue
			}
			switch p.key.index() {
			case keySegments:
				segments = p.value
			case keyTraces:
				traces, hasTraces = p.value, true
			case keySettings:
				b.settings(&s.Settings, p.value)
			case keyAnnotations:
				b.seen[keyAnnotations] = true
				s.Annotations = b.notes
			case keyOverflowed:
				b.seen[keyOverflowed] = true
				s.Overflowed = b.anyTrue(p.value)
			}
		}
	default:
		return nil, b.d.fail(-1, "", "no memory snapshot: the file holds a single value")
	}
	if !hasTraces && len(b.segments) == 0 {
		return nil, b.d.fail(-1, "record with torch.cuda.memory._record_memory_history() before _dump_snapshot()",
			"no memory snapshot: there are no segments and no device_traces")
	}
	if err := b.finishSegments(s, segments); err != nil {
		return nil, err
	}
	if err := b.finishTraces(s, traces); err != nil {
		return nil, err
	}
	s.Shape = b.shape(s)
	return s, nil
}

func (b *builder) finishSegments(s *Snapshot, v value) error {
	if v.kind() != kindList {
		if v.kind() == kindNone {
			return nil
		}
		return b.d.fail(-1, "", "no memory snapshot: segments is no list")
	}
	total := 0
	for _, item := range b.items(v.index()) {
		if item.kind() != kindDict || b.dicts[item.index()].kind != dictSegment {
			return b.d.fail(-1, damagedHint, "the list of segments holds something else")
		}
		r := &b.segments[b.dicts[item.index()].at]
		g := r.Segment
		at := g.Addr
		var blocks []value
		if r.blocks.kind() == kindList {
			blocks = b.items(r.blocks.index())
		}
		if total += len(blocks); total > len(b.blocks) { // or a small file could ask for memory without end
			return b.d.fail(-1, damagedHint, "segments share their blocks")
		}
		for _, item := range blocks {
			if item.kind() != kindDict || b.dicts[item.index()].kind != dictBlock {
				return b.d.fail(-1, damagedHint, "segment at %#x: the list of blocks holds something else", g.Addr)
			}
			k := &b.blocks[b.dicts[item.index()].at]
			block := k.Block
			if !k.hasAddr {
				block.Addr = at // the format of 2.0: blocks tile the segment
			}
			b.legacy(&block, k.history)
			at = block.Addr + block.Size
			g.Blocks = append(g.Blocks, block)
		}
		if b.shared(r) {
			return b.d.fail(-1, damagedHint, "segment at %#x is listed twice", g.Addr)
		}
		s.Segments = append(s.Segments, g)
	}
	return nil
}

// shared tells whether the record was used before: a file that lists one segment many times would take memory without end.
func (b *builder) shared(r *segmentRecord) bool {
	used := r.blocks == makeValue(kindNone, 1)
	r.blocks = makeValue(kindNone, 1)
	return used
}

// legacy takes requested size and stack from a block's history, as PyTorch 2.0 wrote them.
func (b *builder) legacy(block *Block, history value) {
	if history.kind() != kindList {
		return
	}
	for _, h := range b.items(history.index()) {
		if h.kind() != kindDict || b.dicts[h.index()].kind != dictGeneric {
			continue
		}
		for _, p := range b.generics[b.dicts[h.index()].at] {
			if p.key.kind() != kindStr {
				continue
			}
			switch p.key.index() {
			case keyRealSize:
				if n, ok := b.d.number(p.value); ok && block.Requested == 0 {
					block.Requested = n
				}
			case keyFrames:
				block.Stack = b.stack(p.value)
			}
		}
		return // the first entry is the latest life of the block
	}
}

func (b *builder) finishTraces(s *Snapshot, v value) error {
	if v.kind() != kindList {
		if v.kind() == kindNone {
			return nil
		}
		return b.d.fail(-1, "", "no memory snapshot: device_traces is no list")
	}
	total := 0
	for i, t := range b.items(v.index()) {
		if t.kind() != kindList {
			return b.d.fail(-1, damagedHint, "the history of device %d is no list", i)
		}
		items := b.items(t.index())
		if total += len(items); total > len(b.events) {
			return b.d.fail(-1, damagedHint, "a history is listed twice")
		}
		// Entries come in order, so that nearly always a history is a part of b.events as it stands.
		first := len(b.events)
		if len(items) > 0 && items[0].kind() == kindDict {
			first = int(b.dicts[items[0].index()].at)
		}
		inOrder := first+len(items) <= len(b.events)
		for k, item := range items {
			if item.kind() != kindDict || b.dicts[item.index()].kind != dictEvent {
				return b.d.fail(-1, damagedHint, "entry %d of device %d is none", k, i)
			}
			inOrder = inOrder && int(b.dicts[item.index()].at) == first+k
		}
		if inOrder {
			s.Traces = append(s.Traces, b.events[first:first+len(items):first+len(items)])
			continue
		}
		list := make([]Event, len(items))
		for k, item := range items {
			list[k] = b.events[b.dicts[item.index()].at]
		}
		s.Traces = append(s.Traces, list)
	}
	return nil
}

func (b *builder) anyTrue(v value) bool {
	if n, ok := b.d.number(v); ok {
		return n != 0
	}
	if v.kind() == kindList {
		for _, item := range b.items(v.index()) {
			if n, ok := b.d.number(item); ok && n != 0 {
				return true
			}
		}
	}
	return false
}

func (b *builder) settings(s *Settings, v value) {
	if v.kind() != kindDict || b.dicts[v.index()].kind != dictGeneric {
		return
	}
	s.Recorded = true
	for _, p := range b.generics[b.dicts[v.index()].at] {
		key, ok := b.text(p.key)
		if !ok {
			continue
		}
		switch key {
		case "PYTORCH_CUDA_ALLOC_CONF":
			s.Conf, _ = b.text(p.value)
		case "PYTORCH_ALLOC_CONF":
			if conf, ok := b.text(p.value); ok && conf != "" && s.Conf == "" {
				s.Conf = conf
			}
		case "max_split_size":
			if n, ok := b.d.number(p.value); ok {
				s.MaxSplit = int64(n)
			}
		case "garbage_collection_threshold":
			s.GCThreshold = b.d.float(p.value)
		case "expandable_segments":
			n, _ := b.d.number(p.value)
			s.Expandable = n != 0
		case "graph_capture_record_stream_reuse":
			b.seen[keyReuse] = true
		case "roundup_power2_divisions":
			b.divisions(s, p.value)
		}
	}
}

func (b *builder) divisions(s *Settings, v value) {
	if v.kind() != kindDict || b.dicts[v.index()].kind != dictGeneric {
		return
	}
	for _, p := range b.generics[b.dicts[v.index()].at] {
		key, _ := b.text(p.key)
		n, ok := b.d.number(p.value)
		for i := range s.Divisions {
			if ok && key == strconv.Itoa(1<<i) {
				s.Divisions[i] = n
			}
		}
	}
}

// shape guesses PyTorch's version from the keys that occur.
func (b *builder) shape(s *Snapshot) string {
	switch {
	case b.seen[keyPoolID] || b.seen[keyForward] || b.seen[keyOverflowed]:
		return "2.12"
	case b.seen[keyMetadata]:
		return "2.10"
	case b.seen[keyContext] || b.seen[keyReuse]:
		return "2.9"
	case b.seen[keyHistory] || !s.Settings.Recorded && !b.seen[keyTime] && !b.seen[keyAnnotations]:
		return "2.0"
	case b.seen[keyAnnotations] || b.seen[keyTime]:
		return "2.6"
	}
	return "2.4"
}
