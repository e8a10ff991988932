package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/nightly"
	"github.com/shatter-gpu/shatter/reports"
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
					g.Replay = reports.Replay(file, g.Target, g.Capacity)
					g.ShrinkLine = reports.Shrink(&g.Finding, file, g.Target, g.Capacity)
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
	return writeOut(c, out, func(w io.Writer) error { return reports.WriteNight(w, n, format) })
}
