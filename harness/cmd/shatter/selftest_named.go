package main

import (
	"slices"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// only is a search that asks one property, and what the executor checks in every run: a crash, a failing device. Named is the
// property and its rule, as `tiling/gap`.
func (h *seeker) only(named string) (*seeker, func(*executor.Finding) bool) {
	id, rule, _ := strings.Cut(named, "/")
	out := &seeker{seed: h.seed}
	for _, p := range h.properties {
		if p.ID == id {
			out.properties = append(out.properties, p)
		}
	}
	for _, r := range h.relations {
		if r.ID == id {
			out.relations = append(out.relations, r)
		}
	}
	return out, func(f *executor.Finding) bool { return f.Property == id && f.Rule == rule }
}

// findNamed searches again under the property alone that must see the bug, since another one that saw the same trace first says
// nothing of it.
func (r *sought) findNamed(h *seeker, named string, limit time.Duration) {
	end := processorTime() + limit
	h, sees := h.only(named)
	n := 0
	look := func(t *trace.Trace) bool {
		if processorTime() > end {
			return false
		}
		n++
		var relations []executor.Relation
		if _, faulty := header(t, keyFault); !faulty {
			relations = h.relations
		}
		res, err := h.run(t, false)
		if err != nil {
			return true
		}
		seen := slices.ContainsFunc(res.Findings, func(f executor.Finding) bool { return sees(&f) })
		if len(res.Findings) == 0 && len(relations) > 0 {
			f, err := h.relate(t, relations)
			seen = err == nil && f != nil && sees(f)
		}
		if seen {
			r.Named = n
		}
		return !seen
	}
	next, more := h.rounds(firstRounds, 0, look)
	for more {
		next, more = h.rounds(lastRounds, next, look)
	}
}
