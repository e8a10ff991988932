package conform

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommittedFolder: what is built into the program is what stands in testdata.
func TestCommittedFolder(t *testing.T) {
	want, err := ReadIndex("testdata/decisions")
	require.NoError(t, err)
	got, err := ReadFolder(Committed())
	require.NoError(t, err)
	require.Len(t, got, len(want))
	rows := 0
	for i := range got {
		require.Equal(t, "testdata/decisions/"+got[i].Path, want[i].Path)
		require.Equal(t, "testdata/decisions/"+got[i].TracePath, want[i].TracePath)
		r, err := got[i].ReadRows(Committed())
		require.NoError(t, err)
		rows += len(r)
		tr, err := got[i].ReadTrace(Committed())
		require.NoError(t, err)
		require.Len(t, r, len(tr.Ops), got[i].Name())
	}
	require.Equal(t, 93036, rows)
}

func TestCompareRows(t *testing.T) {
	const rest = "\t0\t0\t512\t512\t512\t2097152\t512\t0\t0\t1\t0\t0\t-"
	a, b, unknown := "0\talloc\tok"+rest, "0\talloc\toom"+rest, "0\talloc\t?"+rest
	for _, c := range []struct {
		want, got []string
		line      int
		column    string
	}{
		{nil, nil, 0, ""},
		{[]string{a, b}, []string{a, b}, 0, ""},
		{[]string{a, a}, []string{a, b}, 3, "outcome"},
		{[]string{a, b}, []string{unknown, b}, 0, ""}, // what is not told is not compared
		{[]string{a}, []string{a, b}, 3, "op"},
		{[]string{a, b}, []string{a}, 3, "op"},
	} {
		d := CompareRows("log", c.want, c.got)
		if c.line == 0 {
			require.Nil(t, d)
			continue
		}
		require.Equal(t, []any{"log", c.line, c.column}, []any{d.Log, d.Line, d.Column})
	}
}
