package corpus

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
)

// Class is a fault class: what kind of thing a case is about.
type Class struct {
	Name, Meaning string
	// Reach says what a case of the class must come to when it is run, or it is not about that fault: alternatives, each a list of
	// features that must all show (see package verify for the features).
	Reach [][]string
}

//go:embed classes.tsv
var classTable string

// Classes are all fault classes, in the table's order.
func Classes() []Class {
	var out []Class
	for i, line := range strings.Split(strings.TrimSpace(classTable), "\n") {
		f := strings.Split(line, "\t")
		if i == 0 || strings.HasPrefix(line, "#") || len(f) != 3 || f[0] == "class" {
			continue
		}
		c := Class{Name: f[0], Meaning: f[1]}
		for _, way := range strings.Split(f[2], " | ") {
			c.Reach = append(c.Reach, strings.Split(way, " & "))
		}
		out = append(out, c)
	}
	return out
}

// Reached tells whether a run with these features is about the class's fault.
func (c *Class) Reached(features []string) bool {
	return slices.ContainsFunc(c.Reach, func(way []string) bool {
		return !slices.ContainsFunc(way, func(f string) bool { return !slices.Contains(features, f) })
	})
}

// FindClass returns a fault class by its name.
func FindClass(name string) (*Class, error) {
	all := Classes()
	var names []string
	for i := range all {
		if all[i].Name == name {
			return &all[i], nil
		}
		names = append(names, all[i].Name)
	}
	return nil, fmt.Errorf("class %q is not in corpus/classes.tsv; take one of %s, or add a line there", name, strings.Join(names, ", "))
}
