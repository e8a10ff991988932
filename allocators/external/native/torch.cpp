// Backend: the caching allocator of an installed PyTorch, compiled against that PyTorch's own headers. Only functions are used
// that all versions tried have; what differs is asked of the compiler, not of a version number.
#include "backend.h"
#include "simgpu.h"
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>
#if __has_include(<c10/cuda/CUDAAllocatorConfig.h>)
#include <c10/cuda/CUDAAllocatorConfig.h>
#define CAN_CONFIGURE 1
#endif
#if __has_include(<c10/cuda/PeerToPeerAccess.h>)
#include <c10/cuda/PeerToPeerAccess.h>
#define PEERS_ARE_CACHED 1
#endif
#include <dlfcn.h>
#include <map>
#include <vector>

namespace cuda = c10::cuda::CUDACachingAllocator;
namespace c10::cuda {
struct MemPool;         // from 2.5 on
struct MemPoolContext;  // 2.5 to 2.7
}  // namespace c10::cuda

namespace {
// Field sets that not all versions have: each get is tried with int first, and long if the field is not there.
#define FIELD(name)                                                                       \
  template <class S, class F>                                                             \
  auto with_##name(const S& s, F f, int) -> decltype(s.name, void()) { f(s.name); }       \
  template <class S, class F>                                                             \
  void with_##name(const S&, F, long) {}
FIELD(requested_bytes)
FIELD(num_sync_all_streams)
FIELD(num_device_alloc)
FIELD(num_device_free)
FIELD(max_split_size)

// Private pools are asked for where the allocator counts their uses, as it does since there are pools of the user's (2.6; under another
// name from 2.8 on). Everything here depends on a template parameter, since older headers have none of it.
template <class A>
auto has_pools(A*, int) -> decltype(&A::ensureExistsAndIncrefPool, true) { return true; }
template <class A>
auto has_pools(A*, char) -> decltype(&A::createOrIncrefPool, true) { return true; }
template <class A>
bool has_pools(A*, ...) { return false; }

// From 2.13 on the allocator is told of captures.
template <class A>
auto mark_capture(A* a, bool begins, int) -> decltype(&A::markCaptureBegin, void()) {
  if (begins) a->markCaptureBegin(0);
  else a->markCaptureEnd(0);
}
template <class A>
void mark_capture(A*, bool, long) {}

template <class T, class = void>
struct complete : std::false_type {};
template <class T>
struct complete<T, decltype(void(sizeof(T)))> : std::true_type {};

// Private pools. Up to 2.7 an empty_cache is about the pool that a thread has made current, which Python's use_mem_pool does, so there
// must be an object; it holds a use of its own, which is given back at once.
template <class A, class P, class C>
struct Pools {
  static constexpr bool current = complete<C>::value;
  struct One {
    uint64_t id[2];
    P* object;
  };
  std::map<uint32_t, One> all;
  std::vector<std::pair<uint32_t, bool>> open;  // and whether a capture
  int captures = 0;

  void begin(A* a, uint32_t n, int64_t stream, bool capture) {
    bool fresh = !all.count(n);
    if (fresh) {
      One one{{capture ? n : 0, capture ? 0 : n}, nullptr};
      if constexpr (current) {
        one.object = new P(nullptr, !capture);
        one.id[0] = one.object->id().first;
        one.id[1] = one.object->id().second;
      }
      all[n] = one;
    }
    One& p = all[n];
    bool held = false;
    if constexpr (current) held = fresh && a->getPoolUseCount(0, {p.id[0], p.id[1]}) > 0;
    void* only = stream_handle(stream < 0 ? 0 : stream);
    a->beginAllocateToPool(0, {p.id[0], p.id[1]}, [stream, only](cudaStream_t s) { return stream < 0 || (void*)s == only; });
    if (held) a->releasePool(0, {p.id[0], p.id[1]});
    if (capture) mark_capture(a, true, 0);
    shatter_gpu_capture(captures += capture);
    open.emplace_back(n, capture);
  }
  void end(A* a, uint32_t n) {
    One& p = all.at(n);
    a->endAllocateToPool(0, {p.id[0], p.id[1]});
    for (size_t i = 0; i < open.size(); ++i)
      if (open[i].first == n) {
        if (open[i].second) mark_capture(a, false, 0);
        shatter_gpu_capture(captures -= open[i].second);
        open.erase(open.begin() + i);
        break;
      }
  }
  void release(A* a, uint32_t n) {
    One& p = all.at(n);
    a->releasePool(0, {p.id[0], p.id[1]});
  }
  // The cache of one pool, or of all: then a pool of the user's that is open is the current one.
  void empty(A* a, uint32_t n) {
    if constexpr (current) {
      P* p = nullptr;
      if (n) p = all.at(n).object;
      else
        for (auto& o : open)
          if (!o.second) p = all.at(o.first).object;
      if (p) {
        C context(p);
        a->emptyCache();
        return;
      }
    } else if (n) {
      One& p = all.at(n);
      a->emptyCache({p.id[0], p.id[1]});
      return;
    }
    a->emptyCache();
  }
};
template <class A>
auto& pools_of(A*) {
  static Pools<A, c10::cuda::MemPool, c10::cuda::MemPoolContext> pools;
  return pools;
}

bool has_context(signed char) { return true; }
bool has_context_wide(long) { return true; }

struct Torch : Backend {
  int64_t last[10];
  bool known = false;

