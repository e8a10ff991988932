// Package devicetest holds a device to what allocators rely on: one list of rules for all devices, simulated or real.
//
// In goes a Subject (how to make the device, and where it is known to differ); out comes an Outcome a rule. A documented
// difference is checked too: if the device keeps the rule after all, the documentation is wrong and the rule fails.
package devicetest

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Subject is a device under test.
type Subject struct {
	Name string
	// New makes an empty device of this many bytes. The suite closes it if it is an io.Closer.
	New func(capacity uint64) (device.Device, error)
	// Differs has, for the rules that the device is known to break, how and why.
	Differs map[string]string
}

// Rule is something that every device should do.
type Rule struct {
	ID, Claim string
	// granules is the device's size in granules of 2 MiB.
	granules uint64
	check    func(c *checker)
}

// Result says how a device and a rule get on.
type Result uint8

// The results. Differs is a documented difference; NotApplicable means that the device lacks the ability.
const (
	Pass Result = iota
	Differs
	NotApplicable
	Fail
)

// String returns the word that tables show.
func (r Result) String() string { return [...]string{"pass", "differs", "n/a", "FAIL"}[r] }

// Outcome is what became of a rule.
type Outcome struct {
	Rule   string `json:"rule"`
	Result Result `json:"-"`
	Word   string `json:"result"`
	// Detail says how it failed or differs, or what the device lacks.
	Detail string `json:"detail,omitempty"`
}

const granule = 2 << 20

// lacks ends a rule that needs an ability which the device has not.
type lacks string

// broken ends a rule that the device breaks.
type broken string

// checker is a device in the hands of a rule. Its methods end the rule when something is not as it must be.
type checker struct{ device.Device }

func (c *checker) must(cond bool, format string, args ...any) {
	if !cond {
		panic(broken(fmt.Sprintf(format, args...)))
	}
}

func (c *checker) ok(err error, what string) {
	c.must(err == nil, "%s: %v", what, err)
}

func (c *checker) refused(err, as error, what string) {
	c.must(errors.Is(err, as), "%s: must be refused (%v), got %v", what, as, err)
}

func (c *checker) malloc(granules uint64) device.Addr {
	a, err := c.Malloc(granules * granule)
	c.ok(err, fmt.Sprintf("malloc of %d granules", granules))
	return a
}

func (c *checker) reserve(granules uint64) device.Addr {
	a, err := c.Reserve(granules * granule)
	c.ok(err, fmt.Sprintf("reserve of %d granules", granules))
	return a
}

func (c *checker) create(granules uint64) device.Handle {
	h, err := c.Create(granules * granule)
	c.ok(err, fmt.Sprintf("create of %d granules", granules))
	return h
}

func (c *checker) mapped(at device.Addr, granules uint64) device.Handle {
	h := c.create(granules)
	c.ok(c.Map(at, granules*granule, h), "map")
	return h
}

// free is the free bytes in granules.
func (c *checker) free(want uint64, when string) {
	got, _ := c.Info()
	c.must(got == want*granule, "%s: %d bytes free, must be %d", when, got, want*granule)
}

func (c *checker) record(s device.Stream) device.Event {
	e, err := c.Record(s)
	c.ok(err, fmt.Sprintf("record on stream %d", s))
	return e
}

func (c *checker) done(want bool, e device.Event, what string) {
	got, err := c.Done(e)
	c.ok(err, "done")
	c.must(got == want, "%s: done is %t", what, got)
}

// bytes returns the device's memory as bytes.
func (c *checker) bytes() byteChecker {
	b, ok := c.Device.(device.Bytes)
	if !ok {
		panic(lacks("the device holds no bytes"))
	}
	return byteChecker{c, b}
}

type byteChecker struct {
	*checker
	mem device.Bytes
}

func (b byteChecker) fill(a device.Addr, size, seed uint64) { b.ok(b.mem.Fill(a, size, seed), "fill") }

func (b byteChecker) holds(a device.Addr, size, seed uint64, what string) {
	m, same, err := b.mem.Verify(a, size, seed)
	b.ok(err, "verify")
	b.must(same, "%s: byte %d is of word %#x, must be %#x", what, m.Offset, m.Got, m.Want)
}

func (b byteChecker) differs(a device.Addr, size, seed uint64, what string) {
	_, same, err := b.mem.Verify(a, size, seed)
	b.ok(err, "verify")
	b.must(!same, "%s", what)
}

func (b byteChecker) faults(a device.Addr, size uint64, what string) {
	b.refused(b.mem.Fill(a, size, 1), device.ErrFault, "fill of "+what)
	_, _, err := b.mem.Verify(a, size, 1)
	b.refused(err, device.ErrFault, "verify of "+what)
}

// Conform checks every rule on a fresh device each. An error means that no device could be made.
func Conform(s Subject) ([]Outcome, error) {
	var out []Outcome
	for _, r := range Rules {
		dev, err := s.New(r.granules * granule)
		if err != nil {
			return nil, fmt.Errorf("%s: no device of %d bytes: %w", s.Name, r.granules*granule, err)
		}
		o := attempt(r, dev)
		if c, ok := dev.(io.Closer); ok {
			if err := c.Close(); err != nil && o.Result == Pass {
				o.Result, o.Detail = Fail, "close: "+err.Error()
			}
		}
		if why, documented := s.Differs[r.ID]; documented {
			switch o.Result {
			case Fail:
				o.Result, o.Detail = Differs, why
			case Pass:
				o.Result, o.Detail = Fail, "documented as different ("+why+"), yet the rule holds"
			}
		}
		o.Word = o.Result.String()
		out = append(out, o)
	}
	return out, nil
}

func attempt(r Rule, dev device.Device) (o Outcome) {
	o.Rule = r.ID
	defer func() {
		switch p := recover().(type) {
		case nil:
		case lacks:
			o.Result, o.Detail = NotApplicable, string(p)
		case broken:
			o.Result, o.Detail = Fail, string(p)
		default:
			panic(p)
		}
	}()
	r.check(&checker{dev})
	return o
}

// Table prints rules against devices as Markdown, with what differs or fails below it.
func Table(names []string, outcomes [][]Outcome) string {
	var b, notes strings.Builder
	fmt.Fprintf(&b, "| rule | claim | %s |\n|---|---|%s\n", strings.Join(names, " | "), strings.Repeat("---|", len(names)))
	for i, r := range Rules {
		fmt.Fprintf(&b, "| %s | %s |", r.ID, r.Claim)
		for k := range names {
			o := &outcomes[k][i]
			fmt.Fprintf(&b, " %s |", o.Word)
			if o.Detail != "" && o.Result != NotApplicable {
				fmt.Fprintf(&notes, "- %s, %s: %s: %s\n", names[k], r.ID, o.Word, o.Detail)
			}
		}
		b.WriteByte('\n')
	}
	if notes.Len() > 0 {
		b.WriteString("\n" + notes.String())
	}
	return b.String()
}
