package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/whatif"
)

// ExplainSchema is the name and version of the document that Explained is.
const ExplainSchema = "shatter.explain/1"

// Basis is what an answer about a history rests on.
type Basis struct {
	File       string `json:"file"`
	Device     int    `json:"device"`
	Operations int    `json:"operations"`
	Settings   string `json:"settings"`
	// Rules is the PyTorch version whose rules the replay follows, RulesFrom what these rest on, RulesGuessed that the version was
	// taken from the file's keys; Written is the version that writes files of this shape.
	Rules        string `json:"rules"`
	RulesFrom    string `json:"rules_from"`
	RulesGuessed bool   `json:"rules_guessed"`
	Written      string `json:"written_by"`
	// Verified is how the replay agrees with the recorded decisions; nil for traces, which record none.
	Verified *whatif.Verified `json:"verified,omitempty"`
	// PrivateBytes of ReservedBytes lie in private pools.
	PrivateBytes  uint64   `json:"private_bytes"`
	ReservedBytes uint64   `json:"reserved_bytes"`
	Exact         []string `json:"exact"`
	Inferred      []string `json:"inferred"`
	Missing       []string `json:"missing"`
	Capacity      uint64   `json:"capacity"` // 0 if not known
	CapacityIs    string   `json:"capacity_is"`
}

// Explained is the answer of `shatter explain` for one device. Sizes are bytes.
type Explained struct {
	Schema      string              `json:"schema"`
	Basis       Basis               `json:"basis"`
	Explanation *whatif.Explanation `json:"explanation"`
	// Refused has the verdicts on the moments that are refusals.
	Refused  []Refusal `json:"refused"`
	HasTimes bool      `json:"ages_in_microseconds"`
	Timing   struct {
		Seconds float64 `json:"seconds"`
	} `json:"timing"`
}

// shownPins is how many rows of pinning call sites are printed.
const shownPins = 8

// WriteText writes the explanation for people.
func (e *Explained) WriteText(w io.Writer) error {
	p := &printer{w: w}
	e.Basis.head(p)
	for i := range e.Explanation.Moments {
		m := &e.Explanation.Moments[i]
		if i > 0 {
			f := &e.Refused[i]
			p.line("  operation %d refused: %s asked; %s; %s pinned by %d blocks, %s free at the device", f.Op, Size(f.Request), f.Verdict,
				Size(m.Bar.Pinned), m.PinningBlocks, Size(m.Bar.DeviceFree))
			continue
		}
		p.bar(&m.Bar)
		e.moment(p, i, m)
	}
	if n := len(e.Explanation.Moments); e.Explanation.Refusals > n {
		p.line("  and %s more refusals", thousands(e.Explanation.Refusals-n))
	}
	e.changes(p)
	e.Basis.foot(p)
	return p.err
}

// head is what stands before everything else: what is not modelled.
func (b *Basis) head(p *printer) {
	if b.PrivateBytes > 0 {
		p.line("%.0f %% of bytes in private pools (CUDA graphs, MemPool)", 100*float64(b.PrivateBytes)/float64(max(b.ReservedBytes, 1)))
	}
	conf := b.Settings
	if conf == "" {
		conf = "defaults"
	}
	device := ""
	if b.Device > 0 {
		device = fmt.Sprintf(", device %d", b.Device)
	}
	p.line("%s%s: %s operations, settings: %s", b.File, device, thousands(b.Operations), conf)
}

// barWidth is the width of the bar in characters.
const barWidth = 72

// bar draws the device's memory.
func (p *printer) bar(b *whatif.Bar) {
	parts := []struct {
		name string
		n    uint64
		c    byte
	}{
		{"live", b.Live, '#'}, {"rounding", b.Rounding, 'r'}, {"pinned", b.Pinned, 'P'}, {"releasable", b.Releasable, '.'},
		{"device free", b.DeviceFree, '_'}, {"outside PyTorch", b.Outside, 'x'},
	}
	total := b.Reserved + b.DeviceFree + b.Outside
	drawn, sum := "", uint64(0)
	for _, q := range parts {
		sum += q.n
		if total > 0 {
			for len(drawn) < int(float64(sum)/float64(total)*barWidth+0.5) {
				drawn += string(q.c)
			}
		}
	}
	var words []string
	for _, q := range parts {
		value := Size(q.n)
		if q.name == "device free" && !b.FreeKnown || q.name == "outside PyTorch" && !b.OutsideKnown {
			value = "unknown"
		}
		word := fmt.Sprintf("%c %s %s", q.c, q.name, value)
		if value == "unknown" {
			word = q.name + " unknown"
		}
		words = append(words, word)
	}
	p.line("  [%s]", drawn)
	head := "device total unknown (give --total)"
	if b.OutsideKnown {
		head = "device total " + Size(b.Total)
	}
	p.line("  %s = %s", head, strings.Join(words, " + "))
}

