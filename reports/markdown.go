package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/stats"
)

// WriteMarkdown writes the report for the summary page of a CI run (GitHub's dialect): the outcome first, then the findings with the
// lines that reproduce them, how memory fragments, and the refusals.
func (r *Run) WriteMarkdown(w io.Writer) error {
	p := &printer{w: w}
	outcome := "no findings"
	if n := len(r.Findings); n > 0 {
		outcome = fmt.Sprintf("%d findings", n)
	}
	if r.Interrupted {
		outcome += ", interrupted"
	}
	p.line("# Shatter: %s", outcome)
	p.line("")
	p.line("%s.", inMarkdown(r.headline()))
	for i := range r.Findings {
		f := &r.Findings[i]
		p.line("")
		p.line("## %s (%d times)", inMarkdown(f.Signature), f.Count)
		p.line("")
		p.line("%s", inMarkdown(f.String()))
		p.line("")
		p.code(f.Replay, f.Shrink)
	}
	if len(r.Known) > 0 {
		p.line("")
		for _, k := range r.Known {
			p.line("- known issue [%s](%s): %d times in %d runs (%s)", inMarkdown(k.ID), k.URL, k.Count, k.Sequences, inMarkdown(k.Summary))
		}
	}
	rows := [][]string{{"workload", "allocator", "population", "n", "kappa, median", "kappa, p95", "lost", "idle cache", "pinned", "refused"}}
	var notes []string
	for i := range r.Workloads {
		for k := range r.Workloads[i].Targets {
			t := &r.Workloads[i].Targets[k]
			kappa := t.measure(Kappa)
			if kappa == nil {
				continue
			}
			rows = append(rows, []string{
				r.Workloads[i].Name, t.Allocator, populationText(kappa.Population), fmt.Sprint(kappa.N), interval(kappa.Median, "1"), bound(kappa.P95, "1"),
				value(t.measure(Lost), "bytes"), value(t.measure(IdleCacheAtPeak), "share"), value(t.measure(PinnedAtPeak), "bytes"),
				fmt.Sprintf("%d/%d", t.Refused.Successes, t.Refused.N),
			})
			for _, w := range kappa.Warnings {
				notes = append(notes, fmt.Sprintf("%s on %s: %s", r.Workloads[i].Name, t.Allocator, w))
			}
		}
	}
	if len(rows) > 1 {
		p.line("")
		p.line("## How memory fragments")
		p.line("")
		p.line("Medians over n sequences of the population, with 95 %% order-statistic intervals. kappa = C_safe / L*. Idle cache is not fragmentation.")
		p.line("")
		p.markdownTable(rows)
		for i, n := range notes {
			if i == 0 {
				p.line("")
			}
			p.line("- %s", inMarkdown(n))
		}
	}
	total := 0
	header := []string{"verdict"}
	for _, f := range r.Refusals {
		header = append(header, f.Allocator)
		total += f.OOMs
	}
	if total > 0 {
		rows = [][]string{append(header, "what it means")}
		for i, v := range r.Refusals[0].Verdicts {
			row, sum := []string{v.Name}, 0
			for _, f := range r.Refusals {
				row = append(row, thousands(f.Verdicts[i].Count))
				sum += f.Verdicts[i].Count
			}
			if sum > 0 {
				rows = append(rows, append(row, VerdictMeaning[v.Name]))
			}
		}
		p.line("")
		p.line("## Refusals by verdict")
		p.line("")
		p.markdownTable(rows)
	}
	return p.err
}

// populationText says which sequences a figure is of.
func populationText(p stats.Population) string {
	text := fmt.Sprintf("%s v%s", p.Generator, p.Version)
	for _, q := range p.Parameters {
		if q.Key != "allocator" {
			text += ", " + q.Value
		}
	}
	return text
}

func (p *printer) code(lines ...string) {
	fence := "```"
	for strings.Contains(strings.Join(lines, "\n"), fence) {
		fence += "`"
	}
	p.write(fence + "\n")
	for _, l := range lines {
		if l != "" {
			p.write(l + "\n")
		}
	}
	p.write(fence + "\n")
}

func (p *printer) markdownTable(rows [][]string) {
	for i, row := range rows {
		cells := make([]string, len(row))
		for k := range row {
			cells[k] = inMarkdown(row[k])
		}
		p.write("| " + strings.Join(cells, " | ") + " |\n")
		if i == 0 {
			p.write(strings.Repeat("|---", len(row)) + "|\n")
		}
	}
}

// inMarkdown makes text mean itself: no markup, no HTML, one line.
func inMarkdown(s string) string {
	return markdownEscapes.Replace(strings.Join(strings.Fields(s), " "))
}

var markdownEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "\\", "\\\\", "`", "\\`", "|", "\\|", "*", "\\*", "_", "\\_", "[", "\\[", "]", "\\]",
	"#", "\\#", "~", "\\~")
