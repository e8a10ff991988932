package trace

import (
	"errors"
	"strconv"
)

// Error says what is wrong with a trace, where, and what to do about it.
type Error struct {
	// Name is the file name as it was given; empty if there is none.
	Name string
	// Line and Column count from 1, columns in bytes; 0 if the place is not known.
	Line, Column int
	// Op counts operations from 0; -1 if the error is not about an operation.
	Op int
	// Msg says what is wrong.
	Msg string
	// Hint says what to do; it may be empty.
	Hint string
	// Err is the error of a lower layer, if there was one.
	Err error
}

// Error returns "file:line:col: msg (hint)"; without a line, "file: operation n: msg (hint)" or "file: msg (hint)".
func (e *Error) Error() string {
	name := e.Name
	if name == "" {
		name = "trace"
	}
	at := name
	switch {
	case e.Line > 0:
		at += ":" + strconv.Itoa(e.Line)
		if e.Column > 0 {
			at += ":" + strconv.Itoa(e.Column)
		}
	case e.Op >= 0:
		at += ": operation " + strconv.Itoa(e.Op)
	}
	return at + ": " + withHint(e.Msg, e.Hint)
}

// Unwrap returns the error of the lower layer, or nil.
func (e *Error) Unwrap() error { return e.Err }

// fault is an error without its place: what is wrong, and what to do.
type fault struct{ msg, hint string }

// bad tells whether there is a fault.
func (f fault) bad() bool { return f.msg != "" }

// err returns the fault as a plain error, nil if there is none.
func (f fault) err() error {
	if !f.bad() {
		return nil
	}
	return errors.New(withHint(f.msg, f.hint))
}

func withHint(msg, hint string) string {
	if hint == "" {
		return msg
	}
	return msg + " (" + hint + ")"
}

// quote shows a piece of the input, cut short so that a long line does not fill the screen.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		return strconv.Quote(s[:most]) + "..."
	}
	return strconv.Quote(s)
}
