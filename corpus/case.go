package corpus

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/shatter-gpu/shatter/harness/trace"
)

// State is how far a case has come; it is the name of its folder.
type State string

const (
	// Accepted cases have a right outcome; every `go test` and every user's allocatortest replays them.
	Accepted State = "accepted"
	// Pending cases wait for a reviewer.
	Pending State = "pending"
	// Known cases show an upstream fault that the exact allocator reproduces; when one no longer does, it is to be retired.
	Known State = "known"
	// Flaky cases do not come out the same each time, which only a real device can do.
	Flaky State = "flaky"
	// Retired cases are kept for their story and not replayed.
	Retired State = "retired"
)

// States are all states, in the order of reports.
var States = []State{Accepted, Known, Pending, Flaky, Retired}

// The header keys of a case, in the order in which they are written.
const (
	keySource  = "source"  // where it comes from: an issue's link, or generator, seed and version
	keyClass   = "class"   // fault class, see classes.tsv
	keyAbout   = "about"   // what happens, in a sentence
	keyKnown   = "known"   // id of the known upstream issue that it shows
	keyFinding = "finding" // signature of the finding that it shows, while that is not mended
	keyRight   = "right"   // JSON: what a right allocator comes to; absent if that is what expect says
	keyExpect  = "expect"  // JSON: what comes out under some settings, decision for decision
	keyBites   = "bites"   // who comes out otherwise than right
	keyNote    = "note"    // a reviewer's
	keyRetired = "retired" // why
	keyHash    = "hash"
)

var keyOrder = []string{
	trace.KeyVersion, trace.KeyCapacity, trace.KeyConf, trace.KeyFraction, keySource, keyClass, keyAbout, keyKnown, keyFinding,
	keyRight, keyExpect, keyBites, keyNote, keyRetired, keyHash,
}

// claimed are the keys that the content hash covers, besides what a run reads. Prose may be edited freely.
var claimed = []string{keySource, keyClass, keyKnown, keyFinding, keyRight, keyExpect, keyBites, keyRetired}

// Planted begins the name of a planted bug in a `bites` line; what stands there otherwise is an allocator, NAME[@CONF].
const Planted = "planted:"

// Case is a trace with what is known about it, in its header.
type Case struct {
	// Name is the file's name without .trace.
	Name  string
	State State
	Trace *trace.Trace
}

func (c *Case) get(key string) string {
	v, _ := c.Trace.Get(key)
	return v
}

// Source says where the case comes from.
func (c *Case) Source() string { return c.get(keySource) }

// Class is the name of the fault class.
func (c *Case) Class() string { return c.get(keyClass) }

// About says what happens in it.
func (c *Case) About() string { return c.get(keyAbout) }

// Note is a reviewer's.
func (c *Case) Note() string { return c.get(keyNote) }

// Known is the id of the known issue that the case shows, or empty.
func (c *Case) Known() string { return c.get(keyKnown) }

// Finding is the signature of the finding that a pending case shows, or empty.
func (c *Case) Finding() string { return c.get(keyFinding) }

// Right is the JSON of the right outcome; empty means that what the expectations say is right.
func (c *Case) Right() string { return c.get(keyRight) }

// Expect are the JSON texts of the expectations.
func (c *Case) Expect() []string { return c.Trace.GetAll(keyExpect) }

// Bites are the allocators and planted bugs that come out otherwise than right.
func (c *Case) Bites() []string { return c.Trace.GetAll(keyBites) }

// Retired says why the case was retired.
func (c *Case) Retired() string { return c.get(keyRetired) }

// Path is the file's path relative to the corpus folder.
func (c *Case) Path() string { return string(c.State) + "/" + c.Name + ".trace" }

// Set replaces all lines of a header key; without values they go.
func (c *Case) Set(key string, values ...string) {
	var header []trace.Field
	for _, f := range c.Trace.Header {
		if f.Key != key {
			header = append(header, f)
		}
	}
	for _, v := range values {
		header = append(header, trace.Field{Key: key, Value: strings.Join(strings.Fields(v), " ")})
	}
	t := *c.Trace // with its comments
	t.Header = header
	c.Trace = &t
}

// Hash is the hash of what the case is and claims.
func (c *Case) Hash() string {
	h := sha256.New()
	run := c.Trace.Hash()
	h.Write(run[:])
	for _, key := range claimed {
		for _, v := range c.Trace.GetAll(key) {
			fmt.Fprintf(h, "%s: %s\n", key, v)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// ParseCase reads a case and holds its content against its hash.
func ParseCase(state State, name string, r io.Reader) (*Case, error) {
	t, err := trace.Parse(string(state)+"/"+name+".trace", r)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: name, State: state, Trace: t}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.Path(), err)
	}
	if got, want := c.Hash(), c.get(keyHash); got != want {
		return nil, fmt.Errorf("%s: its content has the hash %s, the header says %s: operations or claims were changed by hand; "+
			"undo that, or, if it is meant, run: shatter corpus check --update %s", c.Path(), got, want, c.Name)
	}
	return c, nil
}

var nameShape = regexp.MustCompile(`^[a-z0-9][a-z0-9_+.-]*$`)

// check tells whether the header says what a case in its state must say.
func (c *Case) check() error {
	if !nameShape.MatchString(c.Name) || len(c.Name) > 120 {
		return fmt.Errorf("the name %q: small letters, digits, - + . and _ only", c.Name)
	}
	need := []string{keySource}
	switch c.State {
	case Accepted, Known:
		need = append(need, keyClass, keyAbout, keyExpect, keyBites, keyNote)
	case Retired:
		need = append(need, keyRetired)
	}
	if c.State == Known {
		need = append(need, keyKnown)
	}
	for _, key := range need {
		if c.get(key) == "" {
			return fmt.Errorf("a line `# %s: ...` is missing, which %s cases need", key, c.State)
		}
	}
	if class := c.Class(); class != "" {
		if _, err := FindClass(class); err != nil {
			return err
		}
	}
	return c.Trace.Validate()
}

// sizes are the words of an operation that are bytes.
var sizes = regexp.MustCompile(`^(alloc \d+ |foreign |# capacity: |segment \d+ |block \d+ )(\d+)`)

// Text is the file: header keys in a fixed order, operations, sizes with a unit where that is exact.
func (c *Case) Text() []byte {
	header := slices.Clone(c.Trace.Header)
	if _, ok := c.Trace.Get(trace.KeyVersion); !ok {
		header = append(header, trace.Field{Key: trace.KeyVersion, Value: trace.Version})
	}
	rank := func(f trace.Field) int {
		if i := slices.Index(keyOrder, f.Key); i >= 0 {
			return i
		}
		return len(keyOrder)
	}
	slices.SortStableFunc(header, func(a, b trace.Field) int { return rank(a) - rank(b) })
	t := *c.Trace // with its comments
	t.Header = header
	var out bytes.Buffer
	for _, line := range strings.SplitAfter(string(t.Format()), "\n") {
		m := sizes.FindStringSubmatch(line)
		if m == nil {
			out.WriteString(line)
			continue
		}
		n, err := trace.ParseSize(m[2])
		if err != nil {
			out.WriteString(line)
			continue
		}
		out.WriteString(m[1] + trace.FormatSize(n) + line[len(m[0]):])
	}
	return out.Bytes()
}
