// Command mutation measures the tests by mutation: it lets gremlins (github.com/go-gremlins/gremlins) list the small changes that
// it would make to a package, draws a sample by a seed, makes each change by the flag -overlay of the go command, and runs a fast
// subset of the tests. A change that no test notices has survived.
//
// Usage, in the module's root: go run ./.ci/mutation [-seed N] [-sample N] [-survivors FILE] PACKAGE...
//
// The file of survivors has a line for each known one, `PACKAGE FILE TYPE TEXT => why`, where why begins with equivalent: or
// killed by. It prints the raw score first, then the score without those that are argued to be equivalent. Exit 1: below 90 %.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

const tool = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// operators are the kinds of change that gremlins knows beside those it makes anyway.
var operators = []string{"--invert-logical", "--invert-loopctrl", "--invert-assignments", "--invert-bitwise", "--remove-self-assignments"}

// kills are the tests that are run for a package, fast ones: those of the package itself, without the ones that only measure.
var kills = map[string][]string{
	"./allocators/caching": {"-run", "TestFreeSet|TestAddrTable|TestBins|TestRound|TestSegmentSize|TestScripts|TestSettings|TestApply|TestConfigure|TestTwins|TestNextCapacity|Restore|TestLocked"},
	"./properties":         {"-run", "TestPlanted|TestDeviceRefused|TestKnownIssue|TestVerdicts|TestPins|TestRelaxations|TestRecordedTraces|TestWitness"},
}

// change is one small change.
type change struct {
	pkg, file, kind string
	line, column    int
}

// becomes is what each kind of change makes of a token, as gremlins does it.
var becomes = map[string]map[string]string{
	"ARITHMETIC_BASE":         {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
	"CONDITIONALS_BOUNDARY":   {"<=": "<", ">=": ">", "<": "<=", ">": ">="},
	"CONDITIONALS_NEGATION":   {"==": "!=", "!=": "==", "<=": ">", ">=": "<", "<": ">=", ">": "<="},
	"INCREMENT_DECREMENT":     {"++": "--", "--": "++"},
	"INVERT_NEGATIVES":        {"-": "+"},
	"INVERT_LOGICAL":          {"&&": "||", "||": "&&"},
	"INVERT_LOOPCTRL":         {"break": "continue", "continue": "break"},
	"INVERT_ASSIGNMENTS":      {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "%=": "*="},
	"INVERT_BITWISE":          {"&^": "&", "<<": ">>", ">>": "<<", "&": "|", "|": "&", "^": "&"},
	"REMOVE_SELF_ASSIGNMENTS": {"&^=": "=", "<<=": "=", ">>=": "=", "+=": "=", "-=": "=", "*=": "=", "/=": "=", "%=": "=", "&=": "=", "|=": "=", "^=": "="},
}

func main() {
	seed := flag.Uint64("seed", 1, "draws the sample")
	sample := flag.Int("sample", 40, "changes to a package; 0 for all")
	known := flag.String("survivors", ".ci/mutation/survivors.txt", "known survivors")
	limit := flag.Duration("time", 2*time.Minute, "time for the tests of one change; one that takes longer is killed")
	flag.Parse()
	if flag.NArg() == 0 {
		fail(fmt.Errorf("name a package, as ./allocators/caching"))
	}
	why, err := readKnown(*known)
	if err != nil {
		fail(err)
	}
	total := score{}
	for _, pkg := range flag.Args() {
		list, err := changes(pkg)
		if err != nil {
			fail(err)
		}
		all := len(list)
		rand.New(rand.NewPCG(*seed, uint64(len(pkg)))).Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		if *sample > 0 && *sample < len(list) {
			list = list[:*sample]
		}
		fmt.Printf("%s: %d changes, %d drawn by seed %d\n", pkg, all, len(list), *seed)
		s := score{}
		for _, c := range list {
			if err := try(c, *limit, why, &s); err != nil {
				fail(err)
			}
		}
		s.print(pkg)
		total.add(s)
	}
	total.print("all")
	if total.adjusted() < 0.9 {
		os.Exit(1)
	}
}

func fail(err error) {
	fmt.Fprintf(os.Stderr, "mutation: %v\n", err)
	os.Exit(2)
}

type score struct{ killed, survived, equivalent, notViable int }

func (s *score) add(o score) {
	s.killed += o.killed
	s.survived += o.survived
	s.equivalent += o.equivalent
	s.notViable += o.notViable
}

func (s *score) adjusted() float64 {
	if s.killed+s.survived == 0 {
		return 0
	}
	return float64(s.killed) / float64(s.killed+s.survived)
}

func (s *score) print(name string) {
	viable := s.killed + s.survived + s.equivalent
	if viable == 0 {
		fmt.Printf("%s: nothing that compiles was drawn\n", name)
		return
	}
	fmt.Printf("%s: raw score %d of %d, %.1f %%; %d argued to be equivalent, adjusted %.1f %%; %d did not compile\n",
		name, s.killed, viable, 100*float64(s.killed)/float64(viable), s.equivalent, 100*s.adjusted(), s.notViable)
}

// changes lists what gremlins would change, in order.
func changes(pkg string) ([]change, error) {
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	out := filepath.Join(folder, "dry.json")
	args := append([]string{"run", tool, "unleash", pkg, "--dry-run", "--silent", "-o", out}, operators...)
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("gremlins: %w: %s", err, text)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	var doc struct {
		Files []struct {
			Name      string `json:"file_name"`
			Mutations []struct {
				Type         string
				Line, Column int
			}
		}
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		return nil, err
	}
	var list []change
	for _, f := range doc.Files {
		for _, m := range f.Mutations {
			list = append(list, change{pkg, filepath.Base(f.Name), m.Type, m.Line, m.Column})
		}
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		if a.file != b.file {
			return a.file < b.file
		}
		if a.line != b.line {
			return a.line < b.line
		}
		if a.column != b.column {
			return a.column < b.column
		}
		return a.kind < b.kind
	})
	return list, nil
}

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
		if !ok || !strings.HasPrefix(reason, "equivalent: ") && !strings.HasPrefix(reason, "killed by ") {
			return why, fmt.Errorf("%s:%d: `PACKAGE FILE TYPE TEXT => equivalent: why` or `... => killed by what` expected", name, i+1)
		}
		why[what] = reason
	}
	return why, nil
}

