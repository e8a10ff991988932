package drift_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

func measured(t *testing.T, text, conf string) *drift.Drift {
	t.Helper()
	tr, err := trace.ParseString("drift", text)
	require.NoError(t, err)
	spec, err := catalog.FromSettings(conf, nil)
	require.NoError(t, err)
	d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: spec.New}, func(n uint64) (device.Device, error) {
		return simdev.New(simdev.Options{Capacity: n})
	})
	require.NoError(t, err)
	return d
}

// fence is the sequence of https://github.com/pytorch/pytorch/pull/193400 with a small block that stays until the next repeat.
const fence = "alloc 0 91MiB\nalloc 1 47710208\nalloc 2 2MiB\nfree 0\nfree 1\n"

func TestMeasure(t *testing.T) {
	for _, c := range []struct{ name, text, conf, want string }{
		{"one block", "alloc 0 5MiB\nfree 0\n", "", "bounded: after repeat 2 the state is that after repeat 1"},
		{"what stays is replaced", "alloc 0 5MiB\n", "", "bounded: after repeat 3 the state is that after repeat 1"},
		// The contracts' example of a repeat that reserves more than the first (3.3).
		{"the second is larger", "alloc 0 12MiB\nfree 0\nalloc 1 10MiB\nalloc 2 10MiB\nfree 1\nalloc 3 12MiB\nfree 2\nfree 3\n", "",
			"bounded: after repeat 3 the state is that after repeat 2"},
		{"classic", fence, "max_split_size_mb:128", "bounded: after repeat 3 the state is that after repeat 1"},
		{"expandable", fence, "expandable_segments:True", "bounded: after repeat 4 the state is that after repeat 2"},
		{"both", fence, "max_split_size_mb:128,expandable_segments:True", "grows by 138.00 MiB a repeat"},
		// Golden vector G6 of the specification: a loop of one alloc and one free grows until the device is full.
		{"oversize", "alloc 0 21495808\nfree 0\n", "max_split_size_mb:21", "grows by 22.00 MiB a repeat"},
		{"uses on other streams are done by the end", "alloc 0 5MiB\nrecord 0 stream=1\nfree 0\n", "",
			"bounded: after repeat 2 the state is that after repeat 1"},
		{"settings, limits and others are left out", "conf max_split_size_mb:21\nfraction 0.5\nforeign 1MiB\nalloc 0 5MiB\nfree 0\n", "",
			"bounded: after repeat 2 the state is that after repeat 1"},
		// What the state has besides sizes: under which id a block will be freed, the stream of a segment, whether a block is pending.
		{"which block is whose", "alloc 0 27MiB\nalloc 1 27MiB\nempty_cache\n", "", "bounded: after repeat 3 the state is that after repeat 2"},
		{"streams", "alloc 0 12582400 stream=1\nempty_cache\nfree 0\nalloc 1 12MiB\nalloc 2 2096640 stream=1\n", "",
			"bounded: after repeat 5 the state is that after repeat 3"},
		{"pending blocks", "alloc 0 5MiB stream=1\nalloc 1 5MiB stream=1\nfree 0\nrecord 1 stream=0\n", "",
			"bounded: after repeat 5 the state is that after repeat 3"},
		{"what no device has", "alloc 0 100TiB\nfree 0\n", "", "bounded: after repeat 2 the state is that after repeat 1"},
	} {
		require.Equal(t, c.want, measured(t, c.text, c.conf).String(), c.name)
	}
}

// TestOtherAddresses: where addresses are given again or at random, a state that looks the same proves nothing.
func TestOtherAddresses(t *testing.T) {
	tr, err := trace.ParseString("drift", "alloc 0 5MiB\nfree 0\nempty_cache\n")
	require.NoError(t, err)
	spec, err := catalog.Parse("classic")
	require.NoError(t, err)
	const level = "level: 0 reserved after each of the last 10 of 40 repeats"
	for order, want := range map[simdev.Order]string{
		simdev.Bump: "bounded: after repeat 2 the state is that after repeat 1",
		simdev.Low:  level, simdev.Random: level,
	} {
		d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: spec.New}, func(n uint64) (device.Device, error) {
			return simdev.New(simdev.Options{Capacity: n, Order: order, Seed: 3})
		})
		require.NoError(t, err)
		require.Equal(t, want, d.String())
	}
}

