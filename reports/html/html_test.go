package html

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/stats"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/recording"
)

var update = flag.Bool("update", false, "write golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// caseOf replays a trace on allocators.
func caseOf(t *testing.T, name, text string, capacity uint64, l recording.Limits, allocs ...string) *Case {
	t.Helper()
	tr, err := trace.ParseString(name, text)
	require.NoError(t, err)
	c := &Case{Trace: tr, Capacity: capacity, At: len(tr.Ops) - 1}
	p := executor.Compile(tr)
	var targets []executor.Target
	for _, name := range allocs {
		spec, err := catalog.Parse(name)
		require.NoError(t, err)
		target := executor.Target{Name: name, New: spec.New}
		targets = append(targets, target)
		dev, err := simulated(capacity)
		require.NoError(t, err)
		res, err := executor.Execute(p, target, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
		require.NoError(t, err)
		a := &reports.ReplayReport{Trace: name, Operations: p.Len(), Capacity: capacity, Allocator: name, Executed: res.Ops, End: reports.NewEnd(res)}
		for i := range res.Judgements {
			a.Refusals = append(a.Refusals, reports.NewRefusal(p, &res.Judgements[i]))
		}
		c.Answers = append(c.Answers, a)
		curve, err := measure.RefusalCurve(p, target, simulated, capacity, c.At, measure.CurveSizes)
		require.NoError(t, err)
		c.Curves = append(c.Curves, curve)
	}
	c.Group, err = recording.Record(p, targets, simulated, capacity, c.At, l)
	require.NoError(t, err)
	return c
}

const checkerboard = `# about: every other block is freed
alloc 0 80MiB
free 0
alloc 1 20MiB
alloc 2 20MiB
alloc 3 20MiB
alloc 4 20MiB
free 1
free 3
alloc 5 60MiB
`

// TestReplayWords: what the page of a trace says, without its style and script.
func TestReplayWords(t *testing.T) {
	c := caseOf(t, "checkerboard.trace", checkerboard, 100<<20, recording.Limits{}, "classic", "expandable")
	var page bytes.Buffer
	require.NoError(t, WriteReplay(&page, &Replay{Case: *c, Version: "1", Commands: []string{"replay one", "replay two"}}))
	golden(t, "replay.txt", words(page.String()))
}

var (
	unread = regexp.MustCompile(`(?s)<style>.*?</style>|<script>.*?</script>|<meta[^>]*>|<polygon[^>]*>`)
	tags   = regexp.MustCompile(`<[^>]*>`)
	blank  = regexp.MustCompile(`\s*\n\s*`)
)

// words is the text of a page.
func words(page string) string {
	return strings.TrimSpace(blank.ReplaceAllString(tags.ReplaceAllString(unread.ReplaceAllString(page, ""), "\n"), "\n")) + "\n"
}

// TestPolicyNamesTheScript: the hashes in the policy are those of what stands in the page, so it runs, and nothing else does.
func TestPolicyNamesTheScript(t *testing.T) {
	c := caseOf(t, "x", checkerboard, 100<<20, recording.Limits{}, "classic")
	var page bytes.Buffer
	require.NoError(t, WriteReplay(&page, &Replay{Case: *c}))
	html := page.String()
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(html)[1]
	policy = strings.ReplaceAll(strings.ReplaceAll(policy, "&#39;", "'"), "&#43;", "+")
	require.True(t, strings.HasPrefix(policy, "default-src 'none'; "), policy)
	require.NotContains(t, policy, "unsafe")
	require.NotContains(t, policy, "http")
	for _, tag := range []string{"style", "script"} {
		found := regexp.MustCompile(`(?s)<`+tag+`>(.*?)</`+tag+`>`).FindAllStringSubmatch(html, -1)
		require.Len(t, found, 1, tag)
		sum := sha256.Sum256([]byte(found[0][1]))
		require.Contains(t, policy, tag+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	for _, bad := range []string{" src=", " style=", " onclick=", "http://", "https://", "@import", "url("} {
		require.False(t, strings.Contains(html, bad), bad)
	}
}

// TestEscaping: names and texts of files stand in a page as text, and in its data as JSON that cannot end its element.
func TestEscaping(t *testing.T) {
	const hostile = `</script><script>alert(1)</script>`
	c := caseOf(t, hostile, "# source: "+hostile+"\n# about: "+hostile+"\n"+checkerboard, 100<<20, recording.Limits{}, "classic")
	c.Group.Texts = strings.ReplaceAll(c.Group.Texts, "alloc 0", "alloc 0"+hostile) // no trace has such an operation, but who knows
	c.Group.Recordings[0].Allocator = hostile
	c.Answers[0].Allocator = hostile
	c.Answers[0].Refusals[0].Reason = hostile
	c.Answers[0].Findings = []reports.Finding{{Signature: hostile, Replay: hostile, Shrink: hostile}}
	run := &reports.Run{
		Schema: hostile, Shatter: hostile, Device: hostile, Params: hostile, ReplayFlags: []string{hostile}, Allocators: []string{hostile}, Properties: []string{hostile},
		Findings: []reports.Finding{{Signature: hostile, Replay: hostile, Shrink: hostile}, {Signature: hostile}}, Known: []reports.Known{{ID: hostile, URL: "javascript:alert(1)", Summary: hostile}},
		Refusals:   []reports.Refusals{{Allocator: hostile, OOMs: 1, Verdicts: []reports.Count{{Name: hostile, Count: 1}}, Relaxations: []reports.Count{{Name: hostile, Count: 1}}, Levels: []reports.Count{{Name: hostile, Count: 1}}}},
		Examples:   []reports.Example{{Verdict: hostile, Relaxed: hostile, Allocator: hostile, Trace: hostile, Capacity: 100 << 20, Known: hostile, Replay: hostile}},
		Workloads:  []reports.Workload{{Name: hostile, Kind: "distribution", Targets: []reports.WorkloadTarget{{Allocator: hostile, Scarce: []reports.Scarce{{Curve: stats.SurvivalCurve{OOMs: 1}}}}}}},
		Waterfalls: []reports.Waterfall{{Workload: hostile, Allocator: hostile, Waterfall: &measure.Waterfall{Steps: []measure.Step{{Name: hostile}}}}},
	}
	in := &Run{
		Folder: &reports.Folder{Run: run, Journal: &results.Journal{}}, Findings: []FindingCase{{Shrunk: c.Trace, Note: hostile, Case: c}},
		Medians: map[string]*Case{hostile: c}, Examples: []*Case{c}, Notes: []string{hostile},
	}
	for name, write := range map[string]func(io.Writer) error{
		"replay": func(w io.Writer) error {
			return WriteReplay(w, &Replay{Case: *c, Version: hostile, Commands: []string{hostile}})
		},
		"run": func(w io.Writer) error { return WriteRun(w, in) },
	} {
		var page bytes.Buffer
		require.NoError(t, write(&page))
		for _, bad := range []string{hostile, "<script>alert", "javascript:"} {
			require.False(t, strings.Contains(page.String(), bad), "%s: %s", name, bad)
		}
		require.Greater(t, strings.Count(page.String(), "&lt;/script&gt;"), 10, name)
		blocks := regexp.MustCompile(`(?s)<script type="application/json"[^>]*>(.*?)</script>`).FindAllStringSubmatch(page.String(), -1)
		require.NotEmpty(t, blocks)
		for _, b := range blocks {
			var data struct {
				Group struct{ Texts string }
			}
			require.NoError(t, json.Unmarshal([]byte(b[1]), &data), name)
			require.Contains(t, data.Group.Texts, hostile, "it comes out as it went in")
		}
	}
	for _, d := range Diagrams(in) {
		require.NotContains(t, string(d.SVG), "<script")
		require.NotContains(t, d.Name, "/script")
	}
}

// TestWhatIsCut: long traces are cut, and the page says so.
func TestWhatIsCut(t *testing.T) {
	var text strings.Builder
	for i := range 12_000 {
		op := trace.Op{Kind: trace.Alloc, ID: uint64(i / 2), Bytes: 1 << 20}
		if i%2 == 1 {
			op = trace.Op{Kind: trace.Free, ID: uint64(i / 2)}
		}
		text.WriteString(op.String() + "\n")
	}
	c := caseOf(t, "long", text.String(), 1<<30, recording.Limits{Ops: 5000}, "classic")
	var page bytes.Buffer
	require.NoError(t, WriteReplay(&page, &Replay{Case: *c}))
	has := func(s string) bool { return strings.Contains(words(page.String()), s) }
	require.True(t, has("Operations 7,000 to 11,999 of 12,000 are kept here."))
	require.True(t, has("The first 65524 B of 171780 B are shown."), "it was %q", regexp.MustCompile(`The first.*`).FindString(page.String()))
	c.Group, c.Missing = nil, "There is no memory map: too large."
	page.Reset()
	require.NoError(t, WriteReplay(&page, &Replay{Case: *c}))
	require.True(t, has("There is no memory map: too large."))
	require.False(t, strings.Contains(page.String(), "<figure class=\"map\""))
}

// TestDiagramsAreXML: files of diagrams stand alone.
func TestDiagramsAreXML(t *testing.T) {
	c := caseOf(t, "checkerboard", checkerboard, 100<<20, recording.Limits{}, "classic", "expandable")
	two := []results.Run{{Measures: &results.Measures{Kappa: 1.2, Lost: 5 << 30}}, {Measures: &results.Measures{Kappa: 1.01, Lost: 1 << 20}}}
	in := &Run{
		Folder: &reports.Folder{
			Run: &reports.Run{
				Allocators: []string{"classic", "expandable"}, Workloads: []reports.Workload{{Name: "mixed", Kind: "distribution"}},
				Waterfalls: []reports.Waterfall{{Workload: "mixed", Allocator: "classic@a:1,b:2", Waterfall: &measure.Waterfall{
					PeakLive: 10 << 30, Safe: 12 << 30, Steps: []measure.Step{{Name: "rounding", Bytes: 3 << 30}, {Name: "pins", Bytes: -1 << 30}}}}},
			},
			Journal: &results.Journal{Sequences: []*results.Sequence{{Workload: "mixed", Runs: two}}},
		},
		Medians: map[string]*Case{"mixed": c},
	}
	var names []string
	for _, d := range Diagrams(in) {
		names = append(names, d.Name)
		dec := xml.NewDecoder(bytes.NewReader(d.SVG))
		for {
			_, err := dec.Token()
			if err == io.EOF {
				break
			}
			require.NoError(t, err, d.Name)
		}
		require.True(t, bytes.HasPrefix(d.SVG, []byte("<svg ")), d.Name)
		require.Contains(t, string(d.SVG), `xmlns="http://www.w3.org/2000/svg"`)
		require.Contains(t, string(d.SVG), "prefers-color-scheme: dark")
	}
	require.Equal(t, []string{"mixed-kappa.svg", "mixed-lost.svg", "mixed-waterfall-classic-a-1-b-2.svg", "mixed-refusal-curve.svg"}, names)
}

// TestLevels: an allocator that shows too little to count at a level has a dash there, and shifts nothing.
func TestLevels(t *testing.T) {
	got := levelTable(&reports.Run{Refusals: []reports.Refusals{
		{Allocator: "classic", Levels: []reports.Count{{Name: "bytes", Count: 3}, {Name: "rounded", Count: 2}, {Name: "lookup", Count: 1000}}},
		{Allocator: "first-fit", Levels: []reports.Count{{Name: "bytes", Count: 5}, {Name: "lookup", Count: 1}}},
	}})
	require.Equal(t, table{Head: []string{"free memory, counted as", "classic", "first-fit"}, Rows: [][]string{
		{"bytes", "3", "5"}, {"rounded", "2", "-"}, {"lookup", "1,000", "1"},
	}}, got)
	require.Empty(t, levelTable(&reports.Run{}).Rows)
}
