package reports

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/nightly"
)

// WriteNight writes what a night came to: as json, text, markdown (for the summary of a job) or junit.
func WriteNight(w io.Writer, n *nightly.Night, format string) error {
	switch format {
	case "json":
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(n)
	case "text":
		return writeNightText(w, n)
	case "markdown":
		return writeNightMarkdown(w, n)
	case "junit":
		return nightJUnit(n).Write(w)
	}
	return fmt.Errorf("a night is written as json, text, markdown or junit, not as %q", format)
}

// shownDifferences is how many differences from each reference people are shown; all are in the document.
const shownDifferences = 5

// NightVerdict says in a line how the night ended.
func NightVerdict(n *nightly.Night) string {
	red, suspects := 0, 0
	for i := range n.Findings {
		if n.Findings[i].Status == nightly.Red {
			red++
		} else {
			suspects++
		}
	}
	var parts []string
	add := func(k int, one, many string) {
		if k == 1 {
			parts = append(parts, "1 "+one)
		} else if k > 1 {
			parts = append(parts, fmt.Sprintf("%d %s", k, many))
		}
	}
	add(n.Panel.Red(), "difference in the panel", "differences in the panel")
	add(red, "finding", "findings")
	state := "green"
	switch {
	case n.Failed():
		state = "RED"
	case len(n.Faults) > 0:
		state = "NOT DONE"
	case n.Interrupted:
		state = "interrupted"
	}
	if n.Interrupted && state != "interrupted" {
		parts = append(parts, "interrupted")
	}
	add(len(n.Faults), "fault of the harness or its environment", "faults of the harness or its environment")
	add(suspects, "suspect", "suspects")
	add(len(n.Known), "known issue", "known issues")
	add(len(n.Lost), "worker lost", "workers lost")
	if len(parts) == 0 {
		return state
	}
	return state + ": " + strings.Join(parts, ", ")
}

// NightDid says what was done.
func NightDid(n *nightly.Night) []string {
	p, e := &n.Panel, &n.Explored
	shard := ""
	if n.Shard != "" {
		shard = ", shard " + n.Shard
	}
	if n.Merged > 0 {
		shard = fmt.Sprintf(", merged from %d shards", n.Merged)
	}
	lines := []string{
		fmt.Sprintf("%s on %s, seed %d from %s%s; %.0f of %.0f s, %d workers", strings.Join(n.Allocators, ", "), n.Device, n.Seed,
			n.SeedFrom, shard, n.Timing.Seconds, n.Timing.Budget, n.Timing.Workers),
		fmt.Sprintf("panel: %d of %d run, %s decisions", p.Ran, p.Logs, thousands(p.Rows)),
	}
	for i := range p.References {
		r := &p.References[i]
		line := fmt.Sprintf("  against the %s: %d the same, %d different", r.Name, r.Same, len(r.Differences))
		if r.Missing > 0 {
			line += fmt.Sprintf(", %d not in it", r.Missing)
		}
		if !r.Exact {
			line += " (no failure on a device that leaves things to chance)"
		}
		lines = append(lines, line)
	}
	if p.Skipped > 0 {
		lines = append(lines, fmt.Sprintf("  %d need a larger device", p.Skipped))
	}
	if p.Rejected > 0 {
		lines = append(lines, fmt.Sprintf("  %d under settings that the allocator does not take", p.Rejected))
	}
	lines = append(lines, fmt.Sprintf("explored: %s sequences, %d adversaries, %d hunts; %d findings repeated, %d shrunk",
		thousands(e.Sequences), e.Adversaries, e.Hunts, e.Repeats, e.Shrinks),
		fmt.Sprintf("in all %s operations executed and checked in %s runs", thousands(e.Operations), thousands(e.Runs)))
	if n.Unfinished > 0 {
		lines = append(lines, fmt.Sprintf("unfinished when the night ended: %d", n.Unfinished))
	}
	for _, c := range n.Compared {
		lines = append(lines, fmt.Sprintf("since the %s (seed %d): new %s; not seen again %s", c.With, c.Seed, namesOf(c.New), namesOf(c.Gone)))
	}
	return lines
}

func namesOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// NightShrunk says what became of a finding's trace.
func NightShrunk(f *nightly.Finding) string {
	switch {
	case f.After > 0 && f.Minimal:
		return fmt.Sprintf("shrunk from %d to %d operations", f.Before, f.After)
	case f.After > 0:
		return fmt.Sprintf("shrunk from %d to %d operations; perhaps more can be removed", f.Before, f.After)
	}
	return "not shrunk: " + f.NotShrunk
}

