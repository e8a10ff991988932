package properties_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/catalog"
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/executor"
	"github.com/shatter-gpu/shatter/harness/trace"
	"github.com/shatter-gpu/shatter/properties"
)

// full is what the caching allocator can do.
type full interface {
	allocators.Allocator
	allocators.StreamRecorder
	allocators.CacheEmptier
	allocators.StatsReader
	allocators.Snapshotter
	allocators.Toucher
	allocators.Promiser
}

// bent is the caching allocator with one thing bent.
type bent struct {
	full
	alloc   func(n uint64, s device.Stream) (uint64, device.Stream) // what is asked instead
	free    func(addr device.Addr, err error) error
	record  func(err error) error
	promise func(p allocators.Promise) allocators.Promise
	empty   func() error
	list    func(s *allocators.Snapshot)
	calls   int
}

func (b *bent) Alloc(n uint64, s device.Stream) (allocators.Block, error) {
	b.calls++
	if b.alloc != nil {
		n, s = b.alloc(n, s)
	}
	return b.full.Alloc(n, s)
}

func (b *bent) Free(a device.Addr) error {
	err := b.full.Free(a)
	if b.free != nil {
		return b.free(a, err)
	}
	return err
}

func (b *bent) Record(a device.Addr, s device.Stream) error {
	err := b.full.Record(a, s)
	if b.record != nil {
		return b.record(err)
	}
	return err
}

func (b *bent) EmptyCache() error {
	if b.empty != nil {
		if err := b.empty(); err != nil {
			return err
		}
	}
	return b.full.EmptyCache()
}

func (b *bent) Snapshot(into *allocators.Snapshot) {
	b.full.Snapshot(into)
	if b.list != nil {
		b.list(into)
	}
}

func (b *bent) Promise() allocators.Promise {
	p := b.full.Promise()
	if b.promise != nil {
		p = b.promise(p)
	}
	return p
}

func bend(t *testing.T, alloc string, how func(*bent)) executor.Target {
	t.Helper()
	spec, err := catalog.Parse(alloc)
	require.NoError(t, err)
	return executor.Target{Name: alloc, New: func(d device.Device) (allocators.Allocator, error) {
		a, err := spec.New(d)
		b := &bent{full: a.(full)}
		how(b)
		return b, err
	}}
}

