// Stands in for NVIDIA's cuda.h; see cuda_runtime_api.h.
#pragma once
#include <cuda_runtime_api.h>
