package nightly

import (
	"fmt"
	"slices"
)

// Merge makes one night of the shards of one. A finding that two shards saw on different traces has repeated, and is red.
func Merge(names []string, parts []*Night) (*Night, error) {
	first := parts[0]
	out := &Night{
		Schema: Schema, Shatter: first.Shatter, Seed: first.Seed, SeedFrom: first.SeedFrom, Generators: first.Generators, Device: first.Device,
		Allocators: first.Allocators, ReplayFlags: first.ReplayFlags, Merged: len(parts), Findings: []Finding{}, Known: []Count{}, Lost: []Loss{}, Faults: []string{},
		Panel: PanelResult{Logs: first.Panel.Logs}, Timing: Timing{Started: first.Timing.Started, Budget: first.Timing.Budget},
	}
	shards := map[string]string{}
	for i, p := range parts {
		for _, d := range []struct {
			what     string
			is, want any
		}{
			{"version", p.Shatter, first.Shatter}, {"seed", p.Seed, first.Seed}, {"device", p.Device, first.Device},
			{"allocators", fmt.Sprint(p.Allocators), fmt.Sprint(first.Allocators)}, {"panel", p.Panel.Logs, first.Panel.Logs},
		} {
			if d.is != d.want {
				return nil, fmt.Errorf("%s and %s are no shards of one night: the %s differs, %v and %v", names[0], names[i], d.what, d.want, d.is)
			}
		}
		if other, twice := shards[p.Shard]; twice {
			return nil, fmt.Errorf("%s and %s are the same shard %q", other, names[i], p.Shard)
		}
		shards[p.Shard] = names[i]
		out.add(p)
	}
	out.sort()
	return out, nil
}

// add enters a shard.
func (n *Night) add(p *Night) {
	n.Interrupted = n.Interrupted || p.Interrupted
	n.Unfinished += p.Unfinished
	n.Lost = append(n.Lost, p.Lost...)
	n.Faults = append(n.Faults, p.Faults...)
	n.Panel.Ran += p.Panel.Ran
	n.Panel.Skipped += p.Panel.Skipped
	n.Panel.Unreached += p.Panel.Unreached
	n.Panel.Rejected += p.Panel.Rejected
	n.Panel.Rows += p.Panel.Rows
	for _, r := range p.Panel.References {
		to := n.Panel.Reference(r.Name, r.Exact)
		to.Same += r.Same
		to.Missing += r.Missing
		to.Differences = append(to.Differences, r.Differences...)
	}
	e, f := &n.Explored, &p.Explored
	e.Sequences, e.Adversaries, e.Hunts = e.Sequences+f.Sequences, e.Adversaries+f.Adversaries, e.Hunts+f.Hunts
	e.Repeats, e.Shrinks = e.Repeats+f.Repeats, e.Shrinks+f.Shrinks
	e.Runs, e.Operations = e.Runs+f.Runs, e.Operations+f.Operations
	for _, k := range p.Known {
		if i := slices.IndexFunc(n.Known, func(c Count) bool { return c.Name == k.Name }); i >= 0 {
			n.Known[i].Count += k.Count
		} else {
			n.Known = append(n.Known, k)
		}
	}
	for i := range p.Findings {
		n.finding(&p.Findings[i])
	}
	n.compared(p.Compared)
	n.Timing.Seconds = max(n.Timing.Seconds, p.Timing.Seconds)
	n.Timing.Workers += p.Timing.Workers
	n.Timing.Starts += p.Timing.Starts
	n.Timing.Started = min(n.Timing.Started, p.Timing.Started)
}

// finding enters a shard's finding. The smaller trace stays.
func (n *Night) finding(f *Finding) {
	i := slices.IndexFunc(n.Findings, func(g Finding) bool { return g.Signature == f.Signature })
	if i < 0 {
		n.Findings = append(n.Findings, *f)
		return
	}
	g := &n.Findings[i]
	traces, repeats := g.Traces+f.Traces, g.First != f.First
	red := g.Status == Red || f.Status == Red
	why := g.Why
	if g.Status != Red && f.Status == Red {
		why = f.Why
	}
	if g.After == 0 && f.After > 0 || f.After > 0 && f.After < g.After {
		*g = *f
	}
	g.Traces, g.Why = traces, why
	switch {
	case red:
		g.Status = Red
	case repeats:
		g.Status, g.Why = Red, "seen in two shards, on different traces"
	}
}

// compared merges what changed since other nights: new is what any shard found new, gone what none of them saw.
func (n *Night) compared(list []Compared) {
	for _, c := range list {
		i := slices.IndexFunc(n.Compared, func(d Compared) bool { return d.With == c.With })
		if i < 0 {
			n.Compared = append(n.Compared, c)
			continue
		}
		d := &n.Compared[i]
		for _, s := range c.New {
			if !slices.Contains(d.New, s) {
				d.New = append(d.New, s)
			}
		}
		d.Gone = slices.DeleteFunc(d.Gone, func(s string) bool { return !slices.Contains(c.Gone, s) })
	}
}
