package snapshot

import (
	"fmt"
	"path"
	"strings"
)

// Sites names the call sites of an import's allocations: the innermost line of the program itself, and the library call behind it. The
// answer is empty where no stack was recorded.
func Sites(m *Imported) func(op int) string {
	known := map[uint32]string{}
	return func(op int) string {
		stack := m.StackOf(op)
		if stack == 0 {
			return ""
		}
		s, ok := known[stack]
		if !ok {
			s = m.Snapshot.siteOf(stack)
			known[stack] = s
		}
		return s
	}
}

// siteOf names the call site of a stack.
func (s *Snapshot) siteOf(stack uint32) string {
	var inner, own *Frame
	var callers []string
	for f := range s.Frames(stack) {
		if f.File == "??" || f.File == "" {
			continue // C++ frames without symbols
		}
		if inner == nil {
			inner = f
		}
		if isLibrary(f.File) {
			continue
		}
		if own == nil {
			own = f
		} else if len(callers) < 3 {
			callers = append(callers, fmt.Sprintf("%s:%d", path.Base(f.File), f.Line))
		}
	}
	switch {
	case inner == nil:
		return ""
	case own == nil:
		return fmt.Sprintf("%s in %s:%d", inner.Name, shortPath(inner.File), inner.Line)
	}
	text := fmt.Sprintf("%s:%d %s", path.Base(own.File), own.Line, own.Name)
	if inner != own {
		text += fmt.Sprintf(" (%s, %s:%d)", inner.Name, shortPath(inner.File), inner.Line)
	}
	if len(callers) > 0 {
		text += " < " + strings.Join(callers, " < ")
	}
	return text
}

// isLibrary tells whether a file is of PyTorch, of an installed package or of C++.
func isLibrary(file string) bool {
	for _, part := range []string{"site-packages/", "dist-packages/", "/lib/python", "<frozen", "torch/csrc/"} {
		if strings.Contains(file, part) {
			return true
		}
	}
	if strings.HasPrefix(file, "torch/") {
		return true
	}
	switch path.Ext(file) {
	case ".cpp", ".cc", ".c", ".h", ".cu", ".hpp":
		return true
	}
	return false
}

// shortPath is a path from its package on.
func shortPath(file string) string {
	for _, part := range []string{"site-packages/", "dist-packages/"} {
		if i := strings.LastIndex(file, part); i >= 0 {
			return file[i+len(part):]
		}
	}
	if strings.HasPrefix(file, "torch/") {
		return file
	}
	return path.Base(file)
}
