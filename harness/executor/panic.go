package executor

import (
	"fmt"
	"path"
	"regexp"
	"runtime/debug"
	"strings"
)

// NoCrash is the property that an allocator panics at nothing.
const NoCrash = "no-crash"

// guard makes a finding of a panic of the allocator, and a harness fault of one of ours. Without properties nobody looks at
// findings, so the panic goes on: untouched, since who looks at it wants to know where it began.
func (r *Run) guard(do func() error) (err error) {
	if len(r.opts.Properties) == 0 {
		return do()
	}
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		stack := debug.Stack()
		frame, ours := panicFrame(string(stack))
		if ours {
			err = fmt.Errorf("%w: %s on %s: panic: %v\n%s", ErrHarness, r.prog.Trace.Name, r.target.Name, p, stack)
			return
		}
		f := r.finding(NoCrash, "panic", fmt.Sprintf("the allocator panicked: %v", p))
		f.Frame = frame
		r.note(f)
	}()
	return do()
}

// ourPackages are those whose code runs between an allocator and the recovery from its panic. A panic that begins there is
// a fault of the harness. Tests of these packages are packages of their own.
var ourPackages = []string{"harness/executor", "harness/shadow", "harness/trace", "properties"}

const module = "github.com/shatter-gpu/shatter/"

// closure is how the compiler names functions within a function: by their number, which changes when others come and go.
var closure = regexp.MustCompile(`(\.func\d+(\.\d+)*|-range\d+)+$`)

// panicFrame finds the function in which a panic began, from the text of debug.Stack: the first one outside the runtime
// above it, without its import path and arguments; a closure counts as the function that it stands in. ours says that it is
// the harness's own.
func panicFrame(stack string) (function string, ours bool) {
	_, rest, ok := strings.Cut(stack, "\npanic(")
	if !ok {
		return "", false
	}
	for _, line := range strings.Split(rest, "\n")[1:] {
		if line == "" || line[0] == '\t' || strings.HasPrefix(line, "runtime.") || strings.HasPrefix(line, "panic(") {
			continue
		}
		name := line
		if i := strings.LastIndexByte(name, '('); i > 0 {
			name = name[:i]
		}
		for _, p := range ourPackages {
			ours = ours || strings.HasPrefix(name, module+p+".")
		}
		return closure.ReplaceAllString(path.Base(name), ""), ours
	}
	return "", false
}
