// Backend: the caching allocator of an installed PyTorch, compiled against that PyTorch's own headers. Only functions are used
// that all versions tried have; what differs is asked of the compiler, not of a version number.
#include "backend.h"
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

namespace cuda = c10::cuda::CUDACachingAllocator;

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
  void empty_cache() override { cuda::emptyCache(); }
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
  return new Torch;
}
