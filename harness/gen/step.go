package gen

import (
	"github.com/shatter-gpu/shatter/allocators/device"
	"github.com/shatter-gpu/shatter/harness/trace"
)

var stepDefaults = Params{Ops: 6000, Capacity: 80 * gib, Long: 0.6, Streams: 1}

// step imitates the training of a decoder transformer, for some tens of steps on the default device. Long-lived are the
// weights and the optimizer's state; a step allocates activations as a stack and frees them in reverse, with gradients and
// workspaces between them. The sequence length is another one in each step, so hardly a size comes twice. Evaluations and
// checkpoints leave blocks behind that outlive the steps around them.
//
// The shapes, for hidden size h, t tokens a step, and elements of two bytes (bf16) unless said:
//
//	weights of a layer    qkv 3h x h, out h x h, up 4h x h, down h x 4h: 12 h^2
//	embedding, tied       32,000 x h
//	Adam                  two numbers of four bytes for each weight, allocated in the first step, as PyTorch does
//	saved of a layer      norm t x h, qkv t x 3h, attention t x h, residual t x h, norm t x h, up t x 4h, gelu t x 4h
//	logits                t x 32,000, and their gradient
//	gradients             like the weights, freed after the optimizer's step
//
// The model is the largest for which weights and Adam fit into the long-lived share of 55 to 75 percent of the device; the
// most tokens are what then fits into the rest.
func step(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(stepDefaults)
	m := newTransformer(cfg, ops, p)
	m.load()
	evaluate, checkpoint := between(cfg, 3, 6), between(cfg, 5, 9)
	for n := uint64(1); !m.full(); n++ {
		m.train(n == 1)
		if n%evaluate == 0 {
			m.evaluate()
		}
		if n%checkpoint == 0 {
			m.checkpoint()
		}
	}
	return m.finish(p.Capacity)
}

const (
	vocabulary  = 32000
	weightBytes = 2
	adamBytes   = 4 // of each of the two numbers
	staticBytes = weightBytes + 2*adamBytes
	gemmSpace   = 8 * mib // what cuBLAS takes as workspace on recent devices, about
	keptResults = 8       // evaluations whose results are kept
)

// layerWeights and layerSaved are the tensors of a layer, in units of h x h and of t x h elements.
var (
	layerWeights = [...]uint64{3, 1, 4, 4}
	layerSaved   = [...]uint64{1, 3, 1, 1, 1, 4, 4}
)

// mlpSaved is where in layerSaved the half of the layer begins that runs backward first; mlpWeights likewise.
const (
	mlpSaved   = 4
	mlpWeights = 2
)

// modelSizes are the hidden sizes to choose from, largest first; the small ones are for small devices.
var modelSizes = [...]uint64{8192, 6144, 5120, 4096, 3072, 2560, 2048, 1536, 1024, 768, 512, 256, 128, 64}

type transformer struct {
	program
	hidden, layers uint64
	batch          uint64
	sequence       uint64 // most tokens of a sequence
	side           device.Stream

	model   set // weights and Adam
	saved   set // activations, a stack
	grads   set
	passing set // temporaries
	results set // of evaluations
	staged  set // copies for a checkpoint that is still being written
}

func newTransformer(cfg, ops Source, p Params) *transformer {
	m := &transformer{program: newProgram(ops, p.Ops), layers: between(cfg, 6, 10), side: device.Stream(p.Streams - 1)}
	peak := percent(p.Capacity, between(cfg, 55, 75))
	static := share(peak, p.Long)
	for _, m.hidden = range modelSizes {
		if m.parameters()*staticBytes <= static {
			break
		}
	}
	var saved uint64 // of a layer, in units of t x h
	for _, n := range layerSaved {
		saved += n
	}
	perToken := (m.layers*saved*m.hidden + 2*vocabulary) * weightBytes
	tokens := (peak - static) / perToken
	m.batch = between(cfg, 1, 8)
	m.sequence = max(tokens/m.batch, 16)
	return m
}

// parameters is how many weights the model has.
func (m *transformer) parameters() uint64 {
	return m.layers*12*m.hidden*m.hidden + vocabulary*m.hidden
}

