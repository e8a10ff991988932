package properties

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/allocators/device/simdev"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
)

// TestVariants: which trace is run beside a trace, operation by operation, as testdata/variants.txt has it; -update writes it anew.
func TestVariants(t *testing.T) {
	const name = "testdata/variants.txt"
	makers := map[string]variant{
		"renamed": renamed, "frees shuffled": freesShuffled, "pairs inserted": insertPairs, "emptied twice": doubleEmptyCache, "run twice": runTwice,
	}
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	cases := strings.Split(string(data), "\n== ")
	for i, c := range cases[1:] {
		of, rest, _ := strings.Cut(c, "\n")
		text, _, _ := strings.Cut(rest, "---\n")
		tr, err := trace.ParseString(of, text)
		require.NoError(t, err)
		require.Contains(t, makers, of)
		v, at := makers[of](tr, rand.New(variantSeed(tr)))
		cases[i+1] = fmt.Sprintf("%s\n%s---\n%s", of, text, paired(v, at))
	}
	got := strings.Join(cases, "\n== ")
	if flag.Lookup("update").Value.String() == "true" {
		require.NoError(t, os.WriteFile(name, []byte(got), 0o644))
		return
	}
	require.Equal(t, string(data), got)
}

// paired writes the operations of a variant, each behind the number of the one that it must decide as.
func paired(v *trace.Trace, at []int) string {
	if v == nil {
		return "none\n"
	}
	of := map[int]int{}
	for i, k := range at {
		of[k] = i
	}
	var out strings.Builder
	for k := range v.Ops {
		if i, ok := of[k]; ok {
			fmt.Fprintf(&out, "%d: %s\n", i, &v.Ops[k])
		} else {
			fmt.Fprintf(&out, "-: %s\n", &v.Ops[k])
		}
	}
	return out.String()
}

func sim(capacity uint64) (device.Device, error) {
	return simdev.New(simdev.Options{Capacity: capacity})
}

// second is the caching allocator with something else done at each request.
type second struct {
	*caching.Allocator
	alloc func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error)
}

func (o *second) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	return o.alloc(o.Allocator, n, s)
}

// nameless is an allocator that declares nothing.
type nameless struct{ allocators.Allocator }

// TestSameAs: what is compared of two runs, where the allocator of the second does as the case says.
func TestSameAs(t *testing.T) {
	tr, err := trace.ParseString("same", "alloc 0 3MiB\nalloc 1 100\nfree 0\n")
	require.NoError(t, err)
	again := func(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) { return t, identity(len(t.Ops)) }
	plain := func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) { return a.Alloc(n, s) }
	more := func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
		a.Stats().ReservedBytes.All.Add(512)
		return a.Alloc(n, s)
	}
	for _, c := range []struct {
		name     string
		nameless bool
		alloc    func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error)
		make     variant
		holds    func(*executor.Case, []event, []int) bool
		want     string
	}{
		{"nothing", false, plain, again, nil, ""},
		{"other blocks", false, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
			return a.Alloc(n+n/3, s)
		}, again, nil,
			"operation 0 (alloc 0 3145728): alloc ok, block of 3145728 bytes at offset 0 of segment 1; " +
				"in the variant, as operation 0: alloc ok, block of 4194304 bytes at offset 0 of segment 1"},
		{"other reserved bytes", false, more, again, nil, "after operation 0 (alloc 0 3145728) 20971520 bytes are reserved and 3145728 allocated; " +
			"in the variant, after operation 0, 20972032 and 3145728"},
		{"other allocated bytes", false, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
			if n == 100 {
				a.Stats().AllocatedBytes.All.Add(512)
			}
			return a.Alloc(n, s)
		}, func(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) {
			return with(t, append([]trace.Op{{Kind: trace.Sync, Stream: trace.AllStreams}}, t.Ops...)), []int{1, 2, -1}
		}, nil, "after operation 1 (alloc 1 100) 23068672 bytes are reserved and 3146240 allocated; in the variant, after operation 2, 23068672 and 3146752"},
		{"a refusal", false, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
			if n == 100 {
				return allocators.Block{}, device.ErrOutOfMemory
			}
			return a.Alloc(n, s)
		}, again, nil, "operation 1 (alloc 1 100): alloc ok, block of 512 bytes at offset 0 of segment 2; in the variant, as operation 1: alloc oom"},
		{"the second ends early", false, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
			if n == 100 {
				return allocators.Block{}, errors.New("sorry")
			}
			return a.Alloc(n, s)
		}, again, nil, ""},
		{"only what stands for another", false, more, func(t *trace.Trace, _ *rand.Rand) (*trace.Trace, []int) { return t, []int{-1, -1, -1} }, nil, ""},
		{"no variant", false, more, func(*trace.Trace, *rand.Rand) (*trace.Trace, []int) { return nil, nil }, nil, ""},
		{"a condition that does not hold", false, more, again, func(*executor.Case, []event, []int) bool { return false }, ""},
		{"a condition that holds", false, more, again, func(*executor.Case, []event, []int) bool { return true },
			"after operation 0 (alloc 0 3145728) 20971520 bytes are reserved and 3145728 allocated; in the variant, after operation 0, 20972032 and 3145728"},
		{"nothing is declared", true, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
			return a.Alloc(n+n/3, s)
		}, again, nil, ""},
	} {
		made := 0
		target := executor.Target{Name: "second", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := caching.New(d, caching.DefaultSettings())
			o := &second{a, plain}
			if made++; made == 3 { // the first is asked for its promise
				o.alloc = c.alloc
			}
			if c.nameless {
				return nameless{o}, err
			}
			return o, err
		}}
		v, err := sameAs("rule", false, c.make, c.holds)(&executor.Case{Trace: tr, Target: target, Capacity: 100 << 20, NewDevice: sim})
		require.NoError(t, err, c.name)
		if c.want == "" {
			require.Nil(t, v, c.name)
			continue
		}
		require.NotNil(t, v, c.name)
		require.Equal(t, "rule: "+c.want, v.Rule+": "+v.Detail, c.name)
	}
}

