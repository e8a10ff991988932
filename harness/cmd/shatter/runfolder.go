package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/results"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/reports"
)

// ofTheCall are flags of `shatter run` that say nothing of the sequences: a run may go on with other ones.
var ofTheCall = []string{"time", "workers", "json", "out", "resume", "shard", "help"}

// storedFlags are the flags that the sequences depend on, as --name=value.
func storedFlags(c *cobra.Command) []string {
	out := []string{}
	c.Flags().Visit(func(f *pflag.Flag) {
		if slices.Contains(ofTheCall, f.Name) || f.Name == "seqs" { // how many there are stands in the header
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			out = append(out, "--"+f.Name+"="+v)
		}
	})
	return out
}

// restore sets the flags that a run was made with. Those given now must say the same.
func restore(c *cobra.Command, dir string, h *results.Header) error {
	given := storedFlags(c)
	for _, flag := range given {
		if !slices.Contains(h.Flags, flag) {
			return hinted{fmt.Errorf("%s: the run in %s was made without it", flag, dir),
				"give --resume alone, or with --seqs, --time or --workers; another run needs a folder of its own"}
		}
	}
	for _, flag := range h.Flags {
		if slices.Contains(given, flag) {
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(flag, "--"), "=")
		if !ok || slices.Contains(ofTheCall, name) || c.Flags().Lookup(name) == nil {
			return fmt.Errorf("%s: the run was made with %q, which this program does not know", dir, flag)
		}
		if err := c.Flags().Set(name, value); err != nil {
			return fmt.Errorf("%s: the run was made with %s: %w", dir, flag, err)
		}
	}
	return nil
}

// sameProgram refuses to go on with what another version made.
func sameProgram(dir string, h *results.Header) error {
	if h.Shatter != version || h.Generators != gen.Version {
		return fmt.Errorf("%s was made by shatter %s with generators %d, this is %s with %d: use the program that made it",
			dir, h.Shatter, h.Generators, version, gen.Version)
	}
	return nil
}

// readRun reads the run in a folder.
func readRun(dir string) (*results.Journal, error) {
	j, err := results.Read(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, hinted{fmt.Errorf("%s holds no run: %w", dir, err), "name a folder that shatter run --out has written"}
	}
	return j, err
}

// journalHeader describes the run for its journal.
func (f *runFlags) journalHeader(c *cobra.Command, cfg campaign.Config) results.Header {
	h := results.Header{
		Schema: results.Schema, Shatter: version, Generators: gen.Version, Seed: f.seed, Sequences: cfg.Sequences, Shard: cfg.Shard,
		Shards: max(cfg.Shards, 1), Params: cfg.Params, Device: f.dev.Name, Capacity: cfg.Capacity, Flags: storedFlags(c),
	}
	for _, w := range cfg.Workloads {
		h.Workloads = append(h.Workloads, w.Name)
	}
	for _, t := range cfg.Targets {
		h.Allocators = append(h.Allocators, t.Name)
	}
	return h
}

// reopen reads the run of --resume, and its flags.
func (f *runFlags) reopen(c *cobra.Command) error {
	if f.resume == "" {
		return nil
	}
	if f.out != "" || f.shard != "" {
		return fmt.Errorf("--resume goes on in its own folder and shard: give neither --out nor --shard")
	}
	j, err := readRun(f.resume)
	if err != nil {
		return err
	}
	if err := sameProgram(f.resume, &j.Header); err != nil {
		return err
	}
	if err := restore(c, f.resume, &j.Header); err != nil {
		return err
	}
	if f.seqs == 0 && !c.Flags().Changed("seqs") {
		if f.seqs = j.Header.Sequences; f.seqs == 0 && f.time == 0 {
			return fmt.Errorf("the run in %s had no end but its deadline: give --time or --seqs", f.resume)
		}
	}
	if n := len(j.Sequences); f.seqs > 0 && n > 0 && j.Sequences[n-1].Index >= f.seqs {
		return fmt.Errorf("--seqs %d: the run in %s has sequence %d already", f.seqs, f.resume, j.Sequences[n-1].Index)
	}
	if j.Shards > 1 {
		f.shard = fmt.Sprintf("%d/%d", j.Shard, j.Shards)
	}
	f.journal, f.out = j, f.resume
	return nil
}

// checkFolder looks, before anything runs, whether the results can be written. A run that is there already is never overwritten.
func (f *runFlags) checkFolder() error {
	if f.out == "" {
		return nil
	}
	if err := checkWritable(f.out); err != nil {
		return err
	}
	if f.journal != nil {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(f.out, results.JournalFile)); err == nil {
		return hinted{fmt.Errorf("--out %s: the folder holds a run", f.out),
			"name another folder, or go on with it: shatter run --resume " + f.out}
	}
	return nil
}

// openJournal is the run so far, and what to append to if it is kept.
func (f *runFlags) openJournal(h results.Header) (*results.Journal, *results.Writer, error) {
	switch j := f.journal; {
	case j == nil && f.out == "":
		return &results.Journal{Header: h}, nil, nil
	case j == nil:
		w, err := results.Create(f.out, h)
		return &results.Journal{Header: h}, w, err
	case j.Header.Sequences != h.Sequences: // another end
		j.Header, j.Torn = h, false
		if err := results.Rewrite(f.out, j); err != nil {
			return nil, nil, err
		}
	}
	w, err := results.Continue(f.out, f.journal)
	return f.journal, w, err
}

// writeFolder writes all that follows from the journal.
func writeFolder(dir string, j *results.Journal, r *reports.Run, found []campaign.Distinct) error {
	if err := os.MkdirAll(filepath.Join(dir, results.FindingsDir), 0o755); err != nil {
		return err
	}
	for i := range found {
		if err := writeFinding(dir, &found[i]); err != nil {
			return err
		}
	}
	if err := results.WriteWith(filepath.Join(dir, results.TableFile), j.WriteTable); err != nil {
		return err
	}
	type document struct {
		name string
		v    any
	}
	bare := *r
	bare.Timing = nil
	docs := []document{{results.SummaryFile, &bare}}
	if r.Timing != nil {
		docs = append(docs, document{results.TimingFile, r.Timing})
	}
	for _, doc := range docs {
		data, err := json.MarshalIndent(doc.v, "", "  ")
		if err != nil {
			return err
		}
		if err := results.WriteFile(filepath.Join(dir, doc.name), append(data, '\n')); err != nil {
			return err
		}
	}
	return nil
}

// writeFinding writes the trace of a finding.
func writeFinding(dir string, d *campaign.Distinct) error {
	t := &trace.Trace{Header: append(d.Trace.Header[:len(d.Trace.Header):len(d.Trace.Header)],
		trace.Field{Key: "finding", Value: d.Finding.String()}, trace.Field{Key: "allocator", Value: d.Allocator}), Ops: d.Trace.Ops}
	return trace.WriteFile(filepath.Join(dir, results.FindingsDir, d.Signature+".trace"), t)
}

// readFolder reads a results folder.
func readFolder(dir string) (*reports.Folder, error) {
	f, err := reports.ReadFolder(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, hinted{fmt.Errorf("%s holds no run: %w", dir, err), "name a folder that shatter run --out has written"}
	case errors.Is(err, reports.ErrUnfinished):
		return f, hinted{err, fmt.Sprintf("end it with shatter run --resume %s, or take what is there with shatter report merge %s --out FOLDER", dir, dir)}
	}
	return f, err
}
