package properties_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
	"github.com/shatter-gpu/shatter/reports"
)

var update = flag.Bool("update", false, "write the answers of testdata/verdicts.txt and testdata/variants.txt anew")

func simulated(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// verdictCase is a case of testdata/verdicts.txt.
type verdictCase struct {
	name, alloc, text, want string
}

func readVerdicts(t *testing.T) (head string, cases []verdictCase) {
	data, err := os.ReadFile("testdata/verdicts.txt")
	require.NoError(t, err)
	parts := strings.Split(string(data), "\n== ")
	for _, p := range parts[1:] {
		name, rest, _ := strings.Cut(p, "\n")
		alloc, rest, _ := strings.Cut(strings.TrimPrefix(rest, "@"), "\n")
		text, want, ok := strings.Cut(rest, "---\n")
		require.True(t, ok, name)
		cases = append(cases, verdictCase{name, alloc, text, strings.TrimRight(want, "\n")})
	}
	require.Greater(t, len(cases), 15, "cases were lost on the way")
	return parts[0], cases
}

func TestVerdicts(t *testing.T) {
	head, cases := readVerdicts(t)
	var out strings.Builder
	out.WriteString(head)
	for _, c := range cases {
		got := judgements(t, c)
		if !*update {
			require.Equal(t, c.want, got, c.name)
		}
		fmt.Fprintf(&out, "\n== %s\n@%s\n%s---\n%s\n", c.name, c.alloc, c.text, got)
	}
	if *update {
		require.NoError(t, os.WriteFile("testdata/verdicts.txt", []byte(out.String()), 0o644))
	}
}

// judgements replays a case and writes what the judge said.
func judgements(t *testing.T, c verdictCase) string {
	tr, err := trace.ParseString(c.name, c.text)
	require.NoError(t, err, c.name)
	capacity, ok, err := tr.Capacity()
	require.NoError(t, err)
	require.True(t, ok, c.name)
	spec, err := catalog.Parse(c.alloc)
	require.NoError(t, err)
	dev, err := simulated(capacity)
	require.NoError(t, err)
	p := executor.Compile(tr)
	target := executor.Target{Name: c.alloc, New: spec.New}
	res, err := executor.Execute(p, target, executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
	require.NoError(t, err)
	require.Empty(t, res.Findings, c.name)
	var lines []string
	explained := false
	for _, j := range res.Judgements {
		var sets []string
		for _, r := range j.Relaxed {
			sets = append(sets, r.String())
		}
		line := fmt.Sprintf("%d %s", j.Op, j.Verdict)
		if len(sets) > 0 {
			line += " without " + strings.Join(sets, " or ")
		}
		if j.Known != "" {
			line += " known " + j.Known
		}
		if j.Pinned > 0 {
			line += fmt.Sprintf(", %d pin %s", j.PinnedBy, reports.Size(j.Pinned))
		}
		lines = append(lines, line)
		if explained || j.Verdict != executor.Fragmentation && j.Verdict != executor.Policy {
			continue
		}
		explained = true
		w, err := properties.FindWitness(p, target, simulated, capacity, j.Op)
		require.NoError(t, err)
		if w == nil {
			lines = append(lines, "no witness")
			continue
		}
		require.True(t, w.Confirmed(), "%s: the witness does not serve in replay: %+v", c.name, w)
		lines = append(lines, w.Text(reports.Size)...)
	}
	if len(lines) == 0 {
		return "served"
	}
	return strings.Join(lines, "\n")
}
