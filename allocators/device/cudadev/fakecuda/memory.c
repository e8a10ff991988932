// A stand-in for libcuda.so.1 over host memory, for tests on machines without an NVIDIA GPU.
//
// Physical memory is a sparse memory file, a chunk a range of it, cuMemMap a fixed mapping into reserved address space, and
// cuMemSetAccess a change of protection: bytes are real, two mappings of one chunk show the same ones, and what is not mapped
// cannot be touched. What is not implemented is not exported; the loader then answers CUDA_ERROR_NOT_SUPPORTED. Environment:
//
//   FAKECUDA_CAPACITY          device memory in bytes, or with K, M, G, T behind (80G)
//   FAKECUDA_DEVICES           how many devices there are (1)
//   FAKECUDA_MAX_AREAS         kernel memory areas that may be used (three eighths of the default vm.max_map_count)
//   FAKECUDA_NO_VMM            no virtual memory management
//   FAKECUDA_NO_STREAM_MEMOPS  no cuStreamWaitValue32
#include "fake.h"
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int device_idle(void);

typedef struct { uint64_t offset, size; int maps, released; } chunk;
typedef struct { uint64_t base, size; chunk *c; int prot; } span; // c is NULL for a plain allocation

// Spans by address, none overlapping: what is mapped or allocated, and what is reserved.
typedef struct { span *v; size_t n, cap; } table;
static table live, reserved;
static int fd = -1;
static uint64_t capacity, used, file_end, areas, max_areas;

// A process at vm.max_map_count cannot go on: neither can the Go heap grow. Each span can cost two areas.
#define DEFAULT_AREAS 24573
static int too_many(void) { return areas + 2 > max_areas; }

uint64_t env_size(const char *name, uint64_t otherwise) {
	char *s = getenv(name), *end;
	if (!s || !*s) return otherwise;
	uint64_t v = strtoull(s, &end, 10);
	switch (*end) {
	case 'T': v <<= 10; // fall through
	case 'G': v <<= 10; // fall through
	case 'M': v <<= 10; // fall through
	case 'K': v <<= 10;
	}
	return v;
}
int device_count(void) { return (int)env_size("FAKECUDA_DEVICES", 1); }
uint64_t device_capacity(void) { return capacity; }

