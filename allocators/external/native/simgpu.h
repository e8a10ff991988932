// Control of the simulated GPU by the host (host.cpp); the libraries under test never see these functions.
#pragma once
#include <cstddef>
#include <cstdint>

extern "C" {
// Makes the device empty, with this many bytes of memory.
void shatter_gpu_start(uint64_t capacity);
// All work on a stream completes; on all streams if the number is negative.
void shatter_gpu_sync(int64_t stream);
// Others hold this many bytes from now on; 0 if they cannot get them.
int shatter_gpu_foreign(uint64_t bytes);
// Streams say that they are being captured, or not.
void shatter_gpu_capture(int on);
// The device calls since the last time, each with a space before it, in the words of the line protocol.
const char* shatter_gpu_calls(size_t* length);
// Called, with a sentence, when a function is used that is not simulated; must not return.
void shatter_gpu_on_fatal(void (*handler)(const char*));
}
