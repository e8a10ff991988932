package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// shownChanges is how many changed runs the text shows; the document has them all.
const shownChanges = 20

// WriteText writes the comparison for people: the verdict first.
func (c *Comparison) WriteText(w io.Writer, t Terminal) error {
	p := &printer{w: w, terminal: t}
	p.line("%s: %s, %s", p.verdict(c.Verdict), c.sentence(), c.how())
	for _, s := range []Side{c.Baseline, c.Candidate} {
		params := s.Params
		if params == "" {
			params = "the workloads' own"
		}
		p.line("  %s: shatter %s, generators %d, seed %d, parameters %s, device %s, n = %d sequences, %s",
			s.Name, s.Shatter, s.Generators, s.Seed, params, s.Device, s.Sequences, strings.Join(s.Allocators, ", "))
	}
	for _, w := range c.Warnings {
		p.line("  note: %s", w)
	}
	if c.Exact != nil {
		p.exact(c)
	}
	if len(c.Measures) > 0 {
		p.compared(c)
	}
	return p.err
}

func (c *Comparison) how() string {
	switch c.Mode {
	case ModeExact:
		return "the same traces on the same allocators: exact, no statistics"
	case ModePairs:
		return "the same traces on other allocators, as pairs"
	}
	return "other traces of the same generators, as two samples"
}

func (c *Comparison) sentence() string {
	limit := fmt.Sprintf("the margin of %s of C_safe", shareOf(c.Margin))
	if c.Mode != ModeExact {
		limit += fmt.Sprintf(" (%s for the price)", shareOf(c.Margin*PriceFactor))
	}
	switch c.Verdict {
	case Worse:
		return c.Candidate.Name + " is worse than " + c.Baseline.Name + " beyond " + limit + c.where(Worse)
	case Better:
		return c.Candidate.Name + " is better than " + c.Baseline.Name + " beyond " + limit + c.where(Better) + ", and nowhere worse"
	case Equal:
		return c.Candidate.Name + " and " + c.Baseline.Name + " are equal within " + limit
	}
	return "these sequences are too few to tell whether " + c.Candidate.Name + " and " + c.Baseline.Name + " differ beyond " + limit
}

// where names the measures with a verdict, by workload.
func (c *Comparison) where(verdict string) string {
	var list []string
	for _, m := range c.Measures {
		if name := m.Measure.Name + " of " + m.Workload; m.Verdict == verdict && !slices.Contains(list, name) {
			list = append(list, name)
		}
	}
	if list == nil {
		return ""
	}
	text := " in " + strings.Join(list, ", ")
	if verdict == Worse {
		if other := c.where(Better); other != "" {
			text += " (better" + other + ")"
		}
	}
	return text
}

func (p *printer) exact(c *Comparison) {
	e := c.Exact
	p.line("")
	p.line("%s runs of %s traces: %s of %s alike in every decision", thousands(e.Runs), thousands(e.Traces), thousands(e.SameDecisions), thousands(e.Decided))
	p.line("C_safe of %s runs: %s equal, %s lower (%s beyond the margin), %s higher (%s beyond the margin)", thousands(e.Measured),
		thousands(e.Measured-e.SafeLower-e.SafeHigher), thousands(e.SafeLower), thousands(e.SafeBetter), thousands(e.SafeHigher), thousands(e.SafeWorse))
	p.line("refused now and not before: %s runs; before and not now: %s", thousands(e.NewRefusals), thousands(e.NoRefusals))
	if len(e.Changes) == 0 {
		return
	}
	rows := [][]string{{"trace", "allocator", "first decided otherwise", "C_safe before", "now", "change", "first refusal before", "now"}}
	for i := range e.Changes {
		if i == shownChanges {
			break
		}
		ch := &e.Changes[i]
		row := []string{ch.Trace, ch.Allocator, "-", "-", "-", "-", operation(ch.FirstOOM[0]), operation(ch.FirstOOM[1])}
		if ch.To > 0 {
			row[2] = fmt.Sprintf("operation %d to %d", ch.From, ch.To-1)
		}
		if ch.Safe[0] > 0 {
			row[3], row[4], row[5] = Size(ch.Safe[0]), Size(ch.Safe[1]), p.coloured(ch.Verdict, signed(ch.grown()))
		}
		rows = append(rows, row)
	}
	p.line("")
	p.keyed(2, rows)
	if n := len(e.Changes) - shownChanges; n > 0 {
		p.line("... and %s more (--json has them all)", thousands(n))
	}
	p.line("to see a decision: shatter replay --history TRACE with each program")
}

