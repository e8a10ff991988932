package properties

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/drift"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// Known193400: big free blocks of expandable segments are kept from smaller requests by max_split_size, and not split by it.
const Known193400 = "pytorch#193400"

// BoundedAlone: two settings together make no sequence grow that is bounded with each alone.
var BoundedAlone = executor.Relation{
	ID: "bounded-with-both-settings",
	Claim: "A sequence that is bounded when it is repeated with max_split_size_mb alone, and with expandable segments alone, does not " +
		"grow with both.",
	Source: "https://github.com/pytorch/pytorch/pull/193400; specification 10",
	Check: func(c *executor.Case) (*executor.Violation, error) {
		if begun(c.Trace) {
			return nil, nil // what is repeated is the program, without what it began with
		}
		if c.With == nil || !strings.Contains(c.Conf, expandableOn) {
			return nil, nil
		}
		confs := []string{c.Conf}
		if !strings.Contains(c.Conf, splitSetting) {
			if confs = nil; !c.Explore {
				return nil, nil
			}
			for _, mb := range []int{21, 64, 128} {
				confs = append(confs, fmt.Sprintf("%s,%s:%d", c.Conf, splitSetting, mb))
			}
		}
		n := len(c.Trace.Ops)
		for _, ops := range slices.Compact([]int{min(20, n), min(80, n), min(drift.Ops, n)}) {
			t := c.Trace.First(ops)
			for _, conf := range confs {
				if v, err := growsWithBoth(c, t, conf); v != nil || err != nil {
					return v, err
				}
			}
		}
		return nil, nil
	},
}

const (
	expandableOn = "expandable_segments:True"
	splitSetting = "max_split_size_mb"
)

// growsWithBoth repeats a sequence under both settings and, if it grows, under each of them.
func growsWithBoth(c *executor.Case, t *trace.Trace, conf string) (*executor.Violation, error) {
	var d [3]*drift.Drift
	var name string
	for i, conf := range []string{conf, dropSetting(conf, splitSetting), dropSetting(conf, "expandable_segments")} {
		target, err := c.With(conf)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			name = target.Name
		}
		if d[i], err = drift.Measure(t, target, c.NewDevice); err != nil {
			return nil, err
		}
		// An allocator that lists no blocks proves nothing; then it has to show no growth at all.
		bounded := d[i].Kind == drift.Bounded || !d[i].Listed && d[i].Level()
		if i == 0 && d[i].Kind != drift.Grows || i > 0 && !bounded {
			return nil, nil
		}
	}
	v := executor.Broken("grows", "under %s its first %d operations, repeated from their end state: %s; without %s %s; without %s %s",
		conf, len(t.Ops), d[0], splitSetting, d[1], expandableOn, d[2])
	v.Known, v.Target = Known193400, name
	return v, nil
}

// dropSetting takes one setting out of a settings string. Commas inside brackets separate no settings.
func dropSetting(conf, name string) string {
	var keep []string
	depth, from := 0, 0
	for i := 0; i <= len(conf); i++ {
		if i < len(conf) {
			switch conf[i] {
			case '[':
				depth++
				continue
			case ']':
				depth--
				continue
			case ',':
				if depth > 0 {
					continue
				}
			default:
				continue
			}
		}
		if s := conf[from:i]; s != "" && !strings.HasPrefix(strings.TrimSpace(s), name) {
			keep = append(keep, s)
		}
		from = i + 1
	}
	return strings.Join(keep, ",")
}
