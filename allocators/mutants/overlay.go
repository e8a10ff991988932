package mutants

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Apply returns the files that a bug changes, as they are with it: their text by their path relative to root, the module's
// folder. Lines that it replaces must stand there exactly once; if not, the source has moved on and the bug must follow.
func (m *Mutant) Apply(root string) (map[string]string, error) {
	out := map[string]string{}
	for _, p := range m.Patches {
		text, ok := out[p.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.File)))
			if err != nil {
				return nil, fmt.Errorf("planted bug %s: %w", m.Name, err)
			}
			text = string(b)
		}
		if n := strings.Count("\n"+text, "\n"+p.Old); n != 1 {
			return nil, fmt.Errorf("planted bug %s: the lines that it replaces stand %d times in %s, must once", m.Name, n, p.File)
		}
		out[p.File] = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+p.Old, "\n"+p.New, 1), "\n")
	}
	return out, nil
}

// Overlay writes the changed files to a folder, and beside them the file that `go build -overlay` takes, whose name it returns.
func (m *Mutant) Overlay(root, folder string) (string, error) {
	changed, err := m.Apply(root)
	if err != nil {
		return "", err
	}
	replace := map[string]string{}
	for name, text := range changed {
		to := filepath.Join(folder, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			return "", err
		}
		replace[filepath.Join(root, filepath.FromSlash(name))] = to
	}
	b, err := json.Marshal(struct{ Replace map[string]string }{replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o644)
}
