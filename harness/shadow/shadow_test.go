package shadow_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/shadow"
)

func testSeed(t testing.TB) uint64 {
	seed := uint64(1)
	if s := os.Getenv("SHATTER_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		require.NoError(t, err, "SHATTER_SEED")
		seed = n
	}
	t.Logf("SHATTER_SEED=%d", seed)
	return seed
}

func sim(t testing.TB) *simdev.Device {
	d, err := simdev.New(simdev.Options{Capacity: 64 << 20})
	require.NoError(t, err)
	return d
}

// TestReuse is who may get memory again, and when: a table of what happened to the first block, at 0x1000 of stream 0, and
// whether a second one may lie there.
func TestReuse(t *testing.T) {
	type act func(t *testing.T, h *shadow.Heap, d *simdev.Device)
	free := func(t *testing.T, h *shadow.Heap, _ *simdev.Device) { require.NoError(t, h.Free(0)) }
	record := func(s device.Stream) act {
		return func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Record(0, s) }
	}
	sync := func(s device.Stream) act {
		return func(t *testing.T, _ *shadow.Heap, d *simdev.Device) { require.NoError(t, d.Sync(s)) }
	}
	poll := func(_ *testing.T, h *shadow.Heap, _ *simdev.Device) { h.Poll() }
	for _, c := range []struct {
		name   string
		before []act
		stream device.Stream
		ok     bool
	}{
		{"live", nil, 0, false},
		{"freed without uses, same stream", []act{free}, 0, true},
		{"freed without uses, other stream", []act{free}, 1, true},
		{"pending on the stream that gets it", []act{record(1), free}, 1, true},
		{"pending on another stream", []act{record(1), free}, 0, false},
		{"pending on two streams, one gets it", []act{record(1), record(2), free}, 1, false},
		{"pending and finished", []act{record(1), free, sync(1)}, 0, true},
		{"one of two uses finished", []act{record(1), record(2), free, sync(1)}, 0, false},
		{"one of two uses finished, the other's stream gets it", []act{record(1), record(2), free, sync(1)}, 2, true},
		{"finished before the free does not count", []act{record(1), sync(1), free}, 0, false},
		{"finished and noticed", []act{record(1), free, sync(1), poll}, 0, true},
		{"unfinished and looked at", []act{record(1), free, poll}, 0, false},
		{"used on its own stream", []act{record(0), free}, 1, true},
		{"recorded twice", []act{record(1), record(1), free, sync(1)}, 0, true},
	} {
		d := sim(t)
		h := shadow.New(d, 2)
		require.Nil(t, h.Alloc(0, 0x1000, 512, 500, 0, 0))
		for _, a := range c.before {
			a(t, h, d)
		}
		// Half of the second block lies on the first.
		old := h.Alloc(1, 0x1100, 512, 300, c.stream, 1)
		require.Equal(t, c.ok, old == nil, c.name)
		if !c.ok {
			require.EqualValues(t, 0x1000, old.Addr, c.name)
			continue
		}
		require.Equal(t, shadow.Totals{Count: 1, Bytes: 512, Requested: 300}, h.Live, c.name)
		require.Zero(t, h.Pending, c.name)
		require.EqualValues(t, 300, h.At(1).Requested)
		require.Nil(t, h.At(0))
	}
}

// TestReuseOfSeveral: a block may take the place of several finished ones at once, but not if one of them is not.
func TestReuseOfSeveral(t *testing.T) {
	for _, blocked := range []bool{false, true} {
		d := sim(t)
		h := shadow.New(d, 4)
		for i := range int32(3) {
			require.Nil(t, h.Alloc(i, device.Addr(0x1000+512*i), 512, 512, 0, int(i)))
			h.Record(i, device.Stream(1+i))
		}
		for i := range int32(3) {
			require.NoError(t, h.Free(i))
			if i < 2 || !blocked {
				require.NoError(t, d.Sync(device.Stream(1+i)))
			}
		}
		require.EqualValues(t, 3, h.Pending.Count)
		old := h.Alloc(3, 0x1000, 3*512, 1000, 0, 3)
		require.Equal(t, blocked, old != nil)
		if blocked {
			require.EqualValues(t, 2, old.Op)
			require.True(t, old.Pending)
		} else {
			require.Zero(t, h.Pending)
		}
	}
}

// model is what the heap must add up to, kept in the plainest way.
type model struct {
	addr             device.Addr
	bytes, requested uint64
	stream           device.Stream
	uses             map[device.Stream]bool
	pending          bool
}

