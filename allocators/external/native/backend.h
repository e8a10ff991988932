// What the host (host.cpp) needs of the allocator under test. torch.cpp and library.cpp each define make_backend.
#pragma once
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

// A refusal: the allocator has not the memory.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Writes `key=value` words of a reply.
struct Words {
  std::string& out;
  void put(const char* key, int64_t value);
};

struct Backend {
  virtual ~Backend() {}
  // Called once, in the process that a session runs in. Throws if the settings are not accepted.
  virtual void start(bool has_fraction, double fraction) = 0;
  virtual void* alloc(size_t bytes, uint32_t stream) = 0;
  virtual void free(void* addr, size_t bytes, uint32_t stream) = 0;
  virtual void record(void*, uint32_t) {}
  virtual void empty_cache() {}
  virtual void configure(const std::string&) {}
  // Private pools: requests of the stream, of all if it is negative, go to the pool from begin to end.
  virtual void pool_begin(uint32_t, int64_t, bool) {}
  virtual void pool_end(uint32_t) {}
  virtual void pool_release(uint32_t) {}
  virtual void empty_pool(uint32_t) {}
  virtual void set_fraction(double) {}
  // The live bytes, in block sizes; -1 if the allocator does not tell.
  virtual int64_t allocated() { return -1; }
  // The figures that a reply carries when they changed, and all of them.
  virtual void brief(Words&) {}
  virtual void full(Words&) {}
};

// The handle of a numbered stream; 0 is the default stream. Allocators order streams by their handles.
inline void* stream_handle(uint32_t n) { return (void*)((uintptr_t)n * 0x1000); }

// Makes the backend; a text that begins with `error ` in *hello says why not, else *hello gets the abilities.
Backend* make_backend(int argc, char** argv, std::string* hello);
