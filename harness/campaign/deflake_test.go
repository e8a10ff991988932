package campaign_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/allocators/direct"
	"github.com/shatter-gpu/shatter/harness/campaign"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// unaligned hands out places one byte off, from the nth allocation on that all of its kind make together.
type unaligned struct {
	*direct.Allocator
	made *int
	from int
}

func (u unaligned) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b, err := u.Allocator.Alloc(n, s)
	if *u.made++; err == nil && *u.made >= u.from {
		b.Addr += device.Addr(b.Size)
	}
	return b, err
}

func (u unaligned) Free(device.Addr) error { return nil }

// target counts allocations in each run (steady) or over all runs: state left over from one run to the next.
func target(steady bool, from int) campaign.Target {
	made := new(int)
	return campaign.Target{Name: "unaligned", For: func(*trace.Trace) (executor.Target, error) {
		return executor.Target{Name: "unaligned", New: func(d device.Device) (allocators.Allocator, error) {
			if steady {
				made = new(int)
			}
			return unaligned{direct.New(d), made, from}, nil
		}}, nil
	}}
}

func hunt(t testing.TB, targets ...campaign.Target) campaign.Config {
	w, err := gen.Find("edges")
	require.NoError(t, err)
	return campaign.Config{
		Workloads: []gen.Workload{w}, Params: gen.Params{Ops: 40}, Targets: targets, Sequences: 6, Seed: 1, Workers: 1,
		NewDevice:  func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) },
		Properties: []executor.Property{properties.Bounds}, Simulated: true,
	}
}

// TestDeflake: a finding that depends on what ran before is the harness's fault, and stops the campaign with the trace and the
// finding named; one that comes back is a finding.
func TestDeflake(t *testing.T) {
	found := 0
	count := func(s *campaign.Sequence) error {
		found += len(s.Runs[0].Result.Findings)
		return nil
	}
	require.NoError(t, campaign.Execute(context.Background(), hunt(t, target(true, 3)), count))
	require.Equal(t, 6, found)

	for _, from := range []int{100, 25} { // it is there from then on at another operation, or in a later run only
		err := campaign.Execute(context.Background(), hunt(t, target(false, from)), count)
		require.ErrorIs(t, err, executor.ErrHarness)
		require.ErrorContains(t, err, "gen:edges:")
		require.ErrorContains(t, err, "a finding did not come back in repeat 1 of 5: bounds-and-alignment/")
		require.ErrorContains(t, err, "; there was another finding: bounds-and-alignment/")
	}

	loose := hunt(t, target(false, 100))
	loose.Simulated = false
	require.NoError(t, campaign.Execute(context.Background(), loose, count))
}

// TestDeflakeRelations: what a relation finds must come back each time too.
func TestDeflakeRelations(t *testing.T) {
	w, err := gen.Find("edges")
	require.NoError(t, err)
	on := campaign.Target{Name: "direct", For: func(*trace.Trace) (executor.Target, error) {
		return executor.Target{Name: "direct", New: func(d device.Device) (allocators.Allocator, error) { return direct.New(d), nil }}, nil
	}}
	on.Settings = func(tr *trace.Trace) (string, func(string) (executor.Target, error), error) {
		return "", func(string) (executor.Target, error) { return on.For(tr) }, nil
	}
	for _, c := range []struct {
		asked int // broken in this many questions
		want  string
	}{
		{1, "a finding did not come back in repeat 1 of 5: odd/r on direct"},
		{5, "a finding did not come back in repeat 5 of 5: odd/r on direct"},
		{6, ""}, // it is asked once, and again 5 times; of the next sequences it holds
	} {
		asked, found := 0, 0
		cfg := campaign.Config{
			Workloads: []gen.Workload{w}, Params: gen.Params{Ops: 40}, Targets: []campaign.Target{on}, Sequences: 2, Seed: 1, Workers: 1,
			NewDevice: func(n uint64) (device.Device, error) { return simdev.New(simdev.Options{Capacity: n}) },
			Simulated: true, RelateEvery: 1,
			Relations: []executor.Relation{{ID: "odd", Check: func(*executor.Case) (*executor.Violation, error) {
				if asked++; asked > c.asked {
					return nil, nil
				}
				return executor.Broken("r", "odd"), nil
			}}},
		}
		err := campaign.Execute(context.Background(), cfg, func(s *campaign.Sequence) error {
			found += len(s.Runs[0].Result.Findings)
			return nil
		})
		if c.want == "" {
			require.NoError(t, err)
			require.Equal(t, 1, found)
			continue
		}
		require.ErrorIs(t, err, executor.ErrHarness)
		require.ErrorContains(t, err, c.want)
	}
}

