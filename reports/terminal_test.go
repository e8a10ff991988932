package reports

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTableFits: a table that is too wide is written in groups of columns, each behind the first; a last column that is too wide even so
// is broken between words.
func TestTableFits(t *testing.T) {
	rows := [][]string{{"name", "first", "second", "third"}, {"a", "1", "22", "333"}, {"bb", "\x1b[31;1mworse\x1b[0m", "x", "some words to break"}}
	for width, want := range map[int]string{
		0: "name  first  second  third\na     1      22      333\nbb    \x1b[31;1mworse\x1b[0m  x       some words to break\n",
		26: "name  first  second\na     1      22\nbb    \x1b[31;1mworse\x1b[0m  x\n\n" +
			"name  third\na     333\nbb    some words to break\n",
		18: "name  first\na     1\nbb    \x1b[31;1mworse\x1b[0m\n\nname  second\na     22\nbb    x\n\n" +
			"name  third\na     333\nbb    some words\n      to break\n",
	} {
		var b strings.Builder
		p := &printer{w: &b, terminal: Terminal{Width: width}}
		p.table(rows)
		require.NoError(t, p.err)
		require.Equal(t, want, b.String(), width)
	}
	var b strings.Builder
	p := &printer{w: &b, terminal: Terminal{Width: 5}}
	p.table([][]string{{"only"}, {"x"}})
	p.table(nil)
	require.Equal(t, "only\nx\n", b.String())
	b.Reset()
	p = &printer{w: &b, terminal: Terminal{Width: 9}}
	p.keyed(2, [][]string{{"a", "b", "c", "d"}, {"1", "2", "3", "4"}, {"5", "6", "77", "8"}})
	require.Equal(t, "a  b  c\n1  2  3\n5  6  77\n\na  b  d\n1  2  4\n5  6  8\n", b.String())
	b.Reset()
	p.table([][]string{{"only"}, {"x"}})
	require.Equal(t, "only\nx\n", b.String())
}

func TestBroken(t *testing.T) {
	for _, c := range []struct {
		line   string
		width  int
		indent int
		want   []string
	}{
		{"short", 10, 2, []string{"short"}},
		{"one two three", 0, 2, []string{"one two three"}},
		{"one two three", 8, 2, []string{"one two", "  three"}},
		{"    command-that-is-long and more", 12, 6, []string{"    command-that-is-long", "      and", "      more"}},
		{"unbreakable", 4, 2, []string{"unbreakable"}},
		{"ä ö ü", 3, 0, []string{"ä ö", "ü"}},
	} {
		require.Equal(t, c.want, broken(c.line, c.width, c.indent), c.line)
	}
}
