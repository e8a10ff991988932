package executor

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// rawRefusal is a judgement in testdata/signature.
type rawRefusal struct {
	Refused, Target, Rule, Reason string
	Op                            int
	Request                       uint64
	Relaxed                       []string
}

// TestSignatures: raw failures, and behind --- the slug that all of a file map to. With -update the slugs are written anew.
func TestSignatures(t *testing.T) {
	files, err := filepath.Glob("testdata/signature/*.txt")
	require.NoError(t, err)
	require.Greater(t, len(files), 10)
	slugs := map[string]string{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		raw, want, ok := strings.Cut(string(data), "---\n")
		require.True(t, ok, "%s has no line ---", file)
		lines := []string{raw}
		if !strings.HasPrefix(raw, "goroutine ") {
			lines = strings.Split(strings.TrimSpace(raw), "\n")
		}
		got := signatureOf(t, lines[0])
		for _, l := range lines[1:] {
			require.Equal(t, got, signatureOf(t, l), "%s has failures of two signatures", file)
		}
		if u := flag.Lookup("update"); u != nil && u.Value.String() == "true" {
			require.NoError(t, os.WriteFile(file, []byte(raw+"---\n"+got+"\n"), 0o644))
			continue
		}
		require.Equal(t, want, got+"\n", file)
		require.Empty(t, slugs[got], "%s and %s have one signature", file, slugs[got])
		slugs[got] = file
		require.NotContains(t, got, "/")
	}
}

// signatureOf is the signature of a raw failure; of a stack, the function that goes into one.
func signatureOf(t *testing.T, raw string) string {
	if strings.HasPrefix(raw, "goroutine ") {
		frame, ours := panicFrame(raw)
		if ours {
			return "harness fault in " + frame
		}
		return frame
	}
	read := func(into any) error {
		d := json.NewDecoder(strings.NewReader(raw))
		d.DisallowUnknownFields()
		return d.Decode(into)
	}
	if strings.HasPrefix(raw, `{"refused"`) {
		var r rawRefusal
		require.NoError(t, read(&r), raw)
		j := Judgement{Op: r.Op, Request: r.Request, Rule: r.Rule, Reason: r.Reason}
		i := slices.IndexFunc(Verdicts, func(v Verdict) bool { return v.String() == r.Refused })
		require.GreaterOrEqual(t, i, 0, raw)
		j.Verdict = Verdicts[i]
		for _, words := range r.Relaxed {
			var set Relaxation
			for _, w := range strings.Split(words, "+") {
				set |= 1 << slices.Index(relaxationNames[:], w)
			}
			j.Relaxed = append(j.Relaxed, set)
		}
		return j.Signature(r.Target)
	}
	var f Finding
	require.NoError(t, read(&f), raw)
	require.True(t, strings.HasPrefix(f.Signature(), f.Group()+"."))
	return f.Signature()
}