func (e *Explained) moment(p *printer, i int, m *whatif.Moment) {
	if m.Refusal == nil {
		p.line("  every request is served; the worst moment is operation %d (%s)", m.Op, m.Operation)
	} else {
		f := &e.Refused[i]
		p.line("  operation %d refused: %s asked, rounded to %s, with %s not live", f.Op, Size(f.Request), Size(f.Rounded),
			Size(m.Refusal.Free()))
		p.line("    verdict: %s: %s", f.Verdict, VerdictMeaning[f.Verdict])
		if f.Reason != "" {
			p.line("    because: %s", f.Reason)
		}
		if len(f.Relaxations) > 0 {
			p.line("    would be served without one of these rules: %s", strings.Join(f.Relaxations, ", "))
		}
		if m.Refusal.Verdict == executor.Genuine {
			p.line("    live requests leave %s of %s; no setting makes room for %s",
				Size(f.Capacity-min(f.Capacity, f.LiveRequested)), Size(f.Capacity), Size(f.Request))
		}
		if m.Bar.Pinned == 0 {
			p.line("    nothing is pinned: fragmentation keeps no memory back")
		}
		for _, l := range f.WitnessText {
			p.line("    %s", l)
		}
	}
	b := &m.Bar
	if b.Pending > 0 {
		p.line("    %s freed by the program still wait for other streams", Size(b.Pending))
	}
	if b.Pinned > 0 {
		p.line("    %d live blocks pin %s: a release cannot return it, and a large request cannot use it", m.PinningBlocks, Size(b.Pinned))
		e.pins(p, m)
	}
	if len(m.Streams) > 1 {
		rows := [][]string{{"    stream", "reserved", "live", "pending"}}
		for _, s := range m.Streams {
			rows = append(rows, []string{fmt.Sprintf("    %d", s.Stream), Size(s.Reserved), Size(s.Live), Size(s.Pending)})
		}
		p.table(rows)
	}
	p.waterfall(m, e.Explanation.PeakLive)
}

// pins lists who pins, by call site.
func (e *Explained) pins(p *printer, m *whatif.Moment) {
	unit := "age (operations)"
	if e.HasTimes {
		unit = "age"
	}
	rows := [][]string{{"    pinned", "blocks", "each", unit, "stream", "pool", "allocated at"}}
	for i := range m.Pins {
		if i == shownPins {
			var rest uint64
			for k := i; k < len(m.Pins); k++ {
				rest += m.Pins[k].Bytes
			}
			rows = append(rows, []string{"    " + Size(rest), "", "", "", "", "", fmt.Sprintf("%d more call sites", len(m.Pins)-i)})
			break
		}
		s := &m.Pins[i]
		each := Size(s.Smallest)
		if s.Smallest != s.Largest {
			each += " to " + Size(s.Largest)
		}
		age := e.age(s.Youngest)
		if o := e.age(s.Oldest); o != age {
			age += " to " + o
		}
		pool := "large"
		switch {
		case s.Small && s.Large:
			pool = "both"
		case s.Small:
			pool = "small"
		}
		blocks := fmt.Sprint(s.Blocks)
		if s.Alone < s.Groups {
			blocks += fmt.Sprintf(" (%d alone)", s.Alone)
		}
		rows = append(rows, []string{"    " + Size(s.Bytes), blocks, each, age, strings.Trim(fmt.Sprint(s.Streams), "[]"), pool, siteText(s.Sites)})
	}
	p.table(rows)
	if len(m.Groups) > 0 {
		g := &m.Groups[0]
		if len(g.Ops) == 1 {
			p.line("    the largest: the block of operation %d keeps %s alone", g.Ops[0], Size(g.Bytes))
		} else {
			p.line("    the largest: %d blocks (operations %s) keep %s together", len(g.Ops), numbers(g.Ops), Size(g.Bytes))
		}
	}
}