// TestFigures: reserved and live bytes after each repeat.
func TestFigures(t *testing.T) {
	d := measured(t, "alloc 0 21495808\nfree 0\n", "max_split_size_mb:21")
	require.Equal(t, drift.MaxRepeats, d.Repeats)
	require.Len(t, d.Reserved, drift.MaxRepeats)
	for i, n := range d.Reserved {
		require.EqualValues(t, uint64(i+1)*22<<20, n)
		require.Zero(t, d.Live[i])
	}
}

// unlisted hides what the caching allocator tells beyond Alloc and Free, and is elsewhere: it must be told of syncs.
type unlisted struct {
	allocators.Allocator
	syncs  int
	script allocators.Script
}

func (u *unlisted) FollowSync(device.Stream) error   { u.syncs++; return nil }
func (u *unlisted) FollowForeign(uint64) error       { return nil }
func (u *unlisted) Foresee(script allocators.Script) { u.script = script }

// TestUnlisted: without a list of blocks nothing is proved; growth shows all the same, and that there is none.
func TestUnlisted(t *testing.T) {
	for _, c := range []struct {
		conf, want string
		level      bool
	}{
		{"max_split_size_mb:128", "level: 158MiB reserved after each of the last 10 of 40 repeats", true},
		{"expandable_segments:True", "level: 160MiB reserved after each of the last 10 of 40 repeats", true},
		{"max_split_size_mb:128,expandable_segments:True", "grows by 138.00 MiB a repeat", false},
	} {
		tr, err := trace.ParseString("drift", fence+"sync stream=1\nempty_cache\n")
		require.NoError(t, err)
		tr.Ops = tr.Ops[:len(tr.Ops)-1]
		spec, err := catalog.FromSettings(c.conf, nil)
		require.NoError(t, err)
		var u *unlisted
		d, err := drift.Measure(tr, executor.Target{Name: spec.Name, New: func(dev device.Device) (allocators.Allocator, error) {
			a, err := spec.New(dev)
			u = &unlisted{Allocator: a}
			return u, err
		}}, func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) })
		require.NoError(t, err)
		require.False(t, d.Listed)
		require.Equal(t, c.want, d.String(), c.conf)
		require.Equal(t, c.level, d.Level())
		require.Equal(t, 2*drift.MaxRepeats, u.syncs) // of stream 1 and at the end of each repeat
		// Three allocs, two frees and two syncs; from the second repeat on the block that stayed is freed too.
		require.Equal(t, 8*drift.MaxRepeats-1, u.script.Len)
		last := u.script.At(7 + 3)
		require.Equal(t, allocators.Request{Kind: allocators.RequestFree, ID: 3}, last)
	}
}

// randomSequence is short, of few sizes on two streams, and some of it stays live.
func randomSequence(rng *rand.Rand) string {
	var text strings.Builder
	var live []int
	sizes := []uint64{1 + rng.Uint64N(40), 1 + rng.Uint64N(40), 1 + rng.Uint64N(12), 1}
	for next := 0; next < 2+rng.IntN(7); {
		switch d := rng.IntN(12); {
		case d < 5 && len(live) > 0:
			k := rng.IntN(len(live))
			fmt.Fprintf(&text, "free %d\n", live[k])
			live = slices.Delete(live, k, k+1)
		case d == 5 && len(live) > 0:
			fmt.Fprintf(&text, "record %d stream=%d\n", live[rng.IntN(len(live))], rng.IntN(3))
		case d == 6:
			text.WriteString("empty_cache\n")
		default:
			fmt.Fprintf(&text, "alloc %d %d stream=%d\n", next, sizes[rng.IntN(4)]<<20-rng.Uint64N(2)*512, rng.IntN(2))
			live = append(live, next)
			next++
		}
	}
	return text.String()
}

// TestBoundedIsAProof: what is said to go on in a circle does: from the state that came back on, each repeat makes the device calls
// that the one a period before it made.
func TestBoundedIsAProof(t *testing.T) {
	const seed, more = 5, 25
	n := 300
	if testing.Short() {
		n = 60
	}
	for _, conf := range []string{"", "expandable_segments:True", "max_split_size_mb:21", "expandable_segments:True,max_split_size_mb:21"} {
		spec, err := catalog.FromSettings(conf, nil)
		require.NoError(t, err)
		bounded := 0
		for i := range n {
			text := randomSequence(rand.New(rand.NewPCG(seed, uint64(i))))
			d := measured(t, text, conf)
			if d.Kind != drift.Bounded {
				continue
			}
			bounded++
			calls := callsOf(t, text, executor.Target{Name: spec.Name, New: spec.New}, d.Repeats+more)
			for k := d.Repeats; k < len(calls); k++ {
				require.Equal(t, calls[k-d.Period], calls[k], "%s, %s; repeat %d of\n%s", conf, d, k+1, text)
			}
		}
		require.Greater(t, bounded, n/2, conf)
	}
}

