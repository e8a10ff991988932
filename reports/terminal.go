package reports

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Terminal is what a text is written for. The zero value is a file: lines as long as they are, no colour.
type Terminal struct {
	Width  int // columns; 0: no limit
	Colour bool
}

// printer keeps the first error, so that texts can be written without looking each time.
type printer struct {
	w        io.Writer
	terminal Terminal
	err      error
}

// line writes a line; on a terminal it is broken between words, and goes on under its own indentation.
func (p *printer) line(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	indent := len(text) - len(strings.TrimLeft(text, " "))
	for _, l := range broken(text, p.terminal.Width, indent+2) {
		p.write(l + "\n")
	}
}

func (p *printer) write(s string) {
	if p.err == nil {
		_, p.err = io.WriteString(p.w, s)
	}
}

const gap = 2 // blanks between columns

// table writes rows of cells in aligned columns, the first row being the header. Where they do not fit the terminal the columns
// are written in groups, one below the other, each behind the first column; a last column too wide even so is broken into lines.
func (p *printer) table(rows [][]string) { p.keyed(1, rows) }

// keyed is table with so many columns that name a row: they stand before each group.
func (p *printer) keyed(keys int, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], visible(c))
		}
	}
	limit := p.terminal.Width
	before := 0
	for _, w := range widths[:keys] {
		before += w + gap
	}
	for from := keys; ; {
		to, used := from, before-gap
		for to < len(widths) && (limit == 0 || used+gap+widths[to] <= limit || to == from) {
			used += gap + widths[to]
			to++
		}
		if from > keys {
			p.write("\n")
		}
		var columns []int
		for i := range keys {
			columns = append(columns, i)
		}
		for i := from; i < to; i++ {
			columns = append(columns, i)
		}
		for _, row := range rows {
			p.row(row, columns, widths)
		}
		if from = to; from >= len(widths) {
			return
		}
	}
}

func (p *printer) row(row []string, columns, widths []int) {
	var b strings.Builder
	for k, i := range columns {
		if i >= len(row) {
			break
		}
		if k > 0 {
			b.WriteString(strings.Repeat(" ", gap))
		}
		b.WriteString(row[i])
		if k < len(columns)-1 {
			b.WriteString(strings.Repeat(" ", widths[i]-visible(row[i])))
		}
	}
	last := 0
	for _, i := range columns[:len(columns)-1] {
		last += widths[i] + gap
	}
	for _, l := range broken(strings.TrimRight(b.String(), " "), p.terminal.Width, last) {
		p.write(l + "\n")
	}
}

// visible is how many columns a text takes, colour codes aside.
func visible(s string) int {
	n := utf8.RuneCountInString(s)
	for {
		i := strings.Index(s, "\x1b[")
		if i < 0 {
			return n
		}
		end := strings.IndexByte(s[i:], 'm')
		if end < 0 {
			return n
		}
		n -= end + 1
		s = s[i+end+1:]
	}
}

// broken breaks a line between words so that it fits, with so many blanks before what goes on. A word that is too long stays whole:
// commands are to be copied.
func broken(line string, width, indent int) []string {
	if width == 0 || visible(line) <= width {
		return []string{line}
	}
	indent = min(indent, width/2)
	var out []string
	for visible(line) > width {
		cut := -1
		start := len(line) - len(strings.TrimLeft(line, " "))
		for i := start; i < len(line); i++ {
			if line[i] != ' ' {
				continue
			}
			if visible(line[:i]) > width && cut >= 0 {
				break
			}
			cut = i
			if visible(line[:i]) > width {
				break
			}
		}
		if cut < 0 {
			break
		}
		out = append(out, strings.TrimRight(line[:cut], " "))
		line = strings.Repeat(" ", indent) + strings.TrimLeft(line[cut:], " ")
	}
	return append(out, line)
}

// The colours of verdicts.
var colours = map[string]string{Worse: "31;1", Better: "32;1", Equal: "32", Undecided: "33"}

// verdict is the word, in its colour.
func (p *printer) verdict(v string) string { return p.coloured(v, v) }

// coloured is a text in the colour of a verdict.
func (p *printer) coloured(verdict, text string) string {
	c, ok := colours[verdict]
	if !ok || !p.terminal.Colour {
		return text
	}
	return "\x1b[" + c + "m" + text + "\x1b[0m"
}