// TestApart: of whom and of which traces it is asked whether streams, and pools, stay apart; and that of several classes each is run alone.
func TestApart(t *testing.T) {
	half := 0.5
	// later gives each request more the later it comes.
	later := func(calls int, n uint64) uint64 { return n + uint64(calls)<<20 }
	const mixed = "alloc 0 5MiB stream=1\nalloc 1 1000\nalloc 2 1000 stream=1\nalloc 3 5MiB\n"
	for _, c := range []struct {
		name, text string
		fraction   *float64
		nameless   bool
		asks       func(calls int, n uint64) uint64 // 0: it fails
		found      bool
	}{
		{"as it should be", mixed, nil, false, func(_ int, n uint64) uint64 { return n }, false},
		{"later is more", mixed, nil, false, later, true},
		{"the whole ends early", mixed, nil, false, func(calls int, n uint64) uint64 {
			if calls == 3 {
				return 0
			}
			return n
		}, false},
		{"under a limit", mixed, &half, false, later, false},
		{"with a limit on the way", mixed + "fraction 0.5\n", nil, false, later, false},
		{"with settings on the way", mixed + "conf max_split_size_mb:21\n", nil, false, later, false},
		{"in a pool", "pool begin 1\n" + mixed + "pool end 1\n", nil, false, later, false},
		{"nothing is declared", mixed, nil, true, later, false},
	} {
		tr, err := trace.ParseString(c.name, c.text)
		require.NoError(t, err)
		target := executor.Target{Name: "apart", New: func(d device.Device) (allocators.Allocator, error) {
			set := caching.DefaultSettings()
			if set.HasFraction = c.fraction != nil; set.HasFraction {
				set.Fraction = *c.fraction
			}
			a, err := caching.New(d, set)
			calls := 0
			o := &second{a, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
				calls++
				if n = c.asks(calls, n); n == 0 {
					return allocators.Block{}, errors.New("sorry")
				}
				return a.Alloc(n, s)
			}}
			if c.nameless {
				return nameless{o}, err
			}
			return o, err
		}}
		for _, r := range []executor.Relation{StreamsApart, PoolsApart} {
			v, err := r.Check(&executor.Case{Trace: tr, Target: target, Capacity: 100 << 20, NewDevice: sim})
			require.NoError(t, err)
			require.Equal(t, c.found, v != nil, "%s: %s: %v", r.ID, c.name, v)
		}
	}
	// Stream 3 gets something else if nobody was there before it.
	tr, err := trace.ParseString("three", "alloc 0 5MiB stream=1\nalloc 1 5MiB stream=2\nsync\nalloc 2 5MiB stream=3\n")
	require.NoError(t, err)
	v, err := StreamsApart.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: sim, Target: executor.Target{
		Name: "three", New: func(d device.Device) (allocators.Allocator, error) {
			a, err := caching.New(d, caching.DefaultSettings())
			calls := 0
			return &second{a, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
				if calls++; calls == 1 && s == 3 {
					n += 1 << 20
				}
				return a.Alloc(n, s)
			}}, err
		}}})
	require.NoError(t, err)
	require.NotNil(t, v)
	require.Equal(t, "operation 3 (alloc 2 5242880 stream=3): alloc ok, block of 5242880 bytes at offset 0 of segment 3; "+
		"with the allocations of its class alone: alloc ok, block of 6291456 bytes at offset 0 of segment 1", v.Detail)
	// Where streams 2 and 3 get something else alone, it is always the lower one that is named.
	for range 20 {
		v, err = StreamsApart.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: sim, Target: executor.Target{
			Name: "first", New: func(d device.Device) (allocators.Allocator, error) {
				a, err := caching.New(d, caching.DefaultSettings())
				calls := 0
				return &second{a, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
					if calls++; calls > 1 {
						n += 1 << 20
					}
					return a.Alloc(n, s)
				}}, err
			}}})
		require.NoError(t, err)
		require.NotNil(t, v)
		require.Contains(t, v.Detail, "operation 1 (alloc 1 5242880 stream=2)")
	}
}