// TestPropertiesSeeBentAllocators: each property sees a fault made for it, on a trace of a few operations.
func TestPropertiesSeeBentAllocators(t *testing.T) {
	for _, c := range []struct {
		want, alloc, text string
		how               func(*bent)
	}{
		{"placement.stream.classic.alloc", "classic", "alloc 0 5MiB\nfree 0\nalloc 1 5MiB stream=1\n",
			func(b *bent) { b.alloc = func(n uint64, _ device.Stream) (uint64, device.Stream) { return n, 0 } }},
		{"placement.pool.classic.alloc", "classic", "alloc 0 5MiB\nfree 0\nalloc 1 1MiB\n",
			func(b *bent) {
				b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(b.calls) - 1, s }
			}},
		{"placement.split.classic.alloc", "classic", "alloc 0 5MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.MaxSplitSize = 5 << 20; return p }
		}},
		{"placement.I3.classic.alloc", "classic", "alloc 0 3MiB\n",
			func(b *bent) {
				b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + 2<<20, s }
			}},
		{"served-as-promised.I8.classic.alloc", "classic", "alloc 0 5MiB\nfree 0\nalloc 1 3MiB\nalloc 2 12MiB\nfree 1\nalloc 3 3040870\n",
			func(b *bent) { // asks for a little more, so that the best block is passed over; the split rule hides it
				b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) {
					if b.calls == 4 {
						return 3355648, s
					}
					return n, s
				}
			}},
		{"served-as-promised.N.classic.alloc", "classic@x_memory_fraction:0.5", "alloc 0 12MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.Limit = 1 << 20; return p }
		}},
		{"fraction-limit.D2.classic.alloc", "classic@x_memory_fraction:0.5", "alloc 0 12MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.Limit, p.Void = 1<<20, "planted"; return p }
		}},
		{"whole-pages.X1.expandable.walk", "expandable", "alloc 0 5MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise {
				p.PageSize = func(bool) uint64 { return 60 << 20 }
				return p
			}
		}},
		{"whole-pages.X3.expandable.walk", "expandable", "alloc 0 5MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise {
				p.PageSize = func(bool) uint64 { return 7 << 20 }
				return p
			}
		}},
		{"served-as-promised.needless-purchase.classic.alloc", "classic", "alloc 0 5MiB\nfree 0\nalloc 1 5MiB\n", func(b *bent) {
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) {
				if b.calls == 2 { // buys on another stream although a block is there
					if extra, err := b.full.Alloc(40<<20, 5); err == nil {
						_ = b.full.Free(extra.Addr)
					}
				}
				return n, s
			}
		}},
		{"served-as-promised.X.expandable.alloc", "expandable@x_memory_fraction:0.5", "alloc 0 12MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.Limit = 1 << 20; return p }
		}},
		{"served-as-promised.N.classic.alloc", "classic@x_memory_fraction:0.5,x_lookup_after_flush:True", "alloc 0 12MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.Limit = 1 << 20; return p }
		}},
		{"device-counters.A9.classic.walk", "classic", "alloc 0 5MiB\n", func(b *bent) { b.Stats().NumDeviceAlloc++ }},
		{"device-counters.A14.classic.walk", "classic", "alloc 0 5MiB\n", func(b *bent) { b.Stats().NumOOMs++ }},
		{"device-counters.A11.classic.walk", "classic@max_split_size_mb:21", "alloc 0 30MiB\n", func(b *bent) {
			b.promise = func(p allocators.Promise) allocators.Promise { p.MaxSplitSize = 25 << 20; return p }
			b.Stats().OversizeAllocations.Add(1)
		}},
	} {
		tr, err := trace.ParseString(c.want, c.text)
		require.NoError(t, err)
		dev, err := simulated(256 << 20)
		require.NoError(t, err)
		res, err := executor.Execute(executor.Compile(tr), bend(t, c.alloc, c.how), executor.Options{
			Device: dev, Properties: properties.All(), Judge: properties.NewJudge(),
		})
		require.NoError(t, err)
		require.NotEmpty(t, res.Findings, c.want)
		require.Equal(t, c.want, res.Findings[0].Signature(), "%s", &res.Findings[0])
	}
}

