package nightly

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Schema is the name and version of the document that Night is.
const Schema = "shatter.nightly/1"

// File is its name in a night's folder.
const File = "nightly.json"

// Night is what a night came to. Sizes are bytes, operations are counted from 0.
type Night struct {
	Schema  string `json:"schema"`
	Shatter string `json:"shatter"` // version of the program
	// Seed made the exploration, SeedFrom says where it is from; Generators is the generators' version.
	Seed       uint64   `json:"seed"`
	SeedFrom   string   `json:"seed_from"`
	Generators int      `json:"generators"`
	Device     string   `json:"device"`
	Allocators []string `json:"allocators"`
	// ReplayFlags are the flags that replay lines carry beside allocator and capacity.
	ReplayFlags []string `json:"replay_flags,omitempty"`
	// Shard is i/n if this is a part of a night, Merged the number of parts that it was merged from.
	Shard  string `json:"shard,omitempty"`
	Merged int    `json:"merged,omitempty"`
	// Interrupted: a signal ended it. Unfinished are tasks that the end cut off.
	Interrupted bool `json:"interrupted"`
	Unfinished  int  `json:"unfinished"`

	Panel    PanelResult `json:"panel"`
	Explored Explored    `json:"explored"`
	Findings []Finding   `json:"findings"`
	Known    []Count     `json:"known"` // by id
	// Lost are workers that were lost, Faults what the harness or its environment could not do, twice.
	Lost   []Loss   `json:"lost"`
	Faults []string `json:"faults"`
	// Compared says what changed against other nights.
	Compared []Compared `json:"compared"`
	Timing   Timing     `json:"timing"`
}

// Timing is what varies from run to run.
type Timing struct {
	Started string  `json:"started"` // RFC 3339
	Budget  float64 `json:"budget"`  // seconds
	Seconds float64 `json:"seconds"`
	Workers int     `json:"workers"` // at once
	Starts  int     `json:"starts"`  // of worker processes
}

// Count is a named number.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// Explored counts what the exploration did.
type Explored struct {
	Sequences   int `json:"sequences"`
	Adversaries int `json:"adversaries"`
	Hunts       int `json:"hunts"` // among settings too
	Repeats     int `json:"repeats"`
	Shrinks     int `json:"shrinks"`
	// Runs and Operations were executed under all checks, those of the panel included.
	Runs       int `json:"runs"`
	Operations int `json:"operations"`
}

// Status of a finding.
type Status string

// Red fails the night, Suspect does not.
const (
	Red     Status = "red"
	Suspect Status = "suspect"
)

// Finding is a broken property, one a signature.
type Finding struct {
	Signature string `json:"signature"`
	Status    Status `json:"status"`
	// Why it has that status, in words.
	Why string `json:"why"`
	// Found is the finding on the smallest trace; its text is in File.
	Found
	// Source is what found it first, First the trace. Traces is how many traces showed it, on seeds of their own.
	Source string `json:"source"`
	First  string `json:"first"`
	Traces int    `json:"traces"`
	// Repeated is there if it was looked for on fresh seeds.
	Repeated *Repeated `json:"repeated,omitempty"`
	// Before and After are operations; After is 0 if the trace was not shrunk, and NotShrunk says why.
	Before    int    `json:"before"`
	After     int    `json:"after"`
	Minimal   bool   `json:"minimal"`
	NotShrunk string `json:"not_shrunk,omitempty"`
	// File is the trace, relative to the night's folder. Replay and ShrinkLine are commands.
	File       string `json:"file,omitempty"`
	Replay     string `json:"replay,omitempty"`
	ShrinkLine string `json:"shrink,omitempty"`
}

// Compared says what changed against another night.
type Compared struct {
	With string `json:"with"`
	Seed uint64 `json:"seed"`
	// New and Gone are signatures of findings, red and suspect. Gone says little: the traces are other ones.
	New  []string `json:"new"`
	Gone []string `json:"gone"`
}

// Failed tells whether the night is red.
func (n *Night) Failed() bool {
	return n.Panel.Red() > 0 || slices.ContainsFunc(n.Findings, func(f Finding) bool { return f.Status == Red })
}

// ReadNight reads a night's folder, or its document. A folder without one gives fs.ErrNotExist.
func ReadNight(path string) (*Night, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, File)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var n Night
	if err := json.Unmarshal(data, &n); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if n.Schema != Schema {
		return nil, fmt.Errorf("%s: %w: the schema is %q, and this program reads %s", path, errSchema, n.Schema, Schema)
	}
	return &n, nil
}

var errSchema = errors.New("no night's document")

// sort makes the order independent of which worker was first.
func (n *Night) sort() {
	slices.SortStableFunc(n.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Signature, b.Signature))
	})
	slices.SortFunc(n.Known, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(n.Panel.References, func(a, b Reference) int { return cmp.Compare(a.Name, b.Name) })
	for i := range n.Panel.References {
		slices.SortFunc(n.Panel.References[i].Differences, func(a, b Difference) int {
			return cmp.Or(cmp.Compare(a.Log, b.Log), cmp.Compare(a.Allocator, b.Allocator), cmp.Compare(a.Column, b.Column))
		})
	}
}

// Compare enters what changed against another night, which name says in words. A suspect that was seen there on another trace has
// repeated, and is red.
func (n *Night) Compare(name string, other *Night) {
	c := Compared{With: name, Seed: other.Seed, New: []string{}, Gone: []string{}}
	in := func(list []Finding, signature string) int {
		return slices.IndexFunc(list, func(f Finding) bool { return f.Signature == signature })
	}
	for i := range n.Findings {
		f := &n.Findings[i]
		at := in(other.Findings, f.Signature)
		switch {
		case at < 0:
			c.New = append(c.New, f.Signature)
		case f.Status == Suspect && other.Findings[at].First != f.First:
			f.Status, f.Why = Red, "seen on another trace in "+name
		}
	}
	for i := range other.Findings {
		if in(n.Findings, other.Findings[i].Signature) < 0 {
			c.Gone = append(c.Gone, other.Findings[i].Signature)
		}
	}
	n.Compared = append(n.Compared, c)
}
