package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// nightFiles are the documents in a night's folder, by format.
var nightFiles = []struct{ file, format string }{
	{nightly.File, "json"}, {"junit.xml", "junit"}, {"summary.md", "markdown"}, {"report.txt", "text"},
}

// writeNight writes a night's documents.
func writeNight(dir string, n *nightly.Night) error {
	for _, d := range nightFiles {
		write := func(w io.Writer) error { return reports.WriteNight(w, n, d.format) }
		if err := results.WriteWith(filepath.Join(dir, d.file), write); err != nil {
			return err
		}
	}
	page := func(w io.Writer) error { return writeNightPage(w, n, dir, false) }
	if err := results.WriteWith(filepath.Join(dir, nightPage), page); err != nil {
		return err
	}
	return nil
}

// nightPage is the page of a night.
const nightPage = "report.html"

// addMaps writes the page of a night once more, with memory maps of its findings. That runs their traces, so it is done by a process
// that may crash or hang, within the time; if it does, the page stays without.
func addMaps(dir string, n *nightly.Night, limit time.Duration) {
	if limit <= 0 || !slices.ContainsFunc(n.Findings, func(f nightly.Finding) bool { return f.File != "" }) {
		return
	}
	self, err := os.Executable()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := exec.CommandContext(ctx, self, "report", "render", dir, "--format", "html", "--out", filepath.Join(dir, nightPage))
	c.Args[0] = os.Args[0]
	_ = c.Run()
}

// keeper writes what a night finds, as it comes, and holds the panel against earlier nights.
type keeper struct {
	f      *nightFlags
	out    *nightly.Night
	folder fs.FS
	logs   []conform.Log
	store  *corpus.Store
	// Earlier nights: their documents, nil if there is none, and what their panels decided.
	references []earlier
	recorders  []*conform.Recorder // by allocator
	traces     map[string]*trace.Trace
	written    time.Time // of the last checkpoint
}

// checkpointEvery is how much of a night is lost at most if its process is killed; traces of findings are written at once.
const checkpointEvery = 30 * time.Second

// checkpoint writes the document as it stands, as that of a night that was interrupted. If it cannot be written, nor can the last one,
// which says so.
func (k *keeper) checkpoint(n *nightly.Night) {
	if time.Since(k.written) < checkpointEvery {
		return
	}
	k.written = time.Now()
	now := *n
	now.Interrupted = true
	_ = results.WriteWith(filepath.Join(k.f.out, nightly.File), func(w io.Writer) error { return reports.WriteNight(w, &now, "json") })
}

// earlier is something to compare with.
type earlier struct {
	name  string
	night *nightly.Night
	// rows opens the folder of decision logs of an allocator; nil: there is none.
	logs func(allocator string) fs.FS
}

// newKeeper opens what is compared with, before the night replaces it.
func (f *nightFlags) newKeeper(out *nightly.Night, folder fs.FS, logs []conform.Log) (*keeper, error) {
	k := &keeper{f: f, out: out, folder: folder, logs: logs, traces: map[string]*trace.Trace{}, written: time.Now()}
	if err := os.MkdirAll(filepath.Join(f.out, string(corpus.Pending)), 0o755); err != nil {
		return nil, faultError{err}
	}
	var err error
	if k.store, err = corpus.Open(f.out); err != nil {
		return nil, err
	}
	switch {
	case f.baseline == "" && len(f.specs) == 0 && f.dev.Kind == "sim" && f.dev.Options.Order == 0:
		k.references = append(k.references, earlier{name: "recorded decisions", logs: func(string) fs.FS { return folder }})
	case f.baseline != "" && conform.IsLogFolder(f.baseline):
		k.references = append(k.references, earlier{name: "baseline", logs: func(string) fs.FS { return os.DirFS(f.baseline) }})
	case f.baseline != "":
		k.add("baseline", f.baseline)
	}
	k.add("last night", f.out)
	if err := os.RemoveAll(k.newPanel()); err != nil { // of a night that was killed
		return nil, faultError{err}
	}
	for _, a := range k.panelNames() {
		r, err := conform.NewRecorder(filepath.Join(k.newPanel(), a))
		if err != nil {
			return nil, faultError{err}
		}
		k.recorders = append(k.recorders, r)
	}
	return k, nil
}

// newPanel is where this night's decisions are written until it is whole.
func (k *keeper) newPanel() string { return filepath.Join(k.f.out, ".panel") }

