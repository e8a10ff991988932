package reports

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// WriteText writes the report for people: the outcome first, then how memory fragments, then the refusals.
func (r *Run) WriteText(w io.Writer) error { return r.WriteTerminal(w, Terminal{}) }

// WriteTerminal is WriteText for a terminal.
func (r *Run) WriteTerminal(w io.Writer, t Terminal) error {
	p := &printer{w: w, terminal: t}
	p.line("%s", r.headline())
	if r.Interrupted {
		p.line("interrupted: the figures are those of the sequences that were finished")
	}
	p.findings(r)
	p.fragmentation(r)
	p.scarce(r)
	p.waterfalls(r)
	p.refusals(r)
	p.drift(r)
	p.examples(r)
	return p.err
}

func (r *Run) headline() string {
	line := fmt.Sprintf("%s sequences, %s operations executed and checked on %s, seed %d",
		thousands(r.Sequences), thousands(r.Operations), strings.Join(r.Allocators, ", "), r.Seed)
	if t := r.Timing; t != nil {
		line += fmt.Sprintf(", %.1f s (%s operations a second)", t.Seconds, thousands(int(t.OperationsPerSecond)))
	}
	return line
}

func (p *printer) findings(r *Run) {
	if r.VerifiedBytes > 0 {
		p.line("%s of blocks compared on %s with what had been written into them", Size(r.VerifiedBytes), r.Device)
	}
	if r.Faults > 0 {
		p.line("%s device calls failed as planned, and every one was recovered from unless found below", thousands(r.Faults))
	}
	if len(r.Findings) == 0 {
		p.line("no findings: all %d properties held", len(r.Properties))
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		p.line("")
		p.line("FINDING %s (%d times)", f.Signature, f.Count)
		p.line("  %s", f.String())
		p.line("  %s", f.Replay)
		if f.Shrink != "" {
			p.line("  %s", f.Shrink)
		}
	}
	for _, k := range r.Known {
		p.line("known issue %s: %d times in %d runs (%s)", k.ID, k.Count, k.Sequences, k.Summary)
	}
}

