// What the files of the fake driver share. See memory.c.
#ifndef SHATTER_FAKE_H
#define SHATTER_FAKE_H
#define _GNU_SOURCE
#include <cuda.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>

#define API __attribute__((visibility("default")))
#define GRANULE (2ull << 20)

extern pthread_mutex_t mu; // guards all state
#define LOCK pthread_mutex_lock(&mu)
#define RETURN(e) do { CUresult r_ = (e); pthread_mutex_unlock(&mu); return r_; } while (0)

extern int ready; // cuInit succeeded
#define NEED_INIT do { if (!ready) return CUDA_ERROR_NOT_INITIALIZED; } while (0)
// As in the driver, a call without a context on its own thread fails: that is how missing thread binding shows.
#define NEED_CONTEXT do { NEED_INIT; if (!current_context()) return CUDA_ERROR_INVALID_CONTEXT; } while (0)

CUcontext current_context(void);
CUresult memory_init(void);
int device_count(void);
uint64_t device_capacity(void);
uint64_t env_size(const char *name, uint64_t otherwise);
// Whether all of [p, p+n) is device memory that allows the access (PROT_READ, PROT_WRITE); mu is held.
int reachable(CUdeviceptr p, size_t n, int prot);
#endif
