package main

import (
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress is a bar on a terminal that says how far long work has come; elsewhere it writes nothing.
type progress struct {
	w    io.Writer
	what string
	bar  *progressbar.ProgressBar
}

func newProgress(w io.Writer, what string) *progress {
	return &progress{w: w, what: what}
}

// set shows done of total; a total of 0 means that the end is not known.
func (p *progress) set(done, total int) {
	if f, ok := p.w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
		return
	}
	if p.bar == nil {
		if total == 0 {
			total = -1
		}
		p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(p.what),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString(""),
			progressbar.OptionSetPredictTime(true), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	_ = p.bar.Set(done) // a bar that cannot be drawn is no reason to stop
}

// done clears the line.
func (p *progress) done() {
	if p.bar != nil {
		_ = p.bar.Clear()
	}
}
