package shadow_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/shadow"
)

// TestHazards is what work outlives a block: a table of what happened to the block at 0x1000 of stream 0, and which streams may not have
// its memory then; -1 stands for an unmapping.
func TestHazards(t *testing.T) {
	type act func(t *testing.T, h *shadow.Heap, d *simdev.Device)
	use := func(s device.Stream) act {
		return func(t *testing.T, h *shadow.Heap, _ *simdev.Device) { require.NoError(t, h.Use(0, s)) }
	}
	record := func(s device.Stream) act {
		return func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Record(0, s) }
	}
	free := func(t *testing.T, h *shadow.Heap, _ *simdev.Device) { require.NoError(t, h.Free(0)) }
	sync := func(s device.Stream) act {
		return func(t *testing.T, _ *shadow.Heap, d *simdev.Device) { require.NoError(t, d.Sync(s)) }
	}
	hold := func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Held = true }
	capture := func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Held, h.Capturing = true, true }
	let := func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Held, h.Capturing = false, false }
	resume := func(t *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Resume(); require.NoError(t, h.Marked()) }
	poll := func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Poll() }
	for _, c := range []struct {
		name    string
		acts    []act
		not     []device.Stream
		pending uint64
	}{
		{"no work", []act{free}, nil, 0},
		{"work on its own stream", []act{use(0), free}, []device.Stream{-1, 1, 7}, 0},
		{"work that is done", []act{use(0), sync(0), free}, nil, 0},
		{"work that gets done", []act{use(0), free, sync(0)}, nil, 0},
		{"other work done", []act{use(0), free, sync(1)}, []device.Stream{-1, 1, 7}, 0},
		{"work of another stream, not recorded, is the program's risk", []act{use(1), free}, nil, 0},
		{"the later of two", []act{use(0), sync(0), use(0), free}, []device.Stream{-1, 1, 7}, 0},
		{"its own work once the recorded use is over", []act{use(0), record(1), free, sync(1), poll}, []device.Stream{-1, 1, 7}, 0},
		{"a recorded use is waited for by itself", []act{use(1), record(1), free}, nil, 1},
		{"forgotten behind a pool of the user's", []act{hold, record(1), free, let, resume}, []device.Stream{-1, 0, 7}, 0},
		{"forgotten, and done before", []act{hold, record(1), free, sync(1), let, resume}, nil, 0},
		{"held back", []act{hold, record(1), free, sync(1), poll}, nil, 1},
		{"held back and not forgotten", []act{record(1), hold, free, sync(1), let, resume, poll}, nil, 1},
		{"held back, then done", []act{record(1), hold, free, let, resume, sync(1), poll}, nil, 0},
		{"one of two forgotten", []act{record(1), hold, record(7), free, let, resume, sync(1), poll}, []device.Stream{-1, 0, 1}, 0},
		{"recorded again, so forgotten", []act{record(1), hold, record(1), free, let, resume}, []device.Stream{-1, 0, 7}, 0},
		{"a capture queues nothing", []act{capture, use(0), record(1), free, let, resume}, nil, 0},
		{"recorded in a capture, freed behind it", []act{capture, record(1), let, free, poll}, nil, 1},
		{"and then done", []act{capture, record(1), let, free, sync(1), poll}, nil, 0},
	} {
		d := sim(t)
		h := shadow.New(d, 1)
		require.Nil(t, h.Alloc(0, 0x1000, 512, 500, 0, 3))
		for _, a := range c.acts {
			a(t, h, d)
		}
		require.Equal(t, c.pending, h.Pending.Count, c.name)
		var not []device.Stream
		for _, s := range []device.Stream{-1, 0, 1, 7} {
			if z := h.Disturbed(0x11ff, 1, s); z != nil {
				not = append(not, s)
				require.EqualValues(t, 0x1000, z.Addr, c.name)
				require.EqualValues(t, 512, z.Size, c.name)
				require.EqualValues(t, 3, z.Op, c.name)
				require.NotEqual(t, s, z.On, c.name)
			}
		}
		require.Equal(t, c.not, not, c.name)
		require.Nil(t, h.Disturbed(0x1200, 512, -1), "%s: behind it", c.name)
		require.Nil(t, h.Disturbed(0xe00, 512, -1), "%s: before it", c.name)
		if len(not) > 0 {
			require.Equal(t, 1, h.Hazards(), c.name)
			h.Forget(0x1200, 512)
			h.Forget(0xe00, 512)
			require.Equal(t, 1, h.Hazards(), c.name)
			h.Forget(0x1000, 1)
		}
		require.Zero(t, h.Hazards(), c.name)
		require.Zero(t, h.Deferred()*int(1-min(c.pending, 1)), c.name)
	}
}

// TestWaitedFor completes the entries of one pool only.
func TestWaitedFor(t *testing.T) {
	d := sim(t)
	h := shadow.New(d, 2)
	for slot := range int32(2) {
		require.Nil(t, h.Alloc(slot, 0x1000*device.Addr(slot+1), 512, 500, 0, 0))
		h.At(slot).Pool = allocators.PoolID(5 + slot)
		h.Record(slot, 1)
		require.NoError(t, h.Free(slot))
	}
	require.NoError(t, d.Sync(1))
	h.WaitedFor(7, true)
	require.EqualValues(t, 2, h.Pending.Count)
	h.WaitedFor(5, true)
	require.EqualValues(t, 1, h.Pending.Count)
	h.Poll()
	require.Zero(t, h.Pending.Count)
}

// markless is a device on which no work can be marked.
type markless struct{ device.Streams }

func (markless) Record(device.Stream) (device.Event, error) { return 0, errors.New("no events") }

func TestUseOnABrokenDevice(t *testing.T) {
	h := shadow.New(markless{sim(t)}, 1)
	require.Nil(t, h.Alloc(0, 0x1000, 512, 500, 0, 0))
	require.ErrorContains(t, h.Use(0, 4), "work on stream 4: no events")
	h.Record(0, 1)
	require.ErrorContains(t, h.Free(0), "mark on stream 1: no events")
}