func numbers(list []int) string {
	s := ""
	for i, n := range list {
		if i == 4 {
			return s + ", ..."
		}
		if i > 0 {
			s += ", "
		}
		s += fmt.Sprint(n)
	}
	return s
}

func siteText(sites []string) string {
	const most = 3
	if len(sites) <= most {
		return strings.Join(sites, "  +  ")
	}
	return strings.Join(sites[:most], "  +  ") + fmt.Sprintf("  + %d more", len(sites)-most)
}

func (e *Explained) age(n int64) string {
	if !e.HasTimes {
		return thousands(int(n))
	}
	switch s := float64(n) / 1e6; {
	case s >= 120:
		return fmt.Sprintf("%.0f min", s/60)
	case s >= 1:
		return fmt.Sprintf("%.1f s", s)
	default:
		return fmt.Sprintf("%.1f ms", s*1000)
	}
}

// waterfall goes from what the program needs to what the device has.
func (p *printer) waterfall(m *whatif.Moment, peakLive uint64) {
	b := &m.Bar
	gib := func(n uint64) string { return fmt.Sprintf("%9.3f GiB", float64(n)/(1<<30)) }
	p.line("    %s  asked for by live blocks (peak of the history %s)", gib(b.Live), Size(peakLive))
	p.line("   +%s  rounding", gib(b.Rounding))
	p.line("   +%s  pinned", gib(b.Pinned))
	p.line("   +%s  releasable", gib(b.Releasable))
	p.line("   =%s  reserved by PyTorch", gib(b.Reserved))
	if b.FreeKnown {
		p.line("   +%s  free at the device", gib(b.DeviceFree))
	}
	if b.OutsideKnown {
		p.line("   +%s  outside PyTorch (NCCL, context, other processes)", gib(b.Outside))
	}
}

func (e *Explained) changes(p *printer) {
	if len(e.Explanation.Changes) == 0 && e.Explanation.Unevaluated == 0 {
		return
	}
	if len(e.Explanation.Changes) > 0 {
		p.line("  what to change in the code (each replayed; by how much the memory needed falls)")
		rows := [][]string{}
		for i := range min(len(e.Explanation.Changes), 6) {
			c := &e.Explanation.Changes[i]
			passes := ""
			if c.Passes {
				passes = "passes in replay"
			}
			rows = append(rows, []string{"    " + Size(c.Saved), whatif.ChangeMeaning[c.What] + ":", siteText([]string{c.Site}), passes})
		}
		p.table(rows)
	} else {
		p.line("  no change at a single call site was found to save memory")
	}
	if e.Explanation.Unevaluated > 0 {
		p.line("    %d changes were not replayed for want of time (--time)", e.Explanation.Unevaluated)
	}
}

// foot is the end of every answer: what it rests on.
func (b *Basis) foot(p *printer) {
	if b.Capacity > 0 {
		p.line("  capacity %s (%s)", Size(b.Capacity), b.CapacityIs)
	}
	for _, s := range b.Exact {
		p.line("  exact: %s", s)
	}
	for _, s := range b.Inferred {
		p.line("  inferred: %s", s)
	}
	for _, s := range b.Missing {
		p.line("  missing: %s", s)
	}
	p.line("  %s", b.Line())
}

// Line is the last line of every answer.
func (b *Basis) Line() string {
	s := fmt.Sprintf("rules %s (%s)", b.Rules, b.RulesFrom)
	if b.RulesGuessed {
		s += fmt.Sprintf(", guessed from the file's keys, which PyTorch %s writes", b.Written)
	}
	switch v := b.Verified; {
	case v == nil:
		return s + "; no recorded decisions to compare with"
	case v.Decisions == 0:
		return s + "; the file records no decisions"
	default:
		s += fmt.Sprintf("; recorded decisions reproduced: %s (%s of %s)", percent(v.Share()), thousands(v.Reproduced), thousands(v.Decisions))
		if v.First != "" {
			s += "; the first that is not: " + v.First
		}
		return s
	}
}

// percent never rounds up to 100.
func percent(share float64) string {
	if share == 1 {
		return "100 %"
	}
	return fmt.Sprintf("%.1f %%", float64(int(share*1000))/10)
}