CUresult memory_init(void) {
	capacity = env_size("FAKECUDA_CAPACITY", 80ull << 30);
	max_areas = env_size("FAKECUDA_MAX_AREAS", DEFAULT_AREAS);
	fd = memfd_create("fakecuda", MFD_CLOEXEC);
	return fd < 0 || ftruncate(fd, 1ll << 62) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

// The index of the first span that ends above a.
static size_t lower(table *t, uint64_t a) {
	size_t lo = 0, hi = t->n;
	while (lo < hi) {
		size_t m = (lo + hi) / 2;
		if (t->v[m].base + t->v[m].size <= a) lo = m + 1;
		else hi = m;
	}
	return lo;
}
static int overlaps(table *t, uint64_t a, uint64_t n) {
	size_t i = lower(t, a);
	return i < t->n && t->v[i].base < a + n;
}
static void insert(table *t, span s) {
	if (t->n == t->cap) t->v = realloc(t->v, (t->cap = t->cap ? t->cap * 2 : 64) * sizeof s);
	size_t i = lower(t, s.base);
	memmove(t->v + i + 1, t->v + i, (t->n - i) * sizeof s);
	t->v[i] = s;
	t->n++;
	areas += 2;
}
static void drop(table *t, size_t i, size_t n) {
	memmove(t->v + i, t->v + i + n, (t->n - i - n) * sizeof *t->v);
	t->n -= n;
	areas -= 2 * n;
}
// Whether whole mappings tile [a, a+n); the first is i, the one behind the last j.
static int tiles(uint64_t a, uint64_t n, size_t *i, size_t *j) {
	uint64_t at = a;
	*i = *j = lower(&live, a);
	for (; *j < live.n && at < a + n && live.v[*j].c && live.v[*j].base == at; ++*j) at += live.v[*j].size;
	return n && at == a + n;
}
int reachable(CUdeviceptr p, size_t n, int prot) {
	for (size_t i = lower(&live, p); n; i++) {
		if (i == live.n || live.v[i].base > p || (live.v[i].prot & prot) != prot) return 0;
		uint64_t k = live.v[i].base + live.v[i].size - p;
		if (k > n) k = n;
		p += k;
		n -= k;
	}
	return 1;
}

API CUresult cuMemGetInfo_v2(size_t *f, size_t *t) {
	NEED_CONTEXT;
	LOCK;
	*f = capacity - used;
	*t = capacity;
	RETURN(CUDA_SUCCESS);
}
// Address space of n bytes at a multiple of the granule; mu is held.
static char *space(size_t n) {
	char *m = mmap(NULL, n + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED) return NULL;
	char *a = (char *)(((uintptr_t)m + GRANULE - 1) & ~(uintptr_t)(GRANULE - 1));
	if (a > m) munmap(m, a - m);
	munmap(a + n, m + GRANULE - a);
	return a;
}
static int show(void *a, size_t n, int prot, uint64_t offset) {
	return mmap(a, n, prot, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, fd, offset) != MAP_FAILED;
}

// Small allocations share 2 MiB on a real device; here every 512 bytes are counted for themselves.
API CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
	NEED_CONTEXT;
	if (!n) return CUDA_ERROR_INVALID_VALUE;
	uint64_t size = (n + 511) / 512 * 512, pages = (n + GRANULE - 1) / GRANULE * GRANULE;
	LOCK;
	if (n > capacity || size > capacity - used || too_many()) RETURN(CUDA_ERROR_OUT_OF_MEMORY);
	char *a = space(pages);
	if (!a || !show(a, pages, PROT_READ | PROT_WRITE, file_end)) RETURN(CUDA_ERROR_OUT_OF_MEMORY);
	file_end += pages;
	used += size;
	insert(&live, (span){(uint64_t)a, size, NULL, PROT_READ | PROT_WRITE});
	*p = (CUdeviceptr)a;
	RETURN(CUDA_SUCCESS);
}
// The driver waits for the device before it frees. Held work would make it wait for ever: CUDA_ERROR_LAUNCH_TIMEOUT here.
API CUresult cuMemFree_v2(CUdeviceptr p) {
	NEED_CONTEXT;
	if (!p) return CUDA_SUCCESS;
	LOCK;
	size_t i = lower(&live, p);
	if (i == live.n || live.v[i].base != p || live.v[i].c) RETURN(CUDA_ERROR_INVALID_VALUE);
	if (!device_idle()) RETURN(CUDA_ERROR_LAUNCH_TIMEOUT);
	uint64_t pages = (live.v[i].size + GRANULE - 1) / GRANULE * GRANULE;
	madvise((void *)p, pages, MADV_REMOVE);
	munmap((void *)p, pages);
	used -= live.v[i].size;
	drop(&live, i, 1);
	RETURN(CUDA_SUCCESS);
}

