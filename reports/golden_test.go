package reports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/measure"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

var update = flag.Bool("update", false, "write golden files anew")

const mib = 1 << 20

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

func target(t *testing.T, name string) executor.Target {
	spec, err := catalog.Parse(name)
	require.NoError(t, err)
	return executor.Target{Name: name, New: spec.New}
}

var both = []string{"classic", "expandable"}

// sequence runs a trace on both allocators, as a campaign would, with measures for distribution workloads.
func sequence(t *testing.T, index int, w gen.Workload, capacity uint64, text string) *campaign.Sequence {
	tr, err := trace.ParseString(fmt.Sprintf("gen:%s:%d", w.Name, index), text)
	require.NoError(t, err)
	s := &campaign.Sequence{Index: index, Workload: w.Name, Seed: uint64(index), Trace: tr, Capacity: capacity}
	s.PeakLive, _ = measure.PeakLive(tr)
	p := executor.Compile(tr)
	for _, name := range both {
		dev, err := simulated(capacity)
		require.NoError(t, err)
		r := campaign.Run{Target: name, Allocator: name}
		r.Result, err = executor.Execute(p, target(t, name),
			executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
		require.NoError(t, err)
		if w.Kind == gen.Distribution {
			profile, err := measure.ProfileOf(p, target(t, name), simulated)
			require.NoError(t, err)
			r.Profile = &profile
			r.Spectrum, err = measure.Capacities(context.Background(), p, target(t, name), simulated)
			require.NoError(t, err)
			r.Lives, err = measure.LivesOf(p, target(t, name), simulated, r.Spectrum)
			require.NoError(t, err)
		}
		s.Runs = append(s.Runs, r)
	}
	return s
}

// run builds a report of a few sequences written by hand, so that it does not change with the generators: refusals of several
// verdicts, a known issue and, if wanted, findings.
func run(t *testing.T, findings bool) *reports.Run {
	b := reports.NewBuilder(reports.Run{Shatter: "devel", Seed: 7, Device: "sim", Allocators: both, Properties: []string{"a", "b", "c"}},
		[]reports.Known{{ID: properties.Known189504, URL: "https://example.org/189504", Summary: "it does not look again"}})
	mixed, err := gen.Find("mixed")
	require.NoError(t, err)
	swarm, err := gen.Find("swarm")
	require.NoError(t, err)
	index := 0
	add := func(w gen.Workload, capacity uint64, text string) {
		s := sequence(t, index, w, capacity, text)
		if findings && index > 4 {
			s.Runs[0].Result.Findings = []executor.Finding{{
				Property: "tiling", Rule: "gap", Target: "classic", Op: 3, Operation: "free 1", At: "free", Detail: "a block is missing",
			}}
		}
		require.NoError(t, b.Add(results.Of(s, w.Kind, gen.Params{})))
		index++
	}
	for i := range 6 {
		add(mixed, 60*mib, fmt.Sprintf("alloc 0 24MiB\nfree 0\nalloc 1 30MiB\nfree 1\nalloc 2 %dMiB\nalloc 3 20MiB\nalloc 4 14MiB\n", 8+2*i))
	}
	add(swarm, 100*mib, "alloc 0 100MiB\nfree 0\nalloc 1 60MiB\nalloc 2 40MiB\nrecord 1 stream=7\nfree 1\nalloc 3 60MiB\n")
	add(swarm, 100*mib, "alloc 0 100MiB\nfree 0\nalloc 1 40MiB\nalloc 2 60MiB stream=1\nalloc 3 200MiB\n")
	add(swarm, 2*mib, "alloc 0 1048000\nalloc 1 1048000\nalloc 2 1025\n")
	r, err := b.Finish(findings)
	require.NoError(t, err)
	r.Timing = &reports.Timing{Seconds: 2.5, OperationsPerSecond: float64(r.Operations) / 2.5, Workers: 2}
	return r
}

func TestRunText(t *testing.T) {
	for name, findings := range map[string]bool{"run.txt": false, "run-findings.txt": true} {
		var out bytes.Buffer
		require.NoError(t, run(t, findings).WriteText(&out))
		golden(t, name, out.String())
	}
}

// TestRunTextOfNothing: a run without sequences says that nothing was refused and shows no table.
func TestRunTextOfNothing(t *testing.T) {
	r, err := reports.NewBuilder(reports.Run{Allocators: both, Properties: []string{}}, nil).Finish(false)
	require.NoError(t, err)
	var out bytes.Buffer
	require.NoError(t, r.WriteText(&out))
	require.Contains(t, out.String(), "0 sequences")
	require.Contains(t, out.String(), "No request was refused.")
	require.NotContains(t, out.String(), "fragments")
	data, err := json.Marshal(r)
	require.NoError(t, err)
	require.NotContains(t, string(data), "null", "lists are empty, not absent")
}

// TestRunShape pins the members of the JSON document with their types: under one version they may be added, never changed.
func TestRunShape(t *testing.T) {
	data, err := json.Marshal(run(t, true))
	require.NoError(t, err)
	var doc any
	require.NoError(t, json.Unmarshal(data, &doc))
	paths := map[string]bool{}
	shape("run", doc, paths)
	lines := make([]string, 0, len(paths))
	for p := range paths {
		lines = append(lines, p)
	}
	sort.Strings(lines)
	const path = "testdata/run-shape.txt"
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Subset(t, lines, strings.Split(strings.TrimSpace(string(want)), "\n"))
	require.Equal(t, "shatter.run/1", reports.RunSchema)
}

// shape collects path and type of every member.
func shape(path string, v any, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		into[path+" {}"] = true
		for k, m := range v {
			shape(path+"."+k, m, into)
		}
	case []any:
		into[path+" []"] = true
		for _, m := range v {
			shape(path+"[]", m, into)
		}
	case nil:
		into[path+" null"] = true
	default:
		into[fmt.Sprintf("%s %T", path, v)] = true
	}
}

