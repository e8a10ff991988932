// A caching allocator with the C functions of torch.cuda.memory.CUDAPluggableAllocator: freed blocks are
// kept and handed out again to requests of the same rounded size on the same stream; on a refusal all of them are given back and the purchase is repeated. A block that was recorded on
// another stream waits for that stream. Compiled with one of these it has a bug:
//
//   -DEARLY     the event is recorded when the use is, not when the block is freed: work queued in between is not waited for
//   -DLEAK      every eighth block that is freed is lost
//   -DOVERLAP   a block that is handed out again stays in the cache, so that the next request gets it too
//   -DCRASH     the thousandth allocation reads address 0
//   -DHANG      the hundredth allocation never returns
//   -DTWICE     giving the cache back frees each block twice
#include "cuda.h"
#include <stdlib.h>

typedef struct Block {
  void* addr;
  size_t size;
  int uses;
  cudaStream_t stream;
  cudaStream_t users[4];
  cudaEvent_t events[4];
  struct Block* next;
} Block;

static Block* idle;     // free
static Block* live;     // handed out
static Block* pending;  // freed, with work outstanding
static int count;

static size_t rounded(size_t n) {
  size_t unit = n < 1 << 20 ? 512 : 2 << 20;
  return (n + unit - 1) / unit * unit;
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
    b->next = idle;
    idle = b;
  }
}

static void give_back(void) {
  collect(1);
  while (idle) {
    Block* b = idle;
    idle = b->next;
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
  size_t n = rounded(size);
  ++count;
#ifdef CRASH
  if (count == 1000) *(volatile int*)0;
#endif
#ifdef HANG
  if (count == 100) for (;;) {}
#endif
  collect(0);
  Block** p = &idle;
  while (*p && ((*p)->size != n || (*p)->stream != stream)) p = &(*p)->next;
  Block* b = *p;
  if (b) {
#ifdef OVERLAP
    Block* copy = malloc(sizeof *copy);
    *copy = *b;
    b = copy;
#else
    *p = b->next;
#endif
  } else {
    void* addr;
    if (cudaMalloc(&addr, n)) {
      give_back();
      if (cudaMalloc(&addr, n)) return NULL;
    }
    b = calloc(1, sizeof *b);
    b->addr = addr;
    b->size = n;
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
