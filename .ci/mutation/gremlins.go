package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
)

const tool = "github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0"

// operators are the kinds of change that gremlins knows beside those it makes anyway.
var operators = []string{"--invert-logical", "--invert-loopctrl", "--invert-assignments", "--invert-bitwise", "--remove-self-assignments"}

// change is one small change.
type change struct {
	pkg, file, kind string
	line, column    int

	lines    []string // of the file
	text     string   // of the line, as it is
	from, to string   // the token that is changed, and what it becomes
}

// String names a change by what does not move when lines above it do.
func (c change) String() string {
	return fmt.Sprintf("%s %s %s %s", c.pkg, c.file, c.kind, strings.TrimSpace(c.text))
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

// changes lists what gremlins would change, in order, each with its line and token.
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
			c := change{pkg: pkg, file: filepath.Base(f.Name), kind: m.Type, line: m.Line, column: m.Column}
			if err := c.read(); err != nil {
				return nil, err
			}
			list = append(list, c)
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

// at names a change by where it is, too.
func (c *change) at() string { return fmt.Sprintf("%s %d %d", c, c.line, c.column) }

// read finds the line and the token.
func (c *change) read() error {
	path := filepath.Join(c.pkg, c.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	c.lines = strings.Split(string(text), "\n")
	if c.line < 1 || c.line > len(c.lines) {
		return fmt.Errorf("%s:%d: gremlins names a line that is not there", path, c.line)
	}
	c.text = c.lines[c.line-1]
	at := c.column - 1
	if at < 0 || at >= len(c.text) {
		return fmt.Errorf("%s:%d:%d: gremlins names a column that is not there", path, c.line, c.column)
	}
	// The longest token that fits is meant.
	for f, t := range becomes[c.kind] {
		if strings.HasPrefix(c.text[at:], f) && len(f) > len(c.from) {
			c.from, c.to = f, t
		}
	}
	if c.from == "" {
		return fmt.Errorf("%s:%d:%d: no token of a change of type %s", path, c.line, c.column, c.kind)
	}
	return nil
}

// overlay makes the change in a copy and returns the file that -overlay takes.
func (c *change) overlay(folder string) (string, error) {
	if err := c.read(); err != nil {
		return "", err
	}
	path, err := filepath.Abs(filepath.Join(c.pkg, c.file))
	if err != nil {
		return "", err
	}
	at := c.column - 1
	lines := c.lines
	lines[c.line-1] = c.text[:at] + c.to + c.text[at+len(c.from):]
	changed := filepath.Join(folder, c.file)
	if err := os.WriteFile(changed, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		return "", err
	}
	doc, err := json.Marshal(map[string]any{"Replace": map[string]string{path: changed}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, doc, 0o644)
}