static CUresult copy(uint64_t to, int to_device, uint64_t from, int from_device, size_t n) {
	NEED_CONTEXT;
	LOCK;
	if ((to_device && !reachable(to, n, PROT_WRITE)) || (from_device && !reachable(from, n, PROT_READ)))
		RETURN(CUDA_ERROR_INVALID_VALUE);
	memmove((void *)to, (void *)from, n);
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemcpyHtoD_v2(CUdeviceptr d, const void *s, size_t n) { return copy(d, 1, (uint64_t)s, 0, n); }
API CUresult cuMemcpyDtoH_v2(void *d, CUdeviceptr s, size_t n) { return copy((uint64_t)d, 0, s, 1, n); }
API CUresult cuMemcpyDtoD_v2(CUdeviceptr d, CUdeviceptr s, size_t n) { return copy(d, 1, s, 1, n); }
API CUresult cuMemsetD32_v2(CUdeviceptr d, unsigned v, size_t n) {
	NEED_CONTEXT;
	LOCK;
	if (d % 4 || !reachable(d, n * 4, PROT_WRITE)) RETURN(CUDA_ERROR_INVALID_VALUE);
	for (size_t i = 0; i < n; i++) ((uint32_t *)d)[i] = v;
	RETURN(CUDA_SUCCESS);
}

static int good(const CUmemAllocationProp *p) {
	return p && p->type == CU_MEM_ALLOCATION_TYPE_PINNED && p->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       p->location.id >= 0 && p->location.id < device_count();
}
API CUresult cuMemGetAllocationGranularity(size_t *g, const CUmemAllocationProp *p, CUmemAllocationGranularity_flags f) {
	(void)f;
	NEED_INIT;
	if (!good(p)) return CUDA_ERROR_INVALID_VALUE;
	*g = GRANULE;
	return CUDA_SUCCESS;
}
API CUresult cuMemAddressReserve(CUdeviceptr *p, size_t n, size_t align, CUdeviceptr hint, unsigned long long flags) {
	(void)hint;
	NEED_INIT;
	if (!n || n % GRANULE || flags || align > GRANULE) return CUDA_ERROR_INVALID_VALUE;
	LOCK;
	char *a = too_many() ? NULL : space(n);
	if (!a) RETURN(CUDA_ERROR_OUT_OF_MEMORY);
	insert(&reserved, (span){(uint64_t)a, n, NULL, 0});
	*p = (CUdeviceptr)a;
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemAddressFree(CUdeviceptr p, size_t n) {
	NEED_INIT;
	LOCK;
	size_t i = lower(&reserved, p);
	if (i == reserved.n || reserved.v[i].base != p || reserved.v[i].size != n || overlaps(&live, p, n))
		RETURN(CUDA_ERROR_INVALID_VALUE);
	munmap((void *)p, n);
	drop(&reserved, i, 1);
	RETURN(CUDA_SUCCESS);
}

static void put(chunk *c) { // mu is held
	if (c->maps || !c->released) return;
	fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, c->offset, c->size);
	used -= c->size;
	free(c);
}
// Handles are numbers, not pointers, so that a wrong one is refused.
static chunk **chunks;
static uint64_t chunk_count;
static chunk *chunk_of(CUmemGenericAllocationHandle h) { return h && h <= chunk_count ? chunks[h - 1] : NULL; }

API CUresult cuMemCreate(CUmemGenericAllocationHandle *h, size_t n, const CUmemAllocationProp *p, unsigned long long flags) {
	NEED_INIT;
	if (!n || n % GRANULE || flags || !good(p)) return CUDA_ERROR_INVALID_VALUE;
	LOCK;
	if (n > capacity - used) RETURN(CUDA_ERROR_OUT_OF_MEMORY);
	chunk *c = calloc(1, sizeof *c);
	c->offset = file_end;
	c->size = n;
	file_end += n;
	used += n;
	chunks = realloc(chunks, (chunk_count + 1) * sizeof *chunks);
	chunks[chunk_count++] = c;
	*h = chunk_count;
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemRelease(CUmemGenericAllocationHandle h) {
	NEED_INIT;
	LOCK;
	chunk *c = chunk_of(h);
	if (!c) RETURN(CUDA_ERROR_INVALID_VALUE);
	chunks[h - 1] = NULL;
	c->released = 1;
	put(c);
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemMap(CUdeviceptr a, size_t n, size_t offset, CUmemGenericAllocationHandle h, unsigned long long flags) {
	NEED_INIT;
	LOCK;
	chunk *c = chunk_of(h);
	size_t i = lower(&reserved, a);
	if (!c || flags || offset || n != c->size || a % GRANULE || i == reserved.n || reserved.v[i].base > a ||
	    reserved.v[i].base + reserved.v[i].size < a + n || overlaps(&live, a, n))
		RETURN(CUDA_ERROR_INVALID_VALUE);
	if (too_many()) RETURN(CUDA_ERROR_OPERATING_SYSTEM);
	if (!show((void *)a, n, PROT_NONE, c->offset)) RETURN(CUDA_ERROR_MAP_FAILED);
	c->maps++;
	insert(&live, (span){a, n, c, PROT_NONE});
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemUnmap(CUdeviceptr a, size_t n) {
	NEED_INIT;
	LOCK;
	size_t i, j;
	if (!tiles(a, n, &i, &j)) RETURN(CUDA_ERROR_INVALID_VALUE);
	if (mmap((void *)a, n, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
		RETURN(CUDA_ERROR_UNMAP_FAILED);
	for (size_t k = i; k < j; k++) {
		live.v[k].c->maps--;
		put(live.v[k].c);
	}
	drop(&live, i, j - i);
	RETURN(CUDA_SUCCESS);
}
API CUresult cuMemSetAccess(CUdeviceptr a, size_t n, const CUmemAccessDesc *d, size_t count) {
	NEED_INIT;
	if (!d || count != 1 || d->location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
	LOCK;
	size_t i, j;
	int prot = d->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE : PROT_NONE;
	if (!tiles(a, n, &i, &j)) RETURN(CUDA_ERROR_INVALID_VALUE);
	if (mprotect((void *)a, n, prot)) RETURN(CUDA_ERROR_MAP_FAILED);
	while (i < j) live.v[i++].prot = prot;
	RETURN(CUDA_SUCCESS);
}
