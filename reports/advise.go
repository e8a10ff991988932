package reports

import (
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/harness/whatif"
)

// AdviseSchema is the name and version of the document that Advised is.
const AdviseSchema = "shatter.advise/1"

// ConflictNote is a known conflict of a setting.
type ConflictNote struct {
	With     string `json:"with"`
	Versions string `json:"versions"`
	Effect   string `json:"effect"`
	Link     string `json:"link"`
	Read     string `json:"read"`
}

// Advised is the answer of `shatter advise` for one device. Sizes are bytes.
type Advised struct {
	Schema string         `json:"schema"`
	Basis  Basis          `json:"basis"`
	Advice *whatif.Advice `json:"advice,omitempty"`
	// Withheld says why there is no advice, empty if there is.
	Withheld string `json:"withheld,omitempty"`
	// Refused is the verdict on the first refusal under the program's own settings, empty if nothing is refused.
	Refused string `json:"refused,omitempty"`
	Needed  uint64 `json:"needed,omitempty"`
	// Variable is the environment variable that the settings go into.
	Variable string `json:"variable"`
	// Conflicts are the known conflicts of each setting that is recommended.
	Conflicts map[string][]ConflictNote `json:"conflicts"`
	Timing    struct {
		Seconds float64 `json:"seconds"`
	} `json:"timing"`
}

// NotEvaluated is what no replay here can tell; it stands behind every recommendation.
const NotEvaluated = "not evaluated: speed of the program, private pools, CUDA graphs, IPC, NCCL and RDMA registration, what others take " +
	"of the device later, and memory that PyTorch's allocator does not see"

// shownRecommendations is how many settings are recommended with their conflicts.
const shownRecommendations = 3

// WriteText writes the advice for people: the line to export first.
func (a *Advised) WriteText(w io.Writer) error {
	p := &printer{w: w}
	a.Basis.head(p)
	if a.Withheld != "" {
		p.line("  no advice: %s", a.Withheld)
		a.Basis.foot(p)
		return p.err
	}
	a.answer(p)
	a.table(p)
	for _, n := range a.Advice.NotEvaluated {
		p.line("  not tried: %s", n)
	}
	p.line("  %s", NotEvaluated)
	a.Basis.foot(p)
	return p.err
}

func (a *Advised) answer(p *printer) {
	current := a.Advice.CurrentOutcome()
	rec := a.Advice.Recommended()
	switch {
	case a.Advice.Capacity == 0:
		p.line("  the capacity is not known, so nothing passes or fails: settings by the memory they need (give --capacity)")
		return
	case current != nil && current.Passes && current.Leaves:
		p.line("  as it is, the history passes in replay on %s", Size(a.Advice.Capacity))
	case current != nil && current.Passes:
		p.line("  as it is, the history passes on %s, but does not leave %s free at all times", Size(a.Advice.Capacity), Size(a.Needed))
	case current != nil:
		line := fmt.Sprintf("  as it is, operation %d is refused on %s", current.FirstOOM, Size(a.Advice.Capacity))
		if a.Refused != "" {
			line += fmt.Sprintf(" (%s: %s)", a.Refused, VerdictMeaning[a.Refused])
		}
		p.line("%s", line)
	}
	if len(rec) == 0 {
		borderline := 0
		for i := range a.Advice.Outcomes {
			if a.Advice.Outcomes[i].Borderline() {
				borderline++
			}
		}
		switch {
		case current != nil && current.Passes && current.Leaves:
			p.line("  nothing needs to be set")
		case borderline > 0:
			p.line("  nothing passes for every order of addresses; %d settings are borderline", borderline)
		default:
			p.line("  nothing helps: the least demanding setting needs %s more than there is", gibibytes(a.Advice.Missing))
		}
		return
	}
	told := map[string]bool{}
	for i, o := range rec {
		if i == shownRecommendations {
			break
		}
		word := "  passes in replay under the " + a.Basis.Rules + " rules:"
		if i > 0 {
			word = "  so does:"
		}
		p.line("%s", word)
		p.line("    %s", a.export(o))
		if o.Jitter != nil && o.Jitter.Share != nil && *o.Jitter.Share < 1 {
			p.line("      in %d of %d replays with frees a little later: a share of %.0f %% to %.0f %% of such runs", o.Jitter.Successes, o.Jitter.N,
				100**o.Jitter.Lower, 100**o.Jitter.Upper)
		}
		if told[o.Conf] && len(a.Conflicts[o.Conf]) > 0 {
			p.line("      known conflicts as above")
			continue
		}
		told[o.Conf] = true
		for _, c := range a.Conflicts[o.Conf] {
			p.line("      known conflict with %s (%s): %s; %s, read %s", c.With, c.Versions, c.Effect, c.Link, c.Read)
		}
	}
}

func gibibytes(n uint64) string {
	if n < 1<<30/100 {
		return Size(n)
	}
	return fmt.Sprintf("%.2f GiB", float64(n)/(1<<30))
}

// export is the line that sets an outcome's option.
func (a *Advised) export(o *whatif.Outcome) string {
	current := a.Advice.CurrentOutcome()
	return export(a.Variable, &o.Option, current != nil && current.Conf == o.Conf)
}