// TestProgramViewLeavesOut: what changes settings, limits and what others hold is left out, and with pools what empties caches: under
// the first of the settings the second block counts twice, so that a violation shows that the run got that far.
func TestProgramViewLeavesOut(t *testing.T) {
	with := func(conf string) (executor.Target, error) {
		return executor.Target{Name: conf, New: func(d device.Device) (allocators.Allocator, error) {
			set, _, err := caching.ParseSettings(conf)
			if err != nil {
				return nil, err
			}
			a, err := caching.New(d, set)
			return &second{a, func(a *caching.Allocator, n uint64, s device.Stream) (allocators.Block, error) {
				if conf == "" && n == 100 {
					a.Stats().Allocation.All.Add(1)
				}
				return a.Alloc(n, s)
			}}, err
		}}, nil
	}
	target, err := with("garbage_collection_threshold:0.9")
	require.NoError(t, err)
	for head, at := range map[string]int{
		"": 1, "conf roundup_power2_divisions:1\n": 1, "fraction 0.2\n": 1, "foreign 40MiB\n": 1, "empty_cache\n": 2, "sync\n": 2,
		"pool begin 1\npool end 1\nempty_cache pool=1\n": 3, "pool begin 1\nempty_cache\npool end 1\n": 3,
	} {
		tr, err := trace.ParseString("view", head+"alloc 0 33MiB\nalloc 1 100\nfree 0\n")
		require.NoError(t, err)
		v, err := SameProgramView.Check(&executor.Case{Trace: tr, Target: target, Capacity: 60 << 20, With: with, NewDevice: sim})
		require.NoError(t, err)
		require.NotNil(t, v, head)
		require.Equal(t, fmt.Sprintf(`operation %d (alloc 1 100): ok, 2 blocks live; under the settings "" ok, 3 blocks live`, at), v.Detail, head)
	}
}

// TestMatcher: which segments of two runs stand for each other is kept, both ways.
func TestMatcher(t *testing.T) {
	m := newMatcher()
	for i, c := range []struct {
		e, f event
		same bool
	}{
		{event{segment: 1}, event{segment: 2}, true},
		{event{segment: 2}, event{segment: 1}, true},
		{event{segment: 1}, event{segment: 2}, true},
		{event{segment: 1}, event{segment: 1}, false},
		{event{segment: 3}, event{segment: 1}, false},
		{event{segment: 1}, event{segment: 3}, false},
		{event{segment: 3}, event{segment: 3}, true},
		{event{segment: 4}, event{}, false},
		{event{}, event{segment: 4}, false},
		{event{}, event{}, true},
		{event{kind: trace.Free}, event{}, false},
		{event{outcome: executor.OOM}, event{}, false},
		{event{segment: 1, offset: 512}, event{segment: 2}, false},
		{event{segment: 1, size: 512}, event{segment: 2}, false},
		{event{segment: 1, offset: 512, size: 512}, event{segment: 2, offset: 512, size: 512}, true},
	} {
		require.Equal(t, c.same, m.same(&c.e, &c.f), "%d", i)
	}
}

// TestPairsBoughtNothing: of the operations that were put in, none bought anything or was refused; the others may.
func TestPairsBoughtNothing(t *testing.T) {
	bought, refused := event{bought: true}, event{outcome: executor.OOM}
	for i, c := range []struct {
		v    []event
		at   []int
		want bool
	}{
		{[]event{bought, {}, {}, refused}, []int{0, 3}, true},
		{[]event{{}, bought, {}, {}}, []int{0, 3}, false},
		{[]event{{}, {}, bought, {}}, []int{0, 3}, false},
		{[]event{{}, refused, {}, {}}, []int{0, 3}, false},
		{[]event{{}, {}, {}, bought}, []int{0, 1}, false},
		{[]event{bought, bought}, []int{0, 1, 2}, true},
	} {
		require.Equal(t, c.want, pairsBoughtNothing(nil, c.v, c.at), "%d", i)
	}
}

// TestDropSetting: one setting goes, the others stay as they are.
func TestDropSetting(t *testing.T) {
	for conf, want := range map[string]string{
		"":                 "",
		"a:1":              "",
		"b:1":              "b:1",
		"a:1,b:2":          "b:2",
		"b:2,a:1":          "b:2",
		"b:2, a:1 ,c:3":    "b:2,c:3",
		"b:2,,c:3,":        "b:2,c:3",
		"b:[x:1,a:2],a:1":  "b:[x:1,a:2]",
		"a:[x:1,a:2],b:1":  "b:1",
		"b:[x,[y,a],z],a:": "b:[x,[y,a],z]",
	} {
		require.Equal(t, want, dropSetting(conf, "a"), conf)
	}
}