func writeNightText(w io.Writer, n *nightly.Night) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", NightVerdict(n))
	for _, line := range NightDid(n) {
		fmt.Fprintf(&b, "%s\n", line)
	}
	for i := range n.Panel.References {
		r := &n.Panel.References[i]
		for k := range r.Differences[:min(len(r.Differences), shownDifferences)] {
			fmt.Fprintf(&b, "\nDIFFERENT from the %s: %s\n", r.Name, &r.Differences[k])
		}
		if more := len(r.Differences) - shownDifferences; more > 0 {
			fmt.Fprintf(&b, "and %d more in %s\n", more, nightly.File)
		}
	}
	for i := range n.Findings {
		f := &n.Findings[i]
		word := map[nightly.Status]string{nightly.Red: "FINDING", nightly.Suspect: "SUSPECT"}[f.Status]
		fmt.Fprintf(&b, "\n%s %s\n  %s\n  %s\n  found by %s in %s; %s\n", word, f.Signature, &f.Finding, f.Why, f.Source, f.First, NightShrunk(f))
		if f.Replay != "" {
			fmt.Fprintf(&b, "  %s\n", f.Replay)
		}
	}
	for i := range n.Lost {
		fmt.Fprintf(&b, "\nLOST %s\n  its task was done again: %s\n", &n.Lost[i], n.Lost[i].Again)
	}
	for _, f := range n.Faults {
		fmt.Fprintf(&b, "\nFAULT %s\n", f)
	}
	for _, k := range n.Known {
		fmt.Fprintf(&b, "\nknown issue %s: %s times\n", k.Name, thousands(k.Count))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fenced is a block of text as it is, whatever backticks are in it.
func fenced(text string) string {
	fence := "```"
	for strings.Contains(text, fence) {
		fence += "`"
	}
	return fence + "text\n" + strings.TrimRight(text, "\n") + "\n" + fence + "\n"
}

func writeNightMarkdown(w io.Writer, n *nightly.Night) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## shatter nightly: %s\n\n", NightVerdict(n))
	for _, line := range NightDid(n) {
		indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
		fmt.Fprintf(&b, "%s- %s\n", indent, strings.TrimSpace(line))
	}
	for i := range n.Panel.References {
		r := &n.Panel.References[i]
		for k := range r.Differences[:min(len(r.Differences), shownDifferences)] {
			fmt.Fprintf(&b, "\n### Different from the %s\n\n%s", r.Name, fenced(r.Differences[k].String()))
		}
		if more := len(r.Differences) - shownDifferences; more > 0 {
			fmt.Fprintf(&b, "\nAnd %d more in %s.\n", more, nightly.File)
		}
	}
	for i := range n.Findings {
		f := &n.Findings[i]
		fmt.Fprintf(&b, "\n### %s: %s\n\n%s; %s\n\n%s", map[nightly.Status]string{nightly.Red: "Finding", nightly.Suspect: "Suspect"}[f.Status],
			f.Signature, f.Why, NightShrunk(f), fenced(f.String()+"\n"+f.Replay))
	}
	for i := range n.Lost {
		fmt.Fprintf(&b, "\n### Worker lost\n\n%sIts task was done again: %s\n", fenced(n.Lost[i].String()), n.Lost[i].Again)
	}
	for _, f := range n.Faults {
		fmt.Fprintf(&b, "\n### Fault\n\n%s", fenced(f))
	}
	for _, k := range n.Known {
		fmt.Fprintf(&b, "\nKnown issue %s: %s times\n", k.Name, thousands(k.Count))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// nightJUnit is a night as test results.
func nightJUnit(n *nightly.Night) *JUnit {
	j := &JUnit{Name: "shatter nightly", Seconds: fmt.Sprintf("%.3f", n.Timing.Seconds)}
	for i := range n.Panel.References {
		r := &n.Panel.References[i]
		s := JUnitSuite{Name: "panel, against the " + r.Name}
		for k := range r.Differences {
			d := &r.Differences[k]
			text := &JUnitText{Message: fmt.Sprintf("operation %d (%s): %s differs", d.Op, d.Operation, d.Column), Type: "difference", Text: printable(d.String())}
			if d.Op < 0 {
				text.Message = d.Column + " differs"
			}
			c := JUnitCase{Name: d.Log + " on " + d.Allocator}
			if r.Exact {
				c.Failure = text
			} else {
				c.Skipped = text
			}
			s.Cases = append(s.Cases, c)
		}
		s.Cases = append(s.Cases, JUnitCase{Name: fmt.Sprintf("%d logs are the same", r.Same)})
		j.Suite(s)
	}
	s := JUnitSuite{Name: "exploration"}
	for i := range n.Findings {
		f := &n.Findings[i]
		text := &JUnitText{Message: oneLine(f.String()), Type: f.Signature, Text: printable(strings.TrimSpace(f.Why + "; " + NightShrunk(f) + "\n" + f.Replay))}
		c := JUnitCase{Name: f.Signature}
		if f.Status == nightly.Red {
			c.Failure = text
		} else {
			text.Message = "suspect: " + text.Message
			c.Skipped = text
		}
		s.Cases = append(s.Cases, c)
	}
	for _, k := range n.Known {
		s.Cases = append(s.Cases, JUnitCase{Name: k.Name, Skipped: &JUnitText{Message: fmt.Sprintf("known issue, %d times", k.Count)}})
	}
	s.Cases = append(s.Cases, JUnitCase{Name: fmt.Sprintf("seed %d", n.Seed), Output: strings.Join(NightDid(n), "\n")})
	j.Suite(s)
	s = JUnitSuite{Name: "night"}
	for i := range n.Lost {
		s.Cases = append(s.Cases, JUnitCase{
			Name: fmt.Sprintf("worker lost %d", i+1), Skipped: &JUnitText{Message: oneLine(n.Lost[i].String()), Text: "its task was done again: " + n.Lost[i].Again},
		})
	}
	for i, f := range n.Faults {
		s.Cases = append(s.Cases, JUnitCase{Name: fmt.Sprintf("fault %d", i+1), Error: &JUnitText{Message: oneLine(f)}})
	}
	end := JUnitCase{Name: "came to its end"}
	if n.Interrupted {
		end.Error = &JUnitText{Message: fmt.Sprintf("interrupted, %d tasks unfinished", n.Unfinished)}
	}
	s.Cases = append(s.Cases, end)
	j.Suite(s)
	return j
}
