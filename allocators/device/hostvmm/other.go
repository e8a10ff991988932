//go:build !linux

package hostvmm

import (
	"fmt"
	"runtime"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Supported says why there are no host devices on this system: memory files and fixed mappings are Linux's.
func Supported() error {
	return fmt.Errorf("host devices need Linux (memfd and MAP_FIXED), this is %s: %w", runtime.GOOS, device.ErrEnvironment)
}

// Device does not exist on this system.
type Device struct{ device.Device }

// New refuses, with Supported's reason.
func New(Options) (*Device, error) { return nil, Supported() }

// Close does nothing.
func (d *Device) Close() error { return nil }
