// Package cudadev is a real NVIDIA GPU, driven through gorgonia.org/cu and a binding of our own to the driver's virtual
// memory management. It is built with the tag `cuda`; without it New says so.
//
//   - The driver is looked for at run time (package cudrv), so a program built with the tag starts on any machine and says what
//     is missing. Building needs a C compiler and no toolkit: package include has the declarations.
//   - Sizes are counted in granules of 2 MiB against a limit, as on the simulated device, because what the driver reports as
//     free moves with other processes and with the driver's own needs. DriverInfo tells what the driver says.
//   - Work on a stream is a wait on a word of device memory (cuStreamWaitValue32) that the host lets go: an event stays
//     outstanding until its stream is synchronised or the event waited for, exactly as on the simulated device. A driver
//     without stream memory operations runs traces without `record` only; Record says so with device.ErrEnvironment.
//   - Every call binds the context to its thread first: contexts belong to operating-system threads, goroutines move.
package cudadev

import "github.com/shatter-gpu/shatter/allocators/device"

// Granule is what memory is counted in: 2 MiB.
const Granule = 2 << 20

// Options of a device.
type Options struct {
	// Ordinal is the number of the GPU, from 0.
	Ordinal int
	// Limit is how many bytes the device hands out at most, at least one granule; 0 means what is free when it is opened.
	Limit uint64
}

var _ interface {
	device.Device
	device.Bytes
	device.Foreigner
	device.CapacitySensor
} = (*Device)(nil)
