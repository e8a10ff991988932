package properties_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/gen"
	"github.com/shatter-gpu/shatter/harness/shadow"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// TestPoolsHold: the caching allocator keeps every property with private pools and queued work, under the rules of each version; what
// breaks is a known issue, and only up to 2.12.
func TestPoolsHold(t *testing.T) {
	t.Parallel()
	w, err := gen.Find("graphs")
	require.NoError(t, err)
	known := map[string]int{}
	for i, name := range []string{
		"classic", "expandable", "classic@x_rules:2.9", "expandable@x_rules:2.11", "classic@x_rules:2.13", "expandable@x_rules:2.13", "direct",
	} {
		for k := range 25 {
			tr := gen.Generate(w, gen.Seed(uint64(i), "graphs", uint64(k)), gen.Params{Ops: 600})
			spec, err := catalog.Parse(name)
			require.NoError(t, err)
			capacity, _, err := tr.Capacity()
			require.NoError(t, err)
			dev, err := simulated(capacity)
			require.NoError(t, err)
			res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: name, New: spec.New},
				executor.Options{Device: dev, Properties: properties.All(), Judge: properties.NewJudge()})
			require.NoError(t, err)
			require.Empty(t, res.Findings, "%s on %s", name, w.Name)
			for _, f := range res.Known {
				known[name+" "+f.Known]++
			}
		}
	}
	t.Log(known)
	require.Positive(t, known["classic "+properties.Known175015])
	require.Positive(t, known["expandable@x_rules:2.11 "+properties.Known175015])
	require.Zero(t, known["classic@x_rules:2.13 "+properties.Known175015]+known["expandable@x_rules:2.13 "+properties.Known175015])
}

func TestPoolIsolation(t *testing.T) {
	alloc := &trace.Op{Kind: trace.Alloc}
	for _, c := range []struct {
		name string
		s    executor.State
		want string
	}{
		{"its own pool", executor.State{HasPools: true, Pool: 1, Region: &executor.Region{Pool: 1}}, ""},
		{"another pool", executor.State{HasPools: true, Pool: 1, Region: &executor.Region{Pool: 2}}, "isolation"},
		{"the default pool", executor.State{HasPools: true, Pool: 1, Region: &executor.Region{}}, "isolation"},
		{"from the default pool", executor.State{HasPools: true, Region: &executor.Region{Pool: 3}}, "isolation"},
		{"an allocator without pools", executor.State{Pool: 1, Region: &executor.Region{}}, ""},
		{"memory of a pool in use", executor.State{HasPools: true, Robbed: &executor.Region{Pool: 3}}, "robbed"},
		{"without pools nobody is robbed", executor.State{Robbed: &executor.Region{Pool: 3}}, ""},
	} {
		c.s.Operation = alloc
		if c.s.Region != nil {
			c.s.Entry = &shadow.Entry{}
		}
		v := properties.PoolIsolation.Op(&c.s)
		if c.want == "" {
			require.Nil(t, v, c.name)
			continue
		}
		require.NotNil(t, v, c.name)
		require.Equal(t, c.want, v.Rule, c.name)
	}
	refused := executor.State{HasPools: true, Pool: 1, Operation: alloc, Region: &executor.Region{}}
	require.Nil(t, properties.PoolIsolation.Op(&refused), "nothing was handed out")
	block := executor.State{HasPools: true, Operation: &trace.Op{Kind: trace.Block}, Entry: &shadow.Entry{}, Region: &executor.Region{Pool: 2}}
	require.Nil(t, properties.PoolIsolation.Op(&block), "a block of the state to start from lies where it says")
}

func TestWorkDone(t *testing.T) {
	home, forgotten := &shadow.Hazard{Home: true}, &shadow.Hazard{}
	later := allocators.Promise{Pools: allocators.PoolRules{CapturesOnly: true}}
	for _, c := range []struct {
		name        string
		s           executor.State
		rule, known string
	}{
		{"nothing", executor.State{KnowsStreams: true}, "", ""},
		{"reused", executor.State{KnowsStreams: true, HasPools: true, Queued: home}, "reused", ""},
		{"by an allocator that knows no streams", executor.State{Queued: home}, "", ""},
		{"unmapped", executor.State{HasPools: true, Unmapped: home}, "unmapped", ""},
		{"forgotten with a pool", executor.State{KnowsStreams: true, HasPools: true, Queued: forgotten}, "reused", properties.Known175015},
		{"forgotten, unmapped", executor.State{KnowsStreams: true, HasPools: true, Unmapped: forgotten}, "unmapped", properties.Known175015},
		{"forgotten without pools", executor.State{KnowsStreams: true, Queued: forgotten}, "reused", ""},
		{"forgotten by a later version", executor.State{KnowsStreams: true, HasPools: true, Queued: forgotten, Promise: later}, "reused", ""},
	} {
		c.s.Operation = &trace.Op{Kind: trace.Alloc}
		v := properties.WorkDone.Op(&c.s)
		if c.rule == "" {
			require.Nil(t, v, c.name)
			continue
		}
		require.NotNil(t, v, c.name)
		require.Equal(t, [2]string{c.rule, c.known}, [2]string{v.Rule, v.Known}, c.name)
	}
	for _, p := range properties.PropertiesWithoutKnown() {
		if p.ID == properties.WorkDone.ID {
			v := p.Op(&executor.State{KnowsStreams: true, HasPools: true, Queued: forgotten, Operation: &trace.Op{}})
			require.Empty(t, v.Known, "with --known off it is a finding")
			require.Nil(t, p.Op(&executor.State{Operation: &trace.Op{}}))
		}
	}
}

// TestEmptyCacheWithPools: what an empty_cache must return, and what not.
func TestEmptyCacheWithPools(t *testing.T) {
	const head = "pool begin 1\nalloc 0 20MiB\nfree 0\npool end 1\n"
	for text, returned := range map[string]uint64{
		head + "empty_cache\n":                                      0,
		head + "empty_cache pool=1\n":                               0,
		head + "pool release 1\nempty_cache\n":                      20 << 20,
		head + "pool release 1\nempty_cache pool=1\n":               20 << 20,
		head + "pool release 1\npool begin 2\nempty_cache pool=1\n": 0, // not now: unsupported
	} {
		tr, err := trace.ParseString("test", text)
		require.NoError(t, err)
		spec, err := catalog.Parse("classic")
		require.NoError(t, err)
		dev, err := simulated(100 << 20)
		require.NoError(t, err)
		outcomes := ""
		res, err := executor.Execute(executor.Compile(tr), executor.Target{Name: "classic", New: spec.New}, executor.Options{
			Device: dev, Properties: properties.All(), OnRow: func(w *executor.Row) { outcomes = fmt.Sprint(w.Outcome) },
		})
		require.NoError(t, err)
		require.Empty(t, res.Findings, text)
		require.EqualValues(t, 80<<20+returned, res.DeviceFree, text)
		if returned == 0 && len(tr.Ops) == 7 {
			require.Equal(t, "unsupported", outcomes)
		}
	}
}
