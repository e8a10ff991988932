//go:build cuda

package cudadev

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// cudaError is a CUresult, as the driver's header numbers them.
type cudaError int

func (e cudaError) Error() string {
	if name, ok := errorNames[e]; ok {
		return fmt.Sprintf("CUDA_ERROR_%s (%d)", name, int(e))
	}
	return fmt.Sprintf("CUDA error %d", int(e))
}

var errorNames = map[cudaError]string{
	1: "INVALID_VALUE", 2: "OUT_OF_MEMORY", 3: "NOT_INITIALIZED", 4: "DEINITIALIZED", 46: "DEVICE_UNAVAILABLE", 100: "NO_DEVICE",
	101: "INVALID_DEVICE", 201: "INVALID_CONTEXT", 205: "MAP_FAILED", 206: "UNMAP_FAILED", 214: "ECC_UNCORRECTABLE",
	304: "OPERATING_SYSTEM", 400: "INVALID_HANDLE", 500: "NOT_FOUND", 600: "NOT_READY", 700: "ILLEGAL_ADDRESS",
	702: "LAUNCH_TIMEOUT", 709: "CONTEXT_IS_DESTROYED", 719: "LAUNCH_FAILED", 801: "NOT_SUPPORTED", 999: "UNKNOWN",
}

// codeOf finds the CUresult in an error of ours or of gorgonia.org/cu, whose type is an unexported int.
func codeOf(err error) (cudaError, bool) {
	for ; err != nil; err = errors.Unwrap(err) {
		if v := reflect.ValueOf(err); v.Kind() == reflect.Int {
			return cudaError(v.Int()), true
		}
	}
	return 0, false
}

// translate says an error of the driver in the terms of package device: the one place where that is decided.
func translate(what string, err error) error {
	if err == nil {
		return nil
	}
	c, ok := codeOf(err)
	if !ok {
		return fmt.Errorf("%s: %w: %w", what, err, device.ErrDriver)
	}
	as := device.ErrDriver
	switch c {
	case 2:
		as = device.ErrOutOfMemory
	case 1, 400, 500:
		as = device.ErrInvalid
	case 3, 4, 46, 100, 101, 201, 214, 304, 700, 702, 709, 719, 801:
		// The context or the card is of no further use, or never was.
		as = device.ErrEnvironment
	}
	return fmt.Errorf("%s: %w: %w", what, c, as)
}
