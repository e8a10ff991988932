package properties

import (
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// PoolIsolation: private pools and all other memory are kept apart.
var PoolIsolation = executor.Property{
	ID: "pool-isolation",
	Claim: "A request gets memory of the pool that it was sent to and of no other; while a private pool is in use nobody else's request " +
		"and no empty_cache takes memory from it, since a captured graph goes on to use its addresses.",
	Source: "specification 7, 15.2, 18.2",
	Op: func(s *executor.State) *executor.Violation {
		if !s.HasPools {
			return nil
		}
		if s.Entry != nil && s.Region != nil && s.Operation.Kind == trace.Alloc && s.Region.Pool != s.Pool {
			return executor.Broken("isolation", "a request of pool %d got memory of segment %d, which belongs to pool %d (0 is the default pool)",
				s.Pool, s.Region.Ordinal, s.Region.Pool)
		}
		if g := s.Robbed; g != nil {
			return executor.Broken("robbed", "memory of segment %d was returned, which belongs to pool %d, and that pool is in use", g.Ordinal, g.Pool)
		}
		return nil
	},
}

// Known175015: behind a pool of the user's PyTorch up to 2.12 forgets uses on other streams, as it may behind a capture.
const Known175015 = "pytorch#175015"

// WorkDone: memory is not handed out, nor taken away, under queued work.
var WorkDone = executor.Property{
	ID: "work-done-before-reuse",
	Claim: "Freed memory that queued work still uses (operation use, on the block's own stream or a recorded one) is handed out only to " +
		"that stream, by an allocator that can be told of streams, and is unmapped only once the work is done.",
	Source: "specification 14.2, 17.5; contracts I9; https://github.com/pytorch/pytorch/issues/196258, https://github.com/pytorch/pytorch/issues/175015",
	Op: func(s *executor.State) *executor.Violation {
		z := s.Unmapped
		if z != nil {
			return forgotten(s, z, executor.Broken("unmapped", "memory of the block of operation %d, %d bytes at %#x, was unmapped while work queued on stream %d uses it",
				z.Op, z.Size, uint64(z.Addr), z.On))
		}
		if z = s.Queued; z == nil || !s.KnowsStreams {
			return nil
		}
		return forgotten(s, z, executor.Broken("reused", "%d bytes at %#x handed out on stream %d while work queued on stream %d uses the block of operation %d there",
			s.Block.Size, uint64(s.Block.Addr), s.Operation.Stream, z.On, z.Op))
	},
}

// forgotten marks a violation as the known issue if the use is one that the allocator forgot with a pool of the user's.
func forgotten(s *executor.State, z *shadow.Hazard, v *executor.Violation) *executor.Violation {
	if !z.Home && s.HasPools && !s.Promise.Pools.CapturesOnly {
		v.Known = Known175015
	}
	return v
}

// PropertiesWithoutKnown are all properties, with findings made of known issues.
func PropertiesWithoutKnown() []executor.Property {
	all := All()
	for i := range all {
		if op := all[i].Op; op != nil {
			all[i].Op = func(s *executor.State) *executor.Violation {
				v := op(s)
				if v != nil {
					v.Known = ""
				}
				return v
			}
		}
	}
	return all
}
