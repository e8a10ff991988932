// The few functions of the CUDA runtime that the example allocators call. With a CUDA toolkit: #include <cuda_runtime_api.h>.
#include <stddef.h>
#include <sys/types.h>
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
int cudaMalloc(void**, size_t);
int cudaFree(void*);
int cudaEventCreateWithFlags(cudaEvent_t*, unsigned);
int cudaEventDestroy(cudaEvent_t);
int cudaEventRecord(cudaEvent_t, cudaStream_t);
int cudaEventQuery(cudaEvent_t);
int cudaEventSynchronize(cudaEvent_t);
