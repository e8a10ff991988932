//go:build cuda

package cudadev

/*
#cgo noescape shatter_granularity
#cgo nocallback shatter_granularity
#cgo noescape shatter_create
#cgo nocallback shatter_create
#cgo noescape cuMemAddressReserve
#cgo nocallback cuMemAddressReserve
#cgo nocallback cuMemAddressFree
#cgo nocallback cuMemMap
#cgo nocallback cuMemUnmap
#cgo nocallback cuMemRelease
#cgo nocallback shatter_access
#include <cuda.h>

// The structures are filled here, so that no Go memory holds pointers of C.
static CUmemAllocationProp shatter_prop(int dev) {
	CUmemAllocationProp p = {0};
	p.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	p.location.id = dev;
	return p;
}
static CUresult shatter_granularity(size_t *g, int dev) {
	CUmemAllocationProp p = shatter_prop(dev);
	return cuMemGetAllocationGranularity(g, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}
static CUresult shatter_create(CUmemGenericAllocationHandle *h, size_t n, int dev) {
	CUmemAllocationProp p = shatter_prop(dev);
	return cuMemCreate(h, n, &p, 0);
}
static CUresult shatter_access(CUdeviceptr a, size_t n, int dev) {
	CUmemAccessDesc d = {{CU_MEM_LOCATION_TYPE_DEVICE, dev}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	return cuMemSetAccess(a, n, &d, 1);
}
*/
import "C"

import (
	"gorgonia.org/cu"

	"github.com/shatter-gpu/shatter/allocators/device"
	_ "github.com/shatter-gpu/shatter/allocators/device/cudadev/cudrv" // the driver, opened at run time
)

// The calls of virtual memory management, which gorgonia.org/cu lacks. All need a context that is bound to the thread.

const attributeVMM = cu.DeviceAttribute(C.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)

func granularity(ordinal int) (uint64, error) {
	var g C.size_t
	err := code(C.shatter_granularity(&g, C.int(ordinal)))
	return uint64(g), err
}

func addressReserve(size uint64) (device.Addr, error) {
	var p C.CUdeviceptr
	err := code(C.cuMemAddressReserve(&p, C.size_t(size), Granule, 0, 0))
	return device.Addr(p), err
}

func addressFree(a device.Addr, size uint64) error {
	return code(C.cuMemAddressFree(C.CUdeviceptr(a), C.size_t(size)))
}

func memCreate(ordinal int, size uint64) (device.Handle, error) {
	var h C.CUmemGenericAllocationHandle
	err := code(C.shatter_create(&h, C.size_t(size), C.int(ordinal)))
	return device.Handle(h), err
}

func memRelease(h device.Handle) error {
	return code(C.cuMemRelease(C.CUmemGenericAllocationHandle(h)))
}

func memMap(a device.Addr, size uint64, h device.Handle) error {
	return code(C.cuMemMap(C.CUdeviceptr(a), C.size_t(size), 0, C.CUmemGenericAllocationHandle(h), 0))
}

func memSetAccess(ordinal int, a device.Addr, size uint64) error {
	return code(C.shatter_access(C.CUdeviceptr(a), C.size_t(size), C.int(ordinal)))
}

func memUnmap(a device.Addr, size uint64) error {
	return code(C.cuMemUnmap(C.CUdeviceptr(a), C.size_t(size)))
}

// code makes an error of a CUresult.
func code(r C.CUresult) error {
	if r == C.CUDA_SUCCESS {
		return nil
	}
	return cudaError(r)
}
