package allocators

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// TestOOMMessage has the whole text once, as PyTorch 2.6.0 prints it; the recorded messages are compared in harness/conform.
func TestOOMMessage(t *testing.T) {
	e := &OOMError{
		Request: 5 << 20, Rounded: 5 << 20, SegmentSize: 20 << 20, Total: 80 << 30, DeviceFree: 1 << 30,
		HasLimit: true, Limit: 40 << 30, Allocated: 1536 << 20, Reserved: 1536<<20 + 1000,
	}
	require.EqualError(t, e, "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 80.00 GiB of which "+
		"1024.00 MiB is free. 40.00 GiB allowed; Of the allocated memory 1.50 GiB is allocated by PyTorch, and 1000 bytes is reserved "+
		"by PyTorch but unallocated. If reserved but unallocated memory is large try setting "+
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory Management "+
		" (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)")
	require.ErrorIs(t, e, device.ErrOutOfMemory)
	require.NotErrorIs(t, e, ErrInvalidPointer)
	var found *OOMError
	require.True(t, errors.As(error(e), &found))
}

// TestFormatSize: bounds are inclusive.
func TestFormatSize(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		want string
	}{
		{0, "0 bytes"}, {1, "1 bytes"}, {1024, "1024 bytes"}, {1025, "1.00 KiB"}, {1536, "1.50 KiB"},
		{1 << 20, "1024.00 KiB"}, {1<<20 + 1, "1.00 MiB"}, {20 << 20, "20.00 MiB"},
		{1 << 30, "1024.00 MiB"}, {1<<30 + 1, "1.00 GiB"}, {85899345920, "80.00 GiB"},
	} {
		require.Equal(t, c.want, formatSize(c.n))
	}
}

func TestStat(t *testing.T) {
	var s Stat
	s.Add(5)
	s.Sub(2)
	s.Add(1)
	require.Equal(t, Stat{Current: 4, Peak: 5, Allocated: 6, Freed: 2}, s)

	// A counter below zero, as the oversize ones are once max_split_size was lowered, has no peak of 2^64-1.
	var o Stat
	o.Sub(2)
	o.Add(1)
	require.EqualValues(t, -1, int64(o.Current))
	require.Zero(t, o.Peak)

	var p Pooled
	p.Add(true, 3)
	p.Add(false, 4)
	p.Sub(true, 1)
	require.Equal(t, []uint64{6, 2, 4}, []uint64{p.All.Current, p.Small.Current, p.Large.Current})
}

// TestMemoryStats: 122 keys, sorted, none twice, with the values where they belong.
func TestMemoryStats(t *testing.T) {
	var s Stats
	s.MaxSplitSize = -1
	s.Active.Add(true, 1)
	s.OversizeSegments.Add(7)
	s.NumSyncAllStreams = 3
	all := s.MemoryStats()
	require.Len(t, all, 122)
	values := map[string]int64{}
	for i, v := range all {
		require.True(t, i == 0 || all[i-1].Key < v.Key, v.Key)
		values[v.Key] = v.Value
	}
	for key, want := range map[string]int64{
		"active.all.current": 1, "active.small_pool.peak": 1, "active.large_pool.allocated": 0, "oversize_segments.current": 7,
		"num_sync_all_streams": 3, "max_split_size": -1, "inactive_split_bytes.all.freed": 0,
	} {
		require.Equal(t, want, values[key], key)
	}
}

func TestSnapshot(t *testing.T) {
	s := Snapshot{
		Segments: []SegmentInfo{{First: 0, Count: 2}, {First: 2, Count: 1}},
		Blocks:   []BlockInfo{{Addr: 0, Size: 512}, {Addr: 512, Size: 1024}, {Addr: 4096, Size: 512}},
	}
	require.Equal(t, s.Blocks[2:], s.BlocksOf(1))
	require.EqualValues(t, 1536, s.BlocksOf(0)[1].End())
	require.Equal(t, []string{"unmapped", "free", "pending", "live"},
		[]string{Unmapped.String(), Free.String(), Pending.String(), Live.String()})
}

// TestDeathSaysTheLastWords: not PyTorch's warnings, which tell of refusals before and change from run to run with the time in them.
func TestDeathSaysTheLastWords(t *testing.T) {
	const warning = "[W1130 15:32:29.696474376 CUDACachingAllocator.cpp:623] expandable_segments: memory mapping failed\n"
	for output, want := range map[string]string{
		"":                             "",
		" \n":                          "",
		warning:                        "",
		"first\nfree(): bad\n":         ` (its last output: "free(): bad")`,
		"free(): bad\n" + warning:      ` (its last output: "free(): bad")`,
		"[W is no warning, nor is W1]": ` (its last output: "[W is no warning, nor is W1]")`,
	} {
		d := Death{Kind: Crashed, Detail: "SIGABRT", Output: output}
		require.Equal(t, "the allocator crashed: SIGABRT"+want, d.Error(), output)
	}
}
