package properties

import (
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// variant makes a trace that must come to the same from another one. at[i] is the operation of the variant that must decide as
// operation i does, -1 for none. A nil trace means that there is no such variant.
type variant func(t *trace.Trace, rng *rand.Rand) (v *trace.Trace, at []int)

// sameAs makes the check of a relation whose variants decide alike. Only allocators that declare a promise are asked, unless
// any is true: what they do beyond Alloc and Free is not known of others.
func sameAs(rule string, any bool, make variant, holds func(c *executor.Case, v []event, at []int) bool) func(*executor.Case) (*executor.Violation, error) {
	return func(c *executor.Case) (*executor.Violation, error) {
		if !any {
			p, err := promiseOf(c)
			if err != nil || p.Kind == allocators.PromiseNone {
				return nil, err
			}
		}
		t := c.Trace.First(relatedOps)
		v, at := make(t, rand.New(variantSeed(t)))
		if v == nil {
			return nil, nil
		}
		before, err := historyOf(c, t, c.Target, c.Capacity)
		if err != nil {
			return nil, err
		}
		after, err := historyOf(c, v, c.Target, c.Capacity)
		if err != nil {
			return nil, err
		}
		if holds != nil && !holds(c, after, at) {
			return nil, nil
		}
		m := newMatcher()
		for i := range before {
			k := at[i]
			if k < 0 || k >= len(after) {
				continue
			}
			e, f := &before[i], &after[k]
			if !m.same(e, f) {
				return executor.Broken(rule, "operation %d (%s): %s; in the variant, as operation %d: %s", i, &t.Ops[i], e, k, f), nil
			}
			if e.reserved != f.reserved || e.allocated != f.allocated {
				return executor.Broken(rule, "after operation %d (%s) %d bytes are reserved and %d allocated; in the variant, after operation %d, %d and %d",
					i, &t.Ops[i], e.reserved, e.allocated, k, f.reserved, f.allocated), nil
			}
		}
		return nil, nil
	}
}

// variantSeed chooses among the variants of a trace: it follows from the trace, so that a finding comes back with it.
func variantSeed(t *trace.Trace) *rand.PCG {
	h := t.Hash()
	return rand.NewPCG(binary.LittleEndian.Uint64(h[:]), 0)
}

// identity is the map of a variant with the same operations in the same places.
func identity(n int) []int {
	at := make([]int, n)
	for i := range at {
		at[i] = i
	}
	return at
}

// Repeatable: the same run twice.
var Repeatable = executor.Relation{
	ID: "repeatable", Claim: "The same trace from the start comes to the same.", Source: "contracts P2",
	Check: sameAs("P2", true, func(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) { return t, identity(len(t.Ops)) }, nil),
}

// NamesDoNotMatter: ids are the program's own affair.
var NamesDoNotMatter = executor.Relation{
	ID: "renamed-ids", Claim: "A trace with its ids renamed comes to the same.", Source: "design: an id names an allocation, no more",
	Check: sameAs("renamed", true, renamed, nil),
}

func renamed(t *trace.Trace, rng *rand.Rand) (*trace.Trace, []int) {
	names := map[uint64]uint64{}
	fresh := rng.Uint64N(1 << 40)
	ops := slices.Clone(t.Ops)
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case trace.Alloc, trace.Block:
			names[op.ID] = fresh // also when an id is used again
			fresh += 1 + rng.Uint64N(100)
			op.ID = names[op.ID]
		case trace.Free, trace.Record, trace.Use:
			op.ID = names[op.ID]
		}
	}
	return with(t, ops), identity(len(ops))
}

// FreeOrder: frees between two allocations commute.
var FreeOrder = executor.Relation{
	ID:     "free-order",
	Claim:  "The order of frees in a row, without uses on other streams, changes no later decision.",
	Source: "contracts P5 (coalescing is confluent)",
	Check:  sameAs("P5", false, freesShuffled, nil),
}

