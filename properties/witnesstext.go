package properties

import (
	"fmt"
	"strings"
)

// Text says the witness in words, a line each. size writes bytes.
func (w *Witness) Text(size func(uint64) string) []string {
	n := len(w.Blocks)
	var lines []string
	many := func(n int) string {
		if n == 1 {
			return "1 live block"
		}
		return fmt.Sprintf("%d live blocks", n)
	}
	if w.Alternatives > 0 {
		of := many(w.Alternatives)
		if w.Each > 0 {
			of += " of " + size(w.Each)
		}
		lines = append(lines, fmt.Sprintf("witness: %s each keep a segment or pages alone; any %d of them freed first suffice", of, n))
	} else {
		quality := "a smallest set"
		if !w.Exact {
			quality = "a greedy choice, not the smallest set for certain"
		}
		lines = append(lines, fmt.Sprintf("witness: %s freed first suffice (%s):", many(n), quality))
	}
	var names []string
	for i, b := range w.Blocks {
		if i == 4 && n > 5 {
			names = append(names, fmt.Sprintf("and %d more", n-4))
			break
		}
		names = append(names, fmt.Sprintf("id %d (%s, operation %d)", b.ID, size(b.Bytes), b.Op))
	}
	prefix := "  "
	if w.Alternatives > 0 {
		prefix = "  for example "
	}
	lines = append(lines, prefix+strings.Join(names, ", "))
	switch {
	case w.Replays == 1 && w.Served == 1:
		lines = append(lines, "  shown by replay: with them freed first the request is served")
	case w.Confirmed():
		lines = append(lines, fmt.Sprintf("  shown by replay: the request is served in %d of %d sets of %d", w.Served, w.Replays, n))
	default:
		lines = append(lines, fmt.Sprintf("  predicted, but not borne out by replay (%d of %d served)", w.Served, w.Replays))
	}
	if len(w.Any) > 0 {
		lines = append(lines, fmt.Sprintf("  (of all live blocks fewer would do: %s, the first id %d of %s)", many(len(w.Any)), w.Any[0].ID, size(w.Any[0].Bytes)))
	}
	return lines
}
