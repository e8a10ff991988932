package review_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/review"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestEscaped: whatever a case, an outcome or a change holds, it is text on the page.
func TestEscaped(t *testing.T) {
	const bad = `<script>alert("x")</script><img src=x onerror=y>' "`
	tr, err := trace.ParseString("t", "alloc 0 1MiB   # "+bad+"\n")
	require.NoError(t, err)
	c := &corpus.Case{Name: "x", State: corpus.Pending, Trace: tr}
	for _, key := range []string{"source", "about", "note", "finding", "right", "bites", "class"} {
		c.Set(key, bad)
	}
	var out bytes.Buffer
	require.NoError(t, review.Write(&out, &review.Page{Title: bad, Version: bad, Items: []review.Item{{
		Case: c, File: bad, Nearest: c, NearestClass: bad, When: bad, Diff: bad, Maps: []string{"<svg></svg>"},
		Outcomes: []review.Outcome{{Allocator: bad, Refused: bad, Verdict: bad, Finding: bad, Peak: bad, Recorded: bad}},
	}}}))
	page := out.String()
	require.NotContains(t, page, "<script")
	require.NotContains(t, page, "<img")
	require.Contains(t, page, "<svg></svg>", "pictures are the roof's own")
	require.GreaterOrEqual(t, strings.Count(page, "&lt;script&gt;"), 15)
}

// TestCommands: a pending case is promoted or retired, with what its header does not say yet; an accepted one is checked or retired.
func TestCommands(t *testing.T) {
	tr, err := trace.ParseString("t", "# about: known already\nalloc 0 1MiB\n")
	require.NoError(t, err)
	for _, c := range []struct {
		state     corpus.State
		want, not string
	}{
		{corpus.Pending, "shatter corpus promote x --name a-name-that-says-what-it-is-about --class comb --note &#39;...&#39; --bites planted:BUG\n" +
			"shatter corpus retire x --because &#39;...&#39;\n", "--about"},
		{corpus.Accepted, "shatter corpus check x\nshatter corpus retire x --because &#39;...&#39;\n", "promote x"},
	} {
		var out bytes.Buffer
		require.NoError(t, review.Write(&out, &review.Page{Items: []review.Item{{
			Case: &corpus.Case{Name: "x", State: c.state, Trace: tr}, NearestClass: "comb",
		}}}))
		require.Contains(t, out.String(), c.want)
		require.NotContains(t, out.String(), c.not)
	}
	var out bytes.Buffer
	require.NoError(t, review.Write(&out, &review.Page{}))
	require.Contains(t, out.String(), "There is nothing to review.")
}
