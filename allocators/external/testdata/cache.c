// A caching allocator with the C functions of torch.cuda.memory.CUDAPluggableAllocator: freed blocks go into bins by power of two
// and are handed out again; on a refusal all of them are given back and the purchase is repeated. A block that was recorded on
// another stream waits for that stream. Compiled with one of these it has a bug:
//
//   -DEARLY     the event is recorded when the use is, not when the block is freed: work queued in between is not waited for
//   -DLEAK      every eighth block that is freed is lost
//   -DOVERLAP   bins are one size too small for requests just above a power of two
//   -DCRASH     the thousandth allocation reads address 0
//   -DHANG      the hundredth allocation never returns
//   -DTWICE     giving the cache back frees each block twice
#include "cuda.h"
#include <stdlib.h>

typedef struct Block {
  void* addr;
  int bin, uses;
  cudaStream_t stream;
  cudaStream_t users[4];
  cudaEvent_t events[4];
  struct Block* next;
} Block;

static Block* bins[64];   // free, by power of two
static Block* live;       // handed out
static Block* pending;    // freed, with work outstanding
static int count;

static int bin_of(size_t n) {
  int b = 9;
  while (((size_t)1 << b) < n) ++b;
#ifdef OVERLAP
  if (b > 9 && n < ((size_t)1 << (b - 1)) + 4096) --b;
#endif
  return b;
}

static void collect(int wait) {
  for (Block** p = &pending; *p;) {
    Block* b = *p;
    int done = 1;
    for (int i = 0; i < b->uses; ++i) {
      if (wait) cudaEventSynchronize(b->events[i]);
      else if (cudaEventQuery(b->events[i])) done = 0;
    }
    if (!done) {
      p = &b->next;
      continue;
    }
    for (int i = 0; i < b->uses; ++i) cudaEventDestroy(b->events[i]);
    b->uses = 0;
    *p = b->next;
    b->next = bins[b->bin];
    bins[b->bin] = b;
  }
}

static void give_back(void) {
  collect(1);
  for (int i = 0; i < 64; ++i)
    while (bins[i]) {
      Block* b = bins[i];
      bins[i] = b->next;
      cudaFree(b->addr);
#ifdef TWICE
      cudaFree(b->addr);
#endif
      free(b);
    }
}

static void mark(Block* b, int i) {
  cudaEventCreateWithFlags(&b->events[i], 2);
  cudaEventRecord(b->events[i], b->users[i]);
}

void* my_malloc(ssize_t size, int device, cudaStream_t stream) {
  (void)device;
  int bin = bin_of(size);
  ++count;
#ifdef CRASH
  if (count == 1000) *(volatile int*)0;
#endif
#ifdef HANG
  if (count == 100) for (;;) {}
#endif
  collect(0);
  Block** p = &bins[bin];
  while (*p && (*p)->stream != stream) p = &(*p)->next;
  Block* b = *p;
  if (b) {
    *p = b->next;
  } else {
    void* addr;
    if (cudaMalloc(&addr, (size_t)1 << bin)) {
      give_back();
      if (cudaMalloc(&addr, (size_t)1 << bin)) return NULL;
    }
    b = calloc(1, sizeof *b);
    b->addr = addr;
    b->bin = bin;
    b->stream = stream;
  }
  b->next = live;
  live = b;
  return b->addr;
}

void my_free(void* addr, ssize_t size, int device, cudaStream_t stream) {
  (void)size, (void)device, (void)stream;
  for (Block** p = &live; *p; p = &(*p)->next) {
    Block* b = *p;
    if (b->addr != addr) continue;
    *p = b->next;
#ifdef LEAK
    static int freed;
    if (++freed % 8 == 0) return;
#endif
#ifndef EARLY
    for (int i = 0; i < b->uses; ++i) mark(b, i);
#endif
    b->next = pending;
    pending = b;
    return;
  }
}

void my_record(void* addr, cudaStream_t stream) {
  for (Block* b = live; b; b = b->next) {
    if (b->addr != addr || b->stream == stream || b->uses == 4) continue;
    b->users[b->uses++] = stream;
#ifdef EARLY
    mark(b, b->uses - 1);
#endif
  }
}
