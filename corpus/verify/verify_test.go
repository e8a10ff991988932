package verify_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/corpus"
	"github.com/shatter-gpu/shatter/corpus/verify"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

var checks = verify.Checks{Properties: properties.All(), NewJudge: properties.NewJudge, Relations: properties.Relations()}

func find(t *testing.T, name string) *corpus.Case {
	t.Helper()
	c, err := corpus.Embedded().Find(name)
	require.NoError(t, err)
	return c
}

func report(t *testing.T, c *verify.Checks, k *corpus.Case) *verify.Report {
	t.Helper()
	r, err := c.Case(k)
	require.NoError(t, err)
	return r
}

// TestDifferences: what does not come out as recorded is told and explained, and Renew records what does.
func TestDifferences(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"46-article", `"oom_ops":[83]`, `"oom_ops":[]`, "classic: oom_ops: recorded [], now [83] (operation 83, alloc 59 2147483648, is refused now: fragmentation)"},
		{"46-article", `"oom_ops":[83]`, `"oom_ops":[80,83]`, "classic: oom_ops: recorded [80 83], now [83] (operation 80, alloc 57 1610612736, is served now)"},
		{"46-article", `"verdict":"fragmentation"`, `"verdict":"genuine"`, "classic: verdict: recorded genuine, now fragmentation (operation 83: 2147483648 bytes asked, 12884901888 not live, 24 live blocks pin 12884901888)"},
		{"46-article", `"coarse":"false-oom"`, `"coarse":"genuine-oom"`, "classic: coarse: recorded genuine-oom, now false-oom"},
		{"18-oom", `"known":"pytorch#189504"`, `"known":"pytorch#1"`, "classic: known: recorded pytorch#1, now pytorch#189504 (operation 7: "},
		{"35-twenty", `"relaxed":["quantum"]`, `"relaxed":["hole"]`, "classic: relaxed: recorded [hole], now [quantum] (operation 5: "},
	} {
		k := find(t, c.name)
		expect := k.Expect()
		require.Contains(t, expect[0], c.old)
		expect[0] = strings.Replace(expect[0], c.old, c.new, 1)
		k.Set("expect", expect...)
		r := report(t, &checks, k)
		require.NotEmpty(t, r.Differences)
		require.Contains(t, r.Differences[0].String(), c.want)
		require.NoError(t, r.Renew())
		require.Empty(t, report(t, &checks, k).Differences)
		require.Equal(t, expect[1:], k.Expect()[1:], "what came out as recorded stays as it was written")
	}
}

// TestKnownIssuesAreHeld: when the judge or the relations no longer see the issue of a known case, the case says so.
func TestKnownIssuesAreHeld(t *testing.T) {
	cured := checks
	cured.NewJudge = func() executor.Judge {
		j := properties.NewJudge()
		return func(s *executor.State, oom *allocators.OOMError) executor.Judgement {
			v := j(s, oom)
			v.Known, v.Verdict = "", executor.Genuine
			return v
		}
	}
	cured.Relations, cured.Properties = nil, nil
	known, err := corpus.Embedded().Cases(corpus.Known)
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(known), 5)
	for _, k := range known {
		require.Empty(t, report(t, &checks, k).Differences)
		r := report(t, &cured, k)
		last := r.Differences[len(r.Differences)-1]
		require.Equal(t, "known issue", last.Figure)
		require.Contains(t, last.Explanation, "shatter corpus retire "+k.Name)
	}
}

// TestBite: an allocator that comes out right does not bite; a broken property does.
func TestBite(t *testing.T) {
	k := find(t, "46-article")
	for alloc, want := range map[string]string{
		"classic": "oom_ops: right [], here [83]", "expandable": "", "best-fit": "", "classic@max_split_size_mb:128": "",
	} {
		how, err := checks.Bite(k, alloc)
		require.NoError(t, err)
		require.Equal(t, want, how, alloc)
	}
	_, err := checks.Bite(k, "nonsense")
	require.ErrorContains(t, err, "bites")
	k.Set("right", `{"oom":[]}`)
	_, err = checks.Bite(k, "classic")
	require.ErrorContains(t, err, "right: json: unknown field")
}

// TestDuplicates: another number of rounds and other ids are the same, another verdict, another kind of size or another stream is
// not; of pending findings the signature decides alone.
func TestDuplicates(t *testing.T) {
	make := func(name, text string, finding ...string) *verify.Report {
		tr, err := trace.ParseString(name, text)
		require.NoError(t, err)
		k := &corpus.Case{Name: name, State: corpus.Pending, Trace: tr}
		k.Set("finding", finding...)
		return report(t, &checks, k)
	}
	const base = "# capacity: 100MiB\nalloc 0 30MiB\nfree 0\n"
	first := make("first", base)
	for _, c := range []struct {
		text string
		same bool
	}{
		{"# capacity: 100MiB\nalloc 7 32MiB\nfree 7\nalloc 8 32MiB\nfree 8\n", false}, // served from the cache the second time
		{"# capacity: 90MiB\nalloc 7 32MiB\nfree 7\n", true},
		{"# capacity: 100MiB\nalloc 0 3MiB\nfree 0\n", false},
		{"# capacity: 100MiB\nalloc 0 30MiB stream=1\nfree 0\n", false},
		{"# capacity: 20MiB\nalloc 0 30MiB\nfree 0\n", false},
	} {
		groups := verify.Duplicates([]*verify.Report{first, make("second", c.text)})
		require.Equal(t, c.same, len(groups) == 1, c.text)
	}
	a, b := make("a", base, "x.y.classic.free"), make("b", "# capacity: 20MiB\nalloc 0 3MiB\n", "x.y.classic.free")
	groups := verify.Duplicates([]*verify.Report{a, b, make("c", base, "x.y.expandable.free")})
	require.Len(t, groups, 1)
	require.Equal(t, "b", groups[0][0].Case.Name, "the one with fewer operations is kept")

	near, similarity := verify.Nearest(first, []*verify.Report{make("far", "alloc 0 1\n"), make("near", base+"empty_cache\n")})
	require.Equal(t, "near", near.Case.Name)
	require.Greater(t, similarity, 0.5)
}

// TestFindingsDiffer: a broken property, and a refusal that breaks a promise and no known issue explains, are differences and bite,
// whatever the figures are.
func TestFindingsDiffer(t *testing.T) {
	k := find(t, "46-article")
	broken := verify.Checks{NewJudge: properties.NewJudge, Properties: []executor.Property{{
		ID: "never", Op: func(s *executor.State) *executor.Violation {
			if s.Op == 5 {
				return executor.Broken("at-five", "it happened")
			}
			return nil
		},
	}}}
	require.Contains(t, differences(report(t, &broken, k)), "expandable: finding: recorded none, now never.at-five.expandable.alloc")
	how, err := broken.Bite(k, "best-fit")
	require.NoError(t, err)
	require.Contains(t, how, "never/at-five on best-fit at operation 5")

	promised := verify.Checks{NewJudge: func() executor.Judge {
		return func(*executor.State, *allocators.OOMError) executor.Judgement {
			return executor.Judgement{Verdict: executor.False, Rule: "promise", Reason: "it was promised"}
		}
	}}
	require.Contains(t, differences(report(t, &promised, k)), "classic: finding: recorded none, now "+executor.NoFalseOOM+".promise.classic.alloc")
}

func differences(r *verify.Report) string {
	var out []string
	for i := range r.Differences {
		out = append(out, r.Differences[i].String())
	}
	return strings.Join(out, "\n")
}