func freesShuffled(t *trace.Trace, rng *rand.Rand) (*trace.Trace, []int) {
	ops, at := slices.Clone(t.Ops), identity(len(t.Ops))
	recorded := map[uint64]bool{}
	moved := false
	for i := 0; i < len(ops); i++ {
		switch ops[i].Kind {
		case trace.Alloc:
			delete(recorded, ops[i].ID)
		case trace.Record:
			recorded[ops[i].ID] = true
		}
		end := i
		for end < len(ops) && ops[end].Kind == trace.Free && !recorded[ops[end].ID] {
			end++
		}
		if end-i < 2 {
			continue
		}
		rng.Shuffle(end-i, func(a, b int) { ops[i+a], ops[i+b] = ops[i+b], ops[i+a] })
		for k := i; k < end; k++ {
			at[k] = -1
		}
		moved = true
		i = end - 1
	}
	if !moved {
		return nil, nil
	}
	return with(t, ops), at
}

// AllocThenFree: a block taken from the cache and given back at once leaves no trace.
var AllocThenFree = executor.Relation{
	ID:     "alloc-then-free",
	Claim:  "An alloc from the cache and its immediate free, put in anywhere, change no later decision.",
	Source: "contracts P1 (while nothing is bought or returned; ages of garbage collection differ, so not with it)",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		if strings.Contains(c.Conf, "garbage_collection_threshold") {
			return nil, nil
		}
		return sameAs("P1", false, insertPairs, pairsBoughtNothing)(c)
	},
}

// insertPairs asks again for what was just freed: the cache has it.
func insertPairs(t *trace.Trace, rng *rand.Rand) (*trace.Trace, []int) {
	type size struct {
		bytes  uint64
		stream device.Stream
	}
	var ops []trace.Op
	at := make([]int, len(t.Ops))
	if usesPools(t) {
		return nil, nil // it may go to another pool, and frees that were held back are taken up at an alloc
	}
	live, recorded := map[uint64]size{}, map[uint64]bool{}
	id := uint64(1) << 50
	for i, op := range t.Ops {
		at[i] = len(ops)
		ops = append(ops, op)
		switch op.Kind {
		case trace.Alloc:
			live[op.ID] = size{op.Bytes, op.Stream}
			delete(recorded, op.ID)
		case trace.Record:
			recorded[op.ID] = true
		case trace.Conf, trace.Fraction:
			return nil, nil // garbage collection may be switched on, or a block be oversize now
		case trace.Free:
			if was := live[op.ID]; was.bytes > 0 && !recorded[op.ID] && rng.IntN(4) == 0 {
				n := 1 + rng.Uint64N(was.bytes)
				if smallSize(n) != smallSize(was.bytes) || rng.IntN(2) == 0 {
					n = was.bytes
				}
				ops = append(ops, trace.Op{Kind: trace.Alloc, ID: id, Bytes: n, Stream: was.stream}, trace.Op{Kind: trace.Free, ID: id})
				id++
			}
		}
	}
	if len(ops) == len(t.Ops) {
		return nil, nil
	}
	return with(t, ops), at
}

func smallSize(n uint64) bool { return n <= smallLimit }

// pairsBoughtNothing is the condition of P1.
func pairsBoughtNothing(_ *executor.Case, v []event, at []int) bool {
	next := 0
	for k := range v {
		if next < len(at) && at[next] == k {
			next++
			continue
		}
		if v[k].bought || v[k].outcome == executor.OOM {
			return false
		}
	}
	return true
}

// EmptyTwice: emptying an empty cache does nothing.
var EmptyTwice = executor.Relation{
	ID: "empty-cache-twice", Claim: "empty_cache twice in a row is empty_cache once.", Source: "contracts E4",
	Check: sameAs("E4", false, doubleEmptyCache, nil),
}

func doubleEmptyCache(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) {
	var ops []trace.Op
	at := make([]int, len(t.Ops))
	for i, op := range t.Ops {
		if op.Kind == trace.EmptyCache {
			ops = append(ops, op)
		}
		at[i] = len(ops) // of two, what the second leaves
		ops = append(ops, op)
	}
	if len(ops) == len(t.Ops) {
		return nil, nil
	}
	return with(t, ops), at
}

