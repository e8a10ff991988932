package gen

import "github.com/shatter-gpu/shatter/harness/trace"

var finetuneDefaults = Params{Ops: 14000, Capacity: 80 * gib, Long: 0.2, Streams: 1}

// finetune imitates fine-tuning with low-rank adapters (Hu et al., LoRA, arXiv:2106.09685; rank 16 on all four linear maps) over
// frozen weights on one device, the batch growing by one from step to step until the device is nearly full, as in a search for
// the largest batch, and then from a few less again (pytorch#96995: each step is a little larger than what the one before
// left). Between epochs of three to six steps there is an evaluation without gradients, whose outputs are kept until the next.
func finetune(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(finetuneDefaults)
	d := &decoder{job: newJob(ops, p), tp: 1, recompute: chance(cfg, 1, 2)}
	bytes := func(m llm) uint64 { return m.parameters() * bf16 }
	d.llm = choose(&d.job, cfg, []llm{llama2of13B, llama3of8B, llama2of7B}, p.Capacity, 45, bytes)
	d.load()
	var adapters, grads, moments, results set
	const rank = 16
	each := func(f func(elements uint64)) {
		for range d.layers {
			for _, io := range [][2]uint64{{d.hidden, d.hidden + 2*d.kv()}, {d.hidden, d.hidden}, {d.hidden, 2 * d.ffn}, {d.ffn, d.hidden}} {
				f(rank * io[0])
				f(rank * io[1])
			}
		}
	}
	each(func(n uint64) { d.get(&adapters, n*4, 0) })
	capacity := p.Capacity
	if d.scale < 1 {
		capacity = uint64(float64(capacity) / d.scale)
	}
	room := percent(capacity, between(cfg, 80, 92))
	tokens := max((room-min(bytes(d.llm), room))/d.perToken(), 256)
	most := between(cfg, 6, 24) // the largest batch
	length := max(tokens/most/8*8, 8)
	span := between(cfg, 2, 4)
	epoch := between(cfg, 3, 6)
	for n := uint64(0); !d.full(); n++ {
		batch := most - span + n%(span+1)
		d.microBatch(batch*length, func(int) {})
		each(func(n uint64) { d.get(&grads, n*4, 0) })
		if n == 0 {
			for range 2 {
				each(func(n uint64) { d.get(&moments, n*4, 0) })
			}
		}
		d.freeAll(&grads)
		if n%epoch == epoch-1 {
			d.freeAll(&results)
			for range 2 {
				d.evaluateOn(most*length, &results)
			}
			d.leave()
		}
	}
	return d.finish(p.Capacity)
}
