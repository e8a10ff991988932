package verify

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// differ enters a figure that differs, with what it means.
func (r *Report) differ(f *conform.ExpectFailure, run *Run, p *executor.Program) {
	d := Difference{Allocator: f.Allocator, Figure: f.Figure, Want: f.Want, Got: f.Got}
	switch f.Figure {
	case "oom_ops":
		d.Explanation = refusals(f.Want, run, p)
	case "verdict", "relaxed", "known":
		if len(run.Judgements) > 0 {
			j := &run.Judgements[0]
			d.Explanation = fmt.Sprintf("operation %d: %d bytes asked, %d not live, %d live blocks pin %d", j.Op, j.Request, j.Free(), j.PinnedBy, j.Pinned)
		}
	}
	r.Differences = append(r.Differences, d)
}

// refusals names the first operation that is refused now and was not, or the other way round.
func refusals(recorded string, run *Run, p *executor.Program) string {
	var old []int
	if json.Unmarshal([]byte(jsonList(recorded)), &old) != nil {
		return ""
	}
	for op := range p.Trace.Ops {
		was, is := slices.Contains(old, op), slices.Contains(run.OOMs, op)
		if was == is {
			continue
		}
		text := fmt.Sprintf("operation %d, %s, is %s", op, p.Trace.Ops[op], map[bool]string{true: "refused now", false: "served now"}[is])
		if i := slices.IndexFunc(run.Judgements, func(j executor.Judgement) bool { return j.Op == op }); is && i >= 0 {
			text += ": " + run.Judgements[i].Verdict.String()
		}
		return text
	}
	return ""
}

// jsonList turns [1 2] into [1,2].
func jsonList(s string) string {
	out := []byte(s)
	for i := range out {
		if out[i] == ' ' {
			out[i] = ','
		}
	}
	return string(out)
}
