package external

// For tests.
var FreedByDefault = (*Installation).freed

const TailSize = tailSize

// TailOf is what is kept of a standard error.
func TailOf(writes ...string) string {
	var t tail
	for _, w := range writes {
		_, _ = t.Write([]byte(w))
	}
	return t.String()
}
