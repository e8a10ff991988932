package gen

import "github.com/shatter-gpu/shatter/harness/trace"

var rlDefaults = Params{Ops: 16000, Capacity: 80 * gib, Long: 0.1, Streams: 2}

// rl imitates reinforcement learning from generated text on one set of devices (Sheng et al., HybridFlow/verl, arXiv:2409.19256):
// generating and training in turn. To generate, the weights are laid out anew for the inference engine, layer by layer, and
// the KV cache takes most of what is left; then all of that is freed and the cache emptied. To train, log probabilities of the
// generated sequences are computed without gradients, then come two updates as in dense; then the cache is emptied again. The
// optimizer's state is born in the first update, in the holes of activations (NovaSky-AI/SkyRL#1470).
func rl(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(rlDefaults)
	d := &denseTrainer{decoder: decoder{job: newJob(ops, p), tp: 1, recompute: true}, comm: side(p, 1), micro: 1}
	d.dp = 8 << cfg.Uint64n(2)
	bytes := func(m llm) uint64 { return m.parameters() * (2*bf16 + 12/d.dp + 1) }
	d.llm = choose(&d.job, cfg, []llm{llama3of8B, llama2of7B}, p.Capacity, 60, bytes)
	d.fit(cfg, p.Capacity, bytes(d.llm))
	d.load()
	capacity := p.Capacity
	if d.scale < 1 {
		capacity = uint64(float64(capacity) / d.scale)
	}
	generate := percent(capacity, between(cfg, 70, 85))
	var engine, results set
	for n := 0; !d.full(); n++ {
		// Weights, optimizer state and the engine's copy in two-way tensor parallelism are held while generating.
		held := d.parameters() * bf16
		if n > 0 {
			held += d.parameters() * 12 / d.dp
		}
		for range d.layers {
			for i := range d.tensorsOf() {
				d.get(&engine, d.weight(i)/2, 0)
			}
		}
		held += d.parameters() * bf16 / 2
		for range d.layers {
			d.get(&engine, (generate-min(held, generate))/d.layers+granule, 0)
		}
		for range between(d.src, 8, 24) {
			d.evaluateOnce(between(d.src, 16, 256), &results)
		}
		d.freeAll(&engine)
		d.emit(trace.Op{Kind: trace.EmptyCache})
		for range 2 {
			d.evaluateOn(d.sequences(d.batch, d.longest), &results)
		}
		d.step(n == 0)
		d.step(false)
		d.freeAll(&results)
		d.emit(trace.Op{Kind: trace.EmptyCache})
	}
	return d.finish(p.Capacity)
}

// evaluateOnce is a step of generation for t sequences: temporaries, logits, and the tokens, which are kept.
func (d *denseTrainer) evaluateOnce(t uint64, results *set) {
	x := t * d.hidden * bf16
	for _, n := range []uint64{x, 3 * x, x, 2 * t * d.ffn * bf16, t * d.ffn * bf16} {
		d.temporary(n)
	}
	d.get(&d.passing, t*d.vocabulary*4, 0)
	d.get(results, t*8, 0)
	d.freeNewest(&d.passing)
}