  void start(bool has_fraction, double fraction) override {
    // libtorch_cuda.so installs this hook; without that library c10 asks for it as soon as an event is recorded, and no header
    // declares it.
    if (auto f = (void (*)(bool (*)(signed char)))dlsym(RTLD_DEFAULT, "_ZN3c104cuda9_internal20setHasPrimaryContextEPFbaE")) f(has_context);
    else if (auto g = (void (*)(bool (*)(long)))dlsym(RTLD_DEFAULT, "_ZN3c104cuda9_internal20setHasPrimaryContextEPFblE")) g(has_context_wide);
    try {
#ifdef PEERS_ARE_CACHED
      // libtorch_cuda.so calls this before init; expandable segments ask for it when they map (2.13).
      c10::cuda::detail::init_p2p_access_cache(1);
#endif
      cuda::init(1);
      if (has_fraction) cuda::setMemoryFraction(fraction, 0);
      // The settings are read at the first use; an error in them must show now.
      cuda::raw_delete(cuda::raw_alloc_with_stream(0, nullptr));
      warm();
    } catch (const c10::Error& e) {
      throw std::runtime_error(e.what_without_backtrace());
    }
  }
#ifdef CAN_CONFIGURE
  void warm() { (void)cuda::CUDAAllocatorConfig::max_split_size(); }
  void configure(const std::string& conf) override {
    try {
      cuda::setAllocatorSettings(conf);
    } catch (const c10::Error& e) {
      throw std::runtime_error(e.what_without_backtrace());
    }
  }
#else
  void warm() {}
  void configure(const std::string&) override { throw std::runtime_error("this PyTorch cannot change settings while it runs"); }
#endif
  void* alloc(size_t bytes, uint32_t stream) override {
    try {
      return cuda::raw_alloc_with_stream(bytes, (cudaStream_t)stream_handle(stream));
    } catch (const c10::OutOfMemoryError& e) {
      throw Refused(e.what_without_backtrace());
    } catch (const c10::Error& e) {
      throw std::runtime_error(e.what_without_backtrace());
    }
  }
  void free(void* addr, size_t, uint32_t) override { cuda::raw_delete(addr); }
  void record(void* addr, uint32_t stream) override {
    c10::DataPtr d(addr, addr, cuda::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0));
    cuda::recordStream(d, c10::cuda::getStreamFromExternal((cudaStream_t)stream_handle(stream), 0));
    d.release_context();
  }
  void empty_cache() override { with_pools([](auto a, auto& p) { p.empty(a, 0); }); }
  void pool_begin(uint32_t n, int64_t stream, bool capture) override {
    with_pools([=](auto a, auto& p) { p.begin(a, n, stream, capture); });
  }
  void pool_end(uint32_t n) override { with_pools([=](auto a, auto& p) { p.end(a, n); }); }
  void pool_release(uint32_t n) override { with_pools([=](auto a, auto& p) { p.release(a, n); }); }
  void empty_pool(uint32_t n) override { with_pools([=](auto a, auto& p) { p.empty(a, n); }); }
  template <class F>
  void with_pools(F f) {
    try {
      call_pools(cuda::get(), f, 0);
    } catch (const c10::Error& e) {
      throw std::runtime_error(e.what_without_backtrace());
    }
  }
  template <class A, class F>
  auto call_pools(A* a, F f, int) -> decltype(&A::ensureExistsAndIncrefPool, void()) { f(a, pools_of(a)); }
  template <class A, class F>
  auto call_pools(A* a, F f, char) -> decltype(&A::createOrIncrefPool, void()) { f(a, pools_of(a)); }
  template <class A, class F>
  void call_pools(A*, F, ...) { cuda::emptyCache(); }  // nothing else is asked of it
  void set_fraction(double f) override { cuda::setMemoryFraction(f, 0); }
  int64_t allocated() override { return cuda::getDeviceStats(0).allocated_bytes[0].current; }