// TestHeapTotals runs random operations and sums everything anew after each.
func TestHeapTotals(t *testing.T) {
	rng := rand.New(rand.NewPCG(testSeed(t), 17))
	d := sim(t)
	const slots = 60
	h := shadow.New(d, slots)
	live := map[int32]*model{}
	var pending []*model
	next := device.Addr(1 << 20)
	var peak uint64
	peakOp := -1
	for op := range 6000 {
		slot := int32(rng.IntN(slots))
		m := live[slot]
		switch k := rng.IntN(10); {
		case m == nil:
			m = &model{addr: next, requested: uint64(1 + rng.IntN(5000)), stream: device.Stream(rng.IntN(3)), uses: map[device.Stream]bool{}}
			m.bytes = (m.requested + 511) / 512 * 512
			next += device.Addr(m.bytes)
			require.Nil(t, h.Alloc(slot, m.addr, m.bytes, m.requested, m.stream, op))
			live[slot] = m
		case k < 4:
			s := device.Stream(rng.IntN(4))
			h.Record(slot, s)
			if s != m.stream {
				m.uses[s] = true
			}
		case k < 9:
			require.NoError(t, h.Free(slot))
			delete(live, slot)
			if m.pending = len(m.uses) > 0; m.pending {
				pending = append(pending, m)
			}
		default:
			s := device.Stream(rng.IntN(4))
			require.NoError(t, d.Sync(s))
			for _, m := range pending {
				delete(m.uses, s)
			}
			h.Poll()
			left := pending[:0]
			for _, m := range pending {
				if len(m.uses) > 0 {
					left = append(left, m)
				}
			}
			pending = left
		}
		var wantLive, wantPending shadow.Totals
		for _, m := range live {
			wantLive.Count++
			wantLive.Bytes += m.bytes
			wantLive.Requested += m.requested
		}
		for _, m := range pending {
			wantPending.Count++
			wantPending.Bytes += m.bytes
			wantPending.Requested += m.requested
		}
		if wantLive.Requested > peak {
			peak, peakOp = wantLive.Requested, op
		}
		require.Equal(t, wantLive, h.Live, op)
		require.Equal(t, wantPending, h.Pending, op)
		require.Equal(t, []any{peak, peakOp}, []any{h.PeakRequested, h.PeakOp})
		if op%100 == 0 {
			n, last := uint64(0), device.Addr(0)
			h.Each(func(e *shadow.Entry) bool {
				require.Greater(t, e.Addr, last)
				last = e.Addr
				n++
				return true
			})
			require.Equal(t, wantLive.Count+wantPending.Count, n)
		}
	}
	require.NotEmpty(t, pending)
}

// TestPeakIsTheFirst: a peak that is reached again stays where it was.
func TestPeakIsTheFirst(t *testing.T) {
	h := shadow.New(sim(t), 1)
	require.Equal(t, -1, h.PeakOp)
	for op := range 3 {
		require.Nil(t, h.Alloc(0, 0x1000, 512, 100, 0, op))
		require.NoError(t, h.Free(0))
	}
	require.Equal(t, []any{0, uint64(100)}, []any{h.PeakOp, h.PeakRequested})
}

// broken is a device on which no event can be recorded, or none be asked.
type broken struct {
	*simdev.Device
	record, done bool
}

var errBroken = errors.New("broken")

func (b *broken) Record(s device.Stream) (device.Event, error) {
	if b.record {
		return 0, errBroken
	}
	return b.Device.Record(s)
}

func (b *broken) Done(e device.Event) (bool, error) {
	if b.done {
		return false, errBroken
	}
	return b.Device.Done(e)
}

// TestBrokenDevice: a mark that cannot be set is an error; one that cannot be asked counts as unfinished.
func TestBrokenDevice(t *testing.T) {
	d := &broken{Device: sim(t)}
	h := shadow.New(d, 2)
	for i := range int32(2) {
		require.Nil(t, h.Alloc(i, device.Addr(0x1000*(i+1)), 512, 512, 0, 0))
		h.Record(i, 1)
	}
	require.NoError(t, h.Free(0))
	require.NoError(t, d.SyncAll())
	d.done = true
	h.Poll()
	require.EqualValues(t, 1, h.Pending.Count)
	d.done = false
	h.Poll()
	require.Zero(t, h.Pending.Count)
	d.record = true
	require.ErrorIs(t, h.Free(1), errBroken)
}