// TestDeflakeRepeats: five repeats, each the same in all words; a repeat that cannot be run is an error of its own.
func TestDeflakeRepeats(t *testing.T) {
	tr, err := trace.ParseString("x.trace", "alloc 0 1\n")
	require.NoError(t, err)
	f := executor.Finding{Property: "p", Rule: "r", Target: "t", Operation: "alloc 0 1", At: "alloc", Detail: "at 0x7f00"}
	other := f
	other.Detail = "at 0x7f01"
	broken := errors.New("no device")
	for _, c := range []struct {
		repeats []any
		want    string
	}{
		{[]any{f, f, f, f, f}, ""},
		{[]any{f, f, f, f, nil}, "in repeat 5 of 5: p/r on t at operation 0 (alloc 0 1): at 0x7f00; there was no finding"},
		{[]any{f, other}, "in repeat 2 of 5: p/r on t at operation 0 (alloc 0 1): at 0x7f00; there was another finding: " +
			"p/r on t at operation 0 (alloc 0 1): at 0x7f01"},
		{[]any{f, broken}, "no device"},
	} {
		n := 0
		err := campaign.Deflake(&f, tr, func() (*executor.Result, error) {
			n++
			switch v := c.repeats[n-1].(type) {
			case executor.Finding:
				return &executor.Result{Findings: []executor.Finding{v}}, nil
			case error:
				return nil, v
			}
			return &executor.Result{}, nil
		})
		require.Equal(t, len(c.repeats), n)
		if c.want == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.Equal(t, c.want != "no device", errors.Is(err, executor.ErrHarness))
		require.Equal(t, c.want != "no device", strings.HasPrefix(err.Error(), "harness fault: x.trace (trace "+tr.ID()+")"))
	}
}

// TestDeflakeElsewhere: where the allocator runs in a process of its own, a finding that comes out otherwise stands, and says so.
func TestDeflakeElsewhere(t *testing.T) {
	tr, err := trace.ParseString("x.trace", "alloc 0 1\n")
	require.NoError(t, err)
	f := executor.Finding{Property: "survives", Rule: "crashed", Target: "t", At: "alloc", Detail: "SIGSEGV"}
	n := 0
	require.NoError(t, campaign.Deflake(&f, tr, func() (*executor.Result, error) {
		if n++; n < 3 {
			return &executor.Result{Elsewhere: true, Findings: []executor.Finding{f}}, nil
		}
		return &executor.Result{Elsewhere: true}, nil
	}))
	require.Equal(t, "SIGSEGV (repeat 3 of 5 ended otherwise)", f.Detail)
}

// TestFindings: one a signature, with the smallest trace.
func TestFindings(t *testing.T) {
	var all campaign.Findings
	at := func(rule, target string, op int) executor.Finding {
		return executor.Finding{Property: "p", Rule: rule, Target: target, Op: op, At: "alloc"}
	}
	for i, c := range []struct {
		f     executor.Finding
		text  string
		place int
		kept  bool
	}{
		{at("r", "classic", 2), "alloc 0 1\nalloc 1 1\nalloc 2 1\n", 0, true},
		{at("r", "classic@max_split_size_mb:64", 3), "alloc 0 1\nalloc 1 1\nalloc 2 1\nalloc 3 1\n", 0, false},
		{at("other", "classic", 0), "alloc 0 1\n", 1, true},
		{at("r", "expandable", 0), "alloc 0 1\n", 2, true},
		{at("r", "classic", 1), "alloc 0 1\nalloc 1 1\n", 0, true},
		{at("r", "classic", 1), "alloc 0 1\nalloc 1 1\n", 0, false}, // equal: the earlier one stays
	} {
		tr, err := trace.ParseString(string(rune('a'+i)), c.text)
		require.NoError(t, err)
		place, kept := all.Add(c.f, tr, c.f.Target, 2<<20)
		require.Equal(t, []any{c.place, c.kept}, []any{place, kept}, "finding %d", i)
	}
	list := all.All()
	require.Len(t, list, 3)
	require.Equal(t, []any{"p.r.classic.alloc", 4, "a", "e", 1}, []any{
		list[0].Signature, list[0].Count, list[0].First, list[0].Trace.Name, list[0].Op,
	})
	require.Equal(t, "p.other.classic.alloc", list[1].Signature)
	require.Equal(t, "p.r.expandable.alloc", list[2].Signature)
}
