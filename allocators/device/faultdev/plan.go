package faultdev

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Call is a kind of device call, as plans name it.
type Call uint8

// The calls of device.Device that can fail.
const (
	Malloc Call = iota
	Free
	Reserve
	Unreserve
	Create
	Release
	Map
	Unmap
	Record
	Done
	Wait
	Sync // of one stream or all
	Destroy
	calls
)

var callNames = [calls]string{
	"malloc", "free", "reserve", "unreserve", "create", "release", "map", "unmap", "record", "done", "wait", "sync", "destroy",
}

// String returns the name that plans use.
func (c Call) String() string { return callNames[c] }

// Kind is what a rule does.
type Kind uint8

// The kinds of rule.
const (
	// Fail makes calls fail with device.ErrDriver.
	Fail Kind = iota
	// OOM makes Malloc, Create or Map report device.ErrOutOfMemory.
	OOM
	// Foreign makes others hold memory from an operation on.
	Foreign
)

// Rule is one fault.
type Rule struct {
	Kind Kind
	Call Call
	// Nth is the first call of its kind that fails, counted from 1, and Times how many do, at least 1; of Foreign Nth is
	// the operation, counted from 0. Nth 0 of an OOM rule means After.
	Nth, Times uint64
	// Bytes that Malloc or Create may hand out in all before the rule refuses, or that others hold.
	Bytes uint64
}

// Plan is a list of faults; they act independently of each other.
type Plan []Rule

const grammar = "write `fail CALL nth N [times K]`, `oom malloc|create|map nth N [times K]`, `oom malloc|create after SIZE` or " +
	"`foreign SIZE at op N`, several with ; between"

// Parse reads a plan: rules separated by semicolons. size parses a size such as 40MiB.
//
//	fail map nth 3                the third call of Map fails, and so on for the other calls
//	fail unmap nth 2 times 4      calls 2 to 5 fail
//	oom create nth 5              the fifth Create finds no memory
//	oom create after 40MiB        no Create succeeds that would bring the bytes created in all above 40 MiB
//	foreign 2GiB at op 100        from operation 100 on others hold 2 GiB
func Parse(text string, size func(string) (uint64, error)) (Plan, error) {
	var p Plan
	for _, part := range strings.Split(text, ";") {
		r, err := parseRule(strings.Fields(part), size)
		if err != nil {
			return nil, fmt.Errorf("fault plan %q: rule %q: %w; %s", text, strings.TrimSpace(part), err, grammar)
		}
		p = append(p, r)
	}
	return p, nil
}

func parseRule(w []string, size func(string) (uint64, error)) (r Rule, err error) {
	switch {
	case len(w) == 5 && w[0] == "foreign" && w[2] == "at" && w[3] == "op":
		r.Kind = Foreign
		if r.Bytes, err = size(w[1]); err == nil {
			r.Nth, err = number(w[4], 0)
		}
		return r, err
	case len(w) >= 4 && (w[0] == "fail" || w[0] == "oom"):
		if r.Call, err = findCall(w[1]); err != nil {
			return r, err
		}
		if w[0] == "oom" {
			// Map takes page tables, and drivers run out of memory in it (https://github.com/pytorch/pytorch/issues/188008).
			if r.Kind = OOM; r.Call != Malloc && r.Call != Create && r.Call != Map {
				return r, fmt.Errorf("%s takes no memory, so it cannot run out of it", r.Call)
			}
		}
		if w[2] == "after" && r.Kind == OOM && r.Call != Map && len(w) == 4 {
			r.Bytes, err = size(w[3])
			return r, err
		}
		r.Times = 1
		if w[2] != "nth" || len(w) != 4 && (len(w) != 6 || w[4] != "times") {
			break
		}
		if r.Nth, err = number(w[3], 1); err == nil && len(w) == 6 {
			r.Times, err = number(w[5], 1)
		}
		return r, err
	}
	return r, fmt.Errorf("not a rule")
}

func number(s string, least uint64) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, 62)
	if err != nil || n < least {
		return 0, fmt.Errorf("%q is not a number from %d up", s, least)
	}
	return n, nil
}

func findCall(name string) (Call, error) {
	for i, n := range callNames {
		if n == name {
			return Call(i), nil
		}
	}
	return 0, fmt.Errorf("unknown call %q, there are %s", name, strings.Join(callNames[:], ", "))
}

// String returns text that Parse reads as the same plan, sizes in bytes.
func (p Plan) String() string {
	var parts []string
	for _, r := range p {
		parts = append(parts, r.String())
	}
	return strings.Join(parts, "; ")
}

// String returns the rule as Parse reads it.
func (r Rule) String() string {
	switch {
	case r.Kind == Foreign:
		return fmt.Sprintf("foreign %d at op %d", r.Bytes, r.Nth)
	case r.Kind == OOM && r.Nth == 0:
		return fmt.Sprintf("oom %s after %d", r.Call, r.Bytes)
	}
	s := fmt.Sprintf("%s %s nth %d", [...]string{"fail", "oom"}[r.Kind], r.Call, r.Nth)
	if r.Times > 1 {
		s += fmt.Sprintf(" times %d", r.Times)
	}
	return s
}

// error is what a call gets that the rule hits.
func (r Rule) error(n uint64) error {
	base := device.ErrDriver
	if r.Kind == OOM {
		base = device.ErrOutOfMemory
	}
	return fmt.Errorf("injected fault at %s call %d (%s): %w", r.Call, n, r, base)
}