// TestRelationsSeeBentAllocators: each relation sees a fault made for it.
func TestRelationsSeeBentAllocators(t *testing.T) {
	made := 0 // allocators, so that two runs differ
	for _, c := range []struct {
		relation executor.Relation
		rule     string
		text     string
		how      func(*bent)
	}{
		{properties.Repeatable, "P2", "alloc 0 5MiB\n", func(b *bent) {
			made++
			n := uint64(made)
			b.alloc = func(bytes uint64, s device.Stream) (uint64, device.Stream) { return bytes + n<<20, s }
		}},
		{properties.NamesDoNotMatter, "renamed", "alloc 0 5MiB\n", func(b *bent) {
			made++
			n := uint64(made)
			b.alloc = func(bytes uint64, s device.Stream) (uint64, device.Stream) { return bytes + n<<20, s }
		}},
		{properties.StreamsApart, "P3", "alloc 0 5MiB stream=1\nalloc 1 5MiB\n", func(b *bent) {
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(b.calls)<<20, s }
		}},
		{properties.PoolsApart, "P4", "alloc 0 5MiB\nalloc 1 1000\nalloc 2 1000\n", func(b *bent) {
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(b.calls)<<10, s }
		}},
		{properties.EmptyTwice, "E4", "alloc 0 5MiB\nempty_cache\nalloc 1 5MiB\n", func(b *bent) {
			emptied := uint64(0)
			b.empty = func() error { emptied++; return nil }
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + emptied<<20, s }
		}},
		{properties.EmptyTwice, "E4", "alloc 0 5MiB\nfree 0\nempty_cache\n", func(b *bent) { // seen although nothing follows
			emptied := 0
			b.empty = func() (err error) {
				if emptied++; emptied == 2 {
					_, err = b.full.Alloc(5<<20, 0)
				}
				return err
			}
		}},
		{properties.StartsAnew, "split", "alloc 0 5MiB\nfree 0\n", func(b *bent) {
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(b.calls)<<20, s }
		}},
		{properties.WrongCalls, "error", "alloc 0 5MiB\n", func(b *bent) {
			b.free = func(_ device.Addr, err error) error {
				if err != nil {
					return errors.New("what was that?")
				}
				return nil
			}
		}},
		{properties.WrongCalls, "changed", "alloc 0 5MiB\nfree 0\nalloc 1 5MiB\n", func(b *bent) {
			b.free = func(_ device.Addr, err error) error {
				if err != nil { // tells, but gives back the cache on the way
					return errors.Join(err, b.full.EmptyCache())
				}
				return nil
			}
		}},
		{properties.WrongCalls, "changed", "alloc 0 5MiB\n", func(b *bent) {
			b.free = func(_ device.Addr, err error) error {
				if err != nil {
					b.Stats().NumOOMs++
				}
				return err
			}
		}},
		{properties.WrongCalls, "changed", "alloc 0 5MiB\n", changesList(func(s *allocators.Snapshot) { s.Blocks[0].Stream++ })},
		{properties.WrongCalls, "changed", "alloc 0 5MiB\n", changesList(func(s *allocators.Snapshot) { s.Segments[0].Stream++ })},
		{properties.WrongCalls, "null", "alloc 0 5MiB\n", func(b *bent) {
			b.free = func(a device.Addr, err error) error {
				if a == 0 {
					return errors.New("what was that?")
				}
				return err
			}
		}},
		{properties.WrongCalls, "accepted", "alloc 0 5MiB\n", func(b *bent) { b.record = func(error) error { return nil } }},
		{properties.FreeOrder, "P5", "alloc 0 2MiB\nalloc 1 3MiB\nalloc 2 4MiB\nalloc 3 5MiB\nalloc 4 6MiB\nfree 0\nfree 1\nfree 2\nfree 3\nfree 4\nalloc 5 2MiB\n", func(b *bent) {
			var last device.Addr // the next request is served as if it depended on the block freed last
			b.free = func(a device.Addr, err error) error { last = a; return err }
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(last%(20<<20))/512*512, s }
		}},
		{properties.AllocThenFree, "P1", strings.Repeat("alloc 0 1000\nfree 0\n", 12) + "alloc 1 1000\n", func(b *bent) {
			b.alloc = func(n uint64, s device.Stream) (uint64, device.Stream) { return n + uint64(b.calls)<<9, s }
		}},
	} {
		tr, err := trace.ParseString(c.relation.ID, c.text)
		require.NoError(t, err)
		v, err := c.relation.Check(&executor.Case{Trace: tr, Target: bend(t, "classic", c.how), Capacity: 256 << 20, NewDevice: simulated})
		require.NoError(t, err)
		require.NotNil(t, v, c.relation.ID)
		require.Equal(t, c.rule, v.Rule, v.Detail)
	}
}

// changesList has a wrong call change the list of blocks, and nothing else.
func changesList(edit func(*allocators.Snapshot)) func(*bent) {
	return func(b *bent) {
		wrong := false
		b.free = func(_ device.Addr, err error) error {
			wrong = wrong || err != nil
			return err
		}
		b.list = func(s *allocators.Snapshot) {
			if wrong {
				edit(s)
			}
		}
	}
}

// takesForDone has a device say of every event that it is done.
func takesForDone(d *deaf) { d.done = func(device.Event) (bool, error) { return true, nil } }

