package conform

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
)

// keyExpect is the header key of a line that says what a run under some settings must come to, in JSON.
const keyExpect = "expect"

// defaultCapacity is the device of a trace whose header names none: 80 GiB.
const defaultCapacity = 80 << 30

// Expectation is the JSON of one `# expect:` line. A figure that is left out is not claimed; in Driver a kind of event that
// is left out did not happen. All figures are bytes or counts.
type Expectation struct {
	// Conf and Fraction are what the trace runs under, whatever else its header says.
	Conf     *string  `json:"conf"`
	Fraction *float64 `json:"fraction"`
	// OOMOps are the operations, from 0, that must be refused.
	OOMOps *[]int `json:"oom_ops"`
	// Final is taken after the last operation, Peak is the largest value after an operation.
	Final map[string]uint64 `json:"final"`
	Peak  map[string]uint64 `json:"peak"`
	// Driver counts the merged events of a decision log by kind.
	Driver map[string]uint64 `json:"driver"`
	// AtFirstOOM is taken after the first refused operation.
	AtFirstOOM map[string]uint64 `json:"at_first_oom"`
	// Verdict is the coarse one: no-oom, genuine-oom, rounding-oom or false-oom.
	Verdict *string `json:"verdict"`
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

// parseExpectation reads the JSON strictly: a word that is not known would be a figure that nobody checks.
func parseExpectation(text string) (*Expectation, error) {
	e := &Expectation{}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(e); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something stands behind the JSON object")
	}
	if e.Conf == nil {
		return nil, errors.New(`"conf" is missing (write "" for the defaults)`)
	}
	claims := e.OOMOps != nil || e.Verdict != nil
	for _, p := range e.parts() {
		claims = claims || p.figures != nil
		for name := range p.figures {
			if !slices.Contains(figures[p.name], name) {
				return nil, fmt.Errorf("unknown figure %q in %q (known: %s)", name, p.name, strings.Join(figures[p.name], ", "))
			}
		}
	}
	if !claims {
		return nil, errors.New("it claims nothing")
	}
	if e.Verdict != nil {
		if _, ok := verdictsOf[*e.Verdict]; !ok {
			return nil, fmt.Errorf("unknown verdict %q (known: no-oom, genuine-oom, rounding-oom, false-oom)", *e.Verdict)
		}
	}
	return e, nil
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
// that these claim. judge names the verdict of the first refusal; nil stands for the coarse rule of the recorded cases,
// which only looks at bytes.
func CompareExpectations(paths []string, judge executor.Judge) (*ExpectReport, error) {
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
		lines := expectLines(t)
		if len(lines) == 0 {
			rep.Silent = append(rep.Silent, file)
			continue
		}
		rep.Traces++
		p := executor.Compile(t)
		for i, text := range t.GetAll(keyExpect) {
			e, err := parseExpectation(text)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: expect: %w", file, lines[i], err)
			}
			failures, err := compareExpectation(p, e, judge)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: expect: %w", file, lines[i], err)
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
	}
	return rep, nil
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

// observation is what a run showed of all that an expectation may claim.
type observation struct {
	ooms    []int
	tables  map[string]map[string]uint64
	verdict string
	fits    []string // coarse verdicts that the verdict meets
}

func compareExpectation(p *executor.Program, e *Expectation, judge executor.Judge) ([]ExpectFailure, error) {
	spec, err := catalog.FromSettings(*e.Conf, e.Fraction)
	if err != nil {
		return nil, err
	}
	got, err := observe(p, &spec, judge)
	if err != nil {
		return nil, err
	}
	var failures []ExpectFailure
	check := func(figure, want, got string) {
		if want != got {
			failures = append(failures, ExpectFailure{Allocator: spec.Name, Figure: figure, Want: want, Got: got})
		}
	}
	if e.OOMOps != nil {
		check("oom_ops", fmt.Sprint(*e.OOMOps), fmt.Sprint(got.ooms))
	}
	for _, part := range e.parts() {
		if part.figures == nil {
			continue
		}
		table := got.tables[part.name]
		if table == nil {
			check(part.name, "an OOM", "none")
			continue
		}
		for _, name := range figures[part.name] {
			want, claimed := part.figures[name]
			if claimed || part.name == "driver" {
				check(part.name+"."+name, fmt.Sprint(want), fmt.Sprint(table[name]))
			}
		}
	}
	if e.Verdict != nil && !slices.Contains(got.fits, *e.Verdict) {
		check("verdict", *e.Verdict, got.verdict)
	}
	return failures, nil
}

// observe runs a trace to its end.
func observe(p *executor.Program, spec *catalog.Spec, judge executor.Judge) (*observation, error) {
	capacity, given, err := p.Trace.Capacity()
	if err != nil {
		return nil, err
	}
	if !given {
		capacity = defaultCapacity
	}
	dev, err := simdev.New(simdev.Options{Capacity: capacity})
	if err != nil {
		return nil, err
	}
	var run *executor.Run
	driver := map[string]uint64{}
	o := &observation{verdict: "no-oom", fits: []string{"no-oom"}, tables: map[string]map[string]uint64{"driver": driver}}
	var events []byte
	options := executor.Options{
		Device: dev,
		OnRow: func(w *executor.Row) {
			if events = w.AppendEvents(events[:0]); string(events) != "-" {
				for _, event := range strings.Split(string(events), ";") {
					kind, _, _ := strings.Cut(event, ":")
					driver[kind]++
				}
			}
		},
		Judge: func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
			if o.tables["at_first_oom"] == nil {
				table := atOOM(s, oom, run.Allocator())
				o.tables["at_first_oom"] = table
				if judge == nil {
					o.verdict = coarseVerdict(table)
					o.fits = []string{o.verdict}
				} else {
					o.judged(judge(s, oom).Verdict)
				}
			}
			return executor.Judgement{} // the run must go on whatever the verdict is
		},
	}
	if run, err = executor.Start(p, executor.Target{Name: spec.Name, New: spec.New}, options); err != nil {
		return nil, err
	}
	for run.More() {
		if err := run.Step(); err != nil {
			return nil, err
		}
	}
	r, err := run.Finish()
	if err != nil {
		return nil, err
	}
	if len(r.Findings) > 0 {
		return nil, errors.New(r.Findings[0].String())
	}
	o.ooms = r.OOMs
	o.tables["final"] = map[string]uint64{
		"allocated": r.Stats.AllocatedBytes.All.Current, "active": r.Stats.ActiveBytes.All.Current,
		"reserved": r.Stats.ReservedBytes.All.Current, "device_free": r.DeviceFree, "alloc_retries": r.Stats.NumAllocRetries,
	}
	o.tables["peak"] = map[string]uint64{"allocated": r.PeakAllocated, "reserved": r.PeakReserved}
	return o, nil
}

