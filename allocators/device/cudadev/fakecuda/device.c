// Initialisation, devices, contexts, streams and events of the fake driver.
#include "fake.h"
#include <stdio.h>
#include <sys/mman.h>
#include <time.h>

pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
int ready;

struct CUctx_st { int refs; };
static struct CUctx_st primary;
static __thread CUcontext bound; // a context is current to a thread

CUcontext current_context(void) { return bound && bound->refs > 0 ? bound : NULL; }

API CUresult cuInit(unsigned flags) {
	if (flags) return CUDA_ERROR_INVALID_VALUE;
	LOCK;
	if (ready) RETURN(CUDA_SUCCESS);
	if (device_count() < 1) RETURN(CUDA_ERROR_NO_DEVICE);
	CUresult r = memory_init();
	ready = r == CUDA_SUCCESS;
	RETURN(r);
}

API CUresult cuDriverGetVersion(int *v) { *v = 13000; return CUDA_SUCCESS; }
API CUresult cuDeviceGetCount(int *n) { NEED_INIT; *n = device_count(); return CUDA_SUCCESS; }

#define NEED_DEVICE(d) do { NEED_INIT; if ((d) < 0 || (d) >= device_count()) return CUDA_ERROR_INVALID_DEVICE; } while (0)

API CUresult cuDeviceGet(CUdevice *d, int i) { NEED_DEVICE(i); *d = i; return CUDA_SUCCESS; }
API CUresult cuDeviceTotalMem_v2(size_t *n, CUdevice d) { NEED_DEVICE(d); *n = device_capacity(); return CUDA_SUCCESS; }
API CUresult cuDeviceGetName(char *s, int n, CUdevice d) {
	NEED_DEVICE(d);
	snprintf(s, n, "fake CUDA device (host memory)");
	return CUDA_SUCCESS;
}
API CUresult cuDeviceGetAttribute(int *v, CUdevice_attribute a, CUdevice d) {
	NEED_DEVICE(d);
	switch ((int)a) {
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *v = 9; break;
	case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: *v = !env_size("FAKECUDA_NO_VMM", 0); break;
	default: *v = 0;
	}
	return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *c, CUdevice d) {
	NEED_DEVICE(d);
	LOCK;
	primary.refs++;
	*c = &primary;
	RETURN(CUDA_SUCCESS);
}
API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice d) {
	NEED_DEVICE(d);
	LOCK;
	if (!primary.refs) RETURN(CUDA_ERROR_INVALID_CONTEXT);
	primary.refs--;
	RETURN(CUDA_SUCCESS);
}
API CUresult cuCtxSetCurrent(CUcontext c) { NEED_INIT; bound = c; return CUDA_SUCCESS; }
API CUresult cuCtxGetCurrent(CUcontext *c) { NEED_INIT; *c = current_context(); return CUDA_SUCCESS; }

// A stream is a queue of waits and events. Nothing runs by itself: whoever asks moves the queue on.
typedef struct item {
	struct item *next;
	CUevent event; // NULL for a wait
	CUdeviceptr word;
	uint32_t value;
} item;
struct CUstream_st { item *head, **tail; struct CUstream_st *next; };
struct CUevent_st { int recorded, pending; };
static CUstream streams;
static struct CUstream_st null_stream;

static CUstream stream_of(CUstream s) {
	CUstream q = s ? s : &null_stream;
	if (!q->tail) q->tail = &q->head;
	return q;
}

// Moves a queue on, up to a wait that is not fulfilled. 1 if it ran empty.
static int pump(CUstream s) {
	s = stream_of(s);
	while (s->head) {
		item *i = s->head;
		if (i->event) i->event->pending--;
		else if ((int32_t)(*(volatile uint32_t *)i->word - i->value) < 0) return 0;
		if (!(s->head = i->next)) s->tail = &s->head;
		free(i);
	}
	return 1;
}

