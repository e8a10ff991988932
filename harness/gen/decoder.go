package gen

import "github.com/shatter-gpu/shatter/allocators/device"

// decoder is a transformer in training: weights, activations as a stack, gradients. Tensors are of two-byte elements (bf16) unless
// said. With tensor parallelism over tp devices (Shoeybi et al., Megatron-LM, arXiv:1909.08053) the weights, and the
// activations inside attention and feed-forward, are cut by tp. What is saved of a layer follows Korthikanti et al.
// (arXiv:2205.05198, section 4) for a layer with fused attention (Dao et al., arXiv:2205.14135): no scores, but their
// normaliser, four bytes a head and token.
//
//	saved of a layer of t tokens: norm t h, qkv t (h + 2 kv), rotated q t h and k t kv, attention t h, normaliser t heads x 4 bytes,
//	residual t h, norm t h, gate and up 2 t ffn, their product t ffn, residual t h
type decoder struct {
	job
	llm
	tp    uint64
	model set
	saved set
	grads set
	// recompute: a layer's input only is saved, and the rest computed again in the backward pass (Chen et al., arXiv:1604.06174).
	recompute bool
}

// weight is the bytes of a layer's weight on this device; norms are not cut.
func (d *decoder) weight(i int) uint64 {
	n := d.tensorsOf()[i] * bf16
	if i < 4 {
		n /= d.tp
	}
	return n
}

// embedding is the bytes of the embedding, and of the output layer.
func (d *decoder) embedding() uint64 { return d.vocabulary * d.hidden * bf16 / d.tp }

func (d *decoder) load() {
	d.get(&d.model, d.embedding(), 0)
	for range d.layers {
		for i := range d.tensorsOf() {
			d.get(&d.model, d.weight(i), 0)
		}
	}
	d.get(&d.model, d.embedding(), 0)
}

const savedOfLayer = 11

// savedSizes are the bytes saved of a layer, in order.
func (d *decoder) savedSizes(t uint64) [savedOfLayer]uint64 {
	x, cut := t*d.hidden*bf16, t*bf16/d.tp
	return [savedOfLayer]uint64{
		x, (d.hidden + 2*d.kv()) * cut, d.hidden * cut, d.kv() * cut, d.hidden * cut, d.heads * t * 4 / d.tp, x, x,
		2 * d.ffn * cut, d.ffn * cut, x,
	}
}

// perToken is the bytes that a token takes at the peak of a step, about: saved activations and logits with their gradients.
func (d *decoder) perToken() uint64 {
	var saved uint64
	for _, n := range d.savedSizes(1024) {
		saved += n
	}
	all := saved * d.layers
	if d.recompute {
		all = 1024*d.hidden*bf16*d.layers + saved
	}
	return (all + 2*1024*d.vocabulary*2*bf16/d.tp) / 1024
}

// sequences draws the tokens of a micro-batch: sequences of a quarter to all of the greatest length, padded to 64.
func (d *decoder) sequences(batch, longest uint64) uint64 {
	return batch * ((between(d.src, longest/4, longest) + 63) / 64 * 64)
}

// forward runs a layer; with keep its activations are saved, else only its output outlives it.
func (d *decoder) forward(t uint64, keep bool) {
	sizes := d.savedSizes(t)
	if keep {
		for i, n := range sizes {
			if i == 6 || i == 10 { // the projection, before it is added to the residual
				d.get(&d.passing, t*d.hidden*bf16, 0)
			}
			d.get(&d.saved, n, 0)
			if i == 6 || i == 10 {
				d.freeNewest(&d.passing)
			}
		}
		return
	}
	for i, n := range sizes[:savedOfLayer-1] {
		d.get(&d.passing, n, 0)
		if i > 0 && i != 3 && i != 5 {
			d.freeOldest(&d.passing)
		}
	}
	d.get(&d.saved, sizes[savedOfLayer-1], 0) // the input of the next layer
	for len(d.passing.blocks) > 0 {
		d.freeOldest(&d.passing)
	}
}

