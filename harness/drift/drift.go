// Package drift repeats a sequence from the state in which it ends, again and again, and says whether what the allocator holds
// stays bounded or grows.
//
// In go a trace, a target and a device; out comes a Drift. It knows no property and asks the allocator for nothing but its
// blocks: if it does not list them, boundedness cannot be proved, only growth be seen.
package drift

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Drift is what becomes of an allocator when a sequence is repeated, again and again, from the state in which it ends.
type Drift struct {
	// Kind is Bounded, Grows or Undecided.
	Kind Kind
	// Repeats is how many were made.
	Repeats int
	// Period is after how many repeats the state came back (Bounded).
	Period int
	// PerRepeat is the bytes by which reserved memory rises a repeat, the mean of the last ten (Grows).
	PerRepeat uint64
	// Reserved and Live are bytes after each repeat.
	Reserved, Live []uint64
	// Listed says that the allocator lists its blocks and that the device gives ascending addresses: without that nothing proves
	// that it is bounded.
	Listed bool
}

// Level says that reserved memory was the same after each of the last ten repeats, which proves nothing about later ones.
func (d *Drift) Level() bool {
	n := len(d.Reserved)
	return n > growthSpan && slices.Min(d.Reserved[n-growthSpan-1:]) == slices.Max(d.Reserved[n-growthSpan-1:])
}

// Kind is what a drift came to.
type Kind uint8

const (
	// Undecided: neither of the others within the repeats made.
	Undecided Kind = iota
	// Bounded: the whole state came back, so all goes on in a circle. That is a proof.
	Bounded
	// Grows: over the last ten repeats reserved memory rose and live memory did not.
	Grows
)

// String returns the word of reports.
func (k Kind) String() string { return [...]string{"undecided", "bounded", "grows"}[k] }

// String says it in words.
func (d *Drift) String() string {
	switch d.Kind {
	case Bounded:
		return fmt.Sprintf("bounded: after repeat %d the state is that after repeat %d", d.Repeats, d.Repeats-d.Period)
	case Grows:
		return fmt.Sprintf("grows by %.2f MiB a repeat", float64(d.PerRepeat)/(1<<20))
	}
	if d.Level() {
		return fmt.Sprintf("level: %s reserved after each of the last %d of %d repeats", trace.FormatSize(d.Reserved[len(d.Reserved)-1]), growthSpan, d.Repeats)
	}
	return fmt.Sprintf("undecided after %d repeats", d.Repeats)
}

// Ops is how many operations of a generated sequence are worth repeating: growth shows in short ones as well, and long ones
// seldom come back to the same state.
const Ops = 200

// MaxRepeats bounds the repeats of a drift; growth is judged by the last growthSpan of them.
const (
	MaxRepeats = 40
	growthSpan = 10
)

// Measure repeats a trace on a device that refuses nothing. What is live at the end of a repeat stays so until the next one
// allocates the same id again: the old block is freed right behind the new one, as when a variable gets another value. Each
// repeat ends with all work done. Changes of settings and foreign memory are left out: a repeat would not begin as it ended.
func Measure(t *trace.Trace, target executor.Target, newDevice measure.NewDevice) (*Drift, error) {
	dev, err := newDevice(measure.Unbounded)
	if err != nil {
		return nil, err
	}
	a, err := target.New(dev)
	if err != nil {
		return nil, fmt.Errorf("%s cannot start: %w", target.Name, err)
	}
	if c, ok := a.(io.Closer); ok {
		defer c.Close() // gives back the process of an allocator that lives in one
	}
	r := repeater{alloc: a, dev: dev, live: map[uint64]held{}}
	var d Drift
	if o, ok := dev.(interface{ Ascending() bool }); ok && o.Ascending() {
		r.snap, d.Listed = a.(allocators.Snapshotter)
	}
	r.follower, _ = a.(allocators.DeviceFollower)
	if f, ok := a.(allocators.Foreseer); ok {
		script := foreseen(t.Ops)
		f.Foresee(allocators.Script{Len: len(script), At: func(i int) allocators.Request { return script[i] }})
	}
	seen := map[string]int{}
	for d.Repeats < MaxRepeats {
		if err := r.repeat(t.Ops); err != nil {
			return nil, fmt.Errorf("%w: %s on %s, repeat %d: %w", executor.ErrHarness, t.Name, target.Name, d.Repeats, err)
		}
		d.Repeats++
		free, total := dev.Info()
		d.Reserved = append(d.Reserved, total-free)
		d.Live = append(d.Live, r.bytes)
		if r.snap == nil {
			continue
		}
		key := r.canonical()
		if before, ok := seen[key]; ok {
			d.Kind, d.Period = Bounded, d.Repeats-before
			return &d, nil
		}
		seen[key] = d.Repeats
	}
	last := len(d.Reserved) - 1
	first := last - growthSpan
	rising := true
	for i := first; i < last; i++ {
		rising = rising && d.Reserved[i+1] >= d.Reserved[i] && d.Live[i+1] <= d.Live[i]
	}
	if rise := d.Reserved[last] - min(d.Reserved[first], d.Reserved[last]); rising && rise > 0 {
		d.Kind, d.PerRepeat = Grows, rise/growthSpan
	}
	return &d, nil
}

