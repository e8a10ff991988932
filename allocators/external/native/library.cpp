// Backend: a library with the C functions of torch.cuda.memory.CUDAPluggableAllocator:
//
//   void* alloc(ssize_t size, int device, cudaStream_t stream);
//   void free(void* ptr, ssize_t size, int device, cudaStream_t stream);
//   void record(void* ptr, cudaStream_t stream);                            (optional)
//
// A null result is its only way to refuse. Usage: host LIBRARY ALLOC FREE [RECORD].
#include "backend.h"
#include <dlfcn.h>

namespace {
struct Library : Backend {
  void* (*alloc_)(ssize_t, int, void*);
  void (*free_)(void*, ssize_t, int, void*);
  void (*record_)(void*, void*) = nullptr;

  void start(bool, double) override {}
  void* alloc(size_t bytes, uint32_t stream) override {
    if (!bytes) return nullptr;
    void* p = alloc_((ssize_t)bytes, 0, stream_handle(stream));
    if (!p) throw Refused("the library returned null");
    return p;
  }
  void free(void* addr, size_t bytes, uint32_t stream) override {
    if (addr) free_(addr, (ssize_t)bytes, 0, stream_handle(stream));
  }
  void record(void* addr, uint32_t stream) override {
    if (record_) record_(addr, stream_handle(stream));
  }
};
}  // namespace

Backend* make_backend(int argc, char** argv, std::string* hello) {
  if (argc < 4) {
    *hello = "error message=usage: host LIBRARY ALLOC FREE [RECORD]";
    return nullptr;
  }
  auto* b = new Library;
  void* library = dlopen(argv[1], RTLD_LAZY | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    *hello = std::string("error message=") + (why ? why : "the library cannot be loaded");
    return nullptr;
  }
  auto find = [&](const char* name) {
    void* f = dlsym(library, name);
    if (!f) *hello = std::string("error message=the library has no function ") + name;
    return f;
  };
  b->alloc_ = (decltype(b->alloc_))find(argv[2]);
  if (b->alloc_) b->free_ = (decltype(b->free_))find(argv[3]);
  if (!b->alloc_ || !b->free_) return nullptr;
  *hello = "shatter-child 1 sessions=many abandon=yes";
  if (argc > 4) {
    b->record_ = (decltype(b->record_))find(argv[4]);
    if (!b->record_) return nullptr;
    *hello += " record=yes";
  }
  return b;
}
