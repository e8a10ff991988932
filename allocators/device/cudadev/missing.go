//go:build !cuda

package cudadev

import (
	"context"
	"fmt"

	"github.com/shatter-gpu/shatter/allocators/device"
)

// Supported says why there is no GPU.
func Supported() error {
	return fmt.Errorf("this program was built without the tag cuda (make build-cuda): %w", device.ErrEnvironment)
}

// Device does not exist without the tag.
type Device struct {
	device.Device
	device.Bytes
	device.Foreigner
	device.CapacitySensor
}

// New refuses, with Supported's reason.
func New(Options) (*Device, error) { return nil, Supported() }

// Close does nothing.
func (d *Device) Close() error { return nil }

// Name is empty.
func (d *Device) Name() string { return "" }

// DriverInfo returns Supported's reason.
func (d *Device) DriverInfo() (free, total uint64, err error) { return 0, 0, Supported() }

// Holds is false.
func (d *Device) Holds() bool { return false }

// Latencies returns Supported's reason.
func (d *Device) Latencies(context.Context, []uint64, int) ([]Latency, error) {
	return nil, Supported()
}

// FreeMemory returns Supported's reason.
func FreeMemory(ordinal int) (uint64, error) { return 0, Supported() }
