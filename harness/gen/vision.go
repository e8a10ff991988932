package gen

import "github.com/shatter-gpu/shatter/harness/trace"

var visionDefaults = Params{Ops: 10000, Capacity: 80 * gib, Long: 0.1, Streams: 1}

// vision imitates the training of Mask R-CNN (He et al., arXiv:1703.06870) with a ResNet-50 backbone (He et al.,
// arXiv:1512.03385, table 1) and a feature pyramid (Lin et al., arXiv:1612.03144), in float32. Images have a shorter side of 640 to
// 800 and a longer one of up to 1,333 pixels, and a batch is padded to its largest, so no two batches have the same sizes;
// how many regions are proposed and how many of them have masks is irregular too. In evaluations, every tenth step, masks are
// cloned out of the batch's buffer and kept (fredzzhang/pocket#9: seven clones hold seven large segments).
func vision(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(visionDefaults)
	v := &detector{job: newJob(ops, p)}
	v.images = max(min(percent(p.Capacity, between(cfg, 60, 80))/imageBytes, 64), 1)
	if p.Capacity < 4*imageBytes {
		v.scale = float64(p.Capacity) / (4 * imageBytes)
	}
	for _, s := range stages {
		for range s.blocks {
			for _, n := range []uint64{s.channels * s.channels / 4, 9 * s.channels * s.channels / 16, s.channels * s.channels / 4} {
				v.get(&v.model, n*4, 0)
			}
		}
	}
	for n := uint64(1); !v.full(); n++ {
		v.train(n == 1)
		if n%10 == 0 {
			v.evaluate()
		}
	}
	return v.finish(p.Capacity)
}

// imageBytes is what an image of 800 x 1,333 takes in training, about: the sum of train's sizes.
const imageBytes = 2400 * mib

// stages of ResNet-50: stride, output channels, blocks.
var stages = [...]struct{ stride, channels, blocks uint64 }{{4, 256, 3}, {8, 512, 4}, {16, 1024, 6}, {32, 2048, 3}}

type detector struct {
	job
	images uint64 // of a batch
	model  set
	saved  set
	grads  set
	kept   set // masks of evaluations
}

// pixels draws the padded size of a batch.
func (v *detector) pixels() uint64 {
	var high, wide uint64
	for range v.images {
		h := between(v.src, 640, 800)
		w := between(v.src, h, 1333)
		if chance(v.src, 1, 3) {
			h, w = w, h
		}
		high, wide = max(high, h), max(wide, w)
	}
	return (high + 31) / 32 * 32 * ((wide + 31) / 32 * 32)
}

// backbone runs the stages and the pyramid; keep saves what the backward pass needs.
func (v *detector) backbone(pixels uint64, keep bool) {
	out := &v.passing
	if keep {
		out = &v.saved
	}
	get := func(bytes uint64) {
		v.get(out, bytes*v.images, 0)
		if !keep && len(out.blocks) > 4 {
			v.freeOldest(out)
		}
	}
	get(pixels * 3 * 4)
	get(pixels / 4 * 64 * 4)
	for _, s := range stages {
		at := pixels / (s.stride * s.stride) * 4
		for range s.blocks {
			for range 2 {
				get(at * s.channels / 4) // convolution
				get(at * s.channels / 4) // normalised
			}
			get(at * s.channels)
			get(at * s.channels)
		}
	}
	for _, s := range stages {
		get(pixels / (s.stride * s.stride) * 256 * 4)
		get(pixels / (s.stride * s.stride) * 256 * 4)
	}
}

// regions runs the heads: boxes for all proposals, masks for the positive ones of each image.
func (v *detector) regions(out *set, limit uint64) (positive uint64) {
	boxes := uint64(0)
	for range v.images {
		n := logUniform(v.src, 64, limit)
		boxes += n
		positive += between(v.src, 1, max(n/4, 1))
	}
	v.get(out, boxes*256*7*7*4, 0)
	v.get(out, boxes*1024*4, 0)
	v.get(out, boxes*1024*4, 0)
	v.get(out, boxes*91*5*4, 0)
	for range 4 {
		v.get(out, positive*256*14*14*4, 0)
	}
	v.get(out, positive*256*28*28*4, 0)
	v.get(out, positive*91*28*28*4, 0)
	return positive
}

func (v *detector) train(first bool) {
	v.backbone(v.pixels(), true)
	v.regions(&v.saved, 512)
	v.leave()
	for i := len(v.saved.blocks) - 1; i >= 0; i-- {
		v.get(&v.passing, v.saved.blocks[i].unscaled(v.scale), 0)
		if len(v.passing.blocks) > 1 {
			v.freeOldest(&v.passing)
		}
		v.freeNewest(&v.saved)
	}
	v.freeAll(&v.passing)
	for _, b := range v.model.blocks[:min(48, len(v.model.blocks))] {
		v.get(&v.grads, b.unscaled(v.scale), 0)
	}
	if first {
		for _, b := range v.grads.blocks {
			v.get(&v.model, b.unscaled(v.scale), 0) // momentum
		}
	}
	v.freeAll(&v.grads)
	v.leave()
}

func (v *detector) evaluate() {
	for len(v.kept.blocks) > 0 { // of the evaluation before
		v.freeOldest(&v.kept)
	}
	for range 4 {
		pixels := v.pixels()
		v.backbone(pixels, false)
		var out set
		positive := v.regions(&out, 1000)
		for range v.images {
			// The masks of an image, pasted to its size, one byte a pixel; a clone of some of them is kept.
			n := max(positive/v.images/4, 1)
			v.get(&v.passing, n*pixels, 0)
			v.get(&v.kept, max(n/4, 1)*pixels, 0)
			v.freeNewest(&v.passing)
		}
		v.freeAll(&out)
		v.freeAll(&v.passing)
	}
}