// try makes a change and runs the tests.
func try(c change, limit time.Duration, why map[string]string, s *score) error {
	folder, err := os.MkdirTemp("", "mutation-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(c.pkg, c.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	lines := strings.Split(string(text), "\n")
	if c.line < 1 || c.line > len(lines) {
		return fmt.Errorf("%s:%d: gremlins names a line that is not there", path, c.line)
	}
	before := strings.TrimSpace(lines[c.line-1])
	at, from, to := place(lines[c.line-1], c)
	if at < 0 {
		s.notViable++
		return nil
	}
	lines[c.line-1] = lines[c.line-1][:at] + to + lines[c.line-1][at+len(from):]
	changed := filepath.Join(folder, c.file)
	if err := os.WriteFile(changed, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{whole: changed}})
	if err != nil {
		return err
	}
	overlay := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(overlay, doc, 0o644); err != nil {
		return err
	}
	if err := exec.Command("go", "build", "-overlay", overlay, c.pkg).Run(); err != nil {
		s.notViable++
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	args := append([]string{"test", "-overlay", overlay, "-vet=off", "-short", "-count=1", "-failfast"}, kills[c.pkg]...)
	err = exec.CommandContext(ctx, "go", append(args, c.pkg)...).Run()
	if err == nil {
		err = seek(ctx, overlay, folder)
	}
	what := fmt.Sprintf("%s %s %s %s", c.pkg, c.file, c.kind, before)
	switch {
	case err != nil:
		s.killed++
		return nil
	case strings.HasPrefix(why[what], "equivalent: "):
		s.equivalent++
	default:
		s.survived++
	}
	fmt.Printf("survived: %s (line %d: %s becomes %s)\n", what, c.line, from, to)
	return nil
}

// seek lets the changed program look for a finding in itself, as `shatter selftest` does with planted bugs.
func seek(ctx context.Context, overlay, folder string) error {
	program := filepath.Join(folder, "shatter")
	if text, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./harness/cmd/shatter").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	c := exec.CommandContext(ctx, program, "selftest", "--seek", "--short", "--clean", "400", "--generic", "0s")
	c.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800")
	out, err := c.Output()
	if err != nil {
		return err
	}
	var answer struct {
		Found  bool
		Broken int
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		return err
	}
	if answer.Found || answer.Broken > 0 {
		return fmt.Errorf("found")
	}
	return nil
}

// place finds the token that a change is about at its column, which counts bytes from 1; the longest token that fits is meant.
func place(line string, c change) (at int, from, to string) {
	at = c.column - 1
	if at < 0 || at >= len(line) {
		return -1, "", ""
	}
	for f, t := range becomes[c.kind] {
		if strings.HasPrefix(line[at:], f) && len(f) > len(from) {
			from, to = f, t
		}
	}
	if from == "" {
		return -1, "", ""
	}
	return at, from, to
}
