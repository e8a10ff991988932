package external

import (
	"github.com/shatter-gpu/shatter/allocators"
	"github.com/shatter-gpu/shatter/allocators/caching"
	"github.com/shatter-gpu/shatter/allocators/device"
)

// Target makes allocators that live in children of one command. It is safe for use by several goroutines.
type Target struct {
	// Label says what is behind it, for reports: `PyTorch 2.6.0+cu124`, a file name.
	Label string
	// Fraction is the memory-fraction call made once before the first operation, nil if none.
	Fraction *float64
	// Model are the settings under which the caching allocator's promise is expected of it; nil if nothing is promised.
	Model *caching.Settings

	pool pool
}

// NewTarget makes a target. No child is started before it is needed.
func NewTarget(c Command) *Target { return &Target{pool: pool{command: c}} }

// Check starts a child, has it begin a session and end it, so that what is wrong with the command or its settings is found
// before anything runs.
func (t *Target) Check() error {
	const capacity = 64 << 20
	s, err := openSession(&t.pool, capacity, t.Fraction, false, newStatistics())
	if err != nil {
		return err
	}
	s.finish(&t.pool)
	return nil
}

// Close ends the idle children.
func (t *Target) Close() error {
	t.pool.close()
	return nil
}

// New makes an allocator on a device, whose calls it makes as its child reports them.
func (t *Target) New(dev device.Device) (allocators.Allocator, error) {
	_, capacity := dev.Info()
	a := &Allocator{
		pool: &t.pool, dev: dev, capacity: capacity, fraction: t.Fraction, stats: newStatistics(), ids: map[device.Addr][]int32{},
		gone: map[int32]bool{},
	}
	p, err := t.pool.take() // to learn what it can; the session begins with the first call
	if err != nil {
		return nil, err
	}
	a.can = p.can
	t.pool.give(p)
	if t.Model != nil {
		m, err := newModel(*t.Model, t.Fraction, dev)
		if err != nil {
			return nil, err
		}
		a.model = m
	}
	return a.withAbilities(), nil
}

// model keeps the settings of the caching allocator that the child runs, for its promise.
type model struct {
	alloc *caching.Allocator
	void  string
}

func newModel(set caching.Settings, fraction *float64, dev device.Device) (*model, error) {
	if fraction != nil {
		set.HasFraction, set.Fraction = true, *fraction
	}
	a, err := caching.New(dev, set)
	if err != nil {
		return nil, err
	}
	return &model{alloc: a}, nil
}

func (m *model) promise() allocators.Promise {
	p := m.alloc.Promise()
	if m.void != "" {
		p.Void = m.void
	}
	return p
}

func (m *model) configure(conf string) {
	if err := m.alloc.Configure(conf); err != nil {
		m.void = "settings that this program does not know: " + conf
	}
}

func (m *model) setFraction(f float64) { _ = m.alloc.SetFraction(f) } // the child has accepted it

// The abilities that the harness finds by type assertion.
type (
	recorder   struct{ a *Allocator }
	emptier    struct{ a *Allocator }
	counter    struct{ a *Allocator }
	configurer struct{ a *Allocator }
	limiter    struct{ a *Allocator }
	declarer   struct{ a *Allocator }
	pooler     struct{ a *Allocator }
)

// Record implements allocators.StreamRecorder.
func (r recorder) Record(addr device.Addr, s device.Stream) error { return r.a.record(addr, s) }

// EmptyCache implements allocators.CacheEmptier.
func (e emptier) EmptyCache() error { return e.a.emptyCache() }

// Stats implements allocators.StatsReader.
func (c counter) Stats() *allocators.Stats { return c.a.readAll() }

// Configure implements allocators.Configurer.
func (c configurer) Configure(conf string) error { return c.a.configure(conf) }

// SetFraction implements allocators.FractionSetter.
func (l limiter) SetFraction(f float64) error { return l.a.setFraction(f) }

// Promise implements allocators.Promiser.
func (d declarer) Promise() allocators.Promise { return d.a.model.promise() }

// BeginPool implements allocators.PrivatePooler.
func (p pooler) BeginPool(r allocators.Redirection) error {
	return p.a.poolCall(allocators.Request{Kind: allocators.RequestPoolBegin, Pool: r.Pool, Stream: r.Stream, Capture: r.Capture})
}

// EndPool implements allocators.PrivatePooler.
func (p pooler) EndPool(id allocators.PoolID) error {
	return p.a.poolCall(allocators.Request{Kind: allocators.RequestPoolEnd, Pool: id})
}

// ReleasePool implements allocators.PrivatePooler.
func (p pooler) ReleasePool(id allocators.PoolID) error {
	return p.a.poolCall(allocators.Request{Kind: allocators.RequestPoolRelease, Pool: id})
}

// EmptyPool implements allocators.PrivatePooler.
func (p pooler) EmptyPool(id allocators.PoolID) error {
	return p.a.poolCall(allocators.Request{Kind: allocators.RequestEmptyPool, Pool: id})
}

// torchLike has what every installed PyTorch can.
type torchLike struct {
	*Allocator
	recorder
	emptier
	counter
	limiter
}

// withAbilities gives the allocator the methods that its child can serve, and no others.
func (a *Allocator) withAbilities() allocators.Allocator {
	r, e, c, o, l, d := recorder{a}, emptier{a}, counter{a}, configurer{a}, limiter{a}, declarer{a}
	k := a.can
	if k.record && k.emptyCache && k.stats && k.fraction {
		t := torchLike{a, r, e, c, l}
		switch {
		case a.model != nil && k.conf && k.pools:
			return struct {
				torchLike
				configurer
				declarer
				pooler
			}{t, o, d, pooler{a}}
		case a.model != nil && k.conf:
			return struct {
				torchLike
				configurer
				declarer
			}{t, o, d}
		case a.model != nil:
			return struct {
				torchLike
				declarer
			}{t, d}
		case k.conf:
			return struct {
				torchLike
				configurer
			}{t, o}
		default:
			return t
		}
	}
	switch {
	case k.record && k.emptyCache && k.stats:
		return struct {
			*Allocator
			recorder
			emptier
			counter
		}{a, r, e, c}
	case k.record && k.emptyCache:
		return struct {
			*Allocator
			recorder
			emptier
		}{a, r, e}
	case k.record && k.stats:
		return struct {
			*Allocator
			recorder
			counter
		}{a, r, c}
	case k.emptyCache && k.stats:
		return struct {
			*Allocator
			emptier
			counter
		}{a, e, c}
	case k.record:
		return struct {
			*Allocator
			recorder
		}{a, r}
	case k.emptyCache:
		return struct {
			*Allocator
			emptier
		}{a, e}
	case k.stats:
		return struct {
			*Allocator
			counter
		}{a, c}
	}
	return a
}