// held is a live block.
type held struct {
	addr  device.Addr
	bytes uint64
}

// repeater runs operations on an allocator without any checks.
type repeater struct {
	alloc allocators.Allocator
	dev   device.Device
	snap  allocators.Snapshotter
	// follower is an allocator that must be told what is done to the device.
	follower allocators.DeviceFollower

	live  map[uint64]held
	bytes uint64
	state allocators.Snapshot
}

func (r *repeater) repeat(ops []trace.Op) error {
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case trace.Alloc:
			old, replaced := r.live[op.ID]
			b, err := r.alloc.Alloc(op.Bytes, op.Stream)
			if errors.Is(err, device.ErrOutOfMemory) {
				continue // more than the largest device has
			}
			if err != nil {
				return err
			}
			r.live[op.ID] = held{b.Addr, op.Bytes}
			r.bytes += op.Bytes
			if replaced {
				if err := r.free(old); err != nil {
					return err
				}
			}
		case trace.Free:
			h := r.live[op.ID]
			delete(r.live, op.ID)
			if err := r.free(h); err != nil {
				return err
			}
		case trace.Record:
			if rec, ok := r.alloc.(allocators.StreamRecorder); ok && r.live[op.ID].addr != 0 {
				if err := rec.Record(r.live[op.ID].addr, op.Stream); err != nil {
					return err
				}
			}
		case trace.Sync:
			if err := r.sync(op.Stream); err != nil {
				return err
			}
		case trace.EmptyCache:
			if e, ok := r.alloc.(allocators.CacheEmptier); ok && op.Pool == 0 { // private pools are left out
				if err := e.EmptyCache(); err != nil {
					return err
				}
			}
		}
	}
	return r.sync(trace.AllStreams)
}

func (r *repeater) sync(s device.Stream) error {
	var err error
	if s == trace.AllStreams {
		err = r.dev.SyncAll()
	} else {
		err = r.dev.Sync(s)
	}
	if err == nil && r.follower != nil {
		err = r.follower.FollowSync(s)
	}
	return err
}

func (r *repeater) free(h held) error {
	r.bytes -= h.bytes
	return r.alloc.Free(h.addr)
}

// canonical writes the state so that from equal ones all that follows is equal: the segments in order of their addresses, which
// break ties, but not the addresses themselves, since every new one lies behind them; and of each live block its id, under which
// it will be freed. The ages of garbage collection are left out: on this device reserved memory never comes near its threshold.
func (r *repeater) canonical() string {
	r.snap.Snapshot(&r.state)
	ids := make(map[device.Addr]uint64, len(r.live))
	for _, id := range slices.Sorted(maps.Keys(r.live)) {
		ids[r.live[id].addr] = id
	}
	var out []byte
	put := func(n uint64) { out = binary.AppendUvarint(out, n) }
	flag := func(b bool) {
		if b {
			put(1)
		} else {
			put(0)
		}
	}
	for i := range r.state.Segments {
		g := &r.state.Segments[i]
		put(g.Size)
		flag(g.Small)
		flag(g.Expandable)
		put(uint64(g.Stream))
		put(uint64(g.Count))
		for _, b := range r.state.BlocksOf(i) {
			put(b.Size)
			put(uint64(b.State))
			switch b.State {
			case allocators.Live:
				put(ids[b.Addr])
				put(b.Requested)
			case allocators.Pending:
				put(b.Requested)
			}
		}
	}
	return string(out)
}