// callsOf repeats a sequence and returns the kinds and sizes of the device calls that each repeat makes. It repeats as Measure does.
func callsOf(t *testing.T, text string, target executor.Target, repeats int) []string {
	t.Helper()
	tr, err := trace.ParseString("drift", text)
	require.NoError(t, err)
	dev, err := simdev.New(simdev.Options{Capacity: measure.Unbounded})
	require.NoError(t, err)
	rec := &device.Recorder{Device: dev}
	a, err := target.New(rec)
	require.NoError(t, err)
	live := map[uint64]device.Addr{}
	var out []string
	for range repeats {
		for i := range tr.Ops {
			switch op := &tr.Ops[i]; op.Kind {
			case trace.Alloc:
				b, err := a.Alloc(op.Bytes, op.Stream)
				require.NoError(t, err)
				require.NoError(t, a.Free(live[op.ID])) // nothing, or what stayed of the repeat before
				live[op.ID] = b.Addr
			case trace.Free:
				require.NoError(t, a.Free(live[op.ID]))
				delete(live, op.ID)
			case trace.Record:
				require.NoError(t, a.(allocators.StreamRecorder).Record(live[op.ID], op.Stream))
			case trace.EmptyCache:
				require.NoError(t, a.(allocators.CacheEmptier).EmptyCache())
			}
		}
		require.NoError(t, dev.SyncAll())
		var calls strings.Builder
		for _, c := range rec.Calls {
			if c.Kind != device.CallWait {
				fmt.Fprintf(&calls, "%d %d, ", c.Kind, c.Size)
			}
		}
		out = append(out, calls.String())
		rec.Reset()
	}
	return out
}

// hoard keeps so many pieces of device memory after each of its allocations, and refuses some of them.
type hoard struct {
	dev     device.Device
	turn    int
	held    []device.Addr
	keeps   func(turn int) int
	refuses func(turn int) bool
}

func (h *hoard) Alloc(n uint64, _ device.Stream) (allocators.Block, error) {
	h.turn++
	for len(h.held) < h.keeps(h.turn) {
		a, err := h.dev.Malloc(2 << 20)
		if err != nil {
			return allocators.Block{}, err
		}
		h.held = append(h.held, a)
	}
	for len(h.held) > h.keeps(h.turn) {
		if err := h.dev.Free(h.held[len(h.held)-1]); err != nil {
			return allocators.Block{}, err
		}
		h.held = h.held[:len(h.held)-1]
	}
	if h.refuses(h.turn) {
		return allocators.Block{}, device.ErrOutOfMemory
	}
	return allocators.Block{Addr: 1 << 20, Size: n}, nil
}

func (h *hoard) Free(device.Addr) error { return nil }

// TestWhatGrows: reserved memory must rise over the last ten repeats without a fall, and live memory must not.
func TestWhatGrows(t *testing.T) {
	tr, err := trace.ParseString("drift", "alloc 0 1MiB\n")
	require.NoError(t, err)
	rises := func(turn int) int { return turn }
	for _, c := range []struct {
		name, want string
		keeps      func(turn int) int
		refuses    func(turn int) bool
	}{
		{"it rises", "grows by 2.00 MiB a repeat", rises, func(int) bool { return false }},
		{"and so does live memory, once", "undecided after 40 repeats", rises, func(turn int) bool { return turn < 36 }},
		{"it falls once", "undecided after 40 repeats", func(turn int) int {
			if turn == 36 {
				return 34
			}
			return turn
		}, func(int) bool { return false }},
		{"it fell before", "grows by 2.00 MiB a repeat", func(turn int) int {
			if turn == 29 {
				return 20
			}
			return turn
		}, func(int) bool { return false }},
	} {
		d, err := drift.Measure(tr, executor.Target{Name: "hoard", New: func(dev device.Device) (allocators.Allocator, error) {
			return &hoard{dev: dev, keeps: c.keeps, refuses: c.refuses}, nil
		}}, func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) })
		require.NoError(t, err)
		require.Equal(t, c.want, d.String(), c.name)
	}
}