// weightAt says behind which saved tensor, counted from the layer's start, the gradient of a weight comes out.
var weightAt = [savedOfLayer]int{0: 4, 1: 0, 4: 1, 7: 5, 8: 2, 9: 3}

// backward undoes a layer: for each saved tensor its gradient comes, the one before goes, and the tensor itself. gradient is
// called where that of a weight comes out.
func (d *decoder) backward(t uint64, gradient func(weight int)) {
	if d.recompute {
		d.forward(t, true)
	}
	for i := savedOfLayer - 1; i >= 0; i-- {
		d.get(&d.passing, d.saved.blocks[len(d.saved.blocks)-1].unscaled(d.scale), 0)
		if len(d.passing.blocks) > 1 {
			d.freeOldest(&d.passing)
		}
		d.freeNewest(&d.saved)
		if w := weightAt[i]; w != 0 || i == 1 {
			gradient(w)
		}
	}
	if d.recompute {
		d.freeNewest(&d.saved) // the layer's input
	}
	d.leave()
}

// unscaled is the size that get was asked for, about.
func (b *block) unscaled(scale float64) uint64 {
	if scale < 1 {
		return uint64(float64(b.bytes) / scale)
	}
	return b.bytes
}

// loss computes logits in float32 beside those in two bytes, their gradient, and lets them go.
func (d *decoder) loss(t uint64) {
	n := t * d.vocabulary / d.tp
	d.get(&d.passing, n*bf16, 0)
	d.get(&d.passing, n*4, 0)
	d.freeOldest(&d.passing)
	d.get(&d.passing, n*4, 0)
	d.freeOldest(&d.passing)
	d.get(&d.passing, n*bf16, 0)
	d.freeOldest(&d.passing)
	d.leave()
	d.get(&d.passing, t*d.hidden*bf16, 0)
	d.freeOldest(&d.passing)
}

// microBatch runs forward and backward. gradient is called for each weight's gradient, layer by layer from the last, and with
// len(tensorsOf()) for the output layer and the embedding.
func (d *decoder) microBatch(t uint64, gradient func(weight int)) {
	d.get(&d.saved, t*d.hidden*bf16, 0) // embedded tokens
	for range d.layers {
		d.forward(t, !d.recompute)
	}
	d.loss(t)
	gradient(len(d.tensorsOf()))
	if d.recompute {
		d.freeNewest(&d.saved) // the last layer's output
	}
	for range d.layers {
		d.backward(t, gradient)
	}
	if !d.recompute {
		d.freeNewest(&d.saved)
	}
	gradient(len(d.tensorsOf()))
	for len(d.passing.blocks) > 0 {
		d.freeOldest(&d.passing)
	}
}

// gradBytes is the bytes of a gradient that microBatch announces.
func (d *decoder) gradBytes(weight int) uint64 {
	if weight == len(d.tensorsOf()) {
		return d.embedding()
	}
	return d.weight(weight)
}

// accumulate makes gradients in the first micro-batch of a step; in later ones each comes as a temporary that is added.
func (d *decoder) accumulate(first bool) func(int) {
	return func(w int) {
		if first {
			d.get(&d.grads, d.gradBytes(w), 0)
		} else {
			d.temporary(d.gradBytes(w))
		}
	}
}

// evaluateOn runs forward only, and keeps an output now and then.
func (d *decoder) evaluateOn(t uint64, results *set) {
	d.get(&d.saved, t*d.hidden*bf16, 0)
	for range d.layers {
		d.forward(t, false)
		d.freeOldest(&d.saved)
	}
	some := between(d.src, 1, max(t/16, 1))
	d.get(&d.passing, some*d.vocabulary*4/d.tp, 0)
	d.get(results, some*d.hidden*bf16, 0)
	d.get(results, some*8, 0)
	d.freeNewest(&d.passing)
	d.freeNewest(&d.saved)
}

// side is the stream for communication: n if the job may use so many, else the default one.
func side(p Params, n int) device.Stream { return device.Stream(min(n, p.Streams-1)) }
