package snapshot_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus/snapshot"
)

// small is a snapshot of this package's own.
func small(t testing.TB) []byte {
	data, err := os.ReadFile("testdata/07-stash-comb__default.pickle")
	require.NoError(t, err)
	return data
}

func readBytes(data []byte) (*snapshot.Snapshot, error) {
	return snapshot.Read("x.pickle", bytes.NewReader(data))
}

// TestRefusals: every opcode that could execute is refused by name and offset, and so is what no snapshot has.
func TestRefusals(t *testing.T) {
	le32 := func(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
	le64 := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	executes := "it could execute code, which no memory snapshot needs; do not load this file with Python either"
	data := "memory snapshots hold dicts, lists, strings and numbers only"
	damaged := "the file is damaged, or no memory snapshot"
	cut := "the file is cut short: copy or dump it again"
	for _, c := range []struct{ name, in, want string }{
		{"global", "\x80\x02cos\nsystem\n.", "byte 2: opcode GLOBAL is refused (" + executes + ")"},
		{"stack global", "\x80\x04\x8c\x02os\x8c\x06system\x93.", "byte 14: opcode STACK_GLOBAL is refused (" + executes + ")"},
		{"reduce", "\x80\x04)R.", "byte 3: opcode REDUCE is refused (" + executes + ")"},
		{"build", "\x80\x04}}b.", "byte 4: opcode BUILD is refused (" + executes + ")"},
		{"inst", "\x80\x04(i", "byte 3: opcode INST is refused (" + executes + ")"},
		{"obj", "\x80\x04(o", "byte 3: opcode OBJ is refused (" + executes + ")"},
		{"newobj", "\x80\x04)\x81", "byte 3: opcode NEWOBJ is refused (" + executes + ")"},
		{"newobj_ex", "\x80\x04)\x92", "byte 3: opcode NEWOBJ_EX is refused (" + executes + ")"},
		{"persistent id", "\x80\x04NQ", "byte 3: opcode BINPERSID is refused (" + executes + ")"},
		{"extension", "\x80\x04\x82\x01", "byte 2: opcode EXT1 is refused (" + executes + ")"},
		{"bytes", "\x80\x04C\x01a.", "byte 2: opcode SHORT_BINBYTES is refused (" + data + ")"},
		{"buffer", "\x80\x05\x97.", "byte 2: opcode NEXT_BUFFER is refused (" + data + ")"},
		{"no opcode", "\x80\x04\xff", "byte 2: byte 0xff is no opcode (" + damaged + ")"},
		{"no pickle", "hello", "byte 0: no memory snapshot: it begins with 'h'"},
		{"text", "# a trace\n", "byte 0: no memory snapshot: it begins with '#' (give the .pickle that torch.cuda.memory._dump_snapshot wrote, or the .html of _memory_viz.py)"},
		{"empty", "", "byte 0: the file ends in the middle (" + cut + ")"},
		{"protocol", "\x80\x06.", "pickle protocol 6 is not read"},
		{"nothing", "\x80\x04.", "byte 2: STOP with 0 values left (" + damaged + ")"},
		{"two values", "\x80\x04NN.", "byte 4: STOP with 2 values left (" + damaged + ")"},
		{"open mark", "\x80\x04](.", "STOP with 1 values left"},
		{"no mark", "\x80\x04]e.", "byte 3: there is no mark (" + damaged + ")"},
		{"no container", "\x80\x04(e", "byte 3: there is no container before the mark (" + damaged + ")"},
		{"key alone", "\x80\x04}(K\x01u.", "byte 6: a key without a value (" + damaged + ")"},
		{"items of a list", "\x80\x04](K\x01K\x02u.", "byte 8: items are set in what is no dict (" + damaged + ")"},
		{"append to a number", "\x80\x04K\x01N" + "a.", "values are appended to what is no list"},
		{"setitem", "\x80\x04}s.", "byte 3: 3 values are needed, there are 1 (" + damaged + ")"},
		{"reference", "\x80\x04h\x05.", "byte 2: back reference 5, of 0 so far (" + damaged + ")"},
		{"far reference", "\x80\x04j" + le32(1<<31) + ".", "byte 2: back reference 2147483648, of 0 so far (" + damaged + ")"},
		{"far memo", "\x80\x04Nr" + le32(1<<30) + ".", "byte 3: memo number 1073741824 is larger than the file so far (" + damaged + ")"},
		{"memo of nothing", "\x80\x04\x94.", "byte 2: there is no value to remember (" + damaged + ")"},
		{"integer of 300 bytes", "\x80\x04\x8b" + le32(300) + strings.Repeat("\x01", 300) + ".", "byte 2: an integer of 300 bytes; addresses and sizes have at most 8 (" + damaged + ")"},
		{"integer of 10 bytes", "\x80\x04\x8a\x0a" + strings.Repeat("\x01", 10) + ".", "an integer of 10 bytes"},
		{"integer over 2^64", "\x80\x04\x8a\x09" + strings.Repeat("\x01", 9) + ".", "byte 2: an integer over 2^64 (" + damaged + ")"},
		{"string of a gigabyte", "\x80\x04X" + le32(1<<30) + "abc", "byte 2: a string of 1073741824 bytes, over the limit of 16777216 (" + damaged + ")"},
		{"string of 2^63 bytes", "\x80\x04\x8d" + le64(1<<63) + "abc", "byte 2: a string of 9223372036854775808 bytes"},
		{"string that ends", "\x80\x04X" + le32(1<<20) + "abc", "the file ends in the middle"},
		{"no UTF-8", "\x80\x04\x8c\x02\xff\xfe.", "byte 2: a string that is not UTF-8 (" + damaged + ")"},
		{"recursive list", "\x80\x04]\x94h\x00a.", "no memory snapshot: there are no segments and no device_traces"},
		{"recursive dict", "\x80\x04}\x94(\x8c\x08segmentsh\x00\x8c\x0ddevice_tracesh\x00u.", "no memory snapshot: segments is no list"},
		{"number", "\x80\x04K\x01.", "no memory snapshot: the file holds a single value"},
		{"frame of 2^63 bytes", "\x80\x04\x95" + le64(1<<63), "the file ends in the middle"},
		{"size that is text", "\x80\x04}(\x8c\x06action\x8c\x05alloc\x8c\x04size\x8c\x01xu.", `key "size" has a value of another type than it must have`},
		{"page without snapshot", "<html></html>", "the page has no snapshot in it (give the page that _memory_viz.py trace_plot wrote, or the pickle)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := readBytes([]byte(c.in))
			var e *snapshot.Error
			require.True(t, errors.As(err, &e), "%v", err)
			require.Contains(t, err.Error(), c.want)
			require.True(t, strings.HasPrefix(err.Error(), "x.pickle: "))
		})
	}
	deep := "\x80\x04" + strings.Repeat("](", 1000)
	_, err := readBytes([]byte(deep))
	require.ErrorContains(t, err, "containers are nested over 64 deep")
}

