package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// tracker notes in a run what tells cases apart.
type tracker struct {
	program  *executor.Program
	base     string
	before   allocators.Stats
	features map[string]bool
	coverage map[string]bool
	events   []byte
}

func newTracker(p *executor.Program, base string) *tracker {
	t := &tracker{program: p, base: base, features: map[string]bool{}, coverage: map[string]bool{}}
	streams := map[int32]bool{}
	for i := range p.Trace.Ops {
		op := &p.Trace.Ops[i]
		t.features["op:"+op.Kind.String()] = true
		if op.Kind == trace.Alloc {
			streams[int32(op.Stream)] = true
		}
	}
	if len(streams) > 1 {
		t.features["streams"] = true
	}
	return t
}

// row notes a decision: what was done to how large a block on which stream, what became of it, which calls of the device it took,
// and what it did to the counts of segments, split and pending blocks.
func (t *tracker) row(w *executor.Row) {
	op := &t.program.Trace.Ops[w.Op]
	kinds := map[string]bool{}
	t.events = w.AppendEvents(t.events[:0])
	if string(t.events) != "-" {
		for _, e := range strings.Split(string(t.events), ";") {
			kind, _, _ := strings.Cut(e, ":")
			kinds[kind] = true
			t.features["event:"+kind] = true
		}
	}
	if op.Kind == trace.Alloc && w.Outcome == executor.OK && (kinds["free"] || kinds["unmap"]) && !kinds["mallocfail"] && !kinds["createfail"] {
		t.features["collected"] = true
	}
	decision := []string{t.base, op.Kind.String(), w.Outcome.String()}
	if op.Kind == trace.Alloc {
		decision = append(decision, sizeClass(op.Bytes))
	}
	if op.Stream > 0 {
		decision = append(decision, "side")
	}
	decision = append(decision, strings.Join(sorted(kinds), "+"))
	if s := w.Stats; s != nil {
		b := &t.before
		pending := int64(s.ActiveBytes.All.Current-s.AllocatedBytes.All.Current) - int64(b.ActiveBytes.All.Current-b.AllocatedBytes.All.Current)
		for _, d := range []struct {
			name  string
			delta int64
		}{
			{"split", int64(s.InactiveSplit.All.Current) - int64(b.InactiveSplit.All.Current)},
			{"segments", int64(s.Segment.All.Current) - int64(b.Segment.All.Current)},
			{"oversize", int64(s.OversizeSegments.Current) - int64(b.OversizeSegments.Current)},
			{"pending", pending},
			{"retries", int64(s.NumAllocRetries) - int64(b.NumAllocRetries)},
		} {
			if d.delta != 0 {
				decision = append(decision, fmt.Sprintf("%s%+d", d.name, max(-2, min(2, d.delta))))
				t.features[d.name] = true
			}
		}
		if op.Kind == trace.Alloc && w.HasBlock && w.BlockSize > op.Bytes+512 {
			decision = append(decision, "slack")
			t.features["slack"] = true
		}
		t.before = *s
	}
	t.coverage[strings.Join(decision, " ")] = true
}

// sizeClass is the rule under which a request of the caching allocator is bought.
func sizeClass(n uint64) string {
	switch {
	case n == 0:
		return "zero"
	case n <= 1<<20:
		return "small"
	case n < 10<<20:
		return "shared"
	case n < 1<<30:
		return "own"
	}
	return "huge"
}

// sum adds what the run came to.
func (t *tracker) sum(o *conform.Observation) (features, coverage []string) {
	add := func(f string) { t.features[f] = true }
	if len(o.OOMs) == 0 {
		add("served")
	} else {
		add("refused")
		add("coarse:" + o.Coarse)
	}
	for i := range o.Judgements {
		j := &o.Judgements[i]
		add("verdict:" + j.Verdict.String())
		t.coverage[j.Signature(o.Allocator)] = true
		for _, r := range j.Relaxed {
			add("without:" + r.String())
		}
		if j.Known != "" {
			add("known:" + j.Known)
		}
		if j.Pinned > 0 {
			add("pinned")
		}
	}
	for i := range o.Findings {
		add("finding:" + o.Findings[i].Property)
	}
	for i := range o.Known {
		add("finding:" + o.Known[i].Property)
	}
	return sorted(t.features), sorted(t.coverage)
}

// collect sums a case's runs.
func (r *Report) collect() {
	features, coverage, signature := map[string]bool{}, map[string]bool{}, map[string]bool{}
	var outcomes []string
	for i := range r.Runs {
		run := &r.Runs[i]
		for _, f := range run.Features {
			features[f] = true
		}
		for _, f := range run.Coverage {
			coverage[f] = true
		}
		for k := range run.Judgements {
			signature[run.Judgements[k].Signature(run.Allocator)] = true
		}
		if f := run.broken(); f != nil {
			signature[f.Signature()] = true
		}
		if outcome := fmt.Sprint(run.OOMs); !slices.Contains(outcomes, outcome) {
			outcomes = append(outcomes, outcome)
		}
		if run.Fraction != nil || strings.Contains(run.Conf, "x_memory_fraction") || features["op:fraction"] {
			features["limited"] = true
		}
	}
	if len(outcomes) > 1 {
		features["settings-differ"] = true
	}
	if k := r.Case.Known(); k != "" {
		features["known:"+k] = true
	}
	if f := r.Case.Finding(); f != "" {
		signature[f] = true
	}
	r.Features, r.Coverage, r.Signature = sorted(features), sorted(coverage), sorted(signature)
}

func sorted(set map[string]bool) []string {
	out := make([]string, 0, len(set))
	for s := range set {
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}
