package executor

// WalkEvery is how many operations lie between two walks over the whole state.
const WalkEvery = 1024

// broken notes what a property found in an operation.
func (r *Run) broken(p *Property, v *Violation) {
	f := r.finding(p.ID, v.Rule, v.Detail)
	f.Known = v.Known
	r.note(f)
}

// NoFalseOOM is the property that judges refusals.
const NoFalseOOM = "no-false-oom-when-free-exceeds-request"

// judge decides what the refusal was.
func (r *Run) judge() {
	if r.oom != nil && r.opts.OnRow != nil {
		r.result.LastOOM = r.oom.Error()
	}
	if r.opts.Judge == nil {
		return
	}
	// Most refusals change nothing: then the view at entry is the view now.
	r.state.View = &r.entered
	if r.changed {
		r.view.build(&r.ledger, r.heap)
		r.state.View = &r.view
	}
	r.state.Repetition = r.retried()
	j := r.opts.Judge(&r.state, r.oom)
	j.Op = r.next
	r.result.Judgements = append(r.result.Judgements, j)
	switch {
	case j.Asked != nil:
		r.find(NoFalseOOM, j.Asked.Level.String(), j.Asked.Reason)
	case j.Verdict == False:
		f := r.finding(NoFalseOOM, j.Rule, j.Reason)
		f.Known = j.Known
		r.note(f)
	}
}

// walk checks the whole state.
func (r *Run) walk() {
	if len(r.opts.Properties) == 0 || r.stopped {
		return
	}
	if r.outcome != OOM || r.opts.Judge == nil {
		r.view.build(&r.ledger, r.heap)
		r.state.View = &r.view
	}
	r.state.Snapshot = nil
	r.readStats()
	if r.snap != nil {
		r.snap.Snapshot(&r.snapshot)
		r.state.Snapshot = &r.snapshot
	}
	for i := range r.opts.Properties {
		p := &r.opts.Properties[i]
		if p.Walk == nil {
			continue
		}
		if v := p.Walk(&r.state); v != nil {
			f := r.finding(p.ID, v.Rule, v.Detail)
			f.At = AtWalk
			r.note(f)
			return
		}
	}
	if r.stats != nil {
		r.previous = *r.stats
	}
}