// StartsAnew: once everything is freed and the cache emptied, the allocator is as new.
var StartsAnew = executor.Relation{
	ID:     "starts-anew",
	Claim:  "A trace run again after everything was freed and the cache emptied comes to the same: it can be split where nothing is live.",
	Source: "contracts E3, P2",
	Check:  sameAs("split", false, runTwice, nil),
}

func runTwice(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) {
	if changesSettings(t) || usesPools(t) || begun(t) {
		return nil, nil // the second time would begin with other settings, or not with what the first began with
	}
	ops := slices.Clone(t.Ops)
	var live []uint64
	for _, op := range t.Ops {
		switch op.Kind {
		case trace.Alloc:
			live = append(live, op.ID)
		case trace.Free:
			live = slices.DeleteFunc(live, func(id uint64) bool { return id == op.ID })
		}
	}
	for _, id := range live {
		ops = append(ops, trace.Op{Kind: trace.Free, ID: id})
	}
	ops = append(ops, trace.Op{Kind: trace.Sync, Stream: trace.AllStreams}, trace.Op{Kind: trace.EmptyCache})
	at := make([]int, len(t.Ops))
	for i := range at {
		at[i] = len(ops) + i
	}
	return with(t, append(ops, t.Ops...)), at
}

// StreamsApart and PoolsApart: what is free in one stream or pool is not looked at by another.
var StreamsApart = executor.Relation{
	ID:     "streams-apart",
	Claim:  "While memory suffices, what a stream gets does not depend on the allocations of other streams.",
	Source: "contracts P3 (until a purchase fails; not with garbage collection or a limit)",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		return apart(c, "P3", func(_ *allocators.Promise, op *trace.Op) int { return int(op.Stream) })
	},
}

// PoolsApart is StreamsApart for the two pools.
var PoolsApart = executor.Relation{
	ID:     "pools-apart",
	Claim:  "While memory suffices, what small requests get does not depend on large ones, and the other way round.",
	Source: "contracts P4 (on the conditions of P3)",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		return apart(c, "P4", func(p *allocators.Promise, op *trace.Op) int {
			if p.Round(max(op.Bytes, 1)) <= smallLimit {
				return 0
			}
			return 1
		})
	},
}

// apart runs the allocations of each class alone, on a device that refuses nothing, and compares them with the whole.
func apart(c *executor.Case, rule string, class func(*allocators.Promise, *trace.Op) int) (*executor.Violation, error) {
	p, err := promiseOf(c)
	t := c.Trace.First(relatedOps)
	if err != nil || p.Kind == allocators.PromiseNone || p.HasLimit || changesSettings(t) || usesPools(t) || begun(t) {
		return nil, err
	}
	classes := map[int]bool{}
	of := make([]int, len(t.Ops))
	names := map[uint64]int{}
	for i := range t.Ops {
		of[i] = -1
		switch op := &t.Ops[i]; op.Kind {
		case trace.Alloc:
			of[i] = class(&p, op)
			names[op.ID] = of[i]
			classes[of[i]] = true
		case trace.Free, trace.Record, trace.Use:
			of[i] = names[op.ID]
		}
	}
	if len(classes) < 2 {
		return nil, nil
	}
	whole, err := historyOf(c, t, c.Target, measure.Unbounded)
	if err != nil {
		return nil, err
	}
	for _, k := range slices.Sorted(maps.Keys(classes)) { // in order: of several violations the same one is found each time
		var ops []trace.Op
		var from []int
		for i, op := range t.Ops {
			if of[i] == k || of[i] == -1 {
				ops, from = append(ops, op), append(from, i)
			}
		}
		alone, err := historyOf(c, with(t, ops), c.Target, measure.Unbounded)
		if err != nil {
			return nil, err
		}
		m := newMatcher()
		for j := 0; j < len(alone) && from[j] < len(whole); j++ {
			if e := &whole[from[j]]; !m.same(e, &alone[j]) {
				return executor.Broken(rule, "operation %d (%s): %s; with the allocations of its class alone: %s", from[j], &t.Ops[from[j]], e, &alone[j]), nil
			}
		}
	}
	return nil, nil
}
