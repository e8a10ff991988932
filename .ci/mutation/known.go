package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// equivalent begins the reason for a change that no test can see.
const equivalent = "equivalent: "

// readKnown reads the known survivors.
func readKnown(name string) (map[string]string, error) {
	why := map[string]string{}
	b, err := os.ReadFile(name)
	if err != nil {
		return why, err
	}
	for i, line := range strings.Split(string(b), "\n") {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, ok := strings.Cut(line, " => ")
		if !ok || !strings.HasPrefix(reason, equivalent) && !strings.HasPrefix(reason, "killed by ") {
			return why, fmt.Errorf("%s:%d: `PACKAGE FILE TYPE TEXT => equivalent: why` or `... => killed by what` expected", name, i+1)
		}
		why[what] = reason
	}
	return why, nil
}

// moved is a known survivor of a package that is not among its changes: its line was edited. Empty if there is none.
func moved(why map[string]string, pkg string, list []change) string {
	for _, what := range slices.Sorted(maps.Keys(why)) {
		if strings.HasPrefix(what, pkg+" ") && !slices.ContainsFunc(list, func(c change) bool { return c.String() == what }) {
			return what
		}
	}
	return ""
}

// stillOpen are the changes that a log has, by their lines' text, among those that the fast tests let through.
func stillOpen(list []change, log string) ([]change, error) {
	b, err := os.ReadFile(log)
	if err != nil {
		return nil, err
	}
	open := map[string]bool{}
	for _, line := range strings.Split(string(b), "\n") {
		outcome, what, ok := strings.Cut(line, ": ")
		if end := strings.LastIndex(what, " (line "); ok && end > 0 && outcome != killedByTests && outcome != notViable {
			open[what[:end]] = true
		}
	}
	var out []change
	for i := range list {
		if open[list[i].String()] {
			out = append(out, list[i])
		}
	}
	return out, nil
}
