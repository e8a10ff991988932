package main

import (
	"io"
	"os"

	"golang.org/x/term"

	"github.com/shatter-gpu/shatter/reports"
)

// terminalOf says how wide a terminal is, and whether it has colour (https://no-color.org). Files and pipes get lines as long as they
// are, without colour.
func terminalOf(w io.Writer) reports.Terminal {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return reports.Terminal{}
	}
	t := reports.Terminal{Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, _, err := term.GetSize(int(f.Fd())); err == nil && width > 0 {
		t.Width = max(width, 40)
	}
	return t
}
