package gen

import "github.com/shatter-gpu/shatter/harness/trace"

var moeDefaults = Params{Ops: 12000, Capacity: 80 * gib, Long: 0.1, Streams: 1}

// moe imitates inference with a mixture of experts (Mixtral, arXiv:2401.04088: 8 experts, two for each token) with tensor
// parallelism. After loading, the weights of each layer's experts are rearranged into a copy and the original freed, as
// engines do (vllm-project/vllm#41268: the freed originals are split by what stays). Then batches run: how many tokens each
// expert gets follows the router, unevenly and differently in each layer and batch, so the buffers of experts have a new
// size every time. The KV cache is one tensor a layer, made once.
func moe(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(moeDefaults)
	type setup struct {
		llm
		tp uint64
	}
	d := &mixture{decoder: decoder{job: newJob(ops, p)}}
	bytes := func(s setup) uint64 { return s.parameters() / s.tp * bf16 }
	s := choose(&d.job, cfg, []setup{{mixtral8x22, 4}, {mixtral8x7, 2}, {mixtral8x7, 4}}, p.Capacity, 80, bytes)
	d.llm, d.tp = s.llm, s.tp
	d.loadExperts()
	capacity := p.Capacity
	if d.scale < 1 {
		capacity = uint64(float64(capacity) / d.scale)
	}
	// What is left, but for a tenth of the device, is for the cache, at most half of the device.
	room := percent(capacity, between(cfg, 80, 90))
	for range d.layers {
		d.get(&d.model, min(room-min(bytes(s), room), capacity/2)/d.layers+granule, 0)
	}
	d.skew = between(cfg, 1, 5)
	for !d.full() {
		d.run(logUniform(d.src, 32, 8192))
	}
	return d.finish(p.Capacity)
}

type mixture struct {
	decoder
	skew   uint64 // octaves between the loads of experts
	loaded set    // weights as they came
}

func (d *mixture) loadExperts() {
	d.get(&d.model, d.embedding(), 0)
	gateUp, down := 2*d.experts*d.ffn*d.hidden*bf16/d.tp, d.experts*d.ffn*d.hidden*bf16/d.tp
	for range d.layers {
		for i, n := range d.tensorsOf() {
			if n > 0 {
				d.get(&d.model, d.weight(i), 0)
			}
		}
		d.get(&d.model, d.experts*d.hidden*4, 0) // router
		d.get(&d.loaded, gateUp, 0)
		d.get(&d.loaded, down, 0)
		for _, n := range []uint64{gateUp, down} {
			d.get(&d.model, n, 0)
			d.freeOldest(&d.loaded)
		}
	}
	d.get(&d.model, d.embedding(), 0)
}

// run is a batch of t tokens.
func (d *mixture) run(t uint64) {
	x, cut := t*d.hidden*bf16, t*bf16/d.tp
	d.get(&d.saved, x, 0)
	for range d.layers {
		d.get(&d.passing, x, 0)
		d.get(&d.passing, (d.hidden+2*d.kv())*cut, 0)
		d.freeOldest(&d.passing)
		d.get(&d.passing, d.hidden*cut, 0)
		d.freeOldest(&d.passing)
		d.get(&d.passing, x, 0)
		d.freeOldest(&d.passing)
		d.route(t)
		d.get(&d.saved, x, 0)
		d.freeOldest(&d.saved)
		d.freeOldest(&d.passing)
		d.leave()
	}
	d.get(&d.passing, min(t, 256)*d.vocabulary*4/d.tp, 0) // of the last token of each sequence
	d.freeAll(&d.passing)
	d.freeAll(&d.saved)
}

// route sends t tokens to two experts each.
func (d *mixture) route(t uint64) {
	d.temporary(t * d.experts * 4)
	d.get(&d.passing, 2*t*8, 0) // which experts, and with what weight
	weights := make([]uint64, d.experts)
	var sum uint64
	for e := range weights {
		weights[e] = logUniform(d.src, 64, 64<<d.skew)
		sum += weights[e]
	}
	for _, w := range weights {
		n := 2 * t * w / sum
		if n == 0 {
			continue
		}
		d.get(&d.saved, n*d.hidden*bf16, 0) // its tokens
		d.get(&d.passing, 2*n*d.ffn*bf16/d.tp, 0)
		d.get(&d.passing, n*d.ffn*bf16/d.tp, 0)
		d.freeNewest(&d.passing)
		d.freeNewest(&d.passing)
		d.get(&d.passing, n*d.hidden*bf16, 0)
		d.freeNewest(&d.saved)
		d.freeNewest(&d.passing)
	}
	d.freeOldest(&d.passing)
}