static void enqueue(CUstream s, item v) {
	s = stream_of(s);
	item *i = malloc(sizeof *i);
	*i = v;
	*s->tail = i;
	s->tail = &i->next;
}

API CUresult cuStreamCreate(CUstream *s, unsigned flags) {
	(void)flags;
	NEED_CONTEXT;
	LOCK;
	*s = calloc(1, sizeof **s);
	(*s)->next = streams;
	streams = *s;
	RETURN(CUDA_SUCCESS);
}
API CUresult cuStreamDestroy_v2(CUstream s) {
	NEED_CONTEXT;
	if (!s) return CUDA_ERROR_INVALID_HANDLE;
	LOCK;
	if (!pump(s)) RETURN(CUDA_ERROR_LAUNCH_TIMEOUT); // a real driver would let it linger; here it is a mistake to be seen
	CUstream *p = &streams;
	while (*p && *p != s) p = &(*p)->next;
	if (*p) *p = s->next;
	free(s);
	RETURN(CUDA_SUCCESS);
}
// Waiting for work that nobody lets go hangs on a real device. Here it is CUDA_ERROR_LAUNCH_TIMEOUT at once.
API CUresult cuStreamSynchronize(CUstream s) {
	NEED_CONTEXT;
	LOCK;
	RETURN(pump(s) ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT);
}
API CUresult cuStreamQuery(CUstream s) {
	NEED_CONTEXT;
	LOCK;
	RETURN(pump(s) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}
static int pump_all(void) {
	int all = pump(NULL);
	for (CUstream s = streams; s; s = s->next) all &= pump(s);
	return all;
}
int device_idle(void) { return pump_all(); } // mu is held
API CUresult cuCtxSynchronize(void) {
	NEED_CONTEXT;
	LOCK;
	RETURN(pump_all() ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT);
}

static CUresult wait_value(CUstream s, CUdeviceptr word, uint32_t value, unsigned flags) {
	NEED_CONTEXT;
	if (env_size("FAKECUDA_NO_STREAM_MEMOPS", 0)) return CUDA_ERROR_NOT_SUPPORTED;
	LOCK;
	if (flags || word % 4 || !reachable(word, 4, PROT_READ)) RETURN(CUDA_ERROR_INVALID_VALUE);
	enqueue(s, (item){.word = word, .value = value});
	RETURN(CUDA_SUCCESS);
}
API CUresult cuStreamWaitValue32_v2(CUstream s, CUdeviceptr a, cuuint32_t v, unsigned f) { return wait_value(s, a, v, f); }

API CUresult cuEventCreate(CUevent *e, unsigned flags) {
	(void)flags;
	NEED_CONTEXT;
	*e = calloc(1, sizeof **e);
	return CUDA_SUCCESS;
}
API CUresult cuEventDestroy_v2(CUevent e) {
	NEED_CONTEXT;
	if (!e) return CUDA_ERROR_INVALID_HANDLE;
	LOCK;
	pump_all();
	if (e->pending) RETURN(CUDA_ERROR_LAUNCH_TIMEOUT); // a real driver defers this; here it is a mistake to be seen
	free(e);
	RETURN(CUDA_SUCCESS);
}
API CUresult cuEventRecord(CUevent e, CUstream s) {
	NEED_CONTEXT;
	if (!e) return CUDA_ERROR_INVALID_HANDLE;
	LOCK;
	e->recorded = 1;
	e->pending++;
	enqueue(s, (item){.event = e});
	pump(s);
	RETURN(CUDA_SUCCESS);
}
static CUresult event_state(CUevent e, CUresult busy) {
	NEED_CONTEXT;
	if (!e) return CUDA_ERROR_INVALID_HANDLE;
	LOCK;
	pump_all();
	RETURN(e->pending ? busy : CUDA_SUCCESS);
}
API CUresult cuEventQuery(CUevent e) { return event_state(e, CUDA_ERROR_NOT_READY); }
API CUresult cuEventSynchronize(CUevent e) { return event_state(e, CUDA_ERROR_LAUNCH_TIMEOUT); }
