//go:build cuda

// A stand-in for libcuda at link time; see doc.go.
#define _GNU_SOURCE
#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

// Hidden: exported, these functions would take the place of the driver's own inside the driver.
#pragma GCC visibility push(hidden)

static CUresult state = CUDA_ERROR_NOT_INITIALIZED; // what the driver's cuInit said
static char why[256];                               // why there is no driver
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define CALL(name, params, args)                                           \
	static CUresult(*driver_##name) params;                                \
	CUresult name params {                                                 \
		if (state != CUDA_SUCCESS) return state;                           \
		return driver_##name ? driver_##name args : CUDA_ERROR_NOT_SUPPORTED; \
	}
#include "calls.h"
#undef CALL

static void load(void) {
	const char *path = getenv("SHATTER_LIBCUDA");
	void *lib = dlopen(path && *path ? path : "libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		const char *e = dlerror();
		snprintf(why, sizeof why, "%s", e ? e : "libcuda.so.1 cannot be opened");
		state = CUDA_ERROR_NO_DEVICE;
		return;
	}
#define CALL(name, params, args) *(void **)&driver_##name = dlsym(lib, #name);
#include "calls.h"
#undef CALL
	// The first version of this call needs a setting of the kernel module on many drivers, the second does not.
	void *wait = dlsym(lib, "cuStreamWaitValue32_v2");
	if (wait) *(void **)&driver_cuStreamWaitValue32 = wait;
	CUresult (*init)(unsigned int);
	*(void **)&init = dlsym(lib, "cuInit");
	state = init ? init(0) : CUDA_ERROR_NOT_INITIALIZED;
	if (!init) snprintf(why, sizeof why, "%s", "the library has no cuInit");
}

CUresult cuInit(unsigned int flags) {
	(void)flags;
	pthread_once(&once, load);
	return CUDA_SUCCESS;
}

int shatter_driver_state(void) {
	pthread_once(&once, load);
	return (int)state;
}

const char *shatter_driver_error(void) { return why; }
