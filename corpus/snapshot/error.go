package snapshot

import (
	"fmt"
	"io"
)

// Error says what is wrong with a snapshot file, where, and what to do about it.
type Error struct {
	// Name is the file.
	Name string
	// Offset is the byte of the pickle at which it went wrong; -1 if no byte is to blame.
	Offset int64
	Msg    string
	// Hint says what to do; it may be empty.
	Hint string
}

// Error returns "file: byte n: message (hint)".
func (e *Error) Error() string {
	s := e.Name + ": "
	if e.Offset >= 0 {
		s += fmt.Sprintf("byte %d: ", e.Offset)
	}
	s += e.Msg
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (d *decoder) fail(at int64, hint, format string, args ...any) *Error {
	return &Error{Name: d.name, Offset: at, Msg: fmt.Sprintf(format, args...), Hint: hint}
}

const (
	truncatedHint = "the file is cut short: copy or dump it again"
	damagedHint   = "the file is damaged, or no memory snapshot"
)

func (d *decoder) readErr(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return d.fail(d.at, truncatedHint, "the file ends in the middle")
	}
	return d.fail(d.at, "", "reading failed: %v", err)
}
