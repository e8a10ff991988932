package gen

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var denseDefaults = Params{Ops: 16000, Capacity: 80 * gib, Long: 0.1, Streams: 2}

// dense imitates the training of a dense transformer with tensor and data parallelism, as one of its devices sees it: see decoder
// for the shapes. The optimizer (Adam, float32 weights and two moments: twelve bytes for each weight) is sharded over the
// data-parallel devices (Rajbhandari et al., ZeRO stage 1, arXiv:1910.02054) and born in the first step. A step is one to
// four micro-batches of varying sequence length, with or without recomputation. In the last one gradients are copied into
// buckets of 25 MiB, the default of PyTorch's DistributedDataParallel (Li et al., arXiv:2006.15704), which are reduced on
// another stream, recorded there and freed at once.
func dense(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(denseDefaults)
	type setup struct {
		llm
		tp uint64
	}
	d := &denseTrainer{decoder: decoder{job: newJob(ops, p)}, comm: side(p, 1)}
	d.dp = 8 << cfg.Uint64n(3)
	bytes := func(s setup) uint64 { return s.parameters() / s.tp * (2*bf16 + 12/d.dp + 1) }
	s := choose(&d.job, cfg, []setup{{llama2of13B, 2}, {llama3of8B, 1}, {llama2of70B, 8}, {llama2of7B, 1}}, p.Capacity, 55, bytes)
	d.llm, d.tp = s.llm, s.tp
	d.recompute = chance(cfg, 1, 2)
	d.micro = 1 << cfg.Uint64n(2)
	if d.layers > 40 {
		d.micro = 1
	}
	d.fit(cfg, p.Capacity, bytes(s))
	d.load()
	for n := 0; !d.full(); n++ {
		d.step(n == 0)
	}
	return d.finish(p.Capacity)
}

type denseTrainer struct {
	decoder
	dp             uint64 // data-parallel devices
	micro          uint64 // micro-batches of a step
	batch, longest uint64 // sequences of a micro-batch, and their greatest length in tokens
	comm           device.Stream

	optimizer set
	buckets   set
	bucket    uint64 // bytes waiting for a bucket
}

// fit chooses batch and length so that the peak is 70 to 90 percent of the device.
func (d *denseTrainer) fit(cfg Source, capacity, static uint64) {
	if d.scale < 1 {
		capacity, static = uint64(float64(capacity)/d.scale), uint64(float64(static))
	}
	room := percent(capacity, between(cfg, 70, 90))
	tokens := max((room-min(static, room))/d.perToken(), 64)
	d.longest = min(tokens, 8192)
	d.batch = min(max(tokens/d.longest, 1), 64)
}

const bucketBytes = 25 * mib

func (d *denseTrainer) step(first bool) {
	for n := range d.micro {
		keep := d.accumulate(n == 0)
		d.microBatch(d.sequences(d.batch, d.longest), func(w int) {
			keep(w)
			if n == d.micro-1 {
				d.reduce(d.gradBytes(w))
			}
		})
	}
	d.flushBucket()
	d.sync(d.comm)
	if first {
		for i := range d.grads.blocks {
			shard := max(d.grads.blocks[i].unscaled(d.scale)/bf16*4/d.dp, 4)
			for range 3 { // weights in float32 and two moments
				d.get(&d.optimizer, shard, 0)
			}
		}
	}
	for i := range d.grads.blocks {
		if i%8 == 0 { // the update goes through groups of tensors
			d.temporary(max(d.grads.blocks[i].unscaled(d.scale)*2/d.dp, 4))
		}
	}
	d.freeAll(&d.grads)
	d.leave()
}

// reduce adds a gradient to the open bucket.
func (d *denseTrainer) reduce(bytes uint64) {
	if d.bucket += bytes; d.bucket >= bucketBytes {
		d.flushBucket()
	}
}

// flushBucket copies the waiting gradients and reduces them on the communication stream.
func (d *denseTrainer) flushBucket() {
	if d.bucket == 0 {
		return
	}
	d.get(&d.buckets, d.bucket, 0)
	d.bucket = 0
	if d.comm != 0 {
		d.record(&d.buckets, 0, d.comm)
	}
	d.freeNewest(&d.buckets)
	if d.pendingBytes > 16*bucketBytes {
		d.sync(d.comm)
	}
}
