package devicetest

import "github.com/shatter-gpu/shatter/allocators/device"

// Rules are all rules: memory, virtual memory, streams, bytes.
var Rules = append(append(append(append([]Rule(nil), memoryRules...), virtualRules...), streamRules...), byteRules...)

var memoryRules = []Rule{
	{"empty", "an empty device is all free", 4, func(c *checker) {
		free, total := c.Info()
		c.must(free == 4*granule && total == 4*granule, "%d of %d bytes free, must be %d of %d", free, total, 4*granule, 4*granule)
	}},
	{"malloc-rounds", "malloc takes whole granules of 2 MiB", 4, func(c *checker) {
		_, err := c.Malloc(1)
		c.ok(err, "malloc of 1 byte")
		c.free(3, "after 1 byte")
		_, err = c.Malloc(granule + 1)
		c.ok(err, "malloc of 2 MiB and 1 byte")
		c.free(1, "after 2 MiB and 1 byte")
	}},
	{"malloc-refused", "malloc of more than is free is out of memory and changes nothing", 4, func(c *checker) {
		c.malloc(1)
		_, err := c.Malloc(3*granule + 1)
		c.refused(err, device.ErrOutOfMemory, "malloc of more than is free")
		c.free(3, "after the refusal")
		c.malloc(3)
		c.free(0, "with all taken")
	}},
	{"malloc-nothing", "malloc of 0 bytes is invalid", 1, func(c *checker) {
		_, err := c.Malloc(0)
		c.refused(err, device.ErrInvalid, "malloc of 0 bytes")
	}},
	{"sum-counts", "free memory in two places serves one region: physical memory does not fragment", 4, func(c *checker) {
		a, _, b, _ := c.malloc(1), c.malloc(1), c.malloc(1), c.malloc(1)
		c.ok(c.Free(a), "free")
		c.ok(c.Free(b), "free")
		c.malloc(2)
	}},
	{"free-once", "an address is freed once, and only as malloc gave it", 4, func(c *checker) {
		a := c.malloc(2)
		c.refused(c.Free(a+granule), device.ErrInvalid, "free inside a region")
		c.ok(c.Free(a), "free")
		c.refused(c.Free(a), device.ErrInvalid, "second free")
		c.free(4, "after the free")
	}},
	{"disjoint", "regions and reservations never overlap and lie at multiples of 2 MiB", 16, func(c *checker) {
		type span struct{ from, to device.Addr }
		var spans []span
		for i := range uint64(5) {
			a := c.malloc(1 + i%3)
			spans = append(spans, span{a, a + device.Addr(1+i%3)*granule})
			a = c.reserve(20)
			spans = append(spans, span{a, a + 20*granule})
		}
		for i, s := range spans {
			c.must(s.from != 0 && s.from%granule == 0, "address %#x", uint64(s.from))
			for _, o := range spans[:i] {
				c.must(s.to <= o.from || o.to <= s.from, "%#x and %#x overlap", uint64(s.from), uint64(o.from))
			}
		}
	}},
	{"addresses-new", "an address that was freed is not given again", 8, func(c *checker) {
		a := c.malloc(2)
		c.ok(c.Free(a), "free")
		for range 4 {
			b := c.malloc(1)
			c.must(b != a, "%#x was given again", uint64(a))
		}
	}},
	{"foreign", "what others hold is not free, and they cannot take what is in use", 4, func(c *checker) {
		f, ok := c.Device.(device.Foreigner)
		if !ok {
			panic(lacks("others cannot be made to hold memory"))
		}
		c.malloc(1)
		c.ok(f.SetForeign(2*granule), "2 granules for others")
		c.free(1, "with 2 of 4 granules foreign")
		_, err := c.Create(2 * granule)
		c.refused(err, device.ErrOutOfMemory, "create of what others hold")
		c.refused(f.SetForeign(4*granule), device.ErrOutOfMemory, "foreign memory that is in use")
		c.free(1, "after the refusal")
		c.ok(f.SetForeign(0), "others give back")
		c.free(3, "without foreign memory")
	}},
}

