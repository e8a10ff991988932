package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// chosen is the environment variable that says which change is in force in a program that has many.
const chosen = "SHATTER_MUTATION"

// schemata is a copy of a package that has many changes at once, so that it is compiled once for all of them: in front of each
// function's body stand its changed bodies, and a number from the environment says which of them is run, none if it is 0.
type schemata struct {
	folder  string
	overlay string
	// alone are changes outside functions, which cannot be chosen at run time; broken are those that do not compile.
	alone, broken []*change
}

// variant is where a changed body stands in a file made.
type variant struct {
	c        *change
	number   int
	from, to int // lines, counted from 1
}

// newSchemata writes the copy. The number of a change is its place in the list, from 1.
func newSchemata(pkg, folder string, list []change) (*schemata, error) {
	s := &schemata{folder: folder}
	byFile := map[string][]int{}
	for i := range list {
		if err := list[i].read(); err != nil {
			return nil, err
		}
		byFile[list[i].file] = append(byFile[list[i].file], i)
	}
	dropped := map[int]bool{}
	for {
		replace := map[string]string{}
		var variants = map[string][]variant{}
		name := ""
		for file, numbers := range byFile {
			text, made, err := s.bodies(filepath.Join(pkg, file), list, numbers, dropped, &name)
			if err != nil {
				return nil, err
			}
			if err := s.write(replace, pkg, file, text); err != nil {
				return nil, err
			}
			variants[filepath.Join(folder, file)] = made
		}
		err := s.write(replace, pkg, "zz_mutation.go", fmt.Sprintf(`package %s

import (
	"os"
	"strconv"
)

var mutation__, _ = strconv.Atoi(os.Getenv(%q))
`, name, chosen))
		if err != nil {
			return nil, err
		}
		doc, err := json.Marshal(map[string]any{"Replace": replace})
		if err != nil {
			return nil, err
		}
		s.overlay = filepath.Join(folder, "overlay.json")
		if err := os.WriteFile(s.overlay, doc, 0o644); err != nil {
			return nil, err
		}
		text, err := exec.Command("go", "build", "-gcflags=-e", "-overlay", s.overlay, pkg).CombinedOutput()
		if err == nil {
			return s, nil
		}
		if !s.drop(string(text), list, variants, dropped) {
			return nil, fmt.Errorf("go build: %w: %s", err, text)
		}
	}
}

// write writes a file of the copy.
func (s *schemata) write(replace map[string]string, pkg, file, text string) error {
	path, err := filepath.Abs(filepath.Join(pkg, file))
	if err != nil {
		return err
	}
	replace[path] = filepath.Join(s.folder, file)
	return os.WriteFile(replace[path], []byte(text), 0o644)
}

var atLine = regexp.MustCompile(`(?m)^(\S+?\.go):(\d+):`)

// drop takes out the changes that the compiler complains about. False: none of them is to blame.
func (s *schemata) drop(text string, list []change, variants map[string][]variant, dropped map[int]bool) bool {
	any := false
	for _, m := range atLine.FindAllStringSubmatch(text, -1) {
		line, _ := strconv.Atoi(m[2])
		for _, v := range variants[filepath.Join(s.folder, filepath.Base(m[1]))] {
			if v.from <= line && line <= v.to && !dropped[v.number] {
				dropped[v.number], any = true, true
				s.broken = append(s.broken, v.c)
			}
		}
	}
	return any
}

// bodies puts the changed bodies of a file's functions in front of the bodies.
func (s *schemata) bodies(path string, list []change, numbers []int, dropped map[int]bool, name *string) (string, []variant, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	text := string(b)
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, b, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	*name = file.Name.Name
	tokens := set.File(file.Pos())
	at := func(p token.Pos) int { return tokens.Offset(p) }
	type insertion struct {
		offset, number int
		text           string
	}
	var insertions []insertion
	for _, i := range numbers {
		c := &list[i]
		if dropped[i+1] {
			continue
		}
		offset := tokens.Offset(tokens.LineStart(c.line)) + c.column - 1
		kind, body := function(file, func(n ast.Node) bool { return at(n.Pos()) <= offset && offset < at(n.End()) })
		if body == nil {
			if !slices.Contains(s.alone, c) {
				s.alone = append(s.alone, c)
			}
			continue
		}
		results := ""
		if kind.Results != nil {
			results = text[at(kind.Results.Pos()):at(kind.Results.End())]
		}
		changed := text[at(body.Pos()):offset] + c.to + text[offset+len(c.from):at(body.End())]
		call := fmt.Sprintf("func() %s %s()", results, changed)
		if results != "" {
			call = "return " + call
		} else {
			call += "; return"
		}
		insertions = append(insertions, insertion{at(body.Lbrace) + 1, i + 1, fmt.Sprintf("\nif mutation__ == %d {\n%s\n}\n", i+1, call)})
	}
	slices.SortStableFunc(insertions, func(a, b insertion) int { return a.offset - b.offset })
	var out strings.Builder
	var made []variant
	from, line := 0, 1
	add := func(t string) {
		out.WriteString(t)
		line += strings.Count(t, "\n")
	}
	for _, n := range insertions {
		add(text[from:n.offset])
		from = n.offset
		v := variant{c: &list[n.number-1], number: n.number, from: line + 1}
		add(n.text)
		v.to = line - 1
		made = append(made, v)
	}
	add(text[from:])
	return out.String(), made, nil
}

// function is the outermost function, named or not, that holds a place. A function with a type parameter is left alone.
func function(file *ast.File, holds func(ast.Node) bool) (kind *ast.FuncType, body *ast.BlockStmt) {
	ast.Inspect(file, func(n ast.Node) bool {
		if n == nil || body != nil || !holds(n) {
			return false
		}
		switch f := n.(type) {
		case *ast.FuncDecl:
			if f.Body != nil && holds(f.Body) {
				kind, body = f.Type, f.Body
			}
		case *ast.FuncLit:
			if holds(f.Body) {
				kind, body = f.Type, f.Body
			}
		}
		return body == nil
	})
	return kind, body
}

// compile makes a package's tests, or the program, with what an overlay changes.
func compile(overlay, out string, args ...string) error {
	args = append([]string{args[0], "-overlay", overlay, "-ldflags=-s -w", "-o", out}, args[1:]...)
	if text, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return errors.Join(errCompile, fmt.Errorf("go %s: %w: %s", args[0], err, text))
	}
	return nil
}

var errCompile = errors.New("it does not compile")
