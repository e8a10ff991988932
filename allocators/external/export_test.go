package external

// For tests.
var FreedByDefault = (*Installation).freed

const TailSize = tailSize

// CommandOf is what starts a target's children.
func CommandOf(t *Target) Command { return t.pool.command }

// TailOf is what is kept of a standard error.
func TailOf(writes ...string) string {
	var t tail
	for _, w := range writes {
		_, _ = t.Write([]byte(w))
	}
	return t.String()
}
