package devicetest

import "github.com/shatter-gpu/shatter/allocators/device"

var byteRules = []Rule{
	{"bytes-stay", "memory holds what was filled in, odd places and sizes included, and nothing beside it", 4, func(c *checker) {
		b := c.bytes()
		a := c.malloc(2)
		b.fill(a, 2*granule, 100)
		b.holds(a, 2*granule, 100, "a whole region")
		b.fill(a+4093, 1003, 7)
		b.holds(a+4093, 1003, 7, "an odd place")
		b.holds(a, 4088, 100, "what lies before")
		b.holds(a+5104, 2*granule-5104, 100+5104/8, "what lies behind")
		b.fill(a, 0, 1)
		b.differs(a, granule, 101, "another seed must not verify")
	}},
	{"bytes-last", "the last byte of a region counts", 2, func(c *checker) {
		b := c.bytes()
		a := c.malloc(1)
		b.fill(a, granule, 1)
		b.fill(a+granule-1, 1, 0xff)
		b.differs(a, granule, 1, "a changed last byte must be seen")
	}},
	{"bytes-across-pages", "a range may cross from one mapping into the next", 4, func(c *checker) {
		b := c.bytes()
		a := c.reserve(4)
		c.mapped(a+granule, 1)
		c.mapped(a+2*granule, 1)
		b.fill(a+granule, 2*granule, 5)
		b.holds(a+2*granule-512, 1024, 5+(granule-512)/8, "the edge")
	}},
	{"bytes-alias", "two mappings of one chunk show the same bytes", 4, func(c *checker) {
		b := c.bytes()
		a := c.reserve(4)
		h := c.mapped(a, 1)
		c.ok(c.Map(a+3*granule, granule, h), "second map")
		b.fill(a, granule, 11)
		b.holds(a+3*granule, granule, 11, "the second mapping")
		b.fill(a+3*granule+64, 64, 13)
		b.holds(a+64, 64, 13, "the first mapping, written through the second")
		c.ok(c.Unmap(a, granule), "unmap")
		b.holds(a+3*granule+64, 64, 13, "the second mapping alone")
	}},
	{"bytes-move", "a chunk keeps its bytes when it is mapped elsewhere", 4, func(c *checker) {
		b := c.bytes()
		a := c.reserve(4)
		h := c.mapped(a, 1)
		b.fill(a, granule, 17)
		c.ok(c.Unmap(a, granule), "unmap")
		c.ok(c.Map(a+2*granule, granule, h), "map elsewhere")
		b.holds(a+2*granule, granule, 17, "the new place")
	}},
	{"fault-unmapped", "touching what is reserved, unmapped, or half beyond a mapping is a fault, and the device goes on", 4, func(c *checker) {
		b := c.bytes()
		a := c.reserve(4)
		b.faults(a, 8, "reserved address space")
		c.mapped(a, 1)
		b.fill(a, granule, 3)
		b.faults(a+granule-8, 16, "a range that leaves the mapping")
		b.holds(a, granule-8, 3, "the mapping after a fault behind it")
		c.ok(c.Unmap(a, granule), "unmap")
		b.faults(a, 8, "an unmapped page")
		h := c.mapped(a, 1)
		b.fill(a, granule, 4)
		b.holds(a, granule, 4, "a page mapped where one was unmapped")
		c.ok(c.Unmap(a, granule), "unmap")
		c.ok(c.Release(h), "release")
	}},
	{"fault-freed", "touching what was freed, or null, is a fault", 4, func(c *checker) {
		b := c.bytes()
		a := c.malloc(1)
		b.fill(a, granule, 3)
		c.ok(c.Free(a), "free")
		b.faults(a, 8, "a freed region")
		b.faults(0, 8, "null")
		b.faults(device.Addr(1)<<62, 8, "an address far off")
	}},
	{"bytes-while-held", "bytes can be filled and verified while work is outstanding on streams", 4, func(c *checker) {
		b := c.bytes()
		a := c.malloc(1)
		e := c.record(1)
		b.fill(a, granule, 23)
		b.holds(a, granule, 23, "with a record outstanding")
		c.done(false, e, "the event, after the bytes were touched")
		c.ok(c.Sync(1), "sync")
		c.ok(c.Destroy(e), "destroy")
	}},
}
