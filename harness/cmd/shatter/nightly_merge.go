package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/harness/tracefile"
	"github.com/shatter-gpu/shatter/reports"
	"github.com/shatter-gpu/shatter/reports/html"
	"github.com/shatter-gpu/shatter/reports/recording"
)

// isNight tells whether a folder holds a night's results.
func isNight(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, nightly.File))
	return err == nil
}

// mergeNights makes one night of shards, with their traces and decisions.
func mergeNights(c *cobra.Command, dirs []string, out string, json bool) error {
	var parts []*nightly.Night
	for _, dir := range dirs {
		n, err := nightly.ReadNight(dir)
		if err != nil {
			return hinted{err, "name the folders that the shards of a night wrote (shatter nightly --shard i/n --out DIR)"}
		}
		parts = append(parts, n)
	}
	whole, err := nightly.Merge(dirs, parts)
	if err != nil {
		return err
	}
	if err := checkWritable(out); err != nil {
		return err
	}
	if err := mergePending(dirs, parts, out, whole); err != nil {
		return faultError{err}
	}
	if err := mergePanels(dirs, out); err != nil {
		return faultError{err}
	}
	if err := writeNight(out, whole); err != nil {
		return faultError{err}
	}
	addMaps(out, whole, 10*time.Second)
	f := nightFlags{json: json}
	return f.show(c, whole)
}

// mergePending puts the traces of all findings into one folder, the smallest of each signature.
func mergePending(dirs []string, parts []*nightly.Night, out string, whole *nightly.Night) error {
	if err := os.MkdirAll(filepath.Join(out, string(corpus.Pending)), 0o755); err != nil {
		return err
	}
	to, err := corpus.Open(out)
	if err != nil {
		return err
	}
	for i, dir := range dirs {
		from, err := corpus.Open(dir)
		if err != nil {
			return err
		}
		for k := range parts[i].Findings {
			f := &parts[i].Findings[k]
			if f.File == "" {
				continue
			}
			c, err := from.Find(f.File)
			if err != nil {
				return err
			}
			if c, _, err = to.Pend(c.Trace, f.Signature, c.Source()); err != nil {
				return err
			}
			for w := range whole.Findings {
				if g := &whole.Findings[w]; g.Signature == f.Signature {
					file := filepath.Join(out, c.Path())
					g.File = c.Path()
					g.Replay = reports.Replay(file, g.Target, g.Capacity, whole.ReplayFlags...)
					g.ShrinkLine = reports.Shrink(&g.Finding, file, g.Target, g.Capacity, whole.ReplayFlags...)
				}
			}
		}
	}
	return nil
}

// mergePanels joins the decisions of the shards' panels.
func mergePanels(dirs []string, out string) error {
	recorders := map[string]*conform.Recorder{}
	for _, dir := range dirs {
		folders, err := os.ReadDir(filepath.Join(dir, "panel"))
		if os.IsNotExist(err) {
			continue // the shard was interrupted before its panel was whole
		}
		if err != nil {
			return err
		}
		for _, e := range folders {
			r := recorders[e.Name()]
			if r == nil {
				if r, err = conform.NewRecorder(filepath.Join(out, "panel", e.Name())); err != nil {
					return err
				}
				recorders[e.Name()] = r
			}
			if err := copyLogs(r, os.DirFS(filepath.Join(dir, "panel", e.Name()))); err != nil {
				return fmt.Errorf("%s: %w", dir, err)
			}
		}
	}
	for _, r := range recorders {
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

func copyLogs(to *conform.Recorder, from fs.FS) error {
	logs, err := conform.ReadFolder(from)
	if err != nil {
		return err
	}
	for i := range logs {
		t, err := logs[i].ReadTrace(from)
		if err != nil {
			return err
		}
		rows, err := logs[i].ReadRows(from)
		if err != nil {
			return err
		}
		if err := to.Add(logs[i], t, rows); err != nil {
			return err
		}
	}
	return nil
}

// renderNight writes the report of a night's folder in a format.
func renderNight(c *cobra.Command, dir, format, out string) error {
	n, err := nightly.ReadNight(dir)
	if err != nil {
		return err
	}
	return writeOut(c, out, func(w io.Writer) error {
		if format == "html" {
			return writeNightPage(w, n, dir, true)
		}
		return reports.WriteNight(w, n, format)
	})
}

// mappedFindings is how many findings of a night get memory maps.
const mappedFindings = 8

// writeNightPage writes the page of a night; with maps, it runs the traces of its findings once more to record what was where.
func writeNightPage(w io.Writer, n *nightly.Night, dir string, maps bool) error {
	in := html.Night{Night: n, Traces: make([]*trace.Trace, len(n.Findings)), Cases: make([]*html.Case, len(n.Findings))}
	for i := range n.Findings {
		f := &n.Findings[i]
		if f.File == "" {
			continue
		}
		t, err := tracefile.Read(filepath.Join(dir, f.File))
		if err != nil {
			continue // it has been promoted, say
		}
		t.Name = f.File
		in.Traces[i] = t
		if maps && i < mappedFindings {
			in.Cases[i] = nightCase(f, t)
		}
	}
	return html.WriteNight(w, &in)
}

// nightCase records a finding's trace on a simulated device, nil if the allocator does not survive it.
func nightCase(f *nightly.Finding, t *trace.Trace) (c *html.Case) {
	defer func() {
		if recover() != nil {
			c = nil
		}
	}()
	s, err := catalog.Parse(f.Target)
	if err != nil || f.Property == executor.Survives || f.Property == "no-crash" {
		return nil
	}
	answer := &reports.ReplayReport{Allocator: f.Target, Findings: []reports.Finding{{Finding: f.Finding, Signature: f.Signature}}}
	at := min(f.Op, max(len(t.Ops)-1, 0))
	c, err = newCase(executor.Compile(t), []executor.Target{targetOf(s)}, simulated, simulated, f.Capacity, at, []*reports.ReplayReport{answer}, recording.Limits{})
	if err != nil {
		return nil
	}
	return c
}