// square and row are bytes of n units of h x h and of t x h elements.
func (m *transformer) square(n uint64) uint64      { return n * m.hidden * m.hidden * weightBytes }
func (m *transformer) row(n, tokens uint64) uint64 { return n * m.hidden * tokens * weightBytes }

// temporary allocates and frees.
func (m *transformer) temporary(bytes uint64) {
	m.alloc(&m.passing, bytes, 0)
	m.freeNewest(&m.passing)
}

func (m *transformer) load() {
	m.alloc(&m.model, vocabulary*m.hidden*weightBytes, 0)
	for range m.layers {
		for _, n := range layerWeights {
			m.alloc(&m.model, m.square(n), 0)
		}
	}
}

// tokens draws the tokens of a step: a batch of sequences of a quarter to all of the greatest length, padded to eight.
func (m *transformer) tokens() uint64 {
	sequence := (between(m.src, m.sequence/4, m.sequence) + 7) / 8 * 8
	return m.batch * sequence
}

func (m *transformer) train(first bool) {
	t := m.tokens()
	m.alloc(&m.saved, m.row(1, t), 0) // embedded tokens
	for range m.layers {
		m.forward(t)
	}
	m.freeAll(&m.staged) // by now the checkpoint is written
	logits := t * vocabulary * weightBytes
	m.alloc(&m.saved, logits, 0)
	m.alloc(&m.passing, logits, 0)
	m.freeNewest(&m.saved)
	m.alloc(&m.grads, vocabulary*m.hidden*weightBytes, 0)
	m.freeNewest(&m.passing)
	for range m.layers {
		m.backward(t)
	}
	m.freeNewest(&m.saved)
	m.optimize(first)
}

func (m *transformer) forward(t uint64) {
	for i, n := range layerSaved {
		m.alloc(&m.saved, m.row(n, t), 0)
		if i == mlpSaved {
			m.temporary(gemmSpace)
		}
	}
}

// backward undoes a layer, the feed-forward half first.
func (m *transformer) backward(t uint64) {
	m.alloc(&m.passing, m.row(4, t), 0)
	for range len(layerSaved) - mlpSaved {
		m.freeNewest(&m.saved)
	}
	for _, n := range layerWeights[mlpWeights:] {
		m.alloc(&m.grads, m.square(n), 0)
	}
	m.freeNewest(&m.passing)
	m.alloc(&m.passing, m.row(3, t), 0)
	for range mlpSaved {
		m.freeNewest(&m.saved)
	}
	for _, n := range layerWeights[:mlpWeights] {
		m.alloc(&m.grads, m.square(n), 0)
	}
	m.freeNewest(&m.passing)
}

// optimize makes Adam's state the first time, and lets the gradients go.
func (m *transformer) optimize(first bool) {
	if first {
		for i := range m.grads.blocks {
			state := m.grads.blocks[i].bytes / weightBytes * adamBytes
			m.alloc(&m.model, state, 0)
			m.alloc(&m.model, state, 0)
		}
	}
	m.temporary(m.square(4) / weightBytes * adamBytes) // an update in full precision
	m.freeAll(&m.grads)
}

// evaluate runs forward on another batch, keeping nothing but a result: the hidden states of a few tokens and their logits.
func (m *transformer) evaluate() {
	for range between(m.src, 1, 3) {
		t := m.tokens()
		m.alloc(&m.passing, m.row(1, t), 0)
		for range m.layers {
			m.alloc(&m.passing, m.row(3, t), 0)
			m.alloc(&m.passing, m.row(4, t), 0)
			m.freeNewest(&m.passing)
			m.freeNewest(&m.passing)
		}
		some := between(m.src, 1, t/8)
		m.alloc(&m.results, m.row(1, some), 0)
		m.alloc(&m.results, some*vocabulary*weightBytes/4, 0)
		m.freeAll(&m.passing)
	}
	for len(m.results.blocks) > 2*keptResults {
		m.free(&m.results, m.older(&m.results))
	}
}

// checkpoint copies the weights of some layers; the copies stay until they are written, well into the next step. The record of
// what was saved stays.
func (m *transformer) checkpoint() {
	for range between(m.src, 1, max(m.layers/3, 1)) {
		for _, n := range layerWeights {
			m.alloc(&m.staged, m.square(n), m.side)
		}
		m.alloc(&m.results, logUniform(m.src, granule, 4*mib), 0)
	}
}
