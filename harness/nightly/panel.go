package nightly

import (
	"fmt"
	"strings"

	"github.com/shatter-gpu/shatter/harness/conform"
	"github.com/shatter-gpu/shatter/harness/executor"
)

// PanelResult is what the panel came to.
type PanelResult struct {
	// Logs is how many pairs of trace and settings the panel has, times the allocators, and cases. Ran of them were run (in this
	// shard), Skipped need a larger device, and Rejected are settings that an allocator does not take.
	Logs    int `json:"logs"`
	Ran     int `json:"ran"`
	Skipped int `json:"skipped"`
	// Unreached is how many the night's end kept from running.
	Unreached int `json:"unreached"`
	Rejected  int `json:"rejected"`
	Rows      int `json:"rows"`
	// References are what the decisions were held against.
	References []Reference `json:"references"`
}

// Reference is a set of earlier decisions.
type Reference struct {
	Name string `json:"name"`
	// Exact says that any difference is red: the device leaves nothing to chance.
	Exact bool `json:"exact"`
	Same  int  `json:"same"`
	// Missing logs are not in the reference.
	Missing     int          `json:"missing"`
	Differences []Difference `json:"differences"`
}

// Difference is the first row in which two logs differ.
type Difference struct {
	Allocator string `json:"allocator"`
	Log       string `json:"log"`
	// Op is the operation, -1 if the difference is not of one; Operation is its text.
	Op        int    `json:"op"`
	Operation string `json:"operation"`
	Column    string `json:"column"`
	Want      string `json:"want"`
	Got       string `json:"got"`
}

func (d *Difference) String() string {
	if d.Op < 0 {
		return fmt.Sprintf("%s on %s: %s: before %s, now %s", d.Log, d.Allocator, d.Column, d.Want, d.Got)
	}
	return fmt.Sprintf("%s on %s: operation %d (%s): %s", d.Log, d.Allocator, d.Op, d.Operation, strings.Join(d.Changes(), ", "))
}

// Changes are the columns that differ, each with what stood there before and stands there now.
func (d *Difference) Changes() []string {
	want, got := strings.Split(d.Want, "\t"), strings.Split(d.Got, "\t")
	if d.Op < 0 || len(want) != len(executor.Columns) || len(got) != len(want) {
		return []string{fmt.Sprintf("%s: before %s, now %s", d.Column, d.Want, d.Got)}
	}
	var out []string
	for i, c := range executor.Columns {
		if want[i] != got[i] && want[i] != "?" && got[i] != "?" {
			out = append(out, fmt.Sprintf("%s %s, now %s", c, want[i], got[i]))
		}
	}
	return out
}

// Reference is the reference of a name, which is made if there is none.
func (p *PanelResult) Reference(name string, exact bool) *Reference {
	for i := range p.References {
		if p.References[i].Name == name {
			return &p.References[i]
		}
	}
	p.References = append(p.References, Reference{Name: name, Exact: exact, Differences: []Difference{}})
	return &p.References[len(p.References)-1]
}

// Red counts the differences that fail the night.
func (p *PanelResult) Red() int {
	n := 0
	for i := range p.References {
		if p.References[i].Exact {
			n += len(p.References[i].Differences)
		}
	}
	return n
}

// Hold compares a log with the rows of a reference; nil rows: it has none. operation gives the text of an operation.
func (r *Reference) Hold(allocator, name string, want []string, got *Log, operation func(int) string) {
	switch {
	case want == nil:
		r.Missing++
		return
	case got.Rejected != "":
		r.Differences = append(r.Differences, Difference{allocator, name, -1, "", "settings", "taken", got.Rejected})
		return
	}
	if got.Broken { // what a finding kept from running is not compared
		want = want[:min(len(want), len(got.Rows))]
	}
	d := conform.CompareRows(name, want, got.Rows)
	switch {
	case d == nil && got.Broken:
		return
	case d == nil:
		r.Same++
		return
	}
	op := d.Line - 2 // the first line of a log has the columns
	r.Differences = append(r.Differences, Difference{allocator, name, op, operation(op), d.Column, d.Want, d.Got})
}