// TestIntegers: addresses from 2^63 on come in nine bytes from Python and as negative numbers from C++.
func TestIntegers(t *testing.T) {
	read := func(number string) uint64 {
		in := "\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x05alloc\x8c\x04addr" + number + "ueeu."
		s, err := readBytes([]byte(in))
		require.NoError(t, err)
		return s.Traces[0][0].Addr
	}
	require.EqualValues(t, uint64(1<<63+5), read("\x8a\x09\x05\x00\x00\x00\x00\x00\x00\x80\x00"))
	require.EqualValues(t, uint64(1<<63+5), read("\x8a\x08\x05\x00\x00\x00\x00\x00\x00\x80"))
	require.EqualValues(t, 1<<50, read("\x8a\x07\x00\x00\x00\x00\x00\x00\x04"))
	require.EqualValues(t, 200, read("\x8a\x02\xc8\x00"))
	require.EqualValues(t, 1<<30, read("J\x00\x00\x00\x40"))
	require.EqualValues(t, 0, read("\x8a\x00"))
}

// TestTruncated: a file that ends at any byte is an error with the offset.
func TestTruncated(t *testing.T) {
	data := small(t)
	for n := range data {
		_, err := readBytes(data[:n])
		var e *snapshot.Error
		require.True(t, errors.As(err, &e), "%d bytes: %v", n, err)
		require.LessOrEqual(t, e.Offset, int64(n))
	}
}