// TestRunIsReproducible: without its timing the document is the same, byte for byte, whenever and however fast it was made.
func TestRunIsReproducible(t *testing.T) {
	a, b := run(t, true), run(t, true)
	a.Timing, b.Timing = &reports.Timing{Seconds: 1}, &reports.Timing{}
	x, err := json.Marshal(a)
	require.NoError(t, err)
	b.Timing = a.Timing
	y, err := json.Marshal(b)
	require.NoError(t, err)
	require.Equal(t, string(x), string(y))
}

func TestReplayText(t *testing.T) {
	tr, err := trace.ParseString("dir/four-pieces.trace",
		"alloc 0 120MiB\nfree 0\nalloc 1 30MiB\nalloc 2 30MiB\nalloc 3 30MiB\nalloc 4 30MiB\nfree 1\nfree 3\n"+
			"alloc 5 60MiB\nfree 5\nalloc 6 61MiB\nfree 6\nalloc 7 62MiB\nfree 7\nalloc 8 121MiB\nfree 8\nalloc 9 63MiB\n")
	require.NoError(t, err)
	p := executor.Compile(tr)
	var out bytes.Buffer
	for i, name := range append(both, "direct") {
		dev, err := simulated(120 * mib)
		require.NoError(t, err)
		res, err := executor.Execute(p, target(t, name), executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
		require.NoError(t, err)
		r := reports.ReplayReport{
			Schema: reports.ReplaySchema, Trace: tr.Name, Operations: p.Len(), Capacity: 120 * mib, PeakLive: 120 * mib,
			Allocator: name, Executed: res.Ops, End: reports.NewEnd(res),
		}
		for k := range res.Judgements {
			r.Refusals = append(r.Refusals, reports.NewRefusal(p, &res.Judgements[k]))
		}
		if len(r.Refusals) > 0 {
			w, err := properties.FindWitness(p, target(t, name), simulated, 120*mib, r.Refusals[0].Op)
			require.NoError(t, err)
			if w != nil {
				r.Refusals[0].WitnessText = w.Text(reports.Size)
			}
			r.Refusals[0].Curve = []measure.Refusal{{Bytes: 1<<20 + 1, Served: 1234}, {Bytes: 20 * mib, Served: 3}}
		}
		require.NoError(t, r.WriteText(&out, i == 0))
	}
	golden(t, "replay.txt", out.String())
}

// maps returns the memory maps of a small state on both allocators.
func maps(t *testing.T, title, note string) []reports.MemoryMap {
	tr, err := trace.ParseString("map",
		"alloc 0 1MiB\nalloc 1 12MiB\nalloc 2 30MiB\nalloc 3 5MiB\nalloc 4 18MiB\nrecord 3 stream=1\nfree 1\nfree 3\nfree 4\nalloc 5 7MiB stream=2\n")
	require.NoError(t, err)
	var out []reports.MemoryMap
	for _, name := range both {
		dev, err := simulated(128 * mib)
		require.NoError(t, err)
		r, err := executor.Start(executor.Compile(tr), target(t, name), executor.Options{Device: dev})
		require.NoError(t, err)
		for r.More() {
			require.NoError(t, r.Step())
		}
		m := reports.MemoryMap{Title: name + title, Note: note, Capacity: 128 * mib}
		r.Allocator().(allocators.Snapshotter).Snapshot(&m.Snapshot)
		m.DeviceFree, _ = dev.Info()
		out = append(out, m)
	}
	return out
}

func TestMemoryMap(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, reports.WriteMemoryMaps(&out, "a small state", "after operation 9", maps(t, "", "served")))
	golden(t, "map.svg", out.String())
	require.NotContains(t, out.String(), "#ff00ff", "a kind of memory without a colour")
	elements(t, out.Bytes())
}

// elements parses XML and returns the names of its elements.
func elements(t *testing.T, data []byte) []string {
	var names []string
	d := xml.NewDecoder(bytes.NewReader(data))
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			return names
		}
		require.NoError(t, err)
		if e, ok := tok.(xml.StartElement); ok && !slices.Contains(names, e.Name.Local) {
			names = append(names, e.Name.Local)
		}
	}
}

// TestHostileNames: a name from a trace or a command line must not become markup.
func TestHostileNames(t *testing.T) {
	const evil = `<script>alert("x")</script>&'"]]>`
	var out bytes.Buffer
	require.NoError(t, reports.WriteMemoryMaps(&out, evil, evil, maps(t, evil, evil)))
	names := elements(t, out.Bytes())
	slices.Sort(names)
	require.Equal(t, []string{"path", "rect", "svg", "text", "title"}, names)
	require.NotContains(t, out.String(), "<script")
}

// full is a writer that has no room.
type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no room")
	}
	return len(p), nil
}

// TestWriteErrors: an error of the writer comes back wherever it happens.
func TestWriteErrors(t *testing.T) {
	r := run(t, true)
	var size bytes.Buffer
	require.NoError(t, r.WriteText(&size))
	for left := 0; left < size.Len(); left += 97 {
		require.Error(t, r.WriteText(&full{left}), left)
	}
	require.Error(t, reports.WriteMemoryMaps(&full{500}, "", "", maps(t, "", "")))
}
