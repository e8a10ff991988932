// What becomes of freed C++ objects, in this process and in the libraries under test (these definitions are found first).
//
// PyTorch up to 2.8 reads an oversize block's size just after deleting it (pytorch#159567; seen in the wheels 2.6.0 to 2.8.0, not
// in 2.9.0 and later), so its decisions depend on the C library; glibc hides it. By default the last 256 freed objects keep their contents, which gives the decisions that were meant. With
// SHATTER_FREED=poison they are overwritten, so that such a read shows; with SHATTER_FREED=libc the C library does as it likes.
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <new>
#include <utility>

#define API __attribute__((visibility("default")))

namespace {
enum Mode { UNKNOWN, KEEP, POISON, LIBC };
Mode mode_ = UNKNOWN;
Mode mode() {
  if (mode_ == UNKNOWN) {
    const char* v = getenv("SHATTER_FREED");
    mode_ = !v ? KEEP : !strcmp(v, "poison") ? POISON : !strcmp(v, "libc") ? LIBC : KEEP;
  }
  return mode_;
}
thread_local void* kept[256];
thread_local unsigned next;
}  // namespace

API void* operator new(std::size_t n) {
  void* p = malloc(n ? n : 1);
  if (!p) throw std::bad_alloc();
  return p;
}
API void operator delete(void* p) noexcept {
  if (!p) return;
  Mode m = mode();
  if (m == POISON) memset(p, 0xdb, malloc_usable_size(p));
  // Poisoned objects are kept as well: else the next allocation could overwrite the poison with something plausible.
  if (m != LIBC) std::swap(p, kept[next++ % 256]);
  free(p);
}
API void operator delete(void* p, std::size_t) noexcept { operator delete(p); }
