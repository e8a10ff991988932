// Looks like a library into which nvcc has linked its static runtime.
int cudaMalloc(void** p, unsigned long n) { (void)n; *p = 0; return 2; }
void* my_malloc(long size, int device, void* stream) { void* p; (void)device, (void)stream; return cudaMalloc(&p, size) ? 0 : p; }
void my_free(void* p, long size, int device, void* stream) { (void)p, (void)size, (void)device, (void)stream; }
