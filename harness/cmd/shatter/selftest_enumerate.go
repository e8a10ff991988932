package main

import (
	"strconv"

	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// The small traces that are enumerated in full: all sequences over these operations, on these devices, under these settings.
// That nothing shorter shows a bug is proved for them, not for all sizes.
var (
	// Class edges: the pools, a shared segment, an own one, one that is rounded up, a page and more than one.
	smallSizes = []uint64{513, 1 << 20, 1<<20 + 1, 10 << 20, 11 << 20, 20<<20 - 512, 20 << 20, 22 << 20, 40 << 20, 42 << 20}
	smallConfs = []struct{ conf, fraction string }{
		{"", ""}, {"max_split_size_mb:22", ""}, {"roundup_power2_divisions:[1:1,2:2,>:4]", ""},
		{"garbage_collection_threshold:0.3", "1"}, {"", "0.5"},
	}
	smallCapacities = []uint64{2 << 20, 20 << 20, 42 << 20, 100 << 20}
	// With private pools and queued work there are fewer of all: what breaks there does not depend on them.
	pooledSizes      = []uint64{513, 20 << 20}
	pooledCapacities = []uint64{2 << 20, 42 << 20}
	// What the settings are changed to in mid-run.
	smallSwitches = []string{"expandable_segments:False", "expandable_segments:True,max_split_size_mb:21"}
)

// smallHeader is the header of a small trace.
func smallHeader(capacity uint64, expandable bool, conf, fraction string) []trace.Field {
	out := []trace.Field{{Key: trace.KeyCapacity, Value: strconv.FormatUint(capacity, 10)}}
	if expandable {
		conf = joinConf("expandable_segments:True", conf)
	}
	if conf != "" {
		out = append(out, trace.Field{Key: trace.KeyConf, Value: conf})
	}
	if fraction != "" {
		out = append(out, trace.Field{Key: trace.KeyFraction, Value: fraction})
	}
	return out
}

// enumerate hands all traces of some lengths to look, shortest first, as long as they are shorter than what was found.
func (r *sought) enumerate(over func() bool, h *seeker, least, most int, look func(*trace.Trace) bool) {
	for n := least; n <= most && (!r.Found || n < r.After); n++ {
		try := func(t *trace.Trace) bool {
			if over() {
				return false
			}
			r.Enumerated++
			if f, _, err := h.check(t, onlyReference); err != nil || f == nil {
				return true
			}
			r.Shortest = n
			look(t)
			return false
		}
		for _, expandable := range []bool{false, true} {
			for _, capacity := range pooledCapacities {
				e := enumerator{length: n, look: try, pooled: true, header: smallHeader(capacity, expandable, "", "")}
				if !e.extend(nil) {
					return
				}
			}
			for _, c := range smallConfs {
				for _, capacity := range smallCapacities {
					e := enumerator{length: n, look: try, header: smallHeader(capacity, expandable, c.conf, c.fraction)}
					if !e.extend(nil) {
						return
					}
				}
			}
		}
		r.Exhausted = n
	}
}

// enumerator makes all traces of a length.
type enumerator struct {
	header []trace.Field
	length int
	pooled bool // with private pools and queued work
	live   []uint64
	next   uint64
	look   func(*trace.Trace) bool
}

// extend tries every operation behind the ones given, and tells whether to go on.
func (e *enumerator) extend(ops []trace.Op) bool {
	if len(ops) == e.length {
		return e.look(&trace.Trace{Name: "enumerated", Header: e.header, Ops: append([]trace.Op(nil), ops...)})
	}
	with := func(op trace.Op) bool { return e.extend(append(ops, op)) }
	sizes := smallSizes
	if e.pooled {
		sizes = pooledSizes
	}
	for stream := range device.Stream(2) {
		for _, n := range sizes {
			if stream > 0 && n != 513 && n != 20<<20 {
				continue // two sizes show what a second stream is kept from
			}
			id := e.next
			e.next++
			e.live = append(e.live, id)
			ok := with(trace.Op{Kind: trace.Alloc, ID: id, Bytes: n, Stream: stream})
			e.live = e.live[:len(e.live)-1]
			e.next--
			if !ok {
				return false
			}
		}
	}
	for i, id := range e.live {
		rest := append(append([]uint64(nil), e.live[:i]...), e.live[i+1:]...)
		all := e.live
		e.live = rest
		ok := with(trace.Op{Kind: trace.Free, ID: id})
		e.live = all
		if !ok || !with(trace.Op{Kind: trace.Record, ID: id, Stream: 1}) {
			return false
		}
		if e.pooled && !(with(trace.Op{Kind: trace.Use, ID: id}) && with(trace.Op{Kind: trace.Use, ID: id, Stream: 1})) {
			return false
		}
	}
	if e.pooled {
		return e.pools(ops, with) && with(trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}) && with(trace.Op{Kind: trace.EmptyCache})
	}
	for _, conf := range smallSwitches {
		if !with(trace.Op{Kind: trace.Conf, Conf: conf}) {
			return false
		}
	}
	return with(trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}) && with(trace.Op{Kind: trace.EmptyCache})
}

// pools tries every operation on one pool that is legal behind the ones given.
func (e *enumerator) pools(ops []trace.Op, with func(trace.Op) bool) bool {
	for _, op := range [...]trace.Op{
		{Kind: trace.PoolBegin, Pool: 1, Stream: trace.AllStreams}, {Kind: trace.PoolEnd, Pool: 1}, {Kind: trace.PoolRelease, Pool: 1},
		{Kind: trace.EmptyCache, Pool: 1},
	} {
		var set trace.PoolSet
		for i := range ops {
			set.Step(&ops[i])
		}
		if set.Step(&op) && !with(op) {
			return false
		}
	}
	return true
}