// add takes an earlier night for a reference, if there is one.
func (k *keeper) add(name, dir string) {
	n, err := nightly.ReadNight(dir)
	if err != nil {
		return
	}
	k.references = append(k.references, earlier{name: name, night: n, logs: func(allocator string) fs.FS {
		path := filepath.Join(dir, "panel", allocator)
		if !conform.IsLogFolder(path) {
			return nil
		}
		return os.DirFS(path)
	}})
}

// panelNames are the folders of the panel's decisions, an allocator each.
func (k *keeper) panelNames() []string {
	if len(k.f.specs) == 0 {
		return []string{"pytorch"} // classic or expandable, as the log's settings say
	}
	var names []string
	for _, s := range k.f.specs {
		names = append(names, strings.Map(func(r rune) rune {
			if strings.ContainsRune("/\\:,@ ", r) {
				return '-'
			}
			return r
		}, s.Name))
	}
	return names
}

// decided enters the decisions on a trace of the panel.
func (k *keeper) decided(t nightly.Task, a *nightly.Answer) error {
	p := &k.out.Panel
	exact := k.f.dev.Kind == "sim"
	p.Ran++
	if a.Skipped != "" {
		p.Skipped++
		return nil
	}
	if t.Kind == nightly.Case {
		if exact {
			r := p.Reference("cases of the corpus", true)
			r.Differences = append(r.Differences, a.Differences...)
			if len(a.Differences) == 0 {
				r.Same++
			}
		}
		return nil
	}
	alloc, l := k.f.panelTask(t.Index, k.logs)
	name := k.panelNames()[t.Index/len(k.logs)]
	shown := "classic or expandable"
	if alloc != nil {
		shown = alloc.Name
	}
	tr, err := k.trace(l)
	if err != nil {
		return err
	}
	for _, r := range k.references {
		var want []string
		if folder := r.logs(name); folder != nil {
			if want, err = l.ReadRows(folder); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		p.Reference(r.name, exact).Hold(shown, l.Name(), want, a.Log, func(op int) string {
			if op < 0 || op >= len(tr.Ops) {
				return "the end"
			}
			return tr.Ops[op].String()
		})
	}
	if a.Log.Rejected != "" {
		p.Rejected++
		return nil
	}
	p.Rows += len(a.Log.Rows)
	if a.Log.Broken {
		return nil
	}
	return k.recorders[t.Index/len(k.logs)].Add(*l, tr, a.Log.Rows)
}

// trace reads a trace of the panel once.
func (k *keeper) trace(l *conform.Log) (*trace.Trace, error) {
	if t := k.traces[l.Trace]; t != nil {
		return t, nil
	}
	t, err := l.ReadTrace(k.folder)
	if err == nil {
		k.traces[l.Trace] = t
	}
	return t, err
}

// keep puts a finding's trace among the pending cases of the night's folder.
func (k *keeper) keep(g *nightly.Finding) error {
	file := g.Trace
	if g.Text != "" {
		t, err := trace.ParseString(g.Trace, g.Text)
		if err != nil {
			return err
		}
		c := &corpus.Case{Name: "new", State: corpus.Pending, Trace: withoutClaims(t)}
		c.Set("finding")
		c.Set("allocator", g.Target)
		from := fmt.Sprintf("shatter nightly, seed %d, generators %d, %s: %s", k.out.Seed, k.out.Generators, g.Source, g.First)
		kept, _, err := k.store.Pend(c.Trace, g.Signature, from)
		if err != nil {
			return err
		}
		g.File = kept.Path()
		file = filepath.Join(k.f.out, g.File)
	}
	if file == "" || g.Capacity == 0 {
		return nil // what it ran is not known
	}
	if _, err := catalog.Parse(g.Target); err != nil {
		return nil
	}
	g.Replay = reports.Replay(file, g.Target, g.Capacity, k.f.replayFlags()...)
	g.ShrinkLine = reports.Shrink(&g.Finding, file, g.Target, g.Capacity, k.f.replayFlags()...)
	return nil
}

// close compares the whole, and puts the panel's decisions in the place of the last ones if the night has all of them.
func (k *keeper) close() error {
	for _, r := range k.references {
		if r.night != nil {
			k.out.Compare(r.name, r.night)
		}
	}
	for _, r := range k.recorders {
		if err := r.Close(); err != nil {
			return err
		}
	}
	whole := (k.out.Panel.Logs - k.f.i + k.f.n - 1) / k.f.n
	if k.out.Panel.Ran < whole {
		return os.RemoveAll(k.newPanel()) // the last whole one stays to be compared with
	}
	panel := filepath.Join(k.f.out, "panel")
	if err := os.RemoveAll(panel); err != nil {
		return err
	}
	return os.Rename(k.newPanel(), panel)
}