// atOOM takes the state after a refused operation. `live` means active bytes here; the cached bytes and the largest free
// block are over all pools and streams.
func atOOM(s *executor.State, oom *allocators.OOMError, a allocators.Allocator) map[string]uint64 {
	active := s.Stats.ActiveBytes.All.Current
	var snap allocators.Snapshot
	var largest uint64
	if list, ok := a.(allocators.Snapshotter); ok {
		list.Snapshot(&snap)
	}
	for i := range snap.Blocks {
		if b := &snap.Blocks[i]; b.State == allocators.Free {
			largest = max(largest, b.Size)
		}
	}
	return map[string]uint64{
		"op": uint64(s.Op), "asked": s.Operation.Bytes, "rounded": oom.Rounded, "live": active,
		"total_free": s.Capacity - active, "requested_free": s.Capacity - s.Stats.RequestedBytes.All.Current,
		"device_free": s.DeviceFree, "cached": s.Stats.ReservedBytes.All.Current - active, "largest_cached": largest,
	}
}

// coarseVerdict is the verdict of the recording: it asks for bytes only.
func coarseVerdict(at map[string]uint64) string {
	switch {
	case at["total_free"] >= at["rounded"]:
		return "false-oom"
	case at["requested_free"] >= at["rounded"]:
		return "rounding-oom"
	default:
		return "genuine-oom"
	}
}

func (o *observation) judged(v executor.Verdict) {
	o.verdict, o.fits = v.String(), nil
	for coarse, verdicts := range verdictsOf {
		if slices.Contains(verdicts, v) {
			o.fits = append(o.fits, coarse)
		}
	}
	sort.Strings(o.fits)
}
