package drift

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// foreseen is what the repeats will ask of an allocator that works faster when it knows, provided that nothing is refused.
func foreseen(ops []trace.Op) []allocators.Request {
	var out []allocators.Request
	live := map[uint64]int32{}
	var last int32
	add := func(r allocators.Request) { out = append(out, r) }
	for range MaxRepeats {
		for i := range ops {
			op := &ops[i]
			id, isLive := live[op.ID]
			switch op.Kind {
			case trace.Alloc:
				last++
				live[op.ID] = last
				add(allocators.Request{Kind: allocators.RequestAlloc, ID: last, Bytes: op.Bytes, Stream: op.Stream})
				if isLive {
					add(allocators.Request{Kind: allocators.RequestFree, ID: id})
				}
			case trace.Free:
				delete(live, op.ID)
				if isLive {
					add(allocators.Request{Kind: allocators.RequestFree, ID: id})
				}
			case trace.Record:
				if isLive {
					add(allocators.Request{Kind: allocators.RequestRecord, ID: id, Stream: op.Stream})
				}
			case trace.Sync:
				add(allocators.Request{Kind: allocators.RequestSync, Stream: op.Stream})
			case trace.EmptyCache:
				add(allocators.Request{Kind: allocators.RequestEmptyCache})
			}
		}
		add(allocators.Request{Kind: allocators.RequestSync, Stream: trace.AllStreams})
	}
	return out
}
