package corpus

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestConflicts(t *testing.T) {
	lines := 0
	for _, l := range strings.Split(strings.TrimSpace(conflictTable), "\n") {
		if !strings.HasPrefix(l, "#") {
			lines++
		}
	}
	all := allConflicts()
	require.Len(t, all, lines-1, "every line but the heading must have six columns")
	for _, c := range all {
		require.Regexp(t, `^https://github\.com/[^ ]+/(issues|pull)/\d+$`, c.Link)
		_, err := time.Parse(time.DateOnly, c.Read)
		require.NoError(t, err)
	}
	require.NotEmpty(t, Conflicts("expandable_segments:True"))
	require.Len(t, Conflicts("max_split_size_mb:128"), 1)
	require.Empty(t, Conflicts("expandable_segments:False,max_non_split_rounding_mb:40"))
	require.Len(t, Conflicts("roundup_power2_divisions:1"), 1)
	require.Empty(t, Conflicts("roundup_power2_divisions:4"))
}