var virtualRules = []Rule{
	{"granularity", "the granularity divides 2 MiB", 1, func(c *checker) {
		g := c.Granularity()
		c.must(g > 0 && granule%g == 0, "the granularity is %d bytes", g)
	}},
	{"reserve-costs-nothing", "address space of 9/8 of the device costs no memory, several times over", 64, func(c *checker) {
		for range 8 {
			c.reserve(72)
		}
		c.free(64, "after eight reservations")
	}},
	{"reserve-sizes", "reservations and chunks are positive multiples of the granularity", 4, func(c *checker) {
		for _, n := range []uint64{0, 1, granule + 512} {
			_, err := c.Reserve(n)
			c.refused(err, device.ErrInvalid, "reserve")
			_, err = c.Create(n)
			c.refused(err, device.ErrInvalid, "create")
		}
	}},
	{"unreserve-whole", "a reservation is given back whole, once, and with nothing mapped", 4, func(c *checker) {
		a := c.reserve(4)
		c.refused(c.Unreserve(a, granule), device.ErrInvalid, "unreserve of a part")
		c.refused(c.Unreserve(a+granule, 3*granule), device.ErrInvalid, "unreserve of the end")
		h := c.mapped(a+granule, 1)
		c.refused(c.Unreserve(a, 4*granule), device.ErrInvalid, "unreserve with a mapping")
		c.ok(c.Unmap(a+granule, granule), "unmap")
		c.ok(c.Unreserve(a, 4*granule), "unreserve")
		c.refused(c.Unreserve(a, 4*granule), device.ErrInvalid, "second unreserve")
		c.ok(c.Release(h), "release")
	}},
	{"create-refused", "create of more than is free is out of memory and changes nothing", 4, func(c *checker) {
		c.create(1)
		_, err := c.Create(4 * granule)
		c.refused(err, device.ErrOutOfMemory, "create of more than is free")
		c.free(3, "after the refusal")
		c.create(3)
		c.free(0, "with all taken")
	}},
	{"chunk-costs", "a chunk costs its size until it is released and unmapped, in either order", 4, func(c *checker) {
		a := c.reserve(8)
		h, k := c.mapped(a, 1), c.mapped(a+2*granule, 2)
		c.free(1, "with two chunks")
		c.ok(c.Release(h), "release while mapped")
		c.free(1, "released, still mapped")
		c.ok(c.Unmap(a, granule), "unmap")
		c.free(2, "released and unmapped")
		c.ok(c.Unmap(a+2*granule, 2*granule), "unmap")
		c.free(2, "unmapped, still held")
		c.ok(c.Release(k), "release")
		c.free(4, "with all returned")
		c.refused(c.Release(k), device.ErrInvalid, "second release")
	}},
	{"map-where", "a chunk is mapped whole, aligned, inside one reservation, where nothing is mapped", 8, func(c *checker) {
		a := c.reserve(4)
		h, wide := c.create(1), c.create(2)
		for _, m := range []struct {
			at   device.Addr
			size uint64
			h    device.Handle
			what string
		}{
			{a + 512, granule, h, "map off the granularity"}, {a, 2 * granule, h, "map of more than the chunk"},
			{a + 3*granule, 2 * granule, wide, "map over the end of the reservation"}, {a, granule, h + 1000, "map of no chunk"},
		} {
			c.refused(c.Map(m.at, m.size, m.h), device.ErrInvalid, m.what)
		}
		c.ok(c.Map(a+granule, granule, h), "map")
		c.refused(c.Map(a, 2*granule, wide), device.ErrInvalid, "map over a mapping")
		c.ok(c.Map(a+2*granule, 2*granule, wide), "map behind a mapping")
		c.ok(c.Release(h), "release")
		c.refused(c.Map(a, granule, h), device.ErrInvalid, "map of a released chunk")
	}},
	{"unmap-whole", "whole mappings are unmapped, several at once if they are adjacent", 8, func(c *checker) {
		a := c.reserve(8)
		c.mapped(a, 2)
		c.mapped(a+2*granule, 1)
		c.mapped(a+5*granule, 1)
		c.refused(c.Unmap(a, granule), device.ErrInvalid, "unmap of half a mapping")
		c.refused(c.Unmap(a+granule, 2*granule), device.ErrInvalid, "unmap from inside a mapping")
		c.refused(c.Unmap(a+3*granule, granule), device.ErrInvalid, "unmap of nothing")
		c.refused(c.Unmap(a+2*granule, 4*granule), device.ErrInvalid, "unmap over a hole")
		c.ok(c.Unmap(a, 3*granule), "unmap of two mappings")
		c.refused(c.Unmap(a, 3*granule), device.ErrInvalid, "second unmap")
		c.ok(c.Unmap(a+5*granule, granule), "unmap")
	}},
	{"map-twice", "a chunk can be mapped at two places and stays until both are gone", 4, func(c *checker) {
		a := c.reserve(4)
		h := c.mapped(a, 1)
		c.ok(c.Map(a+2*granule, granule, h), "second map")
		c.free(3, "mapped twice")
		c.ok(c.Release(h), "release")
		c.ok(c.Unmap(a, granule), "unmap")
		c.free(3, "one mapping left")
		c.ok(c.Unmap(a+2*granule, granule), "unmap")
		c.free(4, "with none left")
	}},
}

var streamRules = []Rule{
	{"event-waits-for-sync", "an event is done once its stream is synchronised, not before", 1, func(c *checker) {
		e, f := c.record(1), c.record(2)
		c.done(false, e, "before any sync")
		c.ok(c.Sync(2), "sync of another stream")
		c.done(false, e, "after the sync of another stream")
		c.done(true, f, "after the sync of its stream")
		c.ok(c.Sync(1), "sync")
		c.done(true, e, "after the sync")
		g := c.record(1)
		c.done(false, g, "an event behind the sync")
		c.ok(c.SyncAll(), "sync of all")
		c.done(true, g, "after the sync of all")
		for _, x := range []device.Event{e, f, g} {
			c.ok(c.Destroy(x), "destroy")
		}
	}},
	{"wait-completes-earlier", "waiting for an event completes it and what lies before it on its stream, no more", 1, func(c *checker) {
		e, f, g, other := c.record(3), c.record(3), c.record(3), c.record(0)
		c.ok(c.Wait(f), "wait")
		c.done(true, e, "the earlier event")
		c.done(true, f, "the event waited for")
		c.done(false, g, "the later event")
		c.done(false, other, "the event of another stream")
		c.ok(c.SyncAll(), "sync of all")
		for _, x := range []device.Event{e, f, g, other} {
			c.ok(c.Destroy(x), "destroy")
		}
	}},
	{"many-streams", "32 streams have queues of their own", 1, func(c *checker) {
		var events []device.Event
		for s := range device.Stream(32) {
			events = append(events, c.record(s*1000+7))
		}
		for s := range device.Stream(32) {
			c.ok(c.Sync(s*1000+7), "sync")
			for i, e := range events {
				c.done(i <= int(s), e, "event of a stream")
			}
		}
		for _, e := range events {
			c.ok(c.Destroy(e), "destroy")
		}
	}},
	{"event-unknown", "an event that was never recorded is invalid", 1, func(c *checker) {
		_, err := c.Done(1 << 60)
		c.refused(err, device.ErrInvalid, "query of no event")
		c.refused(c.Wait(1<<60), device.ErrInvalid, "wait for no event")
	}},
}