func (p *printer) fragmentation(r *Run) {
	var populations []string
	rows := [][]string{{"workload", "allocator", "n", "kappa", "kappa p95", "from min to max", "lost", "idle cache", "pinned", "refused"}}
	for i := range r.Workloads {
		w := &r.Workloads[i]
		for k := range w.Targets {
			t := &w.Targets[k]
			kappa := t.measure(Kappa)
			if kappa == nil {
				continue
			}
			rows = append(rows, []string{
				w.Name, t.Allocator, fmt.Sprint(kappa.N), interval(kappa.Median, "1"), bound(kappa.P95, "1"), shape(kappa),
				value(t.measure(Lost), "bytes"), orUnknown(value(t.measure(IdleCacheAtPeak), "share")),
				orUnknown(value(t.measure(PinnedAtPeak), "bytes")),
				fmt.Sprintf("%d/%d", t.Refused.Successes, t.Refused.N),
			})
			if text := "population of " + w.Name + ": " + populationText(kappa.Population); !slices.Contains(populations, text) {
				populations = append(populations, text)
			}
		}
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.line("How memory fragments: medians over n sequences (95 %% order-statistic interval)")
	p.keyed(2, rows)
	for i := range r.Workloads {
		for _, t := range r.Workloads[i].Targets {
			if t.LowerBounds > 0 {
				p.line("  %s on %s: C_safe is a lower bound in %d sequences, in which not all larger capacities were tried", r.Workloads[i].Name,
					t.Allocator, t.LowerBounds)
			}
		}
	}
	for _, m := range []int{Kappa, Lost, IdleCacheAtPeak, PinnedAtPeak} {
		p.line("  %-10s %s", shortNames[m], Measures[m].Says)
	}
	for _, text := range populations {
		p.line("  %s; another one may behave otherwise", text)
	}
}

// shape draws the distribution between its ends; what is drawn says nothing about values that were not seen.
func shape(s *stats.Summary) string {
	if s.Min == nil || *s.Min == *s.Max {
		return "-"
	}
	return fmt.Sprintf("%.3f %s %.3f", *s.Min, stats.Sparkline(s.Histogram), *s.Max)
}

// scarce shows how many sequences get through on devices with little to spare.
func (p *printer) scarce(r *Run) {
	rows := [][]string{{"workload", "allocator"}}
	for _, m := range measure.Scarce {
		rows[0] = append(rows[0], fmt.Sprintf("at %v L*", float64(m)/1000))
	}
	for i := range r.Workloads {
		for k := range r.Workloads[i].Targets {
			t := &r.Workloads[i].Targets[k]
			if len(t.Scarce) != len(measure.Scarce) {
				continue
			}
			row := []string{r.Workloads[i].Name, t.Allocator}
			for _, s := range t.Scarce {
				through, err := stats.Wilson(s.Curve.N-s.Curve.OOMs, s.Curve.N, s.Curve.Level)
				if err != nil && p.err == nil {
					p.err = err
				}
				row = append(row, through.String())
			}
			rows = append(rows, row)
		}
	}
	if len(rows) == 1 {
		return
	}
	p.line("")
	p.line("Sequences that get through without a refusal on a device of so many times their peak (Wilson's interval, 95 %%)")
	p.keyed(2, rows)
}

// waterfalls shows what C_safe is made of.
func (p *printer) waterfalls(r *Run) {
	if len(r.Waterfalls) == 0 {
		return
	}
	rows := [][]string{{"workload", "allocator", "L*"}}
	for _, s := range r.Waterfalls[0].Steps {
		rows[0] = append(rows[0], "+ "+s.Name)
	}
	rows[0] = append(rows[0], "= C_safe")
	for _, w := range r.Waterfalls {
		row := []string{w.Workload, w.Allocator, Size(w.PeakLive)}
		for _, s := range w.Steps {
			if s.Bytes < 0 {
				row = append(row, "-"+Size(uint64(-s.Bytes)))
			} else {
				row = append(row, Size(uint64(s.Bytes)))
			}
		}
		safe := Size(w.Safe)
		if !w.Exact {
			safe += " or more"
		}
		rows = append(rows, append(row, safe))
	}
	p.line("")
	p.line("What C_safe is made of, in the trace with the median kappa: rules switched off one after the other (streams, pools, purchase size)")
	p.keyed(2, rows)
}

var shortNames = map[int]string{Kappa: "kappa", Lost: "lost", IdleCacheAtPeak: "idle cache", PinnedAtPeak: "pinned"}

func interval(q stats.Quantile, unit string) string {
	if q.Value == nil {
		return "-"
	}
	lo, hi := "?", "?"
	if q.Interval.Lower != nil {
		lo = figure(*q.Interval.Lower, unit)
	}
	if q.Interval.Upper != nil {
		hi = figure(*q.Interval.Upper, unit)
	}
	return fmt.Sprintf("%s (%s to %s)", figure(*q.Value, unit), lo, hi)
}

// bound writes a high quantile: with too few sequences it has no upper limit.
func bound(q stats.Quantile, unit string) string {
	if q.Value == nil {
		return "-"
	}
	if q.Interval.Upper == nil && q.Interval.Lower != nil {
		return "at least " + figure(*q.Interval.Lower, unit)
	}
	return interval(q, unit)
}

func value(s *stats.Summary, unit string) string {
	if s == nil || s.Median.Value == nil {
		return "-"
	}
	return figure(*s.Median.Value, unit)
}

// orUnknown writes what the allocator does not tell.
func orUnknown(s string) string {
	if s == "-" {
		return "unknown"
	}
	return s
}

func figure(v float64, unit string) string {
	switch unit {
	case "bytes":
		return Size(uint64(v))
	case "share":
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return fmt.Sprintf("%.3f", v)
}

// Size writes bytes for people: exact where short, else with two decimals.
func Size(n uint64) string {
	if s := trace.FormatSize(n); len(s) <= 7 {
		return spaced(s)
	}
	for _, u := range []struct {
		name string
		unit float64
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if float64(n) >= u.unit {
			return fmt.Sprintf("%.2f %s", float64(n)/u.unit, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}

// spaced puts a blank before the unit of trace.FormatSize, and B behind plain bytes.
func spaced(s string) string {
	i := strings.IndexFunc(s, func(r rune) bool { return r > '9' })
	if i < 0 {
		return s + " B"
	}
	return s[:i] + " " + s[i:]
}

func (p *printer) refusals(r *Run) {
	total := 0
	for _, f := range r.Refusals {
		total += f.OOMs
	}
	p.line("")
	if total == 0 {
		p.line("No request was refused.")
		return
	}
	p.line("Refusals (out of memory) by verdict")
	header := []string{"verdict"}
	for _, f := range r.Refusals {
		header = append(header, f.Allocator)
	}
	rows := [][]string{append(header, "what it means")}
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
	p.table(rows)
	p.line("  rules whose relaxation would have served a policy refusal: %s", r.relaxed())
	for _, f := range r.Refusals {
		var words []string
		for _, l := range f.Levels {
			words = append(words, fmt.Sprintf("%s %s", l.Name, thousands(l.Count)))
		}
		if len(f.Levels) < executor.LevelCount {
			words = append(words, "the other levels unknown")
		}
		p.line("  %s, refused although that much was free: %s", f.Allocator, strings.Join(words, ", "))
	}
}

func (p *printer) drift(r *Run) {
	if len(r.Drift) == 0 {
		return
	}
	p.line("")
	p.line("Repeated from their end state, the beginnings of a sample of the sequences")
	for _, d := range r.Drift {
		line := fmt.Sprintf("  %s: %d bounded (the state comes back), %d grow, %d undecided", d.Allocator, d.Bounded, d.Grows, d.Undecided)
		if d.Grows > 0 {
			line += fmt.Sprintf("; the fastest by %s a repeat (%s)", Size(d.Fastest), d.Trace)
		}
		p.line("%s", line)
	}
}

// VerdictMeaning says in a few words what each verdict means.
var VerdictMeaning = map[string]string{
	"device-refused": "the device said no although it had the bytes",
	"genuine":        "nothing could serve it: the live requests leave too little",
	"false":          "a promise was broken, or the same request repeated succeeds",
	"rounding":       "only bytes lost to rounding were missing",
	"policy":         "one or two of the allocator's rules stood in the way",
	"fragmentation":  "only moving or freeing live blocks would help",
	"unknown":        "the allocator shows too little to decide",
}

func (r *Run) relaxed() string {
	var sum []Count
	for _, f := range r.Refusals {
		for _, c := range f.Relaxations {
			results.Add(&sum, c.Name, c.Count)
		}
	}
	if len(sum) == 0 {
		return "none"
	}
	slices.SortStableFunc(sum, func(a, b Count) int { return b.Count - a.Count })
	var words []string
	for i, c := range sum {
		if i == 6 {
			words = append(words, "...")
			break
		}
		words = append(words, fmt.Sprintf("%s %s", c.Name, thousands(c.Count)))
	}
	return strings.Join(words, ", ")
}

func (p *printer) examples(r *Run) {
	if len(r.Examples) == 0 {
		return
	}
	p.line("")
	p.line("One of each, to look at:")
	for _, e := range r.Examples {
		what := e.Verdict
		if e.Known != "" {
			what += ", " + e.Known
		}
		if e.Relaxed != "" {
			what += ", " + e.Relaxed
		}
		p.line("  %s: operation %d asked %s with %s not live", what, e.Op, Size(e.Request), Size(e.Free))
		p.line("    %s", e.Replay)
	}
}

func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