func operation(op *int) string {
	if op == nil {
		return "none"
	}
	return fmt.Sprint(*op)
}

func (p *printer) compared(c *Comparison) {
	rows := [][]string{{"workload", "from", "to", "measure", "n", "median from", "to", "change", "interval", "margin", "verdict"}}
	for i := range c.Measures {
		m := &c.Measures[i]
		n := fmt.Sprint(m.N[0])
		if c.Mode != ModePairs {
			n += " + " + fmt.Sprint(m.N[1])
		}
		unit := m.Measure.Unit
		row := []string{m.Workload, m.Allocators[0], m.Allocators[1], m.Measure.Name, n, figure(*m.Medians[0], unit), figure(*m.Medians[1], unit), "-", "-",
			shareOf(m.Margin), p.verdict(m.Verdict)}
		if m.Change != nil {
			row[7] = signed(*m.Change)
		}
		if m.Lower != nil {
			row[8] = signed(*m.Lower) + " to " + signed(*m.Upper)
		}
		rows = append(rows, row)
	}
	p.line("")
	p.line("Changes, with intervals that hold together for all %d lines at %s (Holm)", len(c.Measures), shareOf(c.Level))
	p.keyed(4, rows)
	for i := range c.Measures {
		m := &c.Measures[i]
		if m.Shares != nil {
			p.line("  %s %s: better %s, equal %s, worse %s; sign test p = %.3g", m.Workload, m.Measure.Name, m.Shares.Better, m.Shares.Equal,
				m.Shares.Worse, *m.SignTest)
		}
		for _, w := range m.Warnings {
			p.line("  note: %s %s: %s", m.Workload, m.Measure.Name, w)
		}
	}
	for _, o := range c.Overall {
		p.line("For these workloads (%s), %s to %s: %s %s (%s to %s), the mean of the medians, each workload counting alike; %d resamples of "+
			"their sequences", strings.Join(o.Names, ", "), o.Baseline, o.Candidate, o.Measure.Name, signed(o.Value), signed(o.Lower), signed(o.Upper),
			o.Resamples)
	}
	p.line("kappa, bought and calls change by ratios, pinned by shares of L*. Populations: the generators' sequences with these parameters, no others.")
}

func shareOf(v float64) string { return fmt.Sprintf("%.3g %%", 100*v) }

func signed(v float64) string { return fmt.Sprintf("%+.2f %%", 100*v) }

// WriteBenchstat writes both runs as Go benchmark results, a line a sequence and allocator, for golang.org/x/perf/cmd/benchstat:
// `benchstat -col side FILE` compares them.
func WriteBenchstat(w io.Writer, runs [2]*results.Journal) error {
	p := &printer{w: w}
	p.line("Unit C_safe-bytes better=lower")
	for m := range Measures {
		p.line("Unit %s better=lower", benchUnit(Measures[m].Measure))
	}
	// No other key than side may differ: benchstat would make a table of each.
	for i, side := range []string{"baseline", "candidate"} {
		j := runs[i]
		p.line("")
		p.line("side: %s", side)
		for _, s := range j.Sequences {
			for k := range s.Runs {
				r := &s.Runs[k]
				if r.Measures == nil {
					continue
				}
				units := []string{fmt.Sprintf("%d C_safe-bytes", r.Measures.Safe)}
				for m := range Measures {
					if v, ok := Measures[m].Of(s, r); ok {
						units = append(units, fmt.Sprintf("%v %s", v, benchUnit(Measures[m].Measure)))
					}
				}
				p.line("BenchmarkSequence/workload=%s/allocator=%s 1 %s", s.Workload, benchName(r.Target), strings.Join(units, " "))
			}
		}
	}
	return p.err
}

// benchName leaves nothing in a name that would end it.
func benchName(s string) string {
	return strings.Map(func(c rune) rune {
		if c <= ' ' || c == '/' || c == '=' {
			return '_'
		}
		return c
	}, s)
}

func benchUnit(m stats.Measure) string {
	if m.Unit == "bytes" {
		return m.Name + "-bytes"
	}
	return m.Name
}
