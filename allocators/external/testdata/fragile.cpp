// A backend for the host (native/host.cpp) that shows where its objects lie: an alloc answers the address of one, whose size is the
// request's. The tenth dies while the reply is written, with SIGSEGV, and says so before.
#include "backend.h"
#include <csignal>
#include <cstdio>
#include <string>

struct Fragile : Backend {
  int allocs = 0;
  std::string noise;
  void start(bool, double) override {}
  void* alloc(size_t bytes, uint32_t) override {
    noise.append(bytes, 'x');  // grows with the operations alone
    ++allocs;
    return operator new(bytes);
  }
  void free(void* p, size_t, uint32_t) override { operator delete(p); }
  void brief(Words& w) override {
    w.put("later", allocs);
    if (allocs < 10) return;
    fprintf(stderr, "%*s\nthe reason\n", 100000, "");
    raise(SIGSEGV);
  }
};

Backend* make_backend(int, char**, std::string* hello) {
  *hello = "shatter-child 1 sessions=many";
  return new Fragile;
}
