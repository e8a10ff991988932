package corpus

import (
	_ "embed"
	"strings"
)

// Conflict is something that a setting of PyTorch's allocator is known not to go together with.
type Conflict struct {
	Setting  string `json:"setting"`
	With     string `json:"with"`
	Versions string `json:"versions"`
	Effect   string `json:"effect"`
	Link     string `json:"link"`
	Read     string `json:"read"` // the day on which the link was read
}

//go:embed conflicts.tsv
var conflictTable string

// Conflicts are the known conflicts of a settings string, in the table's order.
func Conflicts(conf string) []Conflict {
	var out []Conflict
	for _, c := range allConflicts() {
		for _, s := range strings.Split(conf, ",") {
			key, _, _ := strings.Cut(c.Setting, ":")
			if s == c.Setting || c.Setting == key && strings.HasPrefix(s, key+":") {
				out = append(out, c)
			}
		}
	}
	return out
}

// allConflicts reads the table.
func allConflicts() []Conflict {
	var out []Conflict
	for i, line := range strings.Split(strings.TrimSpace(conflictTable), "\n") {
		f := strings.Split(line, "\t")
		if i == 0 || strings.HasPrefix(line, "#") || len(f) != 6 || f[0] == "setting" {
			continue
		}
		out = append(out, Conflict{f[0], f[1], f[2], f[3], f[4], f[5]})
	}
	return out
}
