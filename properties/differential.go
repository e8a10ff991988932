package properties

import (
	"fmt"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// configurations are settings under which a program must see the same, as far as nothing is refused.
var configurations = []string{
	"", "expandable_segments:True", "max_split_size_mb:21", "roundup_power2_divisions:4",
	"expandable_segments:True,max_split_size_mb:128", "garbage_collection_threshold:0.6",
}

// SameProgramView: settings change where memory comes from, not what the program sees.
var SameProgramView = executor.Relation{
	ID:     "same-under-all-settings",
	Claim:  "Up to the first refusal a program sees the same under all settings: every outcome, and how many blocks are live.",
	Source: "design: the same trace on several configurations; specification 5, 14, 20",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		if c.With == nil {
			return nil, nil
		}
		t := c.Trace.First(relatedOps)
		ops := make([]trace.Op, 0, len(t.Ops))
		pools := usesPools(t)
		for _, op := range t.Ops {
			if pools && op.Kind == trace.EmptyCache {
				continue // whether it can be done in an open pool is a matter of the version
			}
			if op.Kind != trace.Conf && op.Kind != trace.Fraction && op.Kind != trace.Foreign {
				ops = append(ops, op)
			}
		}
		t = with(t, ops)
		first, err := historyOf(c, t, c.Target, c.Capacity)
		if err != nil {
			return nil, err
		}
		for _, conf := range configurations {
			target, err := c.With(conf)
			if err != nil {
				return nil, err
			}
			other, err := historyOf(c, t, target, c.Capacity)
			if err != nil {
				return nil, err
			}
			for i := range min(len(first), len(other)) {
				e, f := &first[i], &other[i]
				if e.outcome == executor.OOM || f.outcome == executor.OOM {
					break
				}
				if a, b := programView(e), programView(f); a != b {
					return executor.Broken("settings", "operation %d (%s): %s; under the settings %q %s", i, &ops[i], a, conf, b), nil
				}
			}
		}
		return nil, nil
	},
}

// programView is what the program sees of an event. Active blocks are not among it: when they complete depends on flushes.
func programView(e *event) string {
	return fmt.Sprintf("%s, %d blocks live", e.outcome, e.live)
}
