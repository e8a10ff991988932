package gen

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var shardedDefaults = Params{Ops: 20000, Capacity: 80 * gib, Long: 0.1, Streams: 3}

// sharded imitates fully sharded data parallelism (Zhao et al., PyTorch FSDP, arXiv:2304.11277; ZeRO stage 3), as one of its
// devices sees it. A device keeps its shard of each layer in float32, with Adam's two moments from the first step on. Before
// a layer runs, forward and again backward, its weights are gathered on a second stream into one two-byte buffer, one layer
// ahead (prefetch); the buffer is recorded on the compute stream and freed after the layer (reshard). Backward, the layer's whole
// gradient is reduced and scattered on a third stream into a shard, recorded there and freed. At most two gathered layers are in
// flight: there the host waits (limit_all_gathers), which is when events are done. Activations as in decoder, recomputed.
func sharded(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(shardedDefaults)
	type setup struct {
		llm
		devices uint64
	}
	d := &shardedTrainer{decoder: decoder{job: newJob(ops, p), tp: 1, recompute: true}, gather: side(p, 1), scatter: side(p, 2)}
	bytes := func(s setup) uint64 {
		return s.parameters()/s.devices*16 + 3*s.layer()*bf16 + 2*s.vocabulary*s.hidden*bf16
	}
	s := choose(&d.job, cfg, []setup{{llama2of13B, 16}, {llama2of70B, 32}, {llama3of70B, 64}, {llama3of8B, 8}}, p.Capacity, 60, bytes)
	d.llm, d.devices = s.llm, s.devices
	capacity := p.Capacity
	if d.scale < 1 {
		capacity = uint64(float64(capacity) / d.scale)
	}
	room := percent(capacity, between(cfg, 70, 90))
	tokens := max((room-min(bytes(s), room))/d.perToken(), 64)
	d.longest = min(tokens, 8192)
	d.batch = min(max(tokens/d.longest, 1), 64)
	for range d.layers + 1 {
		d.get(&d.model, d.unit()/d.devices*2, 0)
	}
	for n := 0; !d.full(); n++ {
		d.step(n == 0)
	}
	return d.finish(p.Capacity)
}

type shardedTrainer struct {
	decoder
	devices         uint64
	batch, longest  uint64
	gather, scatter device.Stream

	gathered set // whole layers, the oldest first to go
	whole    set // gradients of whole layers
	moments  set
	flight   int // layers resharded since the host last waited
}

// unit is the bytes of a gathered layer.
func (d *shardedTrainer) unit() uint64 { return d.layer() * bf16 }

func (d *shardedTrainer) fetch() {
	d.get(&d.gathered, d.unit(), d.gather)
	if d.gather != 0 {
		d.record(&d.gathered, len(d.gathered.blocks)-1, 0)
	}
}

func (d *shardedTrainer) reshard() {
	d.freeOldest(&d.gathered)
	if d.flight++; d.flight == 2 {
		d.flight = 0
		d.sync(0)
	}
}

// run calls do for each layer, with its weights there and the next layer's on their way.
func (d *shardedTrainer) run(do func()) {
	d.fetch()
	for i := range d.layers {
		if i+1 < d.layers {
			d.fetch()
		}
		do()
		d.reshard()
	}
}

func (d *shardedTrainer) step(first bool) {
	t := d.sequences(d.batch, d.longest)
	d.get(&d.saved, t*d.hidden*bf16, 0)
	d.run(func() { d.forward(t, false) })
	d.loss(t)
	d.freeNewest(&d.saved)
	n := 0
	d.run(func() {
		d.backward(t, func(int) {})
		for len(d.passing.blocks) > 1 {
			d.freeOldest(&d.passing)
		}
		d.get(&d.whole, d.unit(), 0)
		d.get(&d.grads, d.unit()/d.devices*2, d.scatter)
		if d.scatter != 0 {
			d.record(&d.whole, 0, d.scatter)
		}
		d.freeNewest(&d.whole)
		if n++; n%2 == 0 {
			d.sync(d.scatter)
		}
	})
	for len(d.passing.blocks) > 0 {
		d.freeOldest(&d.passing)
	}
	d.sync(trace.AllStreams)
	if first {
		for range d.layers + 1 {
			d.get(&d.moments, d.unit()/d.devices*2, 0)
			d.get(&d.moments, d.unit()/d.devices*2, 0)
		}
	}
	d.temporary(d.unit() / d.devices * 2)
	d.freeAll(&d.grads)
	d.leave()
}