// TestReferenceSeesWrongDecisions: the reference sees an allocator that goes wrong because of the device that it stands on.
func TestReferenceSeesWrongDecisions(t *testing.T) {
	for rule, c := range map[string]struct {
		text string
		how  func(*deaf)
	}{
		"":        {"alloc 0 5MiB\nfree 0\nempty_cache\n", func(*deaf) {}},
		"refused": {"alloc 0 5MiB\n", func(d *deaf) { d.malloc = func(uint64) (device.Addr, error) { return 0, device.ErrOutOfMemory } }},
		"served": {"alloc 0 200MiB\n", func(d *deaf) {
			d.malloc = func(uint64) (device.Addr, error) { return d.Device.Malloc(2 << 20) }
		}},
		"block": {"alloc 0 5MiB\n", func(d *deaf) {
			d.malloc = func(size uint64) (device.Addr, error) {
				_, err := d.Device.Malloc(2 << 20)
				a, err2 := d.Device.Malloc(size)
				return a, errors.Join(err, err2)
			}
		}},
		"device_free": {"alloc 0 5MiB\nfree 0\nempty_cache\n", func(d *deaf) { d.free = func(device.Addr) error { return nil } }},
		"segment":     {"alloc 0 5MiB\nrecord 0 stream=1\nfree 0\nalloc 1 2000\n", takesForDone},
		"blocks":      {"alloc 0 10MiB\nrecord 0 stream=1\nfree 0\nalloc 1 2000\n", takesForDone},
	} {
		tr, err := trace.ParseString(rule, c.text)
		require.NoError(t, err)
		v, err := properties.AgreesWithReference.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: simulated,
			Target: executor.Target{Name: "classic", New: func(d device.Device) (allocators.Allocator, error) {
				wrapped := &deaf{Device: d}
				c.how(wrapped)
				return caching.New(wrapped, caching.DefaultSettings())
			}}})
		require.NoError(t, err)
		if rule == "" {
			require.Nil(t, v, "the same without a fault")
			continue
		}
		require.NotNil(t, v, rule)
		require.Equal(t, rule, v.Rule, v.Detail)
	}
}

// TestReferenceSeesWrongStatistics: peaks, and sums of increases and decreases, that fit among themselves and with what there is.
func TestReferenceSeesWrongStatistics(t *testing.T) {
	tr, err := trace.ParseString("statistics", "alloc 0 5MiB\nalloc 1 30MiB\nfree 0\n")
	require.NoError(t, err)
	for rule, edit := range map[string]func(*allocators.Stats){
		"":                     func(*allocators.Stats) {},
		"allocated_bytes":      func(s *allocators.Stats) { s.AllocatedBytes.All.Peak += 1 << 30 },
		"active":               func(s *allocators.Stats) { s.Active.Large.Peak += 5 },
		"reserved_bytes":       func(s *allocators.Stats) { s.ReservedBytes.Add(false, 512); s.ReservedBytes.Sub(false, 512) },
		"inactive_split_bytes": func(s *allocators.Stats) { s.InactiveSplitBytes.Add(true, 512); s.InactiveSplitBytes.Sub(true, 512) },
		"oversize_segments":    func(s *allocators.Stats) { s.OversizeSegments.Add(1); s.OversizeSegments.Sub(1) },
		"num_ooms":             func(s *allocators.Stats) { s.NumOOMs++ },
		"max_split_size":       func(s *allocators.Stats) { s.MaxSplitSize = 0 },
	} {
		v, err := properties.AgreesWithReference.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: simulated,
			Target: executor.Target{Name: "classic", New: func(d device.Device) (allocators.Allocator, error) {
				wrapped := &deaf{Device: d}
				a, err := caching.New(wrapped, caching.DefaultSettings())
				wrapped.malloc = func(size uint64) (device.Addr, error) {
					edit(a.Stats())
					return d.Malloc(size)
				}
				return a, err
			}}})
		require.NoError(t, err)
		if rule == "" {
			require.Nil(t, v, "the same with right statistics")
			continue
		}
		require.NotNil(t, v, rule)
		require.Equal(t, rule, v.Rule, v.Detail)
	}
}