  void brief(Words& w) override {
    auto s = cuda::getDeviceStats(0);
    int64_t requested = -1;
    with_requested_bytes(s, [&](const auto& v) { requested = v[0].current; }, 0);
    const int64_t now[10] = {s.allocated_bytes[0].current, s.active_bytes[0].current, s.reserved_bytes[0].current, requested,
                             s.inactive_split_bytes[0].current, s.segment[0].current, s.num_alloc_retries, s.num_ooms,
                             s.allocation[0].current, s.active[0].current};
    static const char* const keys[10] = {"allocated", "active", "reserved", "requested", "inactive_split",
                                         "segments", "alloc_retries", "ooms", "live_blocks", "active_blocks"};
    for (int i = 0; i < 10; ++i)
      if (!known || now[i] != last[i]) {
        if (i != 3 || requested >= 0) w.put(keys[i], now[i]);
        last[i] = now[i];
      }
    known = true;
  }

  std::string key;
  template <class T>
  void one(Words& w, const char* name, const char* pool, const T& v) {
    const int64_t values[4] = {v.current, v.peak, v.allocated, v.freed};
    static const char* const kinds[4] = {".current", ".peak", ".allocated", ".freed"};
    for (int i = 0; i < 4; ++i) {
      key = name;
      key += pool;
      key += kinds[i];
      w.put(key.c_str(), values[i]);
    }
  }
  template <class T>
  void all(Words& w, const char* name, const T& v) {
    one(w, name, ".all", v[0]);
    one(w, name, ".small_pool", v[1]);
    one(w, name, ".large_pool", v[2]);
  }
  void full(Words& w) override {
    auto s = cuda::getDeviceStats(0);
    all(w, "allocation", s.allocation);
    all(w, "segment", s.segment);
    all(w, "active", s.active);
    all(w, "inactive_split", s.inactive_split);
    all(w, "allocated_bytes", s.allocated_bytes);
    all(w, "reserved_bytes", s.reserved_bytes);
    all(w, "active_bytes", s.active_bytes);
    all(w, "inactive_split_bytes", s.inactive_split_bytes);
    with_requested_bytes(s, [&](const auto& v) { all(w, "requested_bytes", v); }, 0);
    one(w, "oversize_allocations", "", s.oversize_allocations);
    one(w, "oversize_segments", "", s.oversize_segments);
    w.put("num_alloc_retries", s.num_alloc_retries);
    w.put("num_ooms", s.num_ooms);
    with_num_sync_all_streams(s, [&](const auto& v) { w.put("num_sync_all_streams", v); }, 0);
    with_num_device_alloc(s, [&](const auto& v) { w.put("num_device_alloc", v); }, 0);
    with_num_device_free(s, [&](const auto& v) { w.put("num_device_free", v); }, 0);
    with_max_split_size(s, [&](const auto& v) { w.put("max_split_size", v); }, 0);
    known = false;
    std::string scrap;
    Words unused{scrap};
    brief(unused);  // what the full list told need not be told again
  }
};
}  // namespace

Backend* make_backend(int, char**, std::string* hello) {
  *hello = "shatter-child 1 sessions=many abandon=yes record=yes empty_cache=yes stats=yes fraction=yes";
#ifdef CAN_CONFIGURE
  *hello += " conf=yes";
#endif
  if (has_pools(cuda::get(), 0)) *hello += " pools=yes";
  return new Torch;
}
