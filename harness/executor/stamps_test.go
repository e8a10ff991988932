package executor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/hostvmm"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

func hostDevice(t testing.TB, capacity uint64) *hostvmm.Device {
	t.Helper()
	if err := hostvmm.Supported(); err != nil {
		t.Skip(err)
	}
	d, err := hostvmm.New(hostvmm.Options{Capacity: capacity})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// blind runs a trace without properties, judge and shadow heap: bytes alone can find something.
func blind(t *testing.T, text, alloc string, v executor.Verify, wrap func(device.Device, allocators.Allocator) allocators.Allocator,
	below func(device.Device) device.Device,
) *executor.Result {
	t.Helper()
	tr, err := trace.ParseString("planted", text)
	require.NoError(t, err)
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	target := executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) {
		if below != nil {
			d = below(d)
		}
		a, err := spec.New(d)
		if err == nil && wrap != nil {
			a = wrap(d, a)
		}
		return a, err
	}}
	r, err := executor.Execute(executor.Compile(tr), target, executor.Options{Device: hostDevice(t, 1<<30), Verify: v})
	require.NoError(t, err)
	return r
}

// tampered is an allocator with a mistake at its nth Alloc, counted from 1.
type tampered struct {
	allocators.Allocator
	n, nth int
	blocks []allocators.Block
	act    func(t *tampered, b allocators.Block) allocators.Block
}

func (t *tampered) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := t.Allocator.Alloc(n, s)
	if t.n++; t.n == t.nth && err == nil {
		b = t.act(t, b)
	}
	t.blocks = append(t.blocks, b)
	return b, err
}

// TestPlantedOverlapFoundByBytes: two blocks that share 512 bytes.
func TestPlantedOverlapFoundByBytes(t *testing.T) {
	overlap := func(_ device.Device, a allocators.Allocator) allocators.Allocator {
		return &tampered{Allocator: a, nth: 2, act: func(t *tampered, b allocators.Block) allocators.Block {
			first := t.blocks[0]
			return allocators.Block{Addr: first.Addr + device.Addr(first.Size) - 512, Size: b.Size}
		}}
	}
	for _, alloc := range []string{"classic", "expandable"} {
		for _, v := range []executor.Verify{executor.VerifyStamps, executor.VerifyFull} {
			const text = "alloc 1 6MiB\nalloc 2 4MiB\nfree 1\n"
			require.Empty(t, blind(t, text, alloc, v, nil, nil).Findings)
			r := blind(t, text, alloc, v, overlap, nil)
			require.Len(t, r.Findings, 1)
			require.Equal(t, executor.DataIntegrity, r.Findings[0].Property)
			require.Equal(t, "corrupted", r.Findings[0].Rule)
			require.Equal(t, 2, r.Findings[0].Op)
			require.Contains(t, r.Findings[0].Detail, "byte 6290944 of the block of operation 0 (6291456 bytes at ")
			require.Contains(t, r.Findings[0].Detail, " is byte 0 of the block of operation 1")
		}
	}
	// Without a free it is found at the end of the trace, and by empty_cache.
	require.Equal(t, 2, blind(t, "alloc 1 6MiB\nalloc 2 4MiB\n", "classic", executor.VerifyStamps, overlap, nil).Findings[0].Op)
	r := blind(t, "alloc 1 6MiB\nalloc 2 4MiB\nempty_cache\nfree 1\n", "classic", executor.VerifyStamps, overlap, nil)
	require.Equal(t, 2, r.Findings[0].Op)
}