// TestDamaged: one byte changed gives a snapshot or an error, and no import that panics.
func TestDamaged(t *testing.T) {
	data := small(t)
	for i := 0; i < len(data); i += 2 { // every second one, for time
		for _, x := range []byte{0x01, 0x80} {
			data[i] ^= x
			importAll(data)
			data[i] ^= x
		}
	}
}

// importAll reads and imports; whatever is wrong must come as an error.
func importAll(data []byte) {
	s, err := readBytes(data)
	if err != nil {
		return
	}
	for _, d := range s.Devices() {
		_, _ = snapshot.Import(s, d, snapshot.Options{})
	}
	_ = snapshot.Write(io.Discard, s)
}

// TestWrapped: gzip, trailing NUL bytes, and the page of _memory_viz.py.
func TestWrapped(t *testing.T) {
	data := small(t)
	want, err := readBytes(data)
	require.NoError(t, err)
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, err = w.Write(data)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	padded := append(bytes.Clone(data), make([]byte, 3-len(data)%3)...)
	page := `<!DOCTYPE html>
<html><body><script type="module">
import {add_local_files} from "https://example.org/MemoryViz.js"
const local_files = [{"name": "snapshot.pickle", "base64": "` + base64.StdEncoding.EncodeToString(padded) + `"}]
add_local_files(local_files, "Active Memory Timeline")
</script></body></html>`
	for name, in := range map[string][]byte{"gzip": z.Bytes(), "padded": padded, "page": []byte(page)} {
		got, err := readBytes(in)
		require.NoError(t, err, name)
		require.Equal(t, want.Traces, got.Traces, name)
		require.Equal(t, want.Segments, got.Segments, name)
	}
}

// TestMemoryBounded: what claims much, and what repeats one byte, takes memory in proportion to the file.
func TestMemoryBounded(t *testing.T) {
	const size = 1 << 20
	for name, in := range map[string]string{
		"marks":   "\x80\x04" + strings.Repeat("(", size),
		"lists":   "\x80\x04" + strings.Repeat("]", size),
		"dicts":   "\x80\x04" + strings.Repeat("}\x94", size/2),
		"memo":    "\x80\x04N" + strings.Repeat("\x94", size),
		"shared":  "\x80\x04}(\x8c\x06blocks]\x94(" + strings.Repeat("}", 1000) + "e\x8c\x0atotal_sizeK\x01u\x94" + strings.Repeat("h\x01", size/2),
		"strings": "\x80\x04" + strings.Repeat("\x8c\x01a", size/3),
	} {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		_, err := readBytes([]byte(in))
		require.Error(t, err, name)
		runtime.ReadMemStats(&after)
		require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(200*size), name)
	}
}

// FuzzRead holds the reader to its word: an error or a snapshot, whatever the bytes; and a snapshot that is written is read again.
func FuzzRead(f *testing.F) {
	fuzz(f, func(t *testing.T, data []byte) {
		s, err := readBytes(data)
		var e *snapshot.Error
		if err != nil {
			require.True(t, errors.As(err, &e), "%v", err)
			return
		}
		var b bytes.Buffer
		require.NoError(t, snapshot.Write(&b, s))
		again, err := readBytes(b.Bytes())
		if len(s.Segments)+len(s.Traces) > 0 {
			require.NoError(t, err)
			require.Equal(t, s.Events(), again.Events())
			require.Len(t, again.Segments, len(s.Segments))
		}
	})
}

// FuzzImport is FuzzRead with the import behind it, which replays and is slower.
func FuzzImport(f *testing.F) {
	fuzz(f, func(_ *testing.T, data []byte) { importAll(data) })
}

func fuzz(f *testing.F, check func(*testing.T, []byte)) {
	files, err := filepath.Glob("testdata/*.pickle")
	require.NoError(f, err)
	require.NotEmpty(f, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(f, err)
		f.Add(data)
	}
	f.Add([]byte("\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01ueeu."))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<16 {
			return
		}
		check(t, data)
	})
}
