package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

// keyExpect is the header key of a line that says what a run under some settings must come to, in JSON.
const keyExpect = "expect"

// Expectation is the JSON of one `# expect:` line. A figure that is left out is not claimed; in Driver a kind of event that
// is left out did not happen. All figures are bytes or counts.
type Expectation struct {
	// Conf and Fraction are what the trace runs under, whatever else its header says.
	Conf     *string  `json:"conf,omitempty"`
	Fraction *float64 `json:"fraction,omitempty"`
	// OOMOps are the operations, from 0, that must be refused.
	OOMOps *[]int `json:"oom_ops,omitempty"`
	// Final is taken after the last operation, Peak is the largest value after an operation.
	Final map[string]uint64 `json:"final,omitempty"`
	Peak  map[string]uint64 `json:"peak,omitempty"`
	// Driver counts the merged events of a decision log by kind.
	Driver map[string]uint64 `json:"driver,omitempty"`
	// AtFirstOOM is taken after the first refused operation.
	AtFirstOOM map[string]uint64 `json:"at_first_oom,omitempty"`
	// Most bounds figures from above, by PART.FIGURE, as in "peak.reserved".
	Most map[string]uint64 `json:"most,omitempty"`
	// Verdict is that of the first refusal, no-oom without one: the coarse words (genuine-oom, rounding-oom, false-oom), or a
	// judge's own. Coarse keeps the coarse word of a recording beside a judge's.
	Verdict *string `json:"verdict,omitempty"`
	Coarse  *string `json:"coarse,omitempty"`
	// Relaxed are the rules without which the first refusal would have been served, Known the upstream issue that it falls under.
	Relaxed *[]string `json:"relaxed,omitempty"`
	Known   *string   `json:"known,omitempty"`
	// Breaks is the first property that the run breaks, PROPERTY/RULE, be it a known issue or not; empty for none.
	Breaks *string `json:"breaks,omitempty"`
}

// figures names what each part of an expectation may claim.
var figures = map[string][]string{
	"final":  {"allocated", "active", "reserved", "device_free", "alloc_retries"},
	"peak":   {"allocated", "reserved"},
	"driver": {"malloc", "mallocfail", "free", "reserve", "unreserve", "map", "unmap", "createfail"},
	"at_first_oom": {
		"op", "asked", "rounded", "live", "total_free", "requested_free", "device_free", "cached", "largest_cached",
	},
}

// verdictsOf says which verdicts of a judge meet a coarse one: the recording could not tell the last three apart.
var verdictsOf = map[string][]executor.Verdict{
	"no-oom":       nil,
	"genuine-oom":  {executor.Genuine},
	"rounding-oom": {executor.Rounding},
	"false-oom":    {executor.Policy, executor.Fragmentation, executor.False},
}

// parts lists the parts of an expectation that are tables of figures, in the order of reports.
func (e *Expectation) parts() []part {
	return []part{{"final", e.Final}, {"peak", e.Peak}, {"driver", e.Driver}, {"at_first_oom", e.AtFirstOOM}}
}

type part struct {
	name    string
	figures map[string]uint64
}

// ParseExpectation reads the JSON of an `# expect:` line, which says the settings.
func ParseExpectation(text string) (*Expectation, error) {
	e, err := ParseOutcome(text)
	if err == nil && e.Conf == nil {
		err = errors.New(`"conf" is missing (write "" for the defaults)`)
	}
	return e, err
}

// ParseOutcome reads the JSON strictly: a word that is not known would be a figure that nobody checks.
func ParseOutcome(text string) (*Expectation, error) {
	e := &Expectation{}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the JSON object")
	}
	claims := e.OOMOps != nil || e.Verdict != nil || e.Coarse != nil || e.Relaxed != nil || e.Known != nil || e.Most != nil || e.Breaks != nil
	for _, p := range e.parts() {
		claims = claims || p.figures != nil
		for _, name := range slices.Sorted(maps.Keys(p.figures)) {
			if !slices.Contains(figures[p.name], name) {
				return nil, fmt.Errorf("unknown figure %q in %q (known: %s)", name, p.name, strings.Join(figures[p.name], ", "))
			}
		}
	}
	if !claims {
		return nil, errors.New("it claims nothing")
	}
	for _, name := range slices.Sorted(maps.Keys(e.Most)) {
		part, figure, _ := strings.Cut(name, ".")
		if !slices.Contains(figures[part], figure) {
			return nil, fmt.Errorf("unknown figure %q in \"most\" (write PART.FIGURE, as peak.reserved)", name)
		}
	}
	if e.Verdict != nil {
		if _, ok := verdictsOf[*e.Verdict]; !ok && !judgesWord(*e.Verdict) {
			return nil, fmt.Errorf("unknown verdict %q (known: no-oom, genuine-oom, rounding-oom, false-oom, or a judge's)", *e.Verdict)
		}
	}
	if e.Coarse != nil {
		if _, ok := verdictsOf[*e.Coarse]; !ok {
			return nil, fmt.Errorf("unknown coarse verdict %q (known: no-oom, genuine-oom, rounding-oom, false-oom)", *e.Coarse)
		}
	}
	return e, nil
}