// TestPlantedEarlyUnmapFoundByBytes: a page goes while a live block lies on it.
func TestPlantedEarlyUnmapFoundByBytes(t *testing.T) {
	const page = 20 << 20
	early := func(d device.Device, a allocators.Allocator) allocators.Allocator {
		return &tampered{Allocator: a, nth: 2, act: func(tm *tampered, b allocators.Block) allocators.Block {
			require.NoError(t, d.Unmap(tm.blocks[0].Addr+page, page))
			return b
		}}
	}
	const text = "alloc 1 60MiB\nalloc 2 4MiB\nfree 2\nfree 1\n"
	require.Empty(t, blind(t, text, "expandable", executor.VerifyStamps, nil, nil).Findings)
	r := blind(t, text, "expandable", executor.VerifyStamps, early, nil)
	require.Len(t, r.Findings, 1)
	require.Equal(t, executor.DataIntegrity, r.Findings[0].Property)
	require.Equal(t, "unmapped", r.Findings[0].Rule)
	require.Equal(t, 3, r.Findings[0].Op)
	require.Contains(t, r.Findings[0].Detail, "the block of operation 0 (62914560 bytes at ")
}

// sameChunk maps one chunk at two places: the second Create gives what the first gave.
type sameChunk struct {
	device.Device
	first device.Handle
}

func (d *sameChunk) Create(size uint64) (device.Handle, error) {
	if d.first != 0 {
		return d.first, nil
	}
	h, err := d.Device.Create(size)
	d.first = h
	return h, err
}

// TestTwoMappingsOfOnePageFoundByBytes: addresses alone show nothing.
func TestTwoMappingsOfOnePageFoundByBytes(t *testing.T) {
	r := blind(t, "alloc 1 20MiB\nalloc 2 20MiB\nfree 1\n", "expandable", executor.VerifyStamps, nil,
		func(d device.Device) device.Device { return &sameChunk{Device: d} })
	require.Len(t, r.Findings, 1)
	require.Equal(t, "corrupted", r.Findings[0].Rule)
	require.Contains(t, r.Findings[0].Detail, " is byte 0 of the block of operation 1")
}

// TestStampsAllSizes: blocks of all shapes are stamped inside their bounds: a stamp beyond them would be a fault, or damage a
// neighbour.
func TestStampsAllSizes(t *testing.T) {
	const text = "alloc 1 1\nalloc 2 513\nalloc 3 1025\nalloc 4 2097151\nalloc 5 2097153\nalloc 6 300MiB\nempty_cache\nfree 6\n"
	for _, v := range []executor.Verify{executor.VerifyStamps, executor.VerifyFull} {
		for _, alloc := range []string{"classic", "expandable", "direct"} {
			r := blind(t, text, alloc, v, nil, nil)
			require.Empty(t, r.Findings)
			require.Greater(t, r.Verified, uint64(4000))
		}
	}
}

// TestVerifyNeedsBytes: on a device without any it is a mistake to ask.
func TestVerifyNeedsBytes(t *testing.T) {
	dev, err := simdev.New(simdev.Options{Capacity: 1 << 30})
	require.NoError(t, err)
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	tr, err := trace.ParseString("t", "alloc 1 1\n")
	require.NoError(t, err)
	target := executor.Target{Name: "classic", New: func(d device.Device) (allocators.Allocator, error) { return spec.New(d) }}
	_, err = executor.Execute(executor.Compile(tr), target, executor.Options{Device: dev, Verify: executor.VerifyStamps})
	require.ErrorIs(t, err, executor.ErrHarness)
	require.ErrorContains(t, err, "bytes are to be verified on a device that holds none")
}

// TestGeneratedTracesKeepTheirBytes: all workloads on real memory, with all properties and with the bytes.
func TestGeneratedTracesKeepTheirBytes(t *testing.T) {
	ops := 400
	if testing.Short() {
		ops = 100
	}
	for _, w := range gen.Workloads {
		for seed := range uint64(2) {
			tr := gen.Generate(w, seed, gen.Params{Ops: ops})
			tr.Name = w.Name
			for _, alloc := range []string{"classic", "expandable"} {
				spec, err := catalog.Parse(alloc)
				require.NoError(t, err)
				target := executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) { return spec.New(d) }}
				r, err := executor.Execute(executor.Compile(tr), target, executor.Options{
					Device: hostDevice(t, 2<<30), Properties: properties.All(), Judge: properties.NewJudge(), Verify: executor.VerifyStamps,
				})
				require.NoError(t, err)
				require.Empty(t, r.Findings, "%s:%d on %s", w.Name, seed, alloc)
			}
		}
	}
}