// export is the line that sets an option, and the calls that belong to it; current says that the program runs under its conf.
func export(variable string, o *whatif.Option, current bool) string {
	s := fmt.Sprintf("export %s=%s", variable, o.Conf)
	switch {
	case current:
		s = "the settings as they are"
	case o.Conf == "":
		s = "unset " + variable
	}
	if o.Fraction != nil {
		s += fmt.Sprintf("   and torch.cuda.set_per_process_memory_fraction(%g)", *o.Fraction)
	}
	if o.EmptyCache {
		s += "   and torch.cuda.empty_cache() at the end of each phase"
	}
	return s
}

// table lists all settings.
func (a *Advised) table(p *printer) {
	rows := [][]string{{"  setting", "in replay", "needs (C_safe)", "retries", "device calls", "estimated", "address orders", "jitter"}}
	for i := range a.Advice.Outcomes {
		rows = append(rows, a.row(&a.Advice.Outcomes[i]))
	}
	p.table(rows)
	if a.Advice.Phases > 0 {
		p.line("  %d ends of phases were found in the history", a.Advice.Phases)
	}
	for i := range a.Advice.Outcomes {
		if a.Advice.Outcomes[i].Changed {
			p.line("  * the state at the start was allocated anew under this setting, in address order: how it came about is not recorded")
			break
		}
	}
}

func (a *Advised) row(o *whatif.Outcome) []string {
	name := "  " + o.Name
	if o.Current {
		name += " (as it is)"
	}
	if o.Changed {
		name += " *"
	}
	if o.Error != "" {
		return []string{name, o.Error, "", "", "", "", "", ""}
	}
	verdict := "passes"
	switch {
	case a.Advice.Capacity == 0:
		verdict = "-"
	case !o.Passes && o.Need != nil && o.Need.Safe > a.Advice.Capacity:
		verdict = "fails, " + gibibytes(o.Need.Safe+a.Needed-a.Advice.Capacity) + " missing"
	case !o.Passes:
		verdict = fmt.Sprintf("fails at %d", o.FirstOOM)
	case !o.Leaves:
		verdict = "leaves too little"
	case o.Borderline():
		verdict = "borderline"
	}
	need, orders, jitter := "", "", ""
	if o.Need != nil {
		need = Size(o.Need.Safe)
		if !o.Need.Exact {
			need = "about " + need
		}
	}
	if o.OrdersTried > 0 {
		orders = fmt.Sprintf("%d of %d", o.Orders, o.OrdersTried)
	}
	if j := o.Jitter; j != nil && j.Share != nil {
		jitter = fmt.Sprintf("%.0f %% [%.0f, %.0f]", 100**j.Share, 100**j.Lower, 100**j.Upper)
	}
	return []string{name, verdict, need, thousands(int(o.Retries)), thousands(int(o.DeviceCalls)), fmt.Sprintf("%.2f s", o.Cost), orders, jitter}
}

// Rank is a line of the table of ranks.
type Rank struct {
	File string `json:"file"`
	// Headroom is capacity less what the program's own setting needs, negative if it does not fit.
	Headroom int64  `json:"headroom"`
	Need     uint64 `json:"need"`
	// Exact says that no capacity above Need fails; else some above it were not tried.
	Exact   bool   `json:"exact"`
	Verdict string `json:"verdict"`
	// Like is how many ranks have the same history, this one included.
	Like    int  `json:"like"`
	Outlier bool `json:"outlier"`
}

// Ranks is the answer for many files.
type Ranks struct {
	Schema string `json:"schema"`
	Ranks  []Rank `json:"ranks"`
	// Everywhere are the settings that pass on every rank, the best first.
	Everywhere []string `json:"pass_on_every_rank"`
	// Options are what Everywhere names.
	Options  []whatif.Option `json:"-"`
	Variable string          `json:"variable"`
	Withheld []string        `json:"withheld"`
}

// WriteText writes the table of ranks.
func (r *Ranks) WriteText(w io.Writer) error {
	p := &printer{w: w}
	rows := [][]string{{"file", "headroom", "needs", "as it is", ""}}
	for i := range r.Ranks {
		k := &r.Ranks[i]
		sign, n := "", k.Headroom
		if n < 0 {
			sign, n = "-", -n
		}
		note := ""
		if k.Like > 1 {
			note = fmt.Sprintf("and %d like it", k.Like-1)
		}
		if k.Outlier {
			note = strings.TrimPrefix(note+", outlier", ", ")
		}
		need := Size(k.Need)
		if !k.Exact {
			need = "about " + need
		}
		rows = append(rows, []string{k.File, sign + Size(uint64(n)), need, k.Verdict, note})
	}
	p.table(rows)
	for _, s := range r.Withheld {
		p.line("no advice for %s", s)
	}
	if len(r.Options) == 0 {
		p.line("no setting passes on every rank")
	}
	for i := range r.Options {
		if i == shownRecommendations {
			break
		}
		p.line("passes in replay on every rank: %s", export(r.Variable, &r.Options[i], false))
	}
	p.line("%s", NotEvaluated)
	return p.err
}