// TestReferenceSeesWrongRefusals: what a refusal says is held against the reference, figure by figure.
func TestReferenceSeesWrongRefusals(t *testing.T) {
	tr, err := trace.ParseString("refusal", "alloc 0 5MiB\nalloc 1 200MiB\n")
	require.NoError(t, err)
	var a *caching.Allocator
	v, err := properties.AgreesWithReference.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: simulated,
		Target: executor.Target{Name: "classic", New: func(d device.Device) (_ allocators.Allocator, err error) {
			a, err = caching.New(&deaf{Device: d, malloc: func(size uint64) (device.Addr, error) {
				if size == 200<<20 {
					a.Stats().AllocatedBytes.All.Current++
				}
				return d.Malloc(size)
			}}, caching.DefaultSettings())
			return a, err
		}}})
	require.NoError(t, err)
	require.NotNil(t, v)
	require.Equal(t, "refusal", v.Rule, v.Detail)
}

// TestReferenceFollows: the reference goes along with all that a trace does, and is asked only about what it knows.
func TestReferenceFollows(t *testing.T) {
	sees := func(text string, made func(d device.Device) (allocators.Allocator, error)) *executor.Violation {
		tr, err := trace.ParseString("follows", text)
		require.NoError(t, err)
		v, err := properties.AgreesWithReference.Check(&executor.Case{Trace: tr, Capacity: 100 << 20, NewDevice: simulated,
			Target: executor.Target{Name: "follows", New: made}})
		require.NoError(t, err)
		return v
	}
	for _, text := range []string{
		"alloc 0 30MiB\nfree 0\nconf max_split_size_mb:21\nalloc 1 10MiB\nalloc 2 10MiB\n",
		"foreign 85MiB\nalloc 0 5MiB\nforeign 0\nalloc 1 30MiB\n",
		"alloc 0 50MiB\nforeign 85MiB\nfree 0\nalloc 1 30MiB\n", // others cannot have it
		"pool begin 1\nalloc 0 5MiB\nrecord 0 stream=1\nuse 0 stream=1\nfree 0\nalloc 1 5MiB\nalloc 2 100MiB\npool end 1\nalloc 3 60MiB\npool release 1\nempty_cache pool=1\nempty_cache\n",
		// What is unmapped there waits for stream 1, on which the first block is used.
		"alloc 0 1\nrecord 0 stream=1\nfree 0\nconf expandable_segments:True\npool begin 1\nalloc 1 1 stream=1\nfree 1\npool end 1\n" +
			"pool release 1\nempty_cache pool=1\nalloc 2 1 stream=1\n",
		"fraction 0.2\nalloc 0 30MiB\nalloc 1 0\nfree 1\nalloc 2 5MiB\nrecord 2 stream=1\nfree 2\nsync stream=1\nalloc 3 5MiB\nsync\nempty_cache\n",
	} {
		require.Nil(t, sees(text, func(d device.Device) (allocators.Allocator, error) { return caching.New(d, caching.DefaultSettings()) }), text)
	}
	small := func(rules func(*caching.Rules)) func(d device.Device) (allocators.Allocator, error) {
		return func(d device.Device) (allocators.Allocator, error) {
			set := caching.DefaultSettings()
			rules(&set.Rules)
			return caching.New(&deaf{Device: d, malloc: func(uint64) (device.Addr, error) { return d.Malloc(2 << 20) }}, set)
		}
	}
	require.NotNil(t, sees("alloc 0 5MiB\n", small(func(*caching.Rules) {})), "it buys too little")
	require.NotNil(t, sees("pool begin 1\nalloc 0 5MiB\nuse 0 stream=0\n", small(func(*caching.Rules) {})), "and for a private pool")
	require.Nil(t, sees("alloc 0 5MiB\n", small(func(r *caching.Rules) { r.Version = "2.8" })), "other rules")
	require.Nil(t, sees("segment 0 20MiB pool=large\nalloc 0 5MiB\n", small(func(*caching.Rules) {})), "a state to start from")
	require.Nil(t, sees("alloc 0 5MiB\n", shelves(func(*shelf) {}).New), "another allocator")
}
