package gen

import (
	"slices"

	"github.com/shatter-gpu/shatter/harness/trace"
)

var (
	serveDefaults = Params{Ops: 16000, Capacity: 80 * gib, Long: 0.1, Streams: 1}
	pagedDefaults = Params{Ops: 16000, Capacity: 80 * gib, Long: 0.1, Streams: 1}
)

// serve imitates inference with a contiguous cache of keys and values for each request and layer, as engines had it before
// paging (Kwon et al., PagedAttention, arXiv:2309.06180, section 3): a request arrives with a prompt of 32 to 8,192 tokens, its
// cache grows in steps of 256 tokens by a copy into a larger block, and ends after 16 to 2,048 tokens more. When the cache
// budget, 60 to 85 percent of what the weights leave, is used up, the youngest request is evicted and comes again.
func serve(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(serveDefaults)
	s := newServer(cfg, ops, p)
	for !s.full() {
		s.tick(func(r *request, tokens uint64) {
			n := max((tokens+cacheStep-1)/cacheStep, 1) * cacheStep
			if n == r.room {
				return
			}
			old := len(r.cache.blocks)
			for i := range s.layers {
				s.get(&r.cache, 2*n*s.kv()*bf16/s.tp, 0)
				if old > 0 { // blocks are in order: the grown one takes the place of the old
					s.free(&r.cache, int(i))
				}
			}
			r.room = n
		})
	}
	return s.finish(p.Capacity)
}

// paged imitates inference with a paged cache whose pages of 16 tokens, keys and values of all layers, are allocated on demand
// (PagedAttention's block size; vAttention, Prabhu et al., arXiv:2405.04437, has the pages from the allocator). For Llama 3 of
// 8B a page is 2 MiB. Requests as in serve.
func paged(cfg, ops Source, p Params) *trace.Trace {
	p = p.or(pagedDefaults)
	s := newServer(cfg, ops, p)
	page := 16 * 2 * s.layers * s.kv() * bf16 / s.tp
	for !s.full() {
		s.tick(func(r *request, tokens uint64) {
			for uint64(len(r.cache.blocks))*16 < tokens {
				s.get(&r.cache, page, 0)
			}
			r.room = uint64(len(r.cache.blocks)) * 16
		})
	}
	return s.finish(p.Capacity)
}

const cacheStep = 256

type server struct {
	decoder
	requests []*request
	budget   uint64 // tokens that the cache may hold
	most     int    // requests at once
	warm     bool   // the first requests are there
}

// request is a sequence that is being served.
type request struct {
	tokens, end uint64
	room        uint64 // tokens that the cache has room for
	cache       set
	gone        bool
}

func newServer(cfg, ops Source, p Params) *server {
	type setup struct {
		llm
		tp uint64
	}
	s := &server{decoder: decoder{job: newJob(ops, p)}}
	bytes := func(m setup) uint64 { return m.parameters() / m.tp * bf16 }
	m := choose(&s.job, cfg, []setup{{llama2of70B, 4}, {llama2of13B, 1}, {llama3of8B, 1}, {llama2of7B, 1}}, p.Capacity, 55, bytes)
	s.llm, s.tp = m.llm, m.tp
	s.load()
	capacity := p.Capacity
	if s.scale < 1 {
		capacity = uint64(float64(capacity) / s.scale)
	}
	left := percent(capacity-min(bytes(m), capacity), between(cfg, 60, 85))
	s.budget = max(left/(2*s.layers*s.kv()*bf16/s.tp), 2*cacheStep)
	s.most = int(min(max(s.budget/between(cfg, 600, 1200), 8), 256))
	return s
}

// held is the tokens that the caches have room for.
func (s *server) held() uint64 {
	var n uint64
	for _, r := range s.requests {
		n += r.room
	}
	return n
}

// tick lets requests arrive, one on average, and generates 16 tokens for all. grow makes room for a request's tokens.
func (s *server) tick(grow func(*request, uint64)) {
	// At first there is a queue of requests.
	for len(s.requests) < s.most && (s.held() < s.budget/2 && !s.warm || chance(s.src, 1, 2)) || len(s.requests) == 0 {
		r := &request{tokens: logUniform(s.src, 32, min(8192, s.budget/2))}
		r.end = r.tokens + logUniform(s.src, 16, 2048)
		s.makeRoom(r.tokens+cacheStep, nil)
		grow(r, r.tokens)
		s.requests = append(s.requests, r)
		s.pass(r.tokens, 1)
		if s.full() {
			return
		}
	}
	s.warm = true
	s.pass(uint64(len(s.requests)), uint64(len(s.requests)))
	for _, r := range slices.Clone(s.requests) {
		if r.gone {
			continue
		}
		switch r.tokens += 16; {
		case r.tokens >= r.end:
			s.end(r)
		case r.tokens > r.room:
			s.makeRoom(cacheStep, r)
			grow(r, r.tokens)
		}
	}
	s.leave()
}

// makeRoom evicts the youngest requests, but for one, until so many tokens more fit.
func (s *server) makeRoom(tokens uint64, but *request) {
	for i := len(s.requests) - 1; i >= 0 && s.held()+tokens > s.budget; i-- {
		if r := s.requests[i]; r != but {
			s.end(r)
		}
	}
}

// end frees a request's cache.
func (s *server) end(r *request) {
	s.requests = slices.DeleteFunc(s.requests, func(other *request) bool { return other == r })
	s.freeAll(&r.cache)
	r.gone = true
}

// pass runs t tokens of n requests through three layers' worth of temporaries, since all layers take and free the same, and the
// logits.
func (s *server) pass(t, n uint64) {
	x, cut := t*s.hidden*bf16, t*bf16/s.tp
	s.get(&s.saved, x, 0)
	for range 3 {
		for _, bytes := range []uint64{x, (s.hidden + 2*s.kv()) * cut, s.hidden * cut, x, 2 * s.ffn * cut, s.ffn * cut, x} {
			s.get(&s.passing, bytes, 0)
			if len(s.passing.blocks) > 1 {
				s.freeOldest(&s.passing)
			}
		}
		s.freeOldest(&s.passing)
	}
	s.get(&s.passing, n*s.vocabulary*4/s.tp, 0)
	s.temporary(n * s.vocabulary * 4 / s.tp)
	s.freeAll(&s.passing)
	s.freeAll(&s.saved)
}
