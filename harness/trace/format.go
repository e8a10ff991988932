package trace

// Format returns the canonical text: header lines, operations, and the comments and blank lines of the parsed text in
// their places. Every line ends with \n; sizes are plain bytes. What Parse accepts, Format writes so that Parse reads the
// same trace again; canonical text comes back byte for byte.
func (t *Trace) Format() []byte {
	dst := make([]byte, 0, 64+24*len(t.Ops))
	notes := t.layout.fields
	for i, f := range t.Header {
		var n note
		n, notes = noteAt(notes, i)
		dst = append(dst, n.before...)
		dst = append(dst, "# "...)
		dst = append(dst, f.Key...)
		dst = append(dst, ": "...)
		dst = append(dst, f.Value...)
		dst = append(dst, '\n')
	}
	notes = t.layout.ops
	for i, op := range t.Ops {
		var n note
		n, notes = noteAt(notes, i)
		dst = append(dst, n.before...)
		dst = Append(dst, op)
		dst = append(dst, n.after...)
		dst = append(dst, '\n')
	}
	return append(dst, t.layout.tail...)
}

// noteAt returns the note of index i, which is empty for most, and the notes that are still to come.
func noteAt(notes []note, i int) (note, []note) {
	if len(notes) > 0 && notes[0].at == i {
		return notes[0], notes[1:]
	}
	return note{}, notes
}
