//go:build cuda

package cudrv

/*
#cgo LDFLAGS: -L${SRCDIR}/../link
#include <cuda.h>
int shatter_driver_state(void);
const char *shatter_driver_error(void);
*/
import "C"

import "fmt"

// State is nil if a driver is loaded and initialised; else it says what is missing.
func State() error {
	code := int(C.shatter_driver_state())
	switch why := C.GoString(C.shatter_driver_error()); {
	case code == 0:
		return nil
	case why != "":
		return fmt.Errorf("no NVIDIA driver: %s", why)
	default:
		return fmt.Errorf("the NVIDIA driver answers CUDA error %d (100: no device, 803: driver and kernel module differ)", code)
	}
}