// judgesWord tells whether a word is a verdict of a judge.
func judgesWord(word string) bool {
	return slices.ContainsFunc(executor.Verdicts[:], func(v executor.Verdict) bool { return v.String() == word })
}

// ExpectFailure is a figure that differs.
type ExpectFailure struct {
	File      string
	Line      int // of the `# expect:` line
	Allocator string
	Figure    string
	Want, Got string
}

func (f *ExpectFailure) String() string {
	return fmt.Sprintf("%s:%d: %s: %s: want %s, got %s", f.File, f.Line, f.Allocator, f.Figure, f.Want, f.Got)
}

// ExpectReport is what the expectations of traces came to. Failed counts expectations, Failures has every figure that
// differs, in order of the files and their lines.
type ExpectReport struct {
	Traces, Expectations, Failed int
	Failures                     []ExpectFailure
	// Silent are the traces without any expectation, which are not counted.
	Silent []string
}

// CompareExpectations runs the traces in files and folders under each of their `# expect:` lines and compares every figure
// that these claim. properties are checked where an expectation says what is broken. judge names the verdict of the first refusal; nil stands for the coarse rule of the recorded cases,
// which only looks at bytes.
func CompareExpectations(paths []string, judge executor.Judge, properties ...executor.Property) (*ExpectReport, error) {
	files, err := traceFiles(paths)
	if err != nil {
		return nil, err
	}
	rep := &ExpectReport{}
	for _, file := range files {
		t, err := tracefile.Read(file)
		if err != nil {
			return nil, err
		}
		if err := rep.add(t, file, judge, properties); err != nil {
			return nil, err
		}
	}
	return rep, nil
}

// add runs one trace under each of its expectations.
func (rep *ExpectReport) add(t *trace.Trace, file string, judge executor.Judge, properties []executor.Property) error {
	lines := expectLines(t)
	if len(lines) == 0 {
		rep.Silent = append(rep.Silent, file)
		return nil
	}
	rep.Traces++
	p := executor.Compile(t)
	for i, text := range t.GetAll(keyExpect) {
		wrong := func(err error) error { return fmt.Errorf("%s:%d: expect: %w", file, lines[i], err) }
		e, err := ParseExpectation(text)
		if err != nil {
			return wrong(err)
		}
		spec, err := catalog.FromSettings(*e.Conf, e.Fraction)
		if err != nil {
			return wrong(err)
		}
		options := executor.Options{Judge: judge}
		if e.Breaks != nil {
			options.Properties = properties
		}
		o, err := Observe(p, &spec, options)
		if err == nil && len(o.Findings) > 0 && e.Breaks == nil {
			err = errors.New(o.Findings[0].String())
		}
		if err != nil {
			return wrong(err)
		}
		failures, err := e.Compare(o)
		if err != nil {
			return wrong(err)
		}
		rep.Expectations++
		if len(failures) > 0 {
			rep.Failed++
		}
		for _, f := range failures {
			f.File, f.Line = file, lines[i]
			rep.Failures = append(rep.Failures, f)
		}
	}
	return nil
}

// traceFiles lists the traces in files and, sorted, in folders and what is below them.
func traceFiles(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		err = filepath.WalkDir(path, func(name string, entry fs.DirEntry, err error) error {
			base := strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
			if err == nil && !entry.IsDir() && strings.HasSuffix(base, ".trace") {
				files = append(files, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

// expectLines returns the line of each expectation. The canonical text keeps every line in its place.
func expectLines(t *trace.Trace) []int {
	var lines []int
	left := len(t.GetAll(keyExpect))
	for i, line := range strings.Split(string(t.Format()), "\n") {
		if len(lines) == left {
			break
		}
		if strings.HasPrefix(line, "# "+keyExpect+": ") {
			lines = append(lines, i+1)
		}
	}
	return lines
}
