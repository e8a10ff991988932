package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// fuzzVersion is the first line of a file that holds a fuzz input.
const fuzzVersion = "go test fuzz v1"

// Marshal returns the file of a fuzz input that is one []byte, as `go test` writes it.
func Marshal(input []byte) []byte {
	return fmt.Appendf(nil, "%s\n[]byte(%q)\n", fuzzVersion, input)
}

// Unmarshal reads a file of a fuzz input that is one []byte. As with `go test`, blank lines and a comment behind the value
// are fine, whole-line comments are not.
func Unmarshal(file []byte) ([]byte, error) {
	lines := strings.Split(strings.TrimRight(string(file), "\r\n"), "\n")
	if strings.TrimSuffix(lines[0], "\r") != fuzzVersion {
		return nil, fmt.Errorf("the first line must be %q", fuzzVersion)
	}
	var values []string
	for _, line := range lines[1:] {
		if line = strings.TrimSpace(line); line != "" {
			values = append(values, line)
		}
	}
	if len(values) != 1 {
		return nil, fmt.Errorf("one []byte expected, %d values found", len(values))
	}
	value := values[0]
	literal, ok := strings.CutPrefix(value, "[]byte(")
	quoted, err := strconv.QuotedPrefix(literal)
	rest, closed := strings.CutPrefix(strings.TrimPrefix(literal, quoted), ")")
	rest = strings.TrimSpace(rest)
	if !ok || err != nil || !closed || quoted[0] == '\'' || rest != "" && !strings.HasPrefix(rest, "//") {
		return nil, fmt.Errorf("[]byte(\"...\") expected, found %s", value)
	}
	text, err := strconv.Unquote(quoted)
	return []byte(text), err
}

// ReadInputs reads the fuzz inputs in a folder, by file name. As with `go test`, folders in it are passed over.
func ReadInputs(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inputs := map[string][]byte{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		path := filepath.Join(dir, e.Name())
		file, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if inputs[e.Name()], err = Unmarshal(file); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return inputs, nil
}
