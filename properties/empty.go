package properties

import (
	"io"
	"slices"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// emptyCapacity bounds the device, 512 MiB: the whole of it is asked for, which may take a device call for each 2 MiB.
const emptyCapacity = 512 << 20

// ServesWhenEmpty: with nothing live there is nothing that could be in the way.
//
// Of an allocator with a promise StartsAnew asks more. One that has bought memory and cannot be made to give it back may keep it for the
// stream or the size that it was bought for, so it is not asked.
var ServesWhenEmpty = executor.Relation{
	ID: "serves-when-empty",
	Claim: "Once everything is freed, all work done and the cache emptied, an allocator serves the largest request that a fresh one on the " +
		"same device, of at most 512 MiB, serves (asked of those that can empty their cache, give memory back when a request needs it, or bought " +
		"all of it at their start).",
	Source: "contracts 3 (the least of what is promised: with nothing live, no free memory is out of reach)",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		p, err := promiseOf(c)
		t := c.Trace.First(relatedOps)
		if err != nil || p.Kind != allocators.PromiseNone || usesPools(t) ||
			slices.ContainsFunc(t.Ops, func(op trace.Op) bool { return op.Kind == trace.Foreign }) {
			return nil, err
		}
		capacity := min(c.Capacity, emptyCapacity)
		largest, err := largestServed(c, capacity)
		if err != nil || largest == 0 {
			return nil, err
		}
		dev, err := c.NewDevice(capacity)
		if err != nil {
			return nil, err
		}
		rec := &device.Recorder{Device: dev}
		run, err := executor.Start(executor.Compile(t), c.Target, executor.Options{Device: rec, OnRow: ignoreRow})
		if err != nil {
			return nil, err
		}
		defer run.Leave()
		_, empties := run.Allocator().(allocators.CacheEmptier)
		if _, elsewhere := run.Allocator().(allocators.DeviceFollower); elsewhere && !empties {
			return nil, nil // what it buys is not seen here; Run asks it at the end of each trace
		}
		buys := false
		for run.More() {
			rec.Reset()
			op := &t.Ops[run.Position()]
			if err := run.Step(); err != nil {
				return nil, err
			}
			if f := run.Result().Findings; len(f) > 0 {
				return executor.Broken(f[0].Rule, "on a device of %d bytes, at operation %d (%s): %s", capacity, f[0].Op, op, f[0].Detail), nil
			}
			buys = buys || slices.ContainsFunc(rec.Calls, bought)
			empties = empties || op.Kind == trace.Alloc && slices.ContainsFunc(rec.Calls, returned)
		}
		if err := run.Rewind(); err != nil {
			return nil, err
		}
		if buys && !empties {
			return nil, nil
		}
		if _, err := run.Allocator().Alloc(largest, 0); err != nil {
			return executor.Broken("refused", "nothing is live any more, and %d bytes are refused, which a fresh allocator serves: %v", largest, err), nil
		}
		return nil, nil
	},
}

// ignoreRow makes a run a checked one, in which a call that fails is a finding.
func ignoreRow(*executor.Row) {}

func returned(c device.Call) bool {
	return c.Kind == device.CallFree || c.Kind == device.CallUnmap
}

func bought(c device.Call) bool { return c.Kind == device.CallMalloc || c.Kind == device.CallCreate }

// largestServed is the largest request that a fresh allocator serves, among the device's bytes and their halves; 0 if there is none.
func largestServed(c *executor.Case, capacity uint64) (uint64, error) {
	dev, err := c.NewDevice(capacity)
	if err != nil {
		return 0, err
	}
	a, err := c.Target.New(dev)
	if err != nil {
		return 0, nil // the device is too small for it
	}
	if closer, ok := a.(io.Closer); ok {
		defer closer.Close()
	}
	for n := capacity; n > 0; n /= 2 {
		if _, err := a.Alloc(n, 0); err == nil {
			return n, nil
		}
	}
	return 0, nil
}
