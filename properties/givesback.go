package properties

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// leakRuns is how often a trace is run on one allocator in search of a leak, leakRoom how many times the device is larger than the case's,
// so that nothing is refused.
const (
	leakRuns = 13
	leakRoom = 4
)

// GivesBack: what an allocator keeps does not grow without end. EverythingReturned asks more of one that can empty its cache.
//
// What is kept may grow from one run to the next (contracts 3.3: 22 MiB, then 34), since the second starts from a cache; but it settles.
// A leak does not: it grows as much in the later runs as in the earlier ones.
var GivesBack = executor.Relation{
	ID: "gives-back",
	Claim: "A trace that is run again and again, everything being freed after each run, does not take more from the device for ever (asked of " +
		"allocators that cannot empty a cache).",
	Source: "contracts E3; 3.3 (a repeated iteration can grow)",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		p, err := promiseOf(c)
		t := c.Trace.First(relatedOps)
		if err != nil || p.Kind != allocators.PromiseNone || usesPools(t) {
			return nil, err
		}
		dev, err := c.NewDevice(c.Capacity * leakRoom)
		if err != nil {
			return nil, err
		}
		run, err := executor.Start(executor.Compile(t), c.Target, executor.Options{Device: dev, OnRow: ignoreRow})
		if err != nil {
			return nil, err
		}
		defer run.Leave()
		if _, empties := run.Allocator().(allocators.CacheEmptier); empties {
			return nil, nil
		}
		if _, elsewhere := run.Allocator().(allocators.DeviceFollower); elsewhere {
			return nil, nil // Run looks for it at the end of each trace
		}
		var held []uint64
		for len(held) < leakRuns {
			for run.More() {
				if err := run.Step(); err != nil {
					return nil, err
				}
			}
			if f := run.Result().Findings; len(f) > 0 {
				return executor.Broken(f[0].Rule, "on a device of %d bytes, at operation %d (%s): %s", c.Capacity*leakRoom, f[0].Op,
					f[0].Operation, f[0].Detail), nil
			}
			if len(run.Result().OOMs) > 0 {
				break
			}
			if err := run.Rewind(); err != nil {
				return nil, err
			}
			free, total := dev.Info()
			held = append(held, total-free)
			if n := len(held); n == 4 && held[0] == held[3] {
				return nil, nil
			}
		}
		last := len(held) - 1
		if last < 4 {
			return nil, nil
		}
		middle := last / 2
		early, late := int64(held[middle]-held[0]), int64(held[last]-held[last-middle])
		if early <= 0 || late < early/2 {
			return nil, nil
		}
		return executor.Broken("leak", "nothing is live, and the allocator holds %d bytes of the device after the trace has been run once, %d after %d "+
			"times, %d after %d times", held[0], held[middle], middle+1, held[last], last+1), nil
	},
}
