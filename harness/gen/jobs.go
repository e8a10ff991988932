package gen

import "github.com/shatter-gpu/shatter/allocators/device"

// Jobs are models of real jobs at real sizes, in the order in which they are listed. They are long, so they are not among the
// workloads that run without being asked for.
var Jobs = []Workload{
	{"dense", "transformer training, 7B to 70B: activations as a stack, accumulation, recomputation, gradient buckets on a stream",
		Distribution, denseDefaults, dense},
	{"sharded", "fully sharded training, 8B to 70B: layers gathered on a stream and resharded, gradients scattered on another",
		Distribution, shardedDefaults, sharded},
	{"moe", "mixture of experts, inference: weights processed after loading, sizes that depend on the routing",
		Distribution, moeDefaults, moe},
	{"serve", "inference with a contiguous KV cache for each request: arrival, growth by copying, eviction",
		Distribution, serveDefaults, serve},
	{"paged", "inference with a paged KV cache: arrival, growth page by page, eviction",
		Distribution, pagedDefaults, paged},
	{"rl", "reinforcement learning: generating and training in turn, empty_cache between",
		Distribution, rlDefaults, rl},
	{"finetune", "fine-tuning with adapters: batch N, N+1, ..., evaluation between epochs",
		Distribution, finetuneDefaults, finetune},
	{"vision", "object detection training: irregular image and region sizes, masks kept in evaluation",
		Distribution, visionDefaults, vision},
}

// All are the workloads and the jobs.
func All() []Workload { return append(Workloads[:len(Workloads):len(Workloads)], Jobs...) }

// llm has the shapes of a decoder transformer, in elements.
type llm struct {
	hidden, layers, heads, kvHeads, ffn, vocabulary uint64
	experts                                         uint64 // 0 if dense; two are active for a token
}

// The published shapes: Llama 2 (Touvron et al., arXiv:2307.09288, and its model cards), Llama 3 (Grattafiori et al.,
// arXiv:2407.21783, table 3), Mixtral (Jiang et al., arXiv:2401.04088, table 1, and the model card of 8x22B).
var (
	llama2of7B  = llm{4096, 32, 32, 32, 11008, 32000, 0}
	llama2of13B = llm{5120, 40, 40, 40, 13824, 32000, 0}
	llama3of8B  = llm{4096, 32, 32, 8, 14336, 128256, 0}
	llama2of70B = llm{8192, 80, 64, 8, 28672, 32000, 0}
	llama3of70B = llm{8192, 80, 64, 8, 28672, 128256, 0}
	mixtral8x7  = llm{4096, 32, 32, 8, 14336, 32000, 8}
	mixtral8x22 = llm{6144, 56, 48, 8, 16384, 32768, 8}
)

const bf16 = 2 // bytes of an element; float32 takes twice as many

// kv is the width of keys, and of values.
func (m *llm) kv() uint64 { return m.hidden / m.heads * m.kvHeads }

// tensorsOf are the weights of a layer in elements: qkv, output, gate and up together, down, and two norms. Experts are not in it.
func (m *llm) tensorsOf() [6]uint64 {
	t := [6]uint64{m.hidden * (m.hidden + 2*m.kv()), m.hidden * m.hidden, 2 * m.hidden * m.ffn, m.hidden * m.ffn, m.hidden, m.hidden}
	if m.experts > 0 {
		t[2], t[3] = 0, 0
	}
	return t
}

// layer is how many weights a layer has.
func (m *llm) layer() uint64 {
	n := 3 * m.experts * m.hidden * m.ffn
	for _, t := range m.tensorsOf() {
		n += t
	}
	return n
}

// parameters is how many weights there are.
func (m *llm) parameters() uint64 { return m.layers*m.layer() + 2*m.vocabulary*m.hidden }

// job is what the models of real jobs have in common.
type job struct {
	program
	// scale shrinks all sizes in proportion on devices that are too small for the smallest model: the trace is then of the same
	// form, but no real job. 1 otherwise.
	scale float64
	long  float64

	passing set // temporaries
	residue set // by-products that outlive their step
}

func newJob(ops Source, p Params) job {
	return job{program: newProgram(ops, p.Ops), scale: 1, long: p.Long}
}

// choose takes a random one of the models whose bytes stay below a share, in percent, of the device; if none does, the last one,
// scaled.
func choose[T any](j *job, cfg Source, models []T, capacity, most uint64, bytes func(T) uint64) T {
	var fitting []T
	for _, m := range models {
		if bytes(m) <= percent(capacity, most) {
			fitting = append(fitting, m)
		}
	}
	pick := cfg.Uint64n(uint64(len(models)))
	if len(fitting) > 0 {
		return fitting[pick%uint64(len(fitting))]
	}
	m := models[len(models)-1]
	j.scale = float64(percent(capacity, most)) / float64(bytes(m))
	return m
}

// get allocates.
func (j *job) get(s *set, bytes uint64, stream device.Stream) {
	if j.scale < 1 {
		bytes = uint64(float64(bytes) * j.scale)
	}
	j.alloc(s, max(bytes, 1), stream)
}

// temporary allocates and frees.
func (j *job) temporary(bytes uint64) {
	j.get(&j.passing, bytes, 0)
	j.freeNewest(&j.passing)
}

// freeOldest frees the block of a set that was allocated first.
func (j *job) freeOldest(s *set) {
	old := 0
	for i := range s.blocks {
		if s.blocks[i].serial < s.blocks[old].serial {
			old = i
		}
	}
	j.free(s, old)
}

// leave is called where a job may leave something behind that outlives the step: a logged loss, a metric, a cached mask, a
// rotary table, a workspace, an output that is kept. The dial (Params.Long) is how often it does, in parts of one; what
// is left lives until keptResidue others have come, on average.
func (j *job) leave() {
	if j.src.Uint64n(1000) >= uint64(j.long*1000) {
		return
	}
	// Half are scalars and small tensors, half up to a few MiB.
	bytes := logUniform(j.src, 4, 64*kib)
	if chance(j.src, 1, 2) {
		bytes = logUniform(j.src, 64*kib, 8*mib)
	}
	j.get(&j.residue, bytes, 0)
	if len(j.residue.blocks) > keptResidue {
		j.free(&j.residue, j.older(&j.residue))
	}
}

const keptResidue = 64
