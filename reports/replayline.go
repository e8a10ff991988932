package reports

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/stats"
)

// Replay is the command line that runs a trace on an allocator again, with further flags if it needs any.
func Replay(trace, allocator string, capacity uint64, flags ...string) string {
	return command("replay", trace, allocator, capacity, flags)
}

// Shrink is the command line that minimises a trace with a finding of any kind, those that took several runs included.
func Shrink(_ *executor.Finding, trace, allocator string, capacity uint64, flags ...string) string {
	return command("shrink", trace, allocator, capacity, flags)
}

func command(verb, trace, allocator string, capacity uint64, flags []string) string {
	line := fmt.Sprintf("shatter %s --alloc %s --capacity %d", verb, quote(allocator), capacity)
	for _, f := range flags {
		line += " " + quote(f)
	}
	return line + " " + quote(trace)
}

// quote puts a word in single quotes if a shell would not take it as it is.
func quote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%_-+=:,./") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// population describes the sequences of a workload on an allocator; params are those given to the run, empty for its own.
func population(w gen.Workload, params, allocator string) stats.Population {
	if params == "" {
		params = strings.TrimSpace(w.Defaults.String())
	}
	return stats.Population{
		Label: w.Name + " on " + allocator, Generator: w.Name, Version: strconv.Itoa(gen.Version),
		Parameters: []stats.Parameter{{Key: "params", Value: params}, {Key: "allocator", Value: allocator}},
	}
}
